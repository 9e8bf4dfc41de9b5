"""Two jobs that compute the lag of one cluster at once: one reads, and the other writes meanwhile."""

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.common.epoch import utc_date
from pipeline.common.rows import Rows
from pipeline.config import LakeConfig
from pipeline.derive import batches, compute_cluster, histograms
from pipeline.derive import log_index as index
from pipeline.derive.backlog import Backlog, Snapshot
from pipeline.lake import Lake, lake_tables, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import COMMITTED_OFFSETS, COMPUTED, LAG, LAG_HISTOGRAMS, LOG_INDEX, SNAPSHOTS, WATERMARKS
from tests.helpers.batches import NO_READERS, batch_of
from tests.helpers.rows import literal_rows
from tests.helpers.stored import store, stored

T0 = datetime(2026, 1, 31, 12, tzinfo=UTC)
FIRST_MS = 1_769_860_800_000
IDS = [FIRST_MS + 60_000 * number for number in range(8)]
RUNGS = "log_start_offset last_stable_offset high_watermark log_end_offset max_timestamp_ms max_timestamp_offset"
RESULTS = ["snapshot_id", "consumer_lag", "consumer_lag_bytes", "consumer_lag_ms", "bytes_error", "time_error_ms"]
pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("few_rows")]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(index, "WRITTEN_EVERY", 2)
    lake = Lake(spark, LakeConfig(root=str(tmp_path / "lake")))
    lake.prepare()
    return lake


def land(lake: Lake, ids: list[int]) -> None:
    """Writes snapshots of a log that gets a hundred records of ten bytes each minute; its group is 150 behind."""
    columns = "cluster snapshot_id snapshot_date"
    of_all = [("c", i, utc_date(i), *at(i)) for i in ids]
    commits = [(*named, "g", "t", 0, end - 150, captured_at) for *named, captured_at, end in of_all]
    ends = [
        (
            *named,
            "t",
            0,
            "A",
            1,
            0,
            end,
            end,
            end,
            int(captured_at.timestamp() * 1000),
            end - 1,
            10 * end,
            0,
            captured_at,
        )
        for *named, captured_at, end in of_all
    ]
    for table, names, rows in (
        (COMMITTED_OFFSETS, "group_id topic partition committed_offset captured_at", commits),
        (WATERMARKS, f"topic partition topic_id leader {RUNGS} log_bytes log_bytes_error captured_at", ends),
    ):
        store(lake, table, literal_rows(f"{columns} {names}", *rows), of_snapshots("c", ids))
    given = [{"cluster": "c", "snapshot_id": i, "snapshot_date": utc_date(i), "run_id": "r"} for i in ids]
    ledger = [
        tuple((row | {"status": "complete", "started_at": T0}).get(n) for n in SNAPSHOTS.columns) for row in given
    ]
    lake.merge(SNAPSHOTS, ledger, "c")


def at(snapshot_id: int) -> tuple[datetime, int]:
    """When a snapshot was read, and where its log ended then."""
    minutes = 2 + (snapshot_id - FIRST_MS) // 60_000
    return T0 + timedelta(minutes=minutes), 100 * minutes


def results(lake: Lake) -> list[Any]:
    return sorted(tuple(row) for row in stored(lake, LAG, "true", *RESULTS))


def through(lake: Lake) -> int:
    return max(row.through_snapshot_id for row in stored(lake, LOG_INDEX))


def counts_of_hours(lake: Lake) -> list[int]:
    """How many values of consumer_lag the group has in each hour."""
    hours = "window_ms = 3600000 AND scope = 'group' AND measure = 'consumer_lag'"
    return [row["count"] for row in stored(lake, LAG_HISTOGRAMS, hours)]


