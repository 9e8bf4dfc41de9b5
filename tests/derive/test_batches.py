"""The lag job: which snapshots it computes, in which order, and at what cost; and how it handles a recreated topic."""

import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.workload.seeding import commit_offsets
from pipeline.common.epoch import utc_date
from pipeline.common.errors import LakeError
from pipeline.config import Config
from pipeline.derive import batches as derive
from pipeline.derive import compute_cluster, compute_lag
from pipeline.lake import Lake, lake_tables, of_cluster, of_snapshots
from pipeline.snapshot import take_snapshots
from pipeline.tables import (
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    COMPUTED,
    GROUP_MEMBERS,
    LAG,
    LAG_HISTOGRAMS,
    SNAPSHOTS,
    WATERMARKS,
    Table,
)
from tests.helpers.kafka import wait_for
from tests.helpers.quiet import config
from tests.helpers.rows import literal_rows
from tests.helpers.stored import store, stored

DEAD = "127.0.0.1:1"
T0 = datetime(2026, 1, 31, 23, 58, tzinfo=UTC)
MINUTE_MS = 60_000
# Across midnight, so in two date partitions.
FIRST_MS = 1_769_903_880_000
IDS = [FIRST_MS + number * MINUTE_MS for number in range(6)]


def now() -> datetime:
    return T0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lag-job")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, folder: Path, few_rows: None) -> Lake:
    lake = Lake(spark, config(folder, "any", {"any": DEAD}).lake)
    lake.prepare()
    return lake


def land(
    lake: Lake, cluster: str, snapshots: dict[int, tuple[str, int | None]], rows: dict[str, int] | None = None
) -> None:
    """Writes snapshots as a run does: instant → its status, and the offset that its only group has committed.

    `rows` is the number of rows of each table, as the ledger has it.
    """
    ids = list(snapshots)
    commits = [(cluster, i, utc_date(i), "g", "t", 0, o) for i, (_, o) in snapshots.items() if o is not None]
    ends = [(cluster, i, utc_date(i), "t", 0, "id-1", 0, 9, 9, 9) for i, (_, o) in snapshots.items() if o is not None]
    columns = "cluster snapshot_id snapshot_date"
    store(
        lake,
        COMMITTED_OFFSETS,
        literal_rows(f"{columns} group_id topic partition committed_offset", *commits),
        of_snapshots(cluster, ids),
    )
    rungs = "log_start_offset last_stable_offset high_watermark log_end_offset"
    store(
        lake, WATERMARKS, literal_rows(f"{columns} topic partition topic_id {rungs}", *ends), of_snapshots(cluster, ids)
    )
    ledger = [ledger_row(cluster, i, status, rows) for i, (status, _) in snapshots.items()]
    lake.merge(SNAPSHOTS, ledger, cluster, "true")


def ledger_row(cluster: str, snapshot_id: int, status: str, rows: dict[str, int] | None) -> tuple[Any, ...]:
    given = {
        "cluster": cluster,
        "snapshot_id": snapshot_id,
        "snapshot_date": utc_date(snapshot_id),
        "run_id": f"run-{snapshot_id}",
        "status": status,
        "started_at": T0,
        "rows": rows,
    }
    return tuple(given.get(name) for name in SNAPSHOTS.columns)


def lags(lake: Lake, cluster: str) -> list[tuple[int, int]]:
    return sorted((row.snapshot_id, row.consumer_lag) for row in stored(lake, LAG, of_cluster(cluster)))


def marks(lake: Lake, cluster: str) -> list[tuple[int, str]]:
    rows = stored(lake, COMPUTED, f"{of_cluster(cluster)} AND job = 'lag'")
    return sorted((row.snapshot_id, row.run_id) for row in rows)


def commits(folder: Path) -> Sequence[int]:
    return [len(list((folder / "lake" / t.name / "_delta_log").glob("*.json"))) for t in (LAG, COMPUTED)]


def rows_added(folder: Path, table: Table) -> list[int]:
    """How many rows each commit to a table has added."""
    log = sorted((folder / "lake" / table.name / "_delta_log").glob("*.json"))
    actions = [[json.loads(line) for line in commit.read_text().splitlines()] for commit in log]
    return [sum(json.loads(a["add"]["stats"])["numRecords"] for a in commit if "add" in a) for commit in actions]


# --- what is computed


def test_only_readable_snapshots_are_computed_and_each_once(lake: Lake, folder: Path) -> None:
    statuses = ("complete", "partial", "failed", "running")
    land(lake, "statuses", {i: (status, 4) for i, status in zip(IDS, statuses, strict=False)})
    assert compute_cluster(lake, "statuses", now) == 2
    assert lags(lake, "statuses") == [(IDS[0], 5), (IDS[1], 5)]
    assert marks(lake, "statuses") == [(i, f"run-{i}") for i in IDS[:2]]
    before = commits(folder)
    assert compute_cluster(lake, "statuses", now) == 0
    assert commits(folder) == before


