"""docs/snapshot-protocol.md on takeovers: who may take a claim over, and what a run does that has lost its own."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs import run, snapshot
from jobs.session import Job
from pipeline.common.columns import aligned
from pipeline.common.epoch import utc_date
from pipeline.common.errors import ClaimedError, LakeError
from pipeline.config import LakeConfig, load_config
from pipeline.lake import STAGED_OVER, Lake, of_snapshots
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.lake.ledger import Claim, Ledger, Summary
from pipeline.snapshot import SnapshotOutcome, not_finished, take_snapshots
from pipeline.snapshot import land as landing
from pipeline.tables import COMMITTED_OFFSETS, SNAPSHOTS
from tests.helpers.kafka import wait_for
from tests.helpers.quiet import config, write_config
from tests.helpers.snapshots import ALL_ROWS, DEAD, T0, T0_MS, Take, clock, landed, ledger_rows

PREFIX = "takeover"
MAX_DURATION_S = 1800
pytestmark = pytest.mark.timeout(600)


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


@pytest.mark.parametrize(
    ("seconds", "may_write"), [(0.9 * MAX_DURATION_S - 0.001, True), (0.9 * MAX_DURATION_S, False)]
)
def test_a_run_begins_to_write_only_long_before_its_claim_may_be_taken_over(
    lake: Lake, folder: Path, seconds: float, may_write: bool
) -> None:
    settings = config(folder, PREFIX, {"slow": DEAD}).snapshot
    ledger = Ledger(lake, settings, clock(seconds))
    claim = Claim("slow", T0_MS, "slow", T0)
    if may_write:
        ledger.check(claim)
    else:
        with pytest.raises(LakeError, match=r"took longer than nine tenths of snapshot\.max_duration"):
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
    assert "took longer than nine tenths of snapshot.max_duration" in outcome.message
    assert landed(lake, "outlived") == dict.fromkeys(ALL_ROWS, 0)


def test_a_run_that_was_overtaken_leaves_the_winners_ledger_row_alone(
    take: Take, lake: Lake, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = landing._land_table
    winner: dict[str, SnapshotOutcome] = {}

    def overtaken(*args: Any) -> None:
        monkeypatch.setattr(landing, "_land_table", original)
        lake.spark.sql(  # as if it were old; the clock of the overtaken run stands still, so it continues to write
            f"UPDATE {lake.identifier(SNAPSHOTS)} SET started_at = TIMESTAMP'2026-01-31 11:00:00 UTC' "
            "WHERE cluster = 'overtaken'"
        )
        winner.update(take({"overtaken": servers}))
        original(*args)

    monkeypatch.setattr(landing, "_land_table", overtaken)
    loser = take({"overtaken": servers})["overtaken"]
    assert winner["overtaken"].status == "complete"
    (row,) = ledger_rows(lake, "overtaken")
    assert (loser.status, loser.message) == ("complete", f"run {row['run_id']} has taken it: complete")
    assert (row["status"], row["started_at"].astimezone(UTC)) == ("complete", T0)
    assert landed(lake, "overtaken") == ALL_ROWS


def staged_over(monkeypatch: pytest.MonkeyPatch, kind: str, share: str = "TRUE") -> None:
    """Lets another run replace staged rows of this one: those of `kind` that satisfy `share`."""
    original = Lake.stage

    def stage(self: Lake, name: str, rows: Any) -> Any:
        if not name.startswith(f"{kind}_"):
            return original(self, name, rows)
        original(self, name, rows)
        run = F.when(F.expr(share), "other").otherwise(F.col("run"))
        return original(self, name, rows.withColumn("run", run))

    monkeypatch.setattr(Lake, "stage", stage)
    monkeypatch.setattr(Lake, "is_on_driver", False)  # rows of the driver are not staged


@pytest.mark.parametrize("share", ["TRUE", "kind = 'watermarks'"])
def test_rows_staged_by_another_run_do_not_look_like_an_empty_cluster(
    take: Take, lake: Lake, servers: str, monkeypatch: pytest.MonkeyPatch, share: str
) -> None:
    staged_over(monkeypatch, "kafka", share)
    name = f"staged-over-{len(share)}"
    outcome = take({name: servers})[name]
    assert outcome.status == "failed"
    assert STAGED_OVER in outcome.message
    assert landed(lake, name) == dict.fromkeys(ALL_ROWS, 0)


def test_rows_that_another_run_stages_during_landing_fail_the_snapshot(
    spark: SparkSession, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a catalog, each query reads what is staged at that time, so another run's rows would make it empty."""
    spark.sql("CREATE SCHEMA spark_catalog.restaged")
    settings = config(tmp_path, PREFIX, {"restaged": servers})
    settings = settings.model_copy(update={"lake": LakeConfig(catalog="spark_catalog", schema="restaged")})
    original = landing._land_table
    others: list[SnapshotOutcome] = []

    def late(*args: Any) -> None:
        monkeypatch.setattr(landing, "_land_table", original)
        others.extend(take_snapshots(spark, settings, ["restaged"], None, clock(landing.STAGES)))
        original(*args)

    monkeypatch.setattr(landing, "_land_table", late)
    try:
        (outcome,) = take_snapshots(spark, settings, ["restaged"], None, clock())
        lake = Lake(spark, settings.lake)
        assert [other.status for other in others] == ["complete"]
        assert (outcome.status, outcome.message) == ("failed", f"cluster restaged: {STAGED_OVER}")
        assert landed(lake, "restaged") == ALL_ROWS  # the other run's
    finally:
        spark.sql("DROP SCHEMA spark_catalog.restaged CASCADE")


