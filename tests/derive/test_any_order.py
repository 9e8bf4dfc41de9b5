"""In whatever order snapshots come, and whatever happens to the jobs that compute their lag, the rows are the same."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.common.epoch import MINUTE_MS, utc_date
from pipeline.config import LakeConfig
from pipeline.derive import batches as derive
from pipeline.derive import compute_cluster, steps
from pipeline.derive import log_index as index
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import (
    COMMITTED_OFFSETS,
    COMPUTED,
    FORECASTS,
    GROUP_STATUS,
    LAG,
    LAG_HISTOGRAMS,
    LOG_INDEX,
    PARTITION_STATUS,
    SNAPSHOTS,
    WATERMARKS,
)
from tests.derive.test_two_lag_jobs import IDS, RUNGS, T0, once
from tests.helpers.rows import literal_rows
from tests.helpers.stored import store, stored

MOST_LATE = 3
UNREAD, BYTES, MS = 150, 1_500, 149 * 600
"""How far the group is always behind. Records have ten bytes, and one is written every 600 ms."""
STEPS = st.one_of(
    st.just("land"),
    st.just("compute"),
    st.sampled_from(["check_bronze", "partition_status", "lag_histograms"]).map(lambda at: ("overtaken", at)),
    st.just("again"),
    st.integers(1, 6).map(lambda n: ("killed", n)),
)


class KilledError(Exception):
    """Stands for the end of the process at this point."""


def land(lake: Lake, snapshot_id: int, minute: int) -> None:
    """Writes a snapshot that was read in a given minute, whatever its scheduled instant."""
    read_at, end = T0 + timedelta(minutes=minute), 100 * minute
    named = ("c", snapshot_id, utc_date(snapshot_id))
    newest_ms = int(read_at.timestamp() * 1000)
    columns = "cluster snapshot_id snapshot_date"
    commit = (*named, "g", "t", 0, end - UNREAD, read_at)
    seen = (*named, "t", 0, "A", 1, 0, end, end, end, newest_ms, end - 1, 10 * end, 0, read_at)
    for table, names, row in (
        (COMMITTED_OFFSETS, "group_id topic partition committed_offset captured_at", commit),
        (WATERMARKS, f"topic partition topic_id leader {RUNGS} log_bytes log_bytes_error captured_at", seen),
    ):
        store(lake, table, literal_rows(f"{columns} {names}", row), of_snapshots("c", [snapshot_id]))
    known = {"cluster": "c", "snapshot_id": snapshot_id, "snapshot_date": named[2], "run_id": "r"}
    known |= {"status": "complete", "started_at": T0, "rows": {"committed_offsets": 1, "watermarks": 1}}
    lake.merge(SNAPSHOTS, [tuple(known.get(name) for name in SNAPSHOTS.columns)], "c")


def clock() -> datetime:
    return T0 + timedelta(hours=3)


def compute(lake: Lake) -> None:
    compute_cluster(lake, "c", clock)


def killed(lake: Lake, commits: int) -> None:
    """A job whose process ends before one of its commits."""
    left = [None] * commits

    def may_write() -> None:
        if not left:
            raise KilledError
        left.pop()

    with suppress(KilledError):
        compute(lake.guarded(may_write))


def names(step: steps.Step) -> list[str]:
    return [table.name for table in step.writes]


def overtaken(lake: Lake, at: str) -> None:
    """A job that another job overtakes when it has found out what is due, or before it writes a table."""
    with pytest.MonkeyPatch.context() as patch:
        other = partial(compute, lake)
        if at == "check_bronze":
            patch.setattr(derive, at, once(other, getattr(derive, at)))
        before = (s._replace(run=once(other, s.run)) if at in names(s) else s for s in steps.STEPS)
        patch.setattr(steps, "STEPS", tuple(before))
        compute(lake)


def again(lake: Lake, landed: Sequence[int]) -> None:
    """Computes snapshots a second time, as if their marks had been lost."""
    lake.delete(COMPUTED, of_snapshots("c", landed[::2]))
    compute(lake)


def through(lake: Lake) -> int:
    return max((row.through_snapshot_id for row in stored(lake, LOG_INDEX)), default=0)


def check(lake: Lake, landed: Sequence[int]) -> None:
    """Each snapshot has one row of each kind, which is right within its stated error, and no ruler had to restart."""
    rows = stored(lake, LAG)
    assert Counter(row.snapshot_id for row in rows) == Counter(landed)
    third = sorted(row.captured_at for row in rows)[2:3]
    for row in rows:
        assert row.consumer_lag == UNREAD
        assert row.consumer_lag_bytes is None or abs(row.consumer_lag_bytes - BYTES) <= row.bytes_error
        assert row.consumer_lag_ms is None or abs(row.consumer_lag_ms - MS) <= row.time_error_ms
        if third and row.captured_at >= third[0]:
            # The snapshots before it show where the unread records are, however late they were.
            assert row.bytes_error is not None, row
            assert row.bytes_error <= BYTES
            assert row.time_error_ms <= 2 * MINUTE_MS
    for table in (PARTITION_STATUS, GROUP_STATUS):
        judged = stored(lake, table)
        assert Counter(row.snapshot_id for row in judged) == Counter(landed)
        assert {row.status for row in judged} <= {"ok", "unknown"}  # unknown while it has just been seen first
    forecasts = Counter((row.snapshot_id, row.topic) for row in stored(lake, FORECASTS))
    assert forecasts == Counter((snapshot_id, topic) for snapshot_id in landed for topic in ("t", None))
    marks = stored(lake, COMPUTED)
    assert Counter(mark.snapshot_id for mark in marks) == Counter(landed)
    counted = stored(lake, LAG_HISTOGRAMS, "window_ms = 0 AND measure = 'consumer_lag' AND scope = 'cluster'")
    assert (len(counted), sum(row["count"] for row in counted)) == (len(landed), len(landed))
    assert sum(row["sum"] for row in counted) == UNREAD * len(landed)
    assert {row.restarts for row in stored(lake, LOG_INDEX)} <= {0}


@pytest.mark.lengthy
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=6, max_size=14), late=st.lists(st.integers(0, MOST_LATE), min_size=8, max_size=8))
def test_rows_do_not_depend_on_the_order_or_number_of_jobs(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, steps: list[Any], late: list[int]
) -> None:
    lake = Lake(spark, LakeConfig(root=str(tmp_path_factory.mktemp("any") / "lake")))
    waiting = [i for _, i in sorted(zip((n + by for n, by in enumerate(late)), IDS, strict=True))]
    landed: list[int] = []
    actions: dict[str, Callable[[], None]] = {
        "land": lambda: land(lake, landed[-1], 2 + len(landed)),
        "compute": lambda: compute(lake),
        "again": lambda: again(lake, landed),
    }
    interrupted: dict[str, Callable[[Lake, Any], None]] = {"killed": killed, "overtaken": overtaken}
    with pytest.MonkeyPatch.context() as patch, for_few_rows(spark):
        patch.setattr(index, "WRITTEN_EVERY", 2)
        lake.prepare()
        newest = 0
        for step in ["land", *steps]:
            if step == "land":
                if not waiting:
                    continue
                landed.append(waiting.pop(0))
            if isinstance(step, tuple):
                interrupted[step[0]](lake, step[1])
            else:
                actions[step]()
            newest, before = through(lake), newest
            assert newest >= before
        compute(lake)
        check(lake, landed)
