"""One exception for a value that fits no type, whichever library meets it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from pipeline.common.errors import BadValueError, first_line


@contextmanager
def bad_values() -> Iterator[None]:
    """Turns the errors of Python, numpy and pyarrow about a value that fits no type into BadValueError."""
    try:
        yield
    except (struct.error, ArithmeticError, UnicodeError, pa.ArrowInvalid) as exc:
        raise BadValueError(f"{type(exc).__name__}: {first_line(exc)}") from exc