def test_positions_staged_by_another_run_make_the_snapshot_partial(
    spark: SparkSession, lake: Lake, servers: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stats.jsonl").write_text("{}\n")
    positions = (
        f"[[clusters.watched.positions]]\nsource = 'librdkafka_statistics'\npaths = ['{tmp_path}/stats.jsonl']\n"
    )
    path = write_config(tmp_path, PREFIX, {"watched": servers}, client=positions)
    settings = load_config(path, {}).model_copy(update={"lake": config(folder, PREFIX, {"any": DEAD}).lake})
    staged_over(monkeypatch, "positions")
    (outcome,) = take_snapshots(spark, settings, ["watched"], None, clock())
    assert outcome.status == "partial"
    assert STAGED_OVER in outcome.message
    assert "client_positions" in outcome.message
    assert landed(lake, "watched") == ALL_ROWS


def slow_rows(spark: SparkSession, group: str, sleep_ms: int) -> Any:
    """One committed offset of the cluster `late-write`, which takes a while to be written."""
    started = F.expr(f"java_method('java.lang.System', 'setProperty', '{group}', 'computes')")
    nap = F.expr(f"java_method('java.lang.Thread', 'sleep', CAST(id + {sleep_ms} AS BIGINT))")
    row = (
        spark.range(1)
        .withColumn("started", started)
        .withColumn("nap", nap)
        .withColumns(
            {"cluster": F.lit("late-write"), "snapshot_id": F.lit(T0_MS), "snapshot_date": F.lit(utc_date(T0_MS))}
        )
    )
    return aligned(
        row.withColumn(
            "group_id", F.concat_ws("", F.lit(group), F.substring("started", 1, 0), F.substring("nap", 1, 0))
        ),
        COMMITTED_OFFSETS.schema,
    )


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
        # Many rows are written by Spark, which computes them after its transaction has begun.
        old = pool.submit(lake.guarded(may_write).replace, COMMITTED_OFFSETS, late, where, MANY_ROWS)
        assert started.wait(30)
        wait_for(lambda: spark.sparkContext._jvm.System.getProperty("old owner"))
        lake.replace(COMMITTED_OFFSETS, slow_rows(spark, "new owner", 0), where)
        with pytest.raises(LakeError, match="lost the claim"):
            old.result(60)
    assert [r["group_id"] for r in lake.frame(COMMITTED_OFFSETS, where).collect()] == ["new owner"]


@pytest.mark.parametrize("schedule_s", [1, 7, 35, 60, 7 * 60, 49 * 60, 3600, 7 * 24 * 3600])
def test_seven_successive_snapshots_of_any_schedule_use_seven_staging_areas(schedule_s: int) -> None:
    schedule_ms = 1000 * schedule_s
    first = T0_MS - T0_MS % schedule_ms
    claims = [
        Claim("east", first + number * schedule_ms, "run", T0, schedule_ms=schedule_ms)
        for number in range(landing.STAGES)
    ]
    assert len({landing.staging_area("kafka", claim) for claim in claims}) == landing.STAGES


OTHER = "run other has been taking it since 2026-01-31 12:00:00 UTC"


@pytest.fixture
def claimed(lake: Lake, folder: Path, request: pytest.FixtureRequest) -> Claim:
    """The snapshot of T0 of a cluster that no test shares, which another run has claimed."""
    claim = Claim(f"claimed-{abs(hash(request.node.name))}", T0_MS, "other", T0)
    ledger_of(lake, folder).claim(claim)
    return claim


def ledger_of(lake: Lake, folder: Path) -> Ledger:
    return Ledger(lake, config(folder, PREFIX, {"any": DEAD}).snapshot, clock())


def run_job(
    job: ModuleType, folder: Path, clusters: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, *options: str
) -> int:
    """Calls a job for the snapshot of T0, half a second before the next one is due; the clock then stands still."""
    monkeypatch.setattr("jobs.schedule.utc_now", clock(59.5))
    file = write_config(folder, PREFIX, clusters, snapshot='schedule = "1m"')
    report = ["--output", f"{folder}/report.html"] if job is run else []
    status: int = job.main(["--config", str(file), "--at", T0.isoformat(), *report, *options])
    return status


def at_each_pause(monkeypatch: pytest.MonkeyPatch, *others: Callable[[], object]) -> None:
    """What other runs do while the run under test pauses."""
    left = list(others)
    monkeypatch.setattr("pipeline.snapshot.wait.sleep", lambda _: left.pop(0)())


@pytest.mark.parametrize(
    ("status", "options", "ended"),
    [
        pytest.param("complete", [], 0, id="complete"),
        pytest.param("partial", [], 0, id="in part"),
        pytest.param("partial", ["--fail-on", "partial"], 1, id="in part, which counts"),
        pytest.param("failed", [], 1, id="failed"),
    ],
)
def test_a_job_waits_for_another_run_whose_result_then_decides_the_exit_status(
    lake: Lake,
    folder: Path,
    claimed: Claim,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    options: list[str],
    ended: int,
) -> None:
    at_each_pause(monkeypatch, lambda: None, lambda: ledger_of(lake, folder).finish(claimed, Summary(status)))
    assert run_job(snapshot, folder, {claimed.cluster: DEAD}, monkeypatch, *options) == ended
    assert ledger_rows(lake, claimed.cluster)[0]["run_id"] == "other", "nothing is taken over"


def test_a_retry_after_a_snapshot_in_part_fails_as_the_first_try_did(
    lake: Lake, folder: Path, claimed: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_of(lake, folder).finish(claimed, Summary("partial"))
    assert run_job(snapshot, folder, {claimed.cluster: DEAD}, monkeypatch, "--fail-on", "partial") == 1
    assert run_job(snapshot, folder, {claimed.cluster: DEAD}, monkeypatch) == 0


def test_a_run_waits_after_the_lag_and_report_of_other_clusters_and_says_at_last_that_it_waited_in_vain(
    servers: str, folder: Path, claimed: Claim, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert run_job(run, folder, {claimed.cluster: DEAD, "own": servers}, monkeypatch) == 1
    *_, report, waits, last = caplog.messages
    assert report == f"report: {folder}/report.html"
    assert waits == f"{claimed.cluster}: this run waits for other runs until 2026-01-31 12:01:00 UTC at most"
    assert last == (
        f"no snapshot yet: {claimed.cluster}: {OTHER}: if that run was killed, the next run takes the next one"
    )
    assert caplog.records[-1].levelname == "ERROR"


def test_a_repeated_run_does_not_wait_for_another_run(
    spark: SparkSession, folder: Path, claimed: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.schedule.utc_now", clock(3))
    at_each_pause(monkeypatch)  # a pause would be an error
    settings = config(folder, PREFIX, {claimed.cluster: DEAD}, snapshot='schedule = "1m"')
    job = Job(settings, (claimed.cluster,), T0, "nothing", folder / "report.html", is_repeated=True)
    snapshots = snapshot.Snapshots()
    assert (snapshots.take(spark, job), snapshots.conclude(spark, job)) == (0, 1)


def test_a_ledger_that_cannot_be_read_once_and_a_row_that_is_gone_do_not_end_the_wait_with_a_traceback(
    lake: Lake, folder: Path, claimed: Claim, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = Ledger.claims_of

    def unreadable(*_: Any) -> Any:
        monkeypatch.setattr(Ledger, "claims_of", original)
        raise LakeError("the store does not answer")

    def remove_row() -> None:
        lake.spark.sql(f"DELETE FROM {lake.identifier(SNAPSHOTS)} WHERE cluster = '{claimed.cluster}'")

    monkeypatch.setattr(Ledger, "claims_of", unreadable)
    at_each_pause(monkeypatch, remove_row, lambda: time.sleep(0.5))
    assert run_job(snapshot, folder, {claimed.cluster: DEAD}, monkeypatch) == 1
    assert "the ledger cannot be read: the store does not answer" in caplog.messages
    assert caplog.messages[-1].startswith("no snapshot yet: ")


def test_a_run_whose_claim_another_run_has_taken_over_leaves_it_to_that_run(lake: Lake, folder: Path) -> None:
    ledger, slow = ledger_of(lake, folder), Claim("slow", T0_MS, "slow", T0 - timedelta(hours=1))
    ledger.claim(slow)
    ledger.claim(Claim("slow", T0_MS, "other", T0))
    with pytest.raises(ClaimedError, match=f"^{OTHER}$") as caught:
        ledger.finish(slow, Summary("complete"))
    assert SnapshotOutcome.of_another_run("slow", T0_MS, caught.value).status == "unfinished"


@pytest.mark.parametrize(
    ("max_duration_s", "then"),
    [
        pytest.param(
            300, "a retry with --at 2026-01-31T12:00:00Z can take it after 2026-01-31 12:05:07 UTC", id="in time"
        ),
        pytest.param(600, "the next run takes the next one", id="too late"),
    ],
)
def test_the_last_line_says_whether_a_retry_can_take_the_snapshot(folder: Path, max_duration_s: int, then: str) -> None:
    limits = {"max_delay_ms": 600_000, "max_duration_ms": 1000 * max_duration_s}
    settings = config(folder, PREFIX, {"a": DEAD}).snapshot.model_copy(update=limits)
    unfinished = SnapshotOutcome("a", T0_MS, "unfinished", "why", T0 + timedelta(seconds=7))
    done = SnapshotOutcome("b", T0_MS, "complete", "read")
    said = not_finished([done, unfinished], settings)
    assert said == f"no snapshot yet: a: why: if that run was killed, {then}"
    assert not_finished([done], settings) is None
