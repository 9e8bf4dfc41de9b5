"""How bytes and durations are written: three digits, and a unit that people read."""

from __future__ import annotations

from collections.abc import Callable

_BYTES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_TIMES = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def size(count: int) -> str:
    """Bytes, decimal.

    >>> size(1_234_567)
    '1.23 MB'
    """
    return _scaled(count, _BYTES, "B")


def duration(ms: int) -> str:
    """Milliseconds.

    >>> duration(90_000)
    '1.5 min'
    """
    return _scaled(ms, _TIMES, "ms")


def with_error(value: int, error: int | None, told: Callable[[int], str]) -> str:
    """A value by `size` or `duration`, and its stated error if there is any."""
    return f"{told(value)} ± {told(error)}" if error else told(value)


def _scaled(value: int, units: tuple[tuple[str, int], ...], least: str) -> str:
    for name, factor in units:
        if abs(value) >= factor:
            return f"{_three_digits(value / factor)} {name}".replace("-", "\N{MINUS SIGN}")
    return f"{value:,} {least}".replace("-", "\N{MINUS SIGN}")


def _three_digits(value: float) -> str:
    digits = f"{value:,.2f}" if abs(value) < 9.995 else f"{value:,.1f}" if abs(value) < 99.95 else f"{value:,.0f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
