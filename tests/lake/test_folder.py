"""A lake in a local folder: of two commits of a version, one succeeds, whoever commits; no row is lost or doubled."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.helpers.store_processes import result, start

VERSIONS = 40
COMMITS = int(os.environ.get("COMMITS", "150"))
MERGES = int(os.environ.get("MERGES", "12"))
"""How many commits each of two processes makes: bare commits, and MERGEs."""
TIMEOUT_S = 400 + COMMITS + 10 * MERGES


@pytest.mark.slow
def test_of_two_commits_of_a_version_one_succeeds(tmp_path: Path) -> None:
    (tmp_path / "race" / "_delta_log").mkdir(parents=True)
    outcomes = result(start({}, "commits", f"file:{tmp_path}/race", str(VERSIONS)))
    assert isinstance(outcomes, list)
    assert len(outcomes) == VERSIONS
    for version, outcome in enumerate(outcomes):
        winner, loser = sorted((0, 1), key=lambda number: outcome[number] != "written")
        assert outcome[winner] == "written"
        assert outcome[loser].startswith("java.nio.file.FileAlreadyExistsException: ")
        assert (tmp_path / "race" / "_delta_log" / f"{version:020}.json").read_text() == f"{winner}\n"
    assert len([*(tmp_path / "race" / "_delta_log").iterdir()]) == VERSIONS, "nothing else may be left"


@pytest.mark.lengthy
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_of_two_processes_that_commit_in_a_loop_each_has_all_its_commits(tmp_path: Path) -> None:
    log = tmp_path / "loop" / "_delta_log"
    log.mkdir(parents=True)
    writers = [start({}, "loop", str(log.parent), name, str(COMMITS)) for name in ("one", "other")]
    lost_races = [result(writer, TIMEOUT_S) for writer in writers]
    assert max(lost_races) > 0, "the two never met"  # type: ignore[type-var]
    found = [(log / f"{version:020}.json").read_text() for version in range(2 * COMMITS)]
    assert sorted(found) == sorted(f"{name} {n}\n" for name in ("one", "other") for n in range(COMMITS))


@pytest.mark.lengthy
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_two_processes_that_merge_in_a_loop_lose_nothing_and_add_nothing_twice(tmp_path: Path) -> None:
    """One writes with delta-rs, the other with Spark."""
    writers = [
        start({}, "merges", str(tmp_path / "lake"), cluster, str(MERGES), way)
        for cluster, way in (("east", "driver"), ("west", "spark"))
    ]
    assert [result(writer, TIMEOUT_S) for writer in writers] == [MERGES, MERGES]
    found = Counter(
        (row["cluster"], row["snapshot_id"])
        for row in DeltaTable(tmp_path / "lake" / "computed").to_pyarrow_table().to_pylist()
    )
    assert found == {(cluster, n): 1 for cluster in ("east", "west") for n in range(MERGES)}


def _commit(spark: SparkSession, path: Path, text: str, *, overwrite: bool = False) -> str:
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    actions = jvm.java.util.ArrayList()  # type: ignore[union-attr]
    actions.add(text)
    store = jvm.laglake.FolderLogStore(conf)  # type: ignore[union-attr]
    try:
        store.write(jvm.org.apache.hadoop.fs.Path(path.as_uri()), actions.iterator(), overwrite, conf)  # type: ignore[union-attr]
    except Py4JJavaError as exc:
        return str(exc.java_exception.toString())
    except PySparkException as exc:
        return str(exc)
    return "written"


def test_what_is_no_commit_is_replaced_with_the_checksum_of_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    file, checksum = tmp_path / "_last_checkpoint", tmp_path / "._last_checkpoint.crc"
    file.write_text("old")
    checksum.write_text("of the old one")
    assert _commit(spark, file, "new", overwrite=True) == "written"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(file.name, "new\n")]


def test_a_commit_into_a_folder_that_is_gone_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    assert "FileNotFoundException" in _commit(spark, tmp_path / "gone" / "0.json", "new")


def test_a_commit_and_the_files_that_it_adds_are_on_the_disk_before_the_version_has_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "table" / "_delta_log"
    data = log.parent / "cluster=a%20b" / "part-0.parquet"
    for folder in (log, data.parent):
        folder.mkdir(parents=True)
    data.write_bytes(b"rows")
    added = '{"add":{"path":"cluster=a%2520b/part-0.parquet","stats":"{\\"max\\":\\"\u2028\\"}"}}'
    synced = _synced(spark, tmp_path / "jfr", lambda: _commit(spark, log / "0.json", added))
    assert (log / "0.json").read_text() == f"{added}\n"
    assert [place.name for place in synced[:1]] == [data.name]
    assert synced[1].name.startswith(".0.json."), "while it has no name yet"
    assert synced[2:] == [log]


def test_a_checkpoint_is_on_the_disk_before_it_is_named_as_the_last_one(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    parts = [log / f"{10:020}.checkpoint.{part:010}.{2:010}.parquet" for part in (1, 2)]
    for file in (*parts, log / f"{1:020}.checkpoint.parquet", log / f".{parts[0].name}.crc"):
        file.write_bytes(b"rows")
    last = '{"version":10,"size":7,"parts":2,"sizeInBytes":9}'
    replaced = _synced(spark, tmp_path / "jfr", lambda: _commit(spark, log / "_last_checkpoint", last, overwrite=True))
    assert {*replaced[:2]} == {*parts}
    assert [place.name[:17] for place in replaced[2:]] == ["._last_checkpoint", "_delta_log"]


def _synced(spark: SparkSession, recorded: Path, action: Callable[[], str]) -> list[Path]:
    """What Java's own recorder says the JVM has synced meanwhile, in order."""
    flight: Any = spark._jvm.jdk.jfr  # type: ignore[union-attr]
    recording = flight.Recording()
    recording.enable("jdk.FileForce").withoutThreshold()
    recording.start()
    assert action() == "written"
    recording.stop()
    file = spark._jvm.java.nio.file.Path.of(str(recorded), spark.sparkContext._gateway.new_array(spark._jvm.String, 0))  # type: ignore[union-attr]
    recording.dump(file)
    events = sorted(
        flight.consumer.RecordingFile.readAllEvents(file), key=lambda event: event.getStartTime().toString()
    )
    return [Path(event.getString("path")) for event in events]