def test_late_snapshots_are_computed_without_computing_others_again(lake: Lake, folder: Path) -> None:
    land(lake, "late", {IDS[1]: ("complete", 1), IDS[3]: ("complete", 3)})
    assert compute_cluster(lake, "late", now) == 2
    land(lake, "late", {IDS[2]: ("complete", 2), IDS[0]: ("complete", 0), IDS[4]: ("complete", 4)})
    assert compute_cluster(lake, "late", now) == 3
    assert lags(lake, "late") == [(i, 9 - offset) for offset, i in enumerate(IDS[:5])]
    assert [i for i, _ in marks(lake, "late")] == IDS[:5]
    # The first, the one in the middle, the last: a batch ends before a computed snapshot.
    assert rows_added(folder, LAG)[-3:] == [1, 1, 1]


def test_empty_snapshots_are_marked(lake: Lake) -> None:
    land(lake, "empty", {IDS[0]: ("complete", None), IDS[1]: ("complete", None)})
    assert compute_cluster(lake, "empty", now) == 2
    assert lags(lake, "empty") == []
    assert [i for i, _ in marks(lake, "empty")] == IDS[:2]
    assert compute_cluster(lake, "empty", now) == 0


@pytest.mark.thorough
def test_many_snapshots_are_computed_in_batches(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive, "BATCH", 2)
    land(lake, "batches", dict.fromkeys(IDS[:5], ("complete", 7)))
    assert compute_cluster(lake, "batches", now) == 5
    assert lags(lake, "batches") == [(i, 2) for i in IDS[:5]]


@pytest.mark.thorough
def test_a_snapshot_whose_bronze_rows_are_gone_keeps_its_derived_rows(lake: Lake) -> None:
    """Each of four snapshots loses its rows in another table."""
    cluster, ids, last = "lost", IDS[:4], IDS[4]
    lost = dict(zip(ids, (COMMITTED_OFFSETS, WATERMARKS, GROUP_MEMBERS, CLIENT_POSITIONS), strict=True))
    rows = {table.name: 1 for table in lost.values()}
    land(lake, cluster, dict.fromkeys(ids, ("complete", 4)), rows)
    columns = "cluster snapshot_id snapshot_date"
    of_each = [(cluster, i, utc_date(i)) for i in ids]
    members = literal_rows(f"{columns} group_id member_id", *((*of, "g", "m") for of in of_each))
    store(lake, GROUP_MEMBERS, members, of_snapshots(cluster, ids))
    reported = literal_rows(f"{columns} endpoint error", *((*of, "e", "down") for of in of_each))
    store(lake, CLIENT_POSITIONS, reported, of_snapshots(cluster, ids))

    def later() -> datetime:
        return T0 + timedelta(days=2)

    def windows() -> list[Any]:
        """What is counted in hours and days: the first day has two of the snapshots, its last hour the same."""
        where = f"cluster = '{cluster}' AND window_ms > 0 AND scope = 'group' AND measure = 'consumer_lag'"
        return sorted(tuple(row) for row in stored(lake, LAG_HISTOGRAMS, where, "window_start", "window_ms", "count"))

    assert compute_cluster(lake, cluster, later) == 4
    before = windows()
    assert [count for *_, count in before] == [2, 2, 2, 2]
    # Because of retention, or of a store that is not atomic; the marks are gone, too.
    for snapshot_id, table in lost.items():
        for emptied in (table, COMPUTED):
            lake.delete(emptied, of_snapshots(cluster, [snapshot_id]))
    land(lake, cluster, {last: ("complete", 4)}, {"committed_offsets": 1, "watermarks": 1})
    assert compute_cluster(lake, cluster, later) == 1
    assert compute_cluster(lake, cluster, later) == 0
    assert lags(lake, cluster) == [(i, 5) for i in (*ids, last)]
    assert errors(lake, cluster) == {
        i: [("lag", f"some of the rows in {table.name} are gone")] for i, table in lost.items()
    }
    # The new snapshot is in the second day and its first hour.
    assert [count for *_, count in windows()] == [2, 2, 3, 3]


def test_a_snapshot_with_an_impossible_number_does_not_stop_the_others(lake: Lake) -> None:
    land(lake, "odd", dict.fromkeys(IDS[:4], ("complete", 4)) | {IDS[1]: ("partial", 1 - 2**63)})
    assert compute_cluster(lake, "odd", now) == 3
    assert lags(lake, "odd") == [(i, 5) for i in IDS[:4] if i != IDS[1]]
    assert [i for i, _ in marks(lake, "odd")] == [i for i in IDS[:4] if i != IDS[1]]
    assert compute_cluster(lake, "odd", now) == 0
    ((snapshot_id, ((what, error),)),) = errors(lake, "odd").items()
    assert (snapshot_id, what) == (IDS[1], "lag")
    assert error.startswith("Out of Range Error: Overflow in subtraction of INT64")