def once(action: Callable[[], Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """`then`, but the action is run before its first call."""
    actions = [action]

    def both(*args: Any, **options: Any) -> Any:
        while actions:
            actions.pop()()
        return then(*args, **options)

    return both


def test_a_job_starts_again_if_another_has_written_the_index_meanwhile(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pipeline")
    land(lake, IDS[:3])
    assert compute_cluster(lake, "c", lambda: T0) == 3
    assert through(lake) == IDS[2]
    land(lake, IDS[3:6])

    def other() -> None:
        assert compute_cluster(lake, "c", lambda: T0) == 3
        land(lake, IDS[6:])

    # It has determined what is due, and now reads bronze.
    monkeypatch.setattr(batches, "check_bronze", once(other, batches.check_bronze))
    assert compute_cluster(lake, "c", lambda: T0) == 2
    assert "another job has written the log index meanwhile" in caplog.text
    assert through(lake) == IDS[7]
    found = results(lake)
    assert [row[:3] for row in found] == [(i, 150, 1_500) for i in IDS]
    # The newest of 150 unread records was written 149 × 600 ms after the first; the earliest snapshots cannot know it.
    assert {row[3] for row in found[2:]} == {149 * 600}


def test_a_newer_index_is_not_replaced_by_an_older_one(lake: Lake) -> None:
    land(lake, IDS[:4])
    behind = index.Index.of(lake, "c", [], IDS[:3], through=None)
    assert compute_cluster(lake, "c", lambda: T0) == 4
    behind.keep(behind.watermarks(IDS[:3]))
    assert through(lake) == IDS[3]


def test_an_index_written_while_rows_are_computed_is_not_replaced(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are computed before the commit starts."""
    land(lake, IDS[:4])
    behind = index.Index.of(lake, "c", [], IDS[:3], through=None)
    monkeypatch.setattr(Lake, "_replace", once(lambda: compute_cluster(lake, "c", lambda: T0), Lake._replace))
    with for_few_rows(lake.spark):
        behind.keep(behind.watermarks(IDS[:3]))
    assert through(lake) == IDS[3]


def test_an_index_written_just_before_sparks_commit_is_not_replaced(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an object store: the rows that are written are read in the same transaction, and reading them fails."""
    with for_few_rows(lake.spark):
        remote = Lake(lake.spark, lake._config)
        vars(remote)["_driver"] = None
        land(lake, IDS[:4])
        behind = index.Index.of(remote, "c", [], IDS[:3], through=None)
        check = index.Index._check_unchanged

        def then_overtaken(found: index.Index) -> None:
            check(found)
            other()

        other = once(lambda: compute_cluster(lake, "c", lambda: T0), lambda: None)
        monkeypatch.setattr(index.Index, "_check_unchanged", then_overtaken)
        behind.keep(behind.watermarks(IDS[:3]))
        assert through(remote) == IDS[3]


def test_an_hour_has_the_snapshots_of_both_jobs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job has read the snapshots of an hour when the other adds to them, and writes the hour after it."""
    land(lake, IDS[:3])
    assert compute_cluster(lake, "c", lambda: T0) == 3
    land(lake, IDS[3:5])
    ended = T0 + timedelta(hours=2)

    def other() -> None:
        land(lake, IDS[5:])
        assert compute_cluster(lake, "c", lambda: ended) == 5

    monkeypatch.setattr(histograms, "histograms_of_windows", once(other, histograms.histograms_of_windows))
    assert compute_cluster(lake, "c", lambda: ended) == 2
    # A look at minute 2, 3, ... of the hour, so all eight are in the one from 12:00.
    assert counts_of_hours(lake) == [len(IDS)]


def keep_histograms_of(remote: Lake, snapshot_id: int) -> None:
    snapshot = Snapshot(snapshot_id, "r", "complete", commits=1, ends=1, members=0, positions=0, rows=2, groups=1)
    backlog = Backlog([snapshot], [], index.Index(remote, "c", (), None), has_more=False)
    lag = Rows(remote.spark.table(remote.identifier(LAG)).where(of_snapshots("c", [snapshot_id])))
    batch = batch_of(remote, "c", backlog, T0 + timedelta(hours=2))
    histograms.keep_histograms(batch, replace(NO_READERS, lag=lag))


def test_an_hour_that_spark_writes_has_the_snapshots_of_both_jobs(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One job is computing an hour, in its transaction, when the other adds a snapshot and writes the hour."""
    caplog.set_level(logging.INFO, "pipeline")
    monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)  # as on an object store
    rows = [("c", i, utc_date(i), "g", "t", 0, 1, 7) for i in IDS[:2]]
    names = "cluster snapshot_id snapshot_date group_id topic partition leader consumer_lag"
    store(lake, LAG, literal_rows(names, *rows), of_snapshots("c", IDS[:2]))
    remote = Lake(lake.spark, lake._config)
    is_computing, may_go_on = tmp_path / "is_computing", tmp_path / "may_go_on"

    keep = partial(keep_histograms_of, remote)

    def wait_on_a_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            is_computing.touch()
            wait_for(may_go_on)
            yield batch

    def held_up(*args: Any) -> Rows:
        monkeypatch.setattr(histograms, "histograms_of_windows", compute)
        found = compute(*args).rows
        assert isinstance(found, DataFrame)
        return Rows(found.coalesce(1).mapInArrow(wait_on_a_worker, found.schema))

    def other() -> None:
        wait_for(is_computing)
        keep(IDS[1])
        may_go_on.touch()

    compute = histograms.histograms_of_windows
    monkeypatch.setattr(histograms, "histograms_of_windows", held_up)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(other)
        keep(IDS[0])
        done.result()
    assert "another writer was first, trying again" in caplog.text
    assert counts_of_hours(remote) == [2]


def wait_for(file: Path) -> None:
    """Returns when the file exists; fails after a minute."""
    until = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < until, f"{file.name} was not written"
        time.sleep(0.05)


def test_an_absurd_commit_only_has_the_status_beyond_end(lake: Lake) -> None:
    """Anyone who may commit can commit any number."""
    land(lake, IDS[:3])
    columns = "cluster snapshot_id snapshot_date group_id topic partition committed_offset captured_at"
    absurd = [("c", i, utc_date(i), "h", "t", 0, 2**63 - 1, at(i)[0]) for i in IDS[:3]]
    store(lake, COMMITTED_OFFSETS, literal_rows(columns, *absurd), "group_id = 'h'")
    assert compute_cluster(lake, "c", lambda: T0) == 3
    found = sorted(stored(lake, LAG, "group_id = 'h'"), key=lambda row: row.snapshot_id)
    ends = [at(i)[1] for i in IDS[:3]]
    assert [row["consumer_lag"] for row in found] == [end - (2**63 - 1) for end in ends]
    assert {row["offset_status"] for row in found} == {"beyond_end"}
    assert {(row["consumer_lag_bytes"], row["consumer_lag_ms"]) for row in found} == {(None, None)}


def test_a_late_snapshot_in_a_batch_with_a_new_one_uses_the_index(lake: Lake) -> None:
    land(lake, [IDS[0], IDS[2], IDS[3]])
    compute_cluster(lake, "c", lambda: T0)
    land(lake, [IDS[1], IDS[4]])
    lake.delete(COMPUTED, "true")
    assert compute_cluster(lake, "c", lambda: T0) == 5
    assert [row[:3] for row in results(lake)] == [(i, 150, 1_500) for i in IDS[:5]]
