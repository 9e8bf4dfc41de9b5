"""The types of command-line arguments: instants, days, durations, numbers, regular expressions."""

import argparse
import re
from datetime import UTC, datetime

from pipeline.common.epoch import utc
from pipeline.config.value_types import duration_ms
from pipeline.report.model.selection import FINDING_ID

# 1973 in milliseconds. A smaller number was probably meant as seconds.
_SMALLEST_MS = 100_000_000_000
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def instant(text: str) -> datetime:
    """The instant that an argument names, in UTC: ISO 8601 with an offset, or epoch milliseconds.

    Raises:
        argparse.ArgumentTypeError: it is neither, has no offset, or is outside of the years 1973 to 9999.
    """
    try:
        if re.fullmatch(r"[0-9]+", text):
            if int(text) < _SMALLEST_MS:
                raise argparse.ArgumentTypeError("looks like seconds; epoch milliseconds have 13 digits")
            return utc(int(text))
        parsed = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            "not an instant; write 2026-01-31T12:05:00Z, 2026-01-31T13:05:00+01:00 or 1769861100000"
        ) from None
    if parsed.tzinfo is None:
        in_utc = f"{text}T00:00:00Z" if _DAY.fullmatch(text) else f"{text}Z"
        raise argparse.ArgumentTypeError(f"has no offset, so it could be any zone's; for UTC write {in_utc}")
    return parsed.astimezone(UTC)


def begin(text: str) -> datetime:
    """An `instant`, or the beginning of a UTC day."""
    return instant(f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text)


def end(text: str) -> datetime:
    """An `instant`, or the end of a UTC day."""
    return instant(f"{text}T23:59:59.999Z" if _DAY.fullmatch(text) else text)


def duration(text: str) -> int:
    """A duration in milliseconds, from an argument.

    Raises:
        argparse.ArgumentTypeError: it is not a duration.
    """
    try:
        return duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    """A number above 0, from an argument.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!a} is not a whole number from 1 to 999999999")
    return int(text)


def finding_id(text: str) -> str:
    """The first digits of a finding_id, from an argument.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    if not FINDING_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!a} is not a finding_id: 6 to 64 digits of 0-9 and a-f")
    return text


def regex(text: str) -> str:
    """A regular expression, from an argument.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!a} is not a valid regular expression: {error}") from None
    return text
