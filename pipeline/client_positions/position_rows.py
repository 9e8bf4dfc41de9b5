"""Makes the rows of clients' positions: a row for each position, and one for each error."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, LongType

from pipeline.client_positions.key_properties import LONGEST_NAME
from pipeline.client_positions.position import FUTURE_MS, SIGNED, TEXTS, TOO_LARGE, Position, refused
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import now_ms, utc
from pipeline.common.words import counted
from pipeline.tables import CLIENT_POSITIONS

POSITIONS = CLIENT_POSITIONS.observed
"""A row for each Position, and one with an error for each endpoint, file or line that could not be read."""

_ARROW = arrow_schema(POSITIONS)
_MS = pa.timestamp("ms", "UTC")
UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
_NUMBERS = tuple(f.name for f in POSITIONS if isinstance(f.dataType, (IntegerType, LongType)))
_NOTHING = Position(client_id=cast(str, None))
"""The values of a row that has only an error."""
MOST_ERRORS = 100
"""The most errors of one endpoint or file that have a row each; the others are only counted."""


class Rows:
    """The rows of one endpoint or file, by columns."""

    def __init__(self, source: str, location: str) -> None:
        self._source, self._location = source, location
        self._positions: list[Position] = []
        self._reported_ms: list[int] = []
        self._as_of_ms: list[int | None] = []
        self._errors: list[str | None] = []
        self._refused = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a position nor an error."""
        return not self._positions

    @property
    def newest_ms(self) -> int | None:
        """The newest instant, epoch ms, that a value was true at; None if there is no value."""
        return max((as_of_ms for as_of_ms in self._as_of_ms if as_of_ms is not None), default=None)

    def add(self, at_ms: int, positions: list[Position]) -> None:
        """Adds positions that were reported at that time. Those whose own time is wrong become one error."""
        latest_ms = now_ms() + FUTURE_MS
        given, positions = positions, [p for p in positions if p.as_of_ms is None or 0 < p.as_of_ms <= latest_ms]
        if wrong := len(given) - len(positions):
            self.refuse(at_ms, f"the times of {counted(wrong, 'value')} are before 1970 or in the future")
        self._positions += positions
        self._reported_ms += [at_ms] * len(positions)
        self._as_of_ms += [at_ms if p.as_of_ms is None else p.as_of_ms for p in positions]
        self._errors += [None] * len(positions)

    def refuse(self, at_ms: int, error: str) -> None:
        """Adds a row with an error; only the first MOST_ERRORS have a row each."""
        self._refused += 1
        if self._refused > MOST_ERRORS:
            return
        self._positions.append(_NOTHING)
        self._reported_ms.append(at_ms)
        self._as_of_ms.append(None)
        self._errors.append(one_line(error))

    def add_rest(self) -> None:
        """Adds a row with the number of errors that have no row of their own."""
        if self._refused > MOST_ERRORS:
            rest, self._refused = self._refused - MOST_ERRORS, 0
            self.refuse(now_ms(), f"and {rest} more")

    def refuse_what_is_unfit(self) -> None:
        """Replaces positions that the table cannot store by errors that say why."""
        for i, position in enumerate(self._positions):
            error = None if self._errors[i] else refused(position)
            if error:
                self._positions[i], self._as_of_ms[i], self._errors[i] = _NOTHING, None, error

    def batch(self) -> pa.RecordBatch:
        """The rows as an Arrow batch. Raises one of UNFIT if the table cannot store a row."""
        count = len(self._positions)
        columns = dict(zip(Position._fields, zip(*self._positions, strict=True), strict=True)) if count else {}
        arrays = {
            "captured_at": pa.array(self._reported_ms, _MS),
            "as_of": pa.array(self._as_of_ms, _MS),
            "source": pa.array([self._source] * count),
            "endpoint": pa.array([self._location] * count),
            "error": self._errors,
        }
        made = (arrays.get(f.name, columns.get(f.name, ())) for f in _ARROW)
        batch = pa.record_batch(
            [
                values.cast(f.type) if isinstance(values, pa.Array) else pa.array(values, f.type)
                for f, values in zip(_ARROW, made, strict=True)
            ],
            schema=_ARROW,
        )
        for name in _NUMBERS:
            least, most = (number or 0 for number in pc.min_max(batch[name]).as_py().values())
            if not (-TOO_LARGE if name in SIGNED else -1) < least <= most < TOO_LARGE:
                raise ValueError(name)
        for name in TEXTS:
            if (pc.max(pc.utf8_length(batch[name])).as_py() or 0) > LONGEST_NAME:
                raise ValueError(name)
        return batch


def row_of(position: Position, at_ms: int) -> dict[str, object]:
    """The columns of POSITIONS for a position that was reported at `at_ms`."""
    values = position._asdict()
    as_of_ms = values.pop("as_of_ms")
    return values | {"captured_at": utc(at_ms), "as_of": utc(at_ms if as_of_ms is None else as_of_ms)}


def one_line(text: str) -> str:
    """The text of an error in one line, as a row may have it."""
    return plain(" ".join(text.split())[:500])


def plain(text: str) -> str:
    """A text that a table can store; the name of a file may not be UTF-8."""
    return text.encode(errors="replace").decode()
