"""How bytes, durations and instants are written: three digits, a readable unit, and the error."""

from __future__ import annotations

from pipeline.common.epoch import utc

_BYTES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_TIMES = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_Units = tuple[tuple[str, int], ...]


def size(count: int, error: int | None = None) -> str:
    """Bytes in decimal units, with the error if there is one. If the error exceeds the value, only a bound is written.

    >>> size(1_234_567)
    '1.23 MB'
    >>> size(2_900_000, 100_000)
    '2.9 MB ± 0.1 MB'
    >>> size(287_000, 1_010_000)
    '< 1.3 MB'
    """
    return _with_error(count, error or 0, _BYTES, "B")


def duration(ms: int, error: int | None = None) -> str:
    """Milliseconds in larger units, with their error, in the same way as `size`.

    >>> duration(90_000)
    '1.5 min'
    >>> duration(0, 1_210)
    '< 1.3 s'
    """
    return _with_error(ms, error or 0, _TIMES, "ms")


def _with_error(value: int, error: int, units: _Units, least: str) -> str:
    if not error:
        return _scaled(value, units, least)
    if error > abs(value):
        bound = abs(value) + error
        name, factor = _unit(bound, units, least)
        shown = _rounded_up(bound, _last_digit(bound, bound, factor))
        return f"> \N{MINUS SIGN}{_digits(shown, factor)} {name}" if value < 0 else f"< {_digits(shown, factor)} {name}"
    name, factor = _unit(value, units, least)
    digit = _last_digit(value, error, factor)
    shown = (value + digit // 2) // digit * digit
    # The rounding of the value is added to the error, so that the written range still covers the true value.
    shown_error = _rounded_up(error + abs(value - shown), digit)
    in_its_unit = f"{_digits(shown_error, factor)} {name}" if 10 * shown_error >= factor else None
    text = f"{_digits(shown, factor)} {name} ± {in_its_unit or _scaled(shown_error, units, least)}"
    return text.replace("-", "\N{MINUS SIGN}")


def _last_digit(value: int, error: int, factor: int) -> int:
    """The unit of the last digit that is shown: the third digit, or the second if the third is within the error."""
    digit = max(factor // 100, 1)
    while abs(value) >= 1_000 * digit or (error >= 10 * digit and abs(value) >= 100 * digit):
        digit *= 10
    return digit


def _rounded_up(value: int, digit: int) -> int:
    return -(-value // digit) * digit


def _unit(value: int, units: _Units, least: str) -> tuple[str, int]:
    return next(((name, factor) for name, factor in units if abs(value) >= factor), (least, 1))


def _digits(value: int, factor: int) -> str:
    digits = f"{value / factor:,.2f}"
    return digits.rstrip("0").rstrip(".")


def _scaled(value: int, units: _Units, least: str) -> str:
    name, factor = _unit(value, units, least)
    text = f"{value:,} {name}" if factor == 1 else f"{_three_digits(value / factor)} {name}"
    return text.replace("-", "\N{MINUS SIGN}")


def _three_digits(value: float) -> str:
    digits = f"{value:,.2f}" if abs(value) < 9.995 else f"{value:,.1f}" if abs(value) < 99.95 else f"{value:,.0f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def instant(epoch_ms: int) -> str:
    """An instant in UTC, without the zone: 2026-01-31 12:00:05."""
    return f"{utc(epoch_ms):%Y-%m-%d %H:%M:%S}"


def at(epoch_ms: int) -> str:
    """An instant in a sentence: 2026-01-31 12:00:05 UTC."""
    return f"{instant(epoch_ms)} UTC"


def clock(epoch_ms: int, today_ms: int) -> str:
    """An instant in UTC, to the minute: the time of day if it is on the same day as `today_ms`, else with the date.

    >>> clock(1_772_366_459_000, 1_772_366_400_000)
    '12:00'
    >>> clock(1_772_366_459_000 + 86_400_000, 1_772_366_400_000)
    '2026-03-02 12:00'
    """
    at_, today = utc(epoch_ms), utc(today_ms)
    return f"{at_:%H:%M}" if at_.date() == today.date() else f"{at_:%Y-%m-%d %H:%M}"
