"""A lake on S3: of two commits of a version, one succeeds, whatever the network does; no row is lost or doubled."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo.embedded_kafka.broker import EmbeddedKafka
from tests.conftest import ROOT
from tests.helpers import store_processes
from tests.helpers.quiet import LAG_COLUMNS, expected_lag, seed, write_config
from tests.helpers.s3 import BUCKET, IGNORING, S3, s3_server
from tests.helpers.store_processes import result

VERSIONS = 40
COMMITS = int(os.environ.get("COMMITS", "150"))
MERGES = int(os.environ.get("MERGES", "12"))
"""How many commits each of two processes makes: bare commits, and MERGEs."""
TIMEOUT_S = 400
LOOP_TIMEOUT_S = TIMEOUT_S + COMMITS + 10 * MERGES


@pytest.fixture
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


def start(s3: S3, *job: str) -> "subprocess.Popen[str]":
    """Starts a process that writes to the server."""
    return store_processes.start(s3.settings(), *job)


@pytest.mark.slow
def test_of_two_commits_of_a_version_one_succeeds_also_if_answers_are_lost(s3: S3) -> None:
    s3.lost = 0.3
    outcomes = result(start(s3, "commits", f"s3a://{BUCKET}/race", str(VERSIONS)))
    assert isinstance(outcomes, list)
    assert len(outcomes) == VERSIONS
    assert s3.answers_lost > VERSIONS / 10
    for version, outcome in enumerate(outcomes):
        winner, loser = sorted((0, 1), key=lambda number: outcome[number] != "written")
        assert outcome[winner] == "written"
        assert outcome[loser].startswith("java.nio.file.FileAlreadyExistsException: ")
        assert s3.read(f"race/_delta_log/{version:020}.json") == f"{winner}\n"


@pytest.mark.lengthy
@pytest.mark.timeout(2 * LOOP_TIMEOUT_S)
def test_of_two_processes_that_commit_in_a_loop_each_has_all_its_commits(s3: S3) -> None:
    s3.lost = 0.1
    writers = [start(s3, "loop", f"s3a://{BUCKET}/loop", name, str(COMMITS)) for name in ("one", "other")]
    lost_races = [result(writer, LOOP_TIMEOUT_S) for writer in writers]
    assert s3.answers_lost > 0
    assert max(lost_races) > 0, "the two never met"  # type: ignore[type-var]
    found = [s3.read(f"loop/_delta_log/{version:020}.json") for version in range(2 * COMMITS)]
    assert sorted(found) == sorted(f"{name} {n}\n" for name in ("one", "other") for n in range(COMMITS))


@pytest.mark.slow
def test_a_store_that_ignores_conditions_is_refused(s3: S3) -> None:
    (outcome,) = result(start(s3, "commits", f"s3a://{IGNORING}/race", "1"))  # type: ignore[misc]
    reason = "s3a://ignoring ignores If-None-Match, so no lake is safe there"
    assert [reason in text for text in outcome] == [True, True], outcome


@pytest.mark.lengthy
@pytest.mark.timeout(2 * LOOP_TIMEOUT_S)
def test_two_processes_that_merge_in_a_loop_lose_nothing_and_add_nothing_twice(s3: S3) -> None:
    s3.lost = 0.2
    root = f"s3a://{BUCKET}/looped"
    writers = [start(s3, "merges", root, cluster, str(MERGES)) for cluster in ("east", "west")]
    assert all(isinstance(result(writer, LOOP_TIMEOUT_S), int) for writer in writers)
    assert s3.answers_lost > 0
    rows = s3.table("looped/computed").to_pyarrow_table(columns=["cluster", "snapshot_id"]).to_pylist()
    found = Counter((row["cluster"], row["snapshot_id"]) for row in rows)
    assert found == {(cluster, n): 1 for cluster in ("east", "west") for n in range(MERGES)}


@pytest.mark.lengthy
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_the_jobs_work_on_s3_as_readme_says(s3: S3, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    prefix = "ons3"
    seed(kafka, prefix)
    file = write_config(tmp_path, prefix, {"east": kafka.bootstrap_servers})
    file.write_text(file.read_text().replace(f"{tmp_path}/lake", f"s3a://{BUCKET}/jobs"))
    settings = s3.settings()
    packages = ("--packages", settings.pop("spark.jars.packages"))
    options = [*packages, *(f"--conf={name}={value}" for name, value in settings.items())]
    at = ["--at", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"]

    def job(*arguments: str) -> str:
        command = [str(ROOT / "spark-submit.sh"), *options, "--", *arguments]
        done = subprocess.run(
            [*command, "--config", str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    job("run", *at, "--output", str(tmp_path / "report.html"))
    job("run", *at, "--output", str(tmp_path / "report.html"))
    assert f"{prefix}-billing" in job("lag", "--show")
    job("maintain")
    job("report", "--output", str(tmp_path / "later.html"))
    rows = s3.table("jobs/lag").to_pyarrow_table(columns=list(LAG_COLUMNS)).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == expected_lag(prefix)
    for page in ("report.html", "later.html"):
        assert f"{prefix}-billing" in (tmp_path / page).read_text()
