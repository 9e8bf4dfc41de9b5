"""docs/snapshot-protocol.md, sentence by sentence, on a real broker: which instant, one run, and several at once.

test_takeover.py tests takeovers, and tests/end_to_end/test_kill.py what a killed run leaves.
"""

import logging
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs import snapshot as snapshot_job
from pipeline.common.errors import ClaimedError, ConfigError
from pipeline.lake import Lake
from pipeline.lake.ledger import Claim, Ledger
from pipeline.snapshot import read_sources, snapshot_instant, take_snapshots
from pipeline.snapshot import take as taking
from pipeline.snapshot.summary import Landed
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS
from tests.conftest import ROOT
from tests.helpers.quiet import config, write_config
from tests.helpers.snapshots import ALL_ROWS, DEAD, T0, T0_MS, Take, bronze_rows, clock, commits, landed, ledger_rows

PREFIX = "protocol"
pytestmark = pytest.mark.timeout(600)


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


def test_a_first_run_makes_the_lake_and_a_second_of_the_same_instant_adds_nothing(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    settings = config(tmp_path, PREFIX, {"east": servers}, snapshot='schedule = "1m"')
    (first,) = take_snapshots(spark, settings, ["east"], None, clock())
    assert (first.status, first.message) == ("complete", "2 groups, 2 partitions, 3 commits")
    lake = Lake(spark, settings.lake)
    (row,), before = ledger_rows(lake, "east"), commits(tmp_path)
    (again,) = take_snapshots(spark, settings, ["east"], None, clock(59))
    assert (again.status, again.message) == ("complete", f"run {row['run_id']} has taken it: complete")
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


@pytest.mark.parametrize("reader", ["the driver", "Spark"])
def test_rows_read_by_a_clock_that_is_ahead_count_as_read_now(
    take: Take, lake: Lake, servers: str, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    original, read_tasks = Lake.stage, read_sources.read_tasks
    read_times = ("captured_at", "ends_at")

    def stage(self: Lake, name: str, rows: Any) -> Any:
        return original(self, name, rows.withColumns({c: F.expr(f"{c} + INTERVAL 3 DAYS") for c in read_times}))

    def later(batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in {*read_times} & {*batch.schema.names}:
            times = pc.add(batch[name], pa.scalar(timedelta(days=3)))
            batch = batch.set_column(batch.schema.names.index(name), name, times)
        return batch

    monkeypatch.setattr(Lake, "stage", stage)
    monkeypatch.setattr(read_sources, "read_tasks", lambda *args: [*map(later, read_tasks(*args))])
    if reader == "Spark":
        monkeypatch.setattr(Lake, "is_on_driver", False)
    before = datetime.now(UTC)
    ahead = f"ahead-{reader.rsplit(maxsplit=1)[-1]}"
    outcome = take({ahead: servers})[ahead]
    assert outcome.status == "complete"
    (row,) = ledger_rows(lake, ahead)
    ends = lake.frame(WATERMARKS, f"cluster = '{ahead}'").collect()
    members = lake.frame(GROUP_MEMBERS, f"cluster = '{ahead}'").collect()
    commits = lake.frame(COMMITTED_OFFSETS, f"cluster = '{ahead}'").collect()
    assert row["warnings"] == {"captured_in_future": len(ends) + len(commits) + len(members)}
    read_at = [r["captured_at"] for r in (*ends, *commits, *members)] + [r["ends_at"] for r in commits]
    assert all(before <= at.astimezone(UTC) <= datetime.now(UTC) for at in read_at)


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


TAKE = """
import sys
from datetime import datetime
from pathlib import Path
from pipeline.config import load_config
from pipeline.snapshot import take_snapshots
config, at = load_config(Path(sys.argv[1]), {}), datetime.fromisoformat(sys.argv[2])
(outcome,) = take_snapshots(None, config, ["processes"], None, lambda: at)
print(outcome.message)
"""


def test_of_two_processes_at_once_one_takes_the_snapshot_and_the_other_says_who_has_it(
    lake: Lake, servers: str, folder: Path
) -> None:
    """Without Spark: tests/lake/test_writers.py has claims of two processes with it."""
    file = write_config(folder, PREFIX, {"processes": servers})
    command = [sys.executable, "-c", TAKE, str(file), T0.isoformat()]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    messages = {process.communicate(timeout=100)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    (row,) = ledger_rows(lake, "processes")
    (other,) = messages - {"2 groups, 2 partitions, 3 commits"}
    # The other run may have come while the snapshot was being taken, or afterwards.
    assert re.match(
        rf"run {row['run_id']} has (been taking it since 2026-01-31 12:00:00 UTC|taken it: complete)$", other
    )
    assert landed(lake, "processes") == bronze_rows(row) == ALL_ROWS


def test_two_instants_of_one_cluster_at_once_lose_nothing(take: Take, lake: Lake, servers: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(take, {"overlap": servers}, seconds) for seconds in (0, 1)]
        assert [run.result(200)["overlap"].status for run in runs] == ["complete", "complete"]
    rows = ledger_rows(lake, "overlap")
    assert [(r["snapshot_id"], bronze_rows(r)) for r in rows] == [(T0_MS, ALL_ROWS), (T0_MS + 1000, ALL_ROWS)]
    assert landed(lake, "overlap") == {table: 2 * count for table, count in ALL_ROWS.items()}


def test_several_clusters_at_once_do_not_conflict(
    take: Take, lake: Lake, servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"side-{number}" for number in range(3)]
    with caplog.at_level(logging.INFO, logger="pipeline"):
        outcomes = take(dict.fromkeys(names, servers))
    assert {name: outcome.status for name, outcome in outcomes.items()} == dict.fromkeys(names, "complete")
    assert {name: bronze_rows(ledger_rows(lake, name)[0]) for name in names} == dict.fromkeys(names, ALL_ROWS)
    assert "another writer" not in caplog.text


def test_a_dead_or_failing_cluster_does_not_block_others_and_fail_on_decides_the_exit_status(
    spark: SparkSession,
    lake: Lake,
    servers: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    original = taking.land

    def land(lake: Lake, claim: Claim, *more: Any) -> Landed:
        if claim.cluster == "broken":  # a failing task, with an exception that py4j passes on unchanged
            lake.spark.range(1).select(F.expr("java_method('java.lang.Long', 'parseLong', 'x')")).collect()
        if claim.cluster == "odd":  # a bug in laglake itself
            raise KeyError("what nobody\nforesaw")
        return original(lake, claim, *more)

    monkeypatch.setattr(taking, "land", land)
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
