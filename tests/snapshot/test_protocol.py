"""docs/snapshot-protocol.md, sentence by sentence, on a real broker. test_kill.py tests what a killed run leaves.

All tests share one lake and one quiet topic; each has its own cluster name, and so its own ledger rows.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import snapshot as snapshot_job
from pipeline.common.epoch import utc_date
from pipeline.common.errors import ClaimedError, ConfigError, LakeError
from pipeline.config import LakeConfig, load_config
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.ledger import Claim, Ledger
from pipeline.snapshot import SnapshotOutcome, snapshot_instant, take_snapshots
from pipeline.snapshot import take as snapshot
from pipeline.snapshot.summary import Landed
from pipeline.tables import BRONZE, COMMITTED_OFFSETS, GROUP_MEMBERS, SNAPSHOTS, TABLES, WATERMARKS, Table
from tests.conftest import ConnectServer
from tests.helpers import killed_job
from tests.helpers.killed_job import Run
from tests.helpers.quiet import config, seed, write_config

PREFIX = "protocol"
DEAD = "127.0.0.1:1"
T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
T0_MS = 1_769_860_800_000
MAX_DURATION_S = 1800
pytestmark = pytest.mark.timeout(600)

Take = Callable[..., dict[str, SnapshotOutcome]]


def clock(seconds: float = 0.0) -> Callable[[], datetime]:
    return lambda: T0 + timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def servers(kafka: EmbeddedKafka) -> str:
    seed(kafka, PREFIX)
    return kafka.bootstrap_servers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("protocol")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, folder: Path) -> Lake:
    lake = Lake(spark, config(folder, PREFIX, {"any": DEAD}).lake)
    lake.prepare()
    return lake


@pytest.fixture
def take(spark: SparkSession, lake: Lake, folder: Path) -> Take:
    """Takes snapshots of clusters (name → bootstrap servers) some seconds after T0; returns the outcome of each."""

    def take(clusters: Mapping[str, str], seconds: float = 0.0) -> dict[str, SnapshotOutcome]:
        settings = config(folder, PREFIX, clusters)
        return {o.cluster: o for o in take_snapshots(spark, settings, list(clusters), None, clock(seconds))}

    return take


def ledger_rows(lake: Lake, cluster: str) -> list[dict[str, Any]]:
    rows = lake.read(SNAPSHOTS).where(F.col("cluster") == cluster).orderBy("snapshot_id").collect()
    return [row.asDict(recursive=True) for row in rows]


def bronze_rows(row: Any) -> dict[str, int]:
    """The ledger's numbers of rows in the tables that each snapshot writes; look-ups by time depend on earlier runs."""
    return {table: count for table, count in row["rows"].items() if table in ALL_ROWS}


def landed(lake: Lake, cluster: str) -> dict[str, int]:
    return {t.name: lake.read(t).where(F.col("cluster") == cluster).count() for t in BRONZE}


def commits(folder: Path) -> dict[str, int]:
    return {t.name: len(list((folder / "lake" / t.name / "_delta_log").glob("*.json"))) for t in TABLES}


ALL_ROWS = {"committed_offsets": 3, "group_members": 2, "watermarks": 2}


# --- which instant


@pytest.mark.parametrize(
    ("schedule", "at", "expected"),
    [
        pytest.param("1m", T0 + timedelta(seconds=59.999), T0_MS, id="just before the next"),
        pytest.param("1m", T0 + timedelta(seconds=60), T0_MS + 60_000, id="on the minute"),
        pytest.param("1s", T0 + timedelta(seconds=1.5), T0_MS + 1_000, id="seconds"),
        pytest.param("1ms", T0 + timedelta(microseconds=1_001_999), T0_MS + 1_001, id="no rounding up"),
        pytest.param("1ms", datetime(2026, 1, 31, 12, 0, 0, 1_000, UTC), T0_MS + 1, id="no float in between"),
    ],
)
def test_an_instant_is_floored_to_the_schedule(tmp_path: Path, schedule: str, at: datetime, expected: int) -> None:
    settings = config(tmp_path, PREFIX, {"east": DEAD}, snapshot=f'schedule = "{schedule}"')
    assert snapshot_instant(at, at, settings) == expected


