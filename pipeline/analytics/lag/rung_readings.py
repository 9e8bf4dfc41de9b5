"""The positions and times of the rungs, for lag in bytes and time: from the partition's ruler or its log files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pipeline.analytics.log_index.ruler_lookup import READING, readings_at
from pipeline.analytics.log_index.ruler_storage import Flags, Longs, Rulers
from pipeline.common.arrow_sql import ArrowQueries, columns_sql

SHARED_RUNGS = {"log_start": "log_start", "high_watermark": "log_high_watermark", "log_end": "log_end"}
READER_RUNGS = {"committed": "valid_offset", "consumed": "consumed_offset", "fetched": "fetched_offset"}
"""The rungs of a partition (SHARED_RUNGS), and those of one reader: name → column."""
MOVED_RUNGS = {"earlier": "earlier_rung", "end": "end_rung"}
"""The earlier commit and the high watermark that were read with a commit. They are looked up on the ruler only if they
differ from the other rungs, so never on a quiet cluster."""
_NOT_ASKED = -1


def with_readings(rows: pa.Table, partitions: pa.Table, queries: ArrowQueries, *, has_files: bool) -> pa.Table:
    """Adds the READING of every rung to rows of readers: columns `<rung>_<name of the value>`.

    `partitions` have `ruler` and the rungs of SHARED_RUNGS. The `number` of a row is that of its partition, NULL if it
    has no watermarks. If `has_files`, exact values in the table `located` replace those of the ruler; what the
    ruler says of the end of the log stays, as end_on_ruler.
    """
    of_row = rows["number"].fill_null(_NOT_ASKED).to_numpy()
    own_numbers = np.arange(len(partitions))
    asked = {f"shared_{name}": (own_numbers, partitions[column]) for name, column in SHARED_RUNGS.items()}
    asked |= {name: (of_row, rows[column]) for name, column in (READER_RUNGS | MOVED_RUNGS).items()}
    number, on_ruler, at = _looked_up(partitions["ruler"], asked)
    surest = _in_files(queries, at, on_ruler) if has_files else on_ruler

    shared = {name: np.append(number[f"shared_{name}"], _NOT_ASKED)[of_row] for name in SHARED_RUNGS}
    log_start = np.where(_flags(rows, "has_log_start"), shared["log_start"], _NOT_ASKED)
    end = np.where(number["end"] != _NOT_ASKED, number["end"], shared["high_watermark"])
    rungs = {
        "log_start": log_start,
        "high_watermark": end,
        "log_end": shared["log_end"],
        **{name: number[name] for name in READER_RUNGS},
        "unread": np.where(_flags(rows, "is_unread_deleted"), log_start, number["committed"]),
        "earlier_readable": np.where(_flags(rows, "is_earlier_deleted"), log_start, number["earlier"]),
        "kip532": np.where(number["fetched"] != _NOT_ASKED, number["fetched"], number["committed"]),
    }
    columns = {name: rows[name] for name in rows.column_names}
    for rung, numbers in rungs.items():
        columns |= {f"{rung}_{name}": values for name, values in _taken(surest, numbers).items()}
    columns |= {f"end_on_ruler_{name}": values for name, values in _taken(on_ruler, end).items()}
    return pa.Table.from_pydict(columns)


def _looked_up(
    rulers: pa.ChunkedArray, asked: Mapping[str, tuple[Longs, pa.ChunkedArray]]
) -> tuple[dict[str, Longs], pa.RecordBatch, pa.Table]:
    """For each rung, the numbers of its READINGs; all READINGs; and what was asked: `number` of the ruler, `offset`.

    A rung is given with the number of the ruler and the offset of each row. If one of them is not known, the number of
    its READING is _NOT_ASKED.
    """
    where = np.concatenate([numbers for numbers, _ in asked.values()])
    offsets = pa.concat_arrays([column.combine_chunks() for _, column in asked.values()])
    is_asked = offsets.is_valid().to_numpy(zero_copy_only=False) & (where != _NOT_ASKED)
    reading_numbers = np.where(is_asked, np.cumsum(is_asked) - 1, _NOT_ASKED)
    ends = np.cumsum([len(numbers) for numbers, _ in asked.values()])
    numbers = dict(zip(asked, np.split(reading_numbers, ends[:-1]), strict=True))
    at = offsets.fill_null(0).to_numpy()[is_asked]
    readings = readings_at(Rulers(rulers.combine_chunks()), where[is_asked], at)
    return numbers, readings, pa.Table.from_pydict({"number": where[is_asked], "offset": at})


def _flags(rows: pa.Table, name: str) -> Flags:
    return np.asarray(rows[name])


def _taken(readings: pa.RecordBatch | pa.Table, numbers: Longs) -> dict[str, pa.Array]:
    """The values of the readings with these numbers."""
    is_asked = numbers != _NOT_ASKED
    if not is_asked.any():
        return {field.name: pa.nulls(len(numbers), field.type) for field in readings.schema}
    at = pa.array(numbers, mask=~is_asked)
    return {name: readings[name].take(at) for name in READING.names}


def _in_files(queries: ArrowQueries, at: pa.Table, on_ruler: pa.RecordBatch) -> pa.Table:
    """The readings, with the exact ones in place of the ruler's where the files have the offset."""
    is_end = 'asked."offset" = located.log_end_offset'
    # KIP-532 counts from the newest timestamp of the active segment.
    newest_ms = f"CASE WHEN {is_end} THEN located.newest_timestamp_ms ELSE before.timestamp_ms END"
    exact = dict.fromkeys(READING.names, "0") | {
        "position_bytes": "located.position_bytes",
        "timestamp_ms": f"coalesce(located.timestamp_ms, {newest_ms})",
        "newest_before_ms": newest_ms,
        "is_arrival": "false",
        "is_local": "true",
        "is_exact": "true",
    }
    surest = {
        name: f"CASE WHEN located.number IS NOT NULL THEN {value} ELSE asked.{name} END"
        for name, value in exact.items()
    }
    asked = at.append_column("nth", pa.array(np.arange(len(at))))
    for name in READING.names:
        asked = asked.append_column(name, on_ruler[name])
    queries.add(asked=asked)
    return queries.rows(f"""
        SELECT {columns_sql(surest)}
        FROM asked
        LEFT JOIN located USING (number, "offset")
        LEFT JOIN located AS before ON before.number = asked.number AND before."offset" = asked."offset" - 1
        ORDER BY nth
    """)
