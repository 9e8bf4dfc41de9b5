"""The generated day as rows of tables, of some of its snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.day import GROUPS, KEPT_S, LOSSES, MIDNIGHT_MS, OUTAGE, PARTITIONS, READ_BY, Day, topic_of
from pipeline.common.epoch import DAY_MS, MINUTE_MS, utc_date
from pipeline.tables import COMMITTED_OFFSETS, LAG, WATERMARKS, Table

CLUSTER = "day"
EPOCH = 3
"""The leader epoch of all logs."""


def id_of(minute: int) -> int:
    return MIDNIGHT_MS + minute * MINUTE_MS


def rows_of(day: Day, minutes: range) -> dict[Table, pd.DataFrame]:
    """The rows of `lag`, `watermarks` and `committed_offsets` for some minutes."""
    readers = GROUPS * PARTITIONS
    count = len(minutes)
    minute = np.repeat(np.array(minutes), readers)
    reader = np.tile(np.arange(readers), count)
    flat = {name: getattr(day, name)[minutes.start : minutes.stop].ravel() for name in ("committed", "end", "start")}
    ages = day.age_ms[minutes.start : minutes.stop].ravel()
    is_out = (minute >= OUTAGE.begins) & (minute < OUTAGE.ends) & (reader % PARTITIONS == 1)
    at = pd.to_datetime(id_of(0) + minute * MINUTE_MS + 59_999, unit="ms", utc=True)
    epochs = pd.arrays.IntegerArray(np.full(len(reader), EPOCH), ~day.has_epoch[minutes.start : minutes.stop].ravel())
    members = day.has_members[minute, reader // PARTITIONS]
    status = np.where(flat["committed"] < flat["start"], "deleted_unread", "ok").astype(object)
    known = _of_partitions(minute, reader, at)
    lag = known.assign(
        committed_captured_at=at,
        verified_epoch=epochs,
        group_id=[f"g{group:02}" for group in reader // PARTITIONS],
        group_state=np.where(members, "Stable", "Empty"),
        committed_offset=flat["committed"],
        log_start_offset=_unless(is_out, flat["start"]),
        high_watermark=_unless(is_out, flat["end"]),
        consumer_lag=_unless(is_out, flat["end"] - flat["committed"]),
        consumer_lag_stable=_unless(is_out, flat["end"] - flat["committed"]),
        consumer_age_ms=_unless(is_out, ages),
        offset_status=np.where(is_out, "no_watermark", status),
        error=np.where(is_out, "REQUEST_TIMED_OUT", np.array(None, dtype=object)),
    )
    kept = np.where(reader // PARTITIONS == LOSSES[0].group, KEPT_S * 1_000, 7 * DAY_MS)
    commits = lag.filter([*known.columns, "group_id", "committed_offset"]).assign(leader_epoch=epochs)
    return {
        LAG: lag,
        WATERMARKS: known.assign(cleanup_policy="delete", retention_ms=kept)[
            ~np.isin(reader // PARTITIONS, [*READ_BY])
        ],
        COMMITTED_OFFSETS: commits.drop(columns="topic_id"),
    }


def _of_partitions(minute: Any, reader: Any, at: pd.DatetimeIndex) -> pd.DataFrame:
    """The columns that all three tables have."""
    return pd.DataFrame(
        {
            "cluster": CLUSTER,
            "snapshot_id": id_of(0) + minute * MINUTE_MS,
            "snapshot_date": [utc_date(id_of(number)) for number in minute.tolist()],
            "captured_at": at,
            "topic": [f"t{topic_of(group):02}" for group in reader // PARTITIONS],
            "partition": reader % PARTITIONS,
            "topic_id": "A",
        }
    )


def _unless(is_out: Any, values: Any) -> Any:
    """The values, NULL for readers that cannot be read."""
    return pd.array(values, dtype="Int64").copy() if not is_out.any() else pd.arrays.IntegerArray(values, is_out)