@pytest.mark.parametrize(
    ("seconds", "refusal"),
    [
        pytest.param(0.001, "lies in the future", id="a millisecond ahead"),
        pytest.param(0, None, id="now"),
        pytest.param(-600, None, id="as old as may be"),
        pytest.param(-600.001, "is older than snapshot.max_delay", id="a millisecond too old"),
    ],
)
def test_the_future_and_the_past_are_refused(tmp_path: Path, seconds: float, refusal: str | None) -> None:
    settings = config(tmp_path, PREFIX, {"east": DEAD}, snapshot='max_delay = "10m"')
    at = T0 + timedelta(seconds=seconds)
    if refusal is None:
        assert snapshot_instant(at, T0, settings) <= T0_MS
    else:
        with pytest.raises(ConfigError, match=refusal):
            snapshot_instant(at, T0, settings)


def test_the_job_refuses_a_future_instant_in_one_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_config(tmp_path, PREFIX, {"east": DEAD})
    assert snapshot_job.main(["--config", str(file), "--at", "2099-01-01T00:00:00Z"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("--at 2099-01-01T00:00:00+00:00: lies in the future")
    assert not (tmp_path / "lake").exists()


# --- one run


def test_a_first_run_makes_the_lake_and_a_second_of_the_same_instant_adds_nothing(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    settings = config(tmp_path, PREFIX, {"east": servers}, snapshot='schedule = "1m"')
    (first,) = take_snapshots(spark, settings, ["east"], None, clock())
    assert (first.status, first.message) == ("complete", "2 groups, 2 partitions, 3 commits")
    lake = Lake(spark, settings.lake)
    (row,), before = ledger_rows(lake, "east"), commits(tmp_path)
    (again,) = take_snapshots(spark, settings, ["east"], None, clock(59))
    assert (again.status, again.message) == ("skipped", f"run {row['run_id']} has taken it: complete")
    assert (row["snapshot_id"], row["schedule_ms"]) == (T0_MS, 60_000)
    assert (bronze_rows(row), row["groups"], row["partitions"]) == (ALL_ROWS, 2, 2)
    assert landed(lake, "east") == ALL_ROWS
    assert ledger_rows(lake, "east") == [row]
    assert commits(tmp_path) | {"snapshots": 0} == before | {"snapshots": 0}  # its MERGE is a commit without rows


def test_a_cluster_without_groups_is_complete_and_empty(
    spark: SparkSession, lake: Lake, servers: str, folder: Path
) -> None:
    settings = config(folder, "no-such-name", {"nobody": servers})
    (outcome,) = take_snapshots(spark, settings, ["nobody"], None, clock())
    assert (outcome.status, outcome.message) == ("complete", "0 groups, 0 partitions, 0 commits")
    assert landed(lake, "nobody") == dict.fromkeys(ALL_ROWS, 0)


# --- takeover


def test_a_failed_snapshot_may_be_taken_over_at_once(take: Take, lake: Lake, servers: str) -> None:
    failed = take({"failing": DEAD})["failing"]
    assert failed.status == "failed"
    assert "127.0.0.1:1 cannot be reached: connection refused" in failed.message
    (row,) = ledger_rows(lake, "failing")
    assert (row["status"], row["errors"][0]["what"]) == ("failed", "cluster")
    assert row["errors"][0]["error"] == "127.0.0.1:1 cannot be reached: connection refused"
    assert take({"failing": servers})["failing"].status == "complete"
    (row,) = ledger_rows(lake, "failing")
    assert (row["status"], row["errors"]) == ("complete", [])


def test_a_claim_is_left_alone_until_it_is_older_than_max_duration(lake: Lake, folder: Path) -> None:
    settings = config(folder, PREFIX, {"stale": DEAD}).snapshot

    def claim(run: str, seconds: float) -> bool:
        now = clock(seconds)
        return Ledger(lake, settings, now).claim(Claim("stale", T0_MS, run, now())).is_takeover

    assert not claim("first", 0)
    for seconds in (1, MAX_DURATION_S):
        with pytest.raises(ClaimedError, match=r"^run first has been taking it since 2026-01-31 12:00:00 UTC$"):
            claim("second", seconds)
    assert claim("third", MAX_DURATION_S + 0.001)
    (row,) = ledger_rows(lake, "stale")
    assert row["run_id"] == "third"


@pytest.mark.parametrize(("seconds", "may_write"), [(MAX_DURATION_S - 0.001, True), (MAX_DURATION_S, False)])
def test_a_run_writes_only_while_nobody_may_take_its_claim_over(
    lake: Lake, folder: Path, seconds: float, may_write: bool
) -> None:
    settings = config(folder, PREFIX, {"slow": DEAD}).snapshot
    ledger = Ledger(lake, settings, clock(seconds))
    claim = Claim("slow", T0_MS, "slow", T0)
    if may_write:
        ledger.check(claim)
    else:
        with pytest.raises(LakeError, match=r"took longer than snapshot\.max_duration"):
            ledger.check(claim)


def test_a_run_that_outlived_its_claim_lands_nothing_and_says_so(
    spark: SparkSession, lake: Lake, servers: str, folder: Path
) -> None:
    ticks = iter([0, 0])  # for the instant and the claim; after that, time has passed
    settings = config(folder, PREFIX, {"outlived": servers})

    def now() -> datetime:
        return T0 + timedelta(seconds=next(ticks, 2 * MAX_DURATION_S))

    (outcome,) = take_snapshots(spark, settings, ["outlived"], None, now)
    assert outcome.status == "failed"
    assert "took longer than snapshot.max_duration (1800000 ms)" in outcome.message
    assert landed(lake, "outlived") == dict.fromkeys(ALL_ROWS, 0)


def test_a_run_that_was_overtaken_leaves_the_winners_ledger_row_alone(
    take: Take, lake: Lake, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = snapshot._land_table
    winner: dict[str, SnapshotOutcome] = {}

    def overtaken(*args: Any) -> None:
        monkeypatch.setattr(snapshot, "_land_table", original)
        lake.spark.sql(  # as if it were old; the clock of the overtaken run stands still, so it continues to write
            f"UPDATE {lake.identifier(SNAPSHOTS)} SET started_at = TIMESTAMP'2026-01-31 11:00:00 UTC' "
            "WHERE cluster = 'overtaken'"
        )
        winner.update(take({"overtaken": servers}))
        original(*args)

    monkeypatch.setattr(snapshot, "_land_table", overtaken)
    loser = take({"overtaken": servers})["overtaken"]
    assert winner["overtaken"].status == "complete"
    assert (loser.status, loser.message) == ("skipped", "another run took the claim over meanwhile")
    (row,) = ledger_rows(lake, "overtaken")
    assert (row["status"], row["started_at"].astimezone(UTC)) == ("complete", T0)
    assert landed(lake, "overtaken") == ALL_ROWS


def staged_over(monkeypatch: pytest.MonkeyPatch, kind: str, share: str = "TRUE") -> None:
    """Lets another run replace staged rows of this one: those of `kind` that satisfy `share`."""
    original = Lake.stage

    def stage(self: Lake, name: str, rows: Any) -> Any:
        if not name.startswith(f"{kind}_"):
            return original(self, name, rows)
        original(self, name, rows)
        run = F.when(F.expr(share), "other").otherwise(F.col("run_id"))
        return original(self, name, rows.withColumn("run_id", run))

    monkeypatch.setattr(Lake, "stage", stage)


@pytest.mark.parametrize("share", ["TRUE", "kind = 'watermarks'"])
def test_a_run_does_not_take_the_rows_that_another_staged_in_its_place_for_none(
    take: Take, lake: Lake, servers: str, monkeypatch: pytest.MonkeyPatch, share: str
) -> None:
    staged_over(monkeypatch, "kafka", share)
    name = f"staged-over-{len(share)}"
    outcome = take({name: servers})[name]
    refused = f"cluster {name}: another run has staged its rows where this one had: "
    assert (outcome.status, outcome.message) == (
        "failed",
        refused + "does another run take snapshots of this cluster?",
    )
    assert landed(lake, name) == dict.fromkeys(ALL_ROWS, 0)


def test_rows_that_another_run_stages_while_these_are_landed_fail_the_snapshot(
    spark: SparkSession, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a catalog, each query reads what is staged at that time, so another run's rows would make it empty."""
    spark.sql("CREATE SCHEMA spark_catalog.restaged")
    settings = config(tmp_path, PREFIX, {"restaged": servers})
    settings = settings.model_copy(update={"lake": LakeConfig(catalog="spark_catalog", schema="restaged")})
    original = snapshot._land_table
    others: list[SnapshotOutcome] = []

    def late(*args: Any) -> None:
        monkeypatch.setattr(snapshot, "_land_table", original)
        others.extend(take_snapshots(spark, settings, ["restaged"], None, clock(snapshot.STAGES)))
        original(*args)

    monkeypatch.setattr(snapshot, "_land_table", late)
    try:
        (outcome,) = take_snapshots(spark, settings, ["restaged"], None, clock())
        lake = Lake(spark, settings.lake)
        assert [other.status for other in others] == ["complete"]
        assert (outcome.status, outcome.message) == ("failed", f"cluster restaged: {snapshot.STAGED_OVER}")
        assert landed(lake, "restaged") == ALL_ROWS  # the other run's
    finally:
        spark.sql("DROP SCHEMA spark_catalog.restaged CASCADE")


def test_what_an_executor_with_a_clock_that_is_ahead_has_read_was_read_now(
    take: Take, lake: Lake, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Lake.stage

    def stage(self: Lake, name: str, rows: Any) -> Any:
        later = {column: F.expr(f"{column} + INTERVAL 3 DAYS") for column in ("captured_at", "ends_at")}
        return original(self, name, rows.withColumns(later))

    monkeypatch.setattr(Lake, "stage", stage)
    before = datetime.now(UTC)
    outcome = take({"ahead": servers})["ahead"]
    assert outcome.status == "complete"
    (row,) = ledger_rows(lake, "ahead")
    ends = lake.read(WATERMARKS).where("cluster = 'ahead'").collect()
    members = lake.read(GROUP_MEMBERS).where("cluster = 'ahead'").collect()
    commits = lake.read(COMMITTED_OFFSETS).where("cluster = 'ahead'").collect()
    assert row["warnings"] == {"captured_in_future": len(ends) + len(commits) + len(members)}
    read_at = [r["captured_at"] for r in (*ends, *commits, *members)] + [r["ends_at"] for r in commits]
    assert all(before <= at.astimezone(UTC) <= datetime.now(UTC) for at in read_at)


def test_positions_that_another_run_staged_are_told_and_cost_no_other_table(
    spark: SparkSession, lake: Lake, servers: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stats.jsonl").write_text("{}\n")
    places = f"[[clusters.watched.positions]]\nsource = 'librdkafka_statistics'\npaths = ['{tmp_path}/stats.jsonl']\n"
    path = write_config(tmp_path, PREFIX, {"watched": servers}, client=places)
    settings = load_config(path, {}).model_copy(update={"lake": config(folder, PREFIX, {"any": DEAD}).lake})
    staged_over(monkeypatch, "positions")
    (outcome,) = take_snapshots(spark, settings, ["watched"], None, clock())
    assert outcome.status == "partial"
    assert "client_positions: another run has staged its rows where this one had" in outcome.message
    assert landed(lake, "watched") == ALL_ROWS


def slow_rows(spark: SparkSession, group: str, sleep_ms: int) -> Any:
    """One committed offset of the cluster `late-write`, which takes a while to be written."""
    nap = F.expr(f"java_method('java.lang.Thread', 'sleep', CAST(id + {sleep_ms} AS BIGINT))")
    row = (
        spark.range(1)
        .withColumn("nap", nap)
        .withColumns(
            {"cluster": F.lit("late-write"), "snapshot_id": F.lit(T0_MS), "snapshot_date": F.lit(utc_date(T0_MS))}
        )
    )
    return filled(row.withColumn("group_id", F.concat(F.lit(group), F.substring("nap", 1, 0))), COMMITTED_OFFSETS)


def test_a_write_that_the_new_owner_overtook_is_not_tried_again(lake: Lake, spark: SparkSession) -> None:
    where = of_snapshots("late-write", [T0_MS])
    asked: list[int] = []
    started = threading.Event()

    def may_write() -> None:
        asked.append(1)
        if len(asked) > 1:
            raise LakeError("lost the claim")
        started.set()

    with ThreadPoolExecutor(1) as pool:
        late = slow_rows(spark, "old owner", 5_000)
        old = pool.submit(lake.guarded(may_write).replace, COMMITTED_OFFSETS, late, where)
        assert started.wait(30)
        lake.replace(COMMITTED_OFFSETS, slow_rows(spark, "new owner", 0), where)
        with pytest.raises(LakeError, match="lost the claim"):
            old.result(60)
    assert [r["group_id"] for r in lake.read(COMMITTED_OFFSETS).where(where).collect()] == ["new owner"]


def filled(rows: Any, table: Table) -> Any:
    present = set(rows.columns)
    return rows.select(*(F.col(c) if c in present else F.lit(None).alias(c) for c in table.columns))


# --- two at once


def test_of_several_claims_at_once_one_wins(lake: Lake, folder: Path) -> None:
    settings = config(folder, PREFIX, {"race": DEAD}).snapshot
    at_once = threading.Barrier(4)

    def claim(number: int) -> str | None:
        at_once.wait(30)
        try:
            Ledger(lake, settings, clock()).claim(Claim("race", T0_MS, f"run-{number}", T0))
        except ClaimedError as exc:
            return str(exc)
        return None

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(claim, range(4)))
    (row,) = ledger_rows(lake, "race")
    assert [number for number, answer in enumerate(answers) if answer is None] == [int(row["run_id"][-1])]
    others = {answer for answer in answers if answer is not None}
    assert others == {f"run {row['run_id']} has been taking it since 2026-01-31 12:00:00 UTC"}


def test_of_two_processes_at_once_one_takes_the_snapshot_and_the_other_says_who_has_it(
    connect_server: ConnectServer, lake: Lake, servers: str, folder: Path
) -> None:
    run = Run(str(write_config(folder, PREFIX, {"processes": servers})), ["processes"], T0.isoformat())
    process = killed_job.start([run, run], folder / "processes", connect_server.client_env())
    assert killed_job.results(process) == [0, 0]
    outcomes = [json.loads(log.read_text())[0] for log in (folder / "processes").glob("run-*.log")]
    (row,) = ledger_rows(lake, "processes")
    assert {o["status"]: o["message"].partition(" is")[0].partition(" has")[0] for o in outcomes} == {
        "complete": "2 groups, 2 partitions, 3 commits",
        "skipped": f"run {row['run_id']}",
    }
    assert landed(lake, "processes") == bronze_rows(row) == ALL_ROWS


def test_two_instants_of_one_cluster_at_once_lose_nothing(take: Take, lake: Lake, servers: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(take, {"overlap": servers}, seconds) for seconds in (0, 1)]
        assert [run.result(200)["overlap"].status for run in runs] == ["complete", "complete"]
    rows = ledger_rows(lake, "overlap")
    assert [(r["snapshot_id"], bronze_rows(r)) for r in rows] == [(T0_MS, ALL_ROWS), (T0_MS + 1000, ALL_ROWS)]
    assert landed(lake, "overlap") == {table: 2 * count for table, count in ALL_ROWS.items()}


def test_several_clusters_at_once_never_meet(
    take: Take, lake: Lake, servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"side-{number}" for number in range(3)]
    with caplog.at_level(logging.INFO, logger="pipeline"):
        outcomes = take(dict.fromkeys(names, servers))
    assert {name: outcome.status for name, outcome in outcomes.items()} == dict.fromkeys(names, "complete")
    assert {name: bronze_rows(ledger_rows(lake, name)[0]) for name in names} == dict.fromkeys(names, ALL_ROWS)
    assert "another writer" not in caplog.text


# --- several clusters, some of them down


def test_neither_a_dead_cluster_nor_a_failing_one_blocks_another_and_the_exit_status_says_how_strict_to_be(
    spark: SparkSession,
    lake: Lake,
    servers: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    original = snapshot.land

    def land(lake: Lake, claim: Claim, *more: Any) -> Landed:
        if claim.cluster == "broken":  # a failing task, with an exception that py4j passes on unchanged
            lake.spark.range(1).select(F.expr("java_method('java.lang.Long', 'parseLong', 'x')")).collect()
        if claim.cluster == "odd":  # a bug in laglake itself
            raise KeyError("what nobody\nforesaw")
        return original(lake, claim, *more)

    monkeypatch.setattr(snapshot, "land", land)
    clusters = {"broken": servers, "odd": servers, "alive": servers, "dead": DEAD}
    file = write_config(folder, PREFIX, clusters, snapshot='schedule = "1h"')
    job = ["--config", str(file), "--at", datetime.now(UTC).isoformat()]
    assert snapshot_job.main([*job, "--verbose"]) == 0
    assert any(record.exc_info for record in caplog.records if "odd" in record.getMessage())
    statuses = {cluster: [row["status"] for row in ledger_rows(lake, cluster)] for cluster in clusters}
    assert statuses == {"broken": ["failed"], "odd": ["failed"], "alive": ["complete"], "dead": ["failed"]}
    reasons = {cluster: ledger_rows(lake, cluster)[0]["errors"][0]["error"] for cluster in ("broken", "odd")}
    assert "Job aborted due to stage failure" in reasons["broken"]
    assert reasons["odd"] == "unexpected KeyError: 'what nobody\\nforesaw' (--verbose logs where)"
    assert "\n" not in reasons["broken"]
    assert snapshot_job.main([*job, "--fail-on", "partial"]) == 1
    assert snapshot_job.main([*job, "--cluster", "dead", "--cluster", "broken"]) == 1
    assert snapshot_job.main([*job, "--cluster", "alive", "--fail-on", "partial"]) == 0