@pytest.mark.thorough
def test_workers_of_spark_pass_over_an_impossible_number_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake, "odd and large", {IDS[0]: ("complete", 1 - 2**63)})
    monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
    assert compute_cluster(Lake(lake.spark, lake._config), "odd and large", now) == 0
    monkeypatch.undo()
    assert lags(lake, "odd and large") == []
    ((snapshot_id, ((what, error),)),) = errors(lake, "odd and large").items()
    assert (snapshot_id, what) == (IDS[0], "lag")
    assert "Out of Range Error: Overflow in subtraction of INT64" in error
    assert "Traceback" not in error


def errors(lake: Lake, cluster: str) -> dict[int, list[tuple[str, str]]]:
    """The errors in the ledger."""
    rows = stored(lake, SNAPSHOTS, of_cluster(cluster))
    return {row.snapshot_id: [(one["what"], one["error"]) for one in row.errors] for row in rows if row.errors}


def test_a_cluster_whose_lag_cannot_be_computed_does_not_stop_the_others(
    spark: SparkSession,
    lake: Lake,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clusters = ["broken", "odd-one", "whole"]
    settings = config(folder, "any", dict.fromkeys(clusters, DEAD))
    for cluster in clusters:
        land(lake, cluster, {IDS[0]: ("complete", 1)})
    original = derive.compute_cluster

    def failing(lake: Lake, cluster: str, clock: Callable[[], datetime], *more: Any) -> int:
        if cluster == "broken":  # a failing task: an exception that py4j passes on unchanged
            spark.range(1).select(F.expr("java_method('java.lang.Long', 'parseLong', 'x')")).collect()
        if cluster == "odd-one":  # a bug in laglake itself
            raise KeyError("what nobody foresaw")
        return original(lake, cluster, clock, *more)

    caplog.set_level(logging.DEBUG, "pipeline")
    monkeypatch.setattr(derive, "compute_cluster", failing)
    why = r"^lag cannot be computed: broken: .*Job aborted.*; odd-one: unexpected KeyError: 'what nobody foresaw'"
    with pytest.raises(LakeError, match=why):
        compute_lag(spark, settings, clusters, now)
    assert any(record.exc_info for record in caplog.records if record.getMessage() == "odd-one: unexpected")
    assert lags(lake, "whole") == [(IDS[0], 8)]


# --- a topic that was deleted and created again, on a real broker


def test_a_commit_in_a_recreated_topic_is_reported_until_the_group_commits_again(
    spark: SparkSession, lake: Lake, folder: Path, kafka: EmbeddedKafka
) -> None:
    topic, group = "phoenix-orders", "phoenix-group"
    settings = config(folder, "phoenix", {"phoenix": kafka.bootstrap_servers})
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, {topic: 1})
        commit_offsets(admin, group, {(topic, 0): 5})
        snap(spark, settings, 0)
        recreate(admin, topic)
        # Kafka forgets the commits of a deleted topic; a consumer that keeps running commits its position again.
        wait_for(lambda: admin.list_group_offsets([group]) == {group: {}})
        commit_offsets(admin, group, {(topic, 0): 5})
        snap(spark, settings, 1)
        assert compute_lag(spark, settings, ["phoenix"], now) == 2
        snap(spark, settings, 2)
        commit_offsets(admin, group, {(topic, 0): 0})
        snap(spark, settings, 3)
        assert compute_lag(spark, settings, ["phoenix"], now) == 2
    rows = sorted(stored(lake, LAG, of_cluster("phoenix")), key=lambda row: row.snapshot_id)
    assert [(r["committed_offset"], r["offset_status"]) for r in rows] == [
        (5, "beyond_end"),
        (5, "recreated"),
        (5, "recreated"),
        (0, "ok"),
    ]
    old, new = rows[0]["topic_id"], rows[3]["topic_id"]
    assert old != new
    assert [r["topic_id"] for r in rows] == [old, new, new, new]
    assert [r["committed_topic_id"] for r in rows] == [old, old, old, new]


def snap(spark: SparkSession, settings: Config, minutes: int) -> None:
    (outcome,) = take_snapshots(spark, settings, ["phoenix"], None, lambda: T0 + timedelta(minutes=minutes))
    assert outcome.status == "complete", outcome


def recreate(admin: Any, topic: str) -> None:
    admin.delete_topics([topic])
    wait_for(lambda: topic not in admin.list_topics())
    create_topics(admin, {topic: 1})
