"""docs/snapshot-protocol.md on takeovers: who may take a claim over, and what a run does that has lost its own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs import run as run_job
from pipeline.common.columns import aligned
from pipeline.common.epoch import utc_date
from pipeline.common.errors import ClaimedError, LakeError
from pipeline.config import Config, LakeConfig, load_config
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.lake.ledger import Claim, Ledger, Summary
from pipeline.snapshot import SnapshotOutcome, take_snapshots
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
def test_rows_staged_by_another_run_do_not_look_like_an_empty_cluster(
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
        assert (outcome.status, outcome.message) == ("failed", f"cluster restaged: {landing.STAGED_OVER}")
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
    assert "client_positions: another run has staged its rows where this one had" in outcome.message
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
    assert [r["group_id"] for r in lake.read_where(COMMITTED_OFFSETS, where).collect()] == ["new owner"]


@pytest.mark.parametrize("schedule_s", [1, 7, 35, 60, 7 * 60, 49 * 60, 3600, 7 * 24 * 3600])
def test_seven_successive_snapshots_of_any_schedule_use_seven_staging_areas(schedule_s: int) -> None:
    schedule_ms = 1000 * schedule_s
    first = T0_MS - T0_MS % schedule_ms
    claims = [
        Claim("east", first + number * schedule_ms, "run", T0, schedule_ms=schedule_ms)
        for number in range(landing.STAGES)
    ]
    assert len({landing.staging_area("kafka", claim) for claim in claims}) == landing.STAGES


class Waiting:
    """The clock of a run that waits, and what another run does at each of its pauses."""

    def __init__(self, seconds: float, *others: Callable[[], object]) -> None:
        self.seconds = seconds
        self.pauses: list[float] = []
        self._others = list(others)

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.seconds)

    def pause(self, seconds: float) -> None:
        self.seconds += seconds
        self.pauses.append(seconds)
        if self._others:
            self._others.pop(0)()


def claimed_by_another(lake: Lake, settings: Config, cluster: str) -> Callable[[str], Callable[[], object]]:
    """Claims the snapshot of T0 for another run; returns how that run can finish it with a status."""
    ledger, claim = Ledger(lake, settings.snapshot, clock()), Claim(cluster, T0_MS, "other", T0)
    ledger.claim(claim)
    return lambda status: lambda: ledger.finish(claim, Summary(status))


OTHER = "run other has been taking it since 2026-01-31 12:00:00 UTC"


def test_a_run_waits_for_another_run_that_is_still_taking_the_snapshot(
    spark: SparkSession, lake: Lake, servers: str, folder: Path
) -> None:
    settings = config(folder, PREFIX, {"doubled": servers, "own": servers}, snapshot='schedule = "1m"')
    finish = claimed_by_another(lake, settings, "doubled")
    waiting = Waiting(3, lambda: None, finish("complete"))
    doubled, own = take_snapshots(spark, settings, ["doubled", "own"], T0, waiting.now, pause=waiting.pause)
    assert (doubled.status, doubled.message) == ("skipped", "run other has taken it: complete")
    assert (own.status, waiting.pauses) == ("complete", [5.0, 5.0])


def test_a_run_takes_the_snapshot_of_another_run_that_fails_meanwhile(
    spark: SparkSession, lake: Lake, servers: str, folder: Path
) -> None:
    settings = config(folder, PREFIX, {"gave-up": servers}, snapshot='schedule = "1m"')
    waiting = Waiting(3, claimed_by_another(lake, settings, "gave-up")("failed"))
    (outcome,) = take_snapshots(spark, settings, ["gave-up"], T0, waiting.now, pause=waiting.pause)
    assert (outcome.status, waiting.pauses) == ("complete", [5.0])


def test_a_run_that_waits_takes_a_killed_runs_snapshot_once_the_claim_has_expired(
    spark: SparkSession, lake: Lake, servers: str, folder: Path
) -> None:
    settings = config(folder, PREFIX, {"expired": servers}, snapshot='schedule = "1h"\nmax_delay = "31m"')
    claimed_by_another(lake, settings, "expired")
    waiting = Waiting(MAX_DURATION_S - 4)
    (outcome,) = take_snapshots(spark, settings, ["expired"], T0, waiting.now, pause=waiting.pause)
    assert (outcome.status, waiting.pauses) == ("complete", [5.0])
    (row,) = ledger_rows(lake, "expired")
    assert row["started_at"].astimezone(UTC) == T0 + timedelta(seconds=MAX_DURATION_S + 1)


@pytest.mark.parametrize(
    ("seconds", "snapshot", "pauses"),
    [
        pytest.param(53, 'schedule = "1m"', [5.0, 2.0], id="until the next is due"),
        pytest.param(61, 'schedule = "1m"', [], id="not if the next is already due"),
        pytest.param(53, 'schedule = "1h"\nmax_delay = "1m"', [5.0, 2.0], id="until it may no longer begin"),
    ],
)
def test_a_run_that_waited_in_vain_says_that_there_is_no_snapshot(
    spark: SparkSession, lake: Lake, folder: Path, seconds: float, snapshot: str, pauses: list[float]
) -> None:
    name = f"vain-{seconds}-{len(snapshot)}"
    settings = config(folder, PREFIX, {name: DEAD}, snapshot=snapshot)
    claimed_by_another(lake, settings, name)
    waiting = Waiting(seconds)
    (outcome,) = take_snapshots(spark, settings, [name], T0, waiting.now, pause=waiting.pause)
    assert (outcome.status, outcome.message) == ("unfinished", OTHER)
    assert waiting.pauses == pauses


def test_a_run_that_waits_looks_again_if_the_ledger_cannot_be_read_once(
    spark: SparkSession, lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(folder, PREFIX, {"hiccup": DEAD}, snapshot='schedule = "1m"')
    finish = claimed_by_another(lake, settings, "hiccup")
    original = Ledger._read

    def unreadable(*_: Any) -> Any:
        monkeypatch.setattr(Ledger, "_read", original)
        raise LakeError("the store does not answer")

    waiting = Waiting(3, lambda: monkeypatch.setattr(Ledger, "_read", unreadable), finish("partial"))
    (outcome,) = take_snapshots(spark, settings, ["hiccup"], T0, waiting.now, pause=waiting.pause)
    assert (outcome.message, len(waiting.pauses)) == ("run other has taken it: partial", 2)


def test_the_second_try_of_a_killed_run_fails_and_says_at_last_why(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_config(tmp_path, PREFIX, {"killed": DEAD}, snapshot='schedule = "1m"')
    settings = load_config(file, {})
    own = Lake(lake.spark, settings.lake)
    own.prepare()
    claimed_by_another(own, settings, "killed")
    monkeypatch.setattr("jobs.schedule.utc_now", clock(61))
    with caplog.at_level("INFO"):
        ended = run_job.main(["--config", str(file), "--at", T0.isoformat(), "--output", f"{tmp_path}/report.html"])
    last = caplog.records[-1]
    assert (ended, last.levelname) == (1, "ERROR")
    assert last.getMessage() == (
        f"no snapshot yet: killed: {OTHER}: if that run was killed, there will be none of this instant, and the next "
        "run takes the next one"
    )
