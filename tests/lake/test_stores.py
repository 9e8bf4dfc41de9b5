"""Where Delta's commits are safe, and that a lake in other locations is refused."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.common.errors import LakeError
from pipeline.config import LakeConfig
from pipeline.lake import Lake, stores
from pipeline.lake.stores import why_unsafe
from tests.conftest import ConnectServer

DELTAS_OWN = "io.delta.storage.S3SingleDriverLogStore"
FORMER = "org.apache.spark.sql.delta.storage"


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The log-store settings that the process was started with: none."""
    found: dict[str, str] = {}
    monkeypatch.setattr(stores, "_setting", lambda _, name: found.get(name))
    return found


def test_the_settings_of_every_job_make_folders_and_s3_safe(spark: SparkSession) -> None:
    assert why_unsafe(spark, "/lake") is None
    assert why_unsafe(spark, "file:/lake") is None
    assert why_unsafe(spark, "s3a://bucket/lake") is None
    assert why_unsafe(spark, "s3://bucket/lake") is None


@pytest.mark.parametrize(
    ("location", "given", "expected"),
    [
        ("/lake", {}, False),
        ("file:/lake", {}, False),
        ("/lake", {"spark.delta.logStore.file.impl": "laglake.FolderLogStore"}, True),
        ("file:/lake", {"spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore"}, False),
        ("hdfs://name/lake", {}, True),
        ("abfss://lake@account.dfs.core.windows.net/a", {}, True),
        ("gs://bucket/lake", {}, True),
        ("s3a://bucket/lake", {}, False),
        ("S3A://bucket/lake", {}, False),
        ("s3://bucket/lake", {"spark.delta.logStore.s3a.impl": "laglake.S3LogStore"}, False),
        ("s3a://bucket/lake", {"spark.delta.logStore.s3a.impl": DELTAS_OWN}, False),
        ("s3a://bucket/lake", {"spark.delta.logStore.class": DELTAS_OWN}, False),
        ("s3a://bucket/lake", {"spark.delta.logStore.s3a.impl": f"{FORMER}.S3SingleDriverLogStore"}, False),
        ("s3a://bucket/lake", {"spark.delta.logStore.s3a.impl": "io.delta.storage.HDFSLogStore"}, False),
        ("s3a://bucket/lake", {"spark.delta.logStore.s3a.impl": "io.delta.storage.LocalLogStore"}, False),
        ("s3a://bucket/lake", {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}, True),
        ("s3a://bucket/lake", {"spark.delta.logStore.class": "com.example.Store"}, True),
        ("oss://bucket/lake", {}, False),
        ("oss://bucket/lake", {"spark.delta.logStore.oss.impl": "com.example.Store"}, True),
    ],
)
def test_whether_two_writers_are_safe_by_location(
    spark: SparkSession, settings: dict[str, str], location: str, given: dict[str, str], expected: bool
) -> None:
    settings.update(given)
    assert (why_unsafe(spark, location) is None) is expected


def test_a_setting_of_the_session_alone_makes_nothing_safe(spark: SparkSession) -> None:
    """Delta reads the settings with which Spark was started."""
    spark.conf.set("spark.delta.logStore.oss.impl", "com.example.Store")
    try:
        assert why_unsafe(spark, "oss://bucket/lake") is not None
    finally:
        spark.conf.unset("spark.delta.logStore.oss.impl")


def test_on_databricks_the_platform_commits_and_nothing_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert why_unsafe(spark, "oss://bucket/lake") is None


def test_a_lake_that_is_not_safe_is_refused_before_anything_is_written(
    spark: SparkSession, settings: dict[str, str]
) -> None:
    assert not settings
    with pytest.raises(LakeError) as refused:
        Lake(spark, LakeConfig(root="s3a://bucket/lake")).prepare()
    assert str(refused.value) == (
        "s3a://bucket/lake: Delta's log store for s3a:// (its own) loses commits when two jobs write at once: "
        "set spark.delta.logStore.s3a.impl to laglake.S3LogStore, which conf/spark-defaults.conf does, before Spark "
        "starts"
    )


THROUGH_CONNECT = """
import sys
from pyspark.sql import SparkSession
from pipeline.config import LakeConfig
from pipeline.lake import Lake
from pipeline.lake.stores import why_unsafe
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.conf.set("spark.delta.logStore.file.impl", "io.delta.storage.LocalLogStore")
spark.conf.set("spark.delta.logStore.oss.impl", "com.example.Store")
Lake(spark, LakeConfig(root=sys.argv[2])).prepare()
print(why_unsafe(spark, f"file:{sys.argv[2]}"), why_unsafe(spark, "oss://bucket/lake"), sep="|")
"""


def test_with_connect_the_settings_of_the_server_count(connect_server: ConnectServer, tmp_path: Path) -> None:
    command = [sys.executable, "-c", THROUGH_CONNECT, connect_server.remote, str(tmp_path / "lake")]
    env = connect_server.client_env()
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr[-4000:]
    of_folder, of_oss = ran.stdout.strip().split("|")
    assert of_folder == "None"
    assert of_oss.startswith("oss://bucket/lake: Delta's log store for oss:// (its own) loses commits ")


def test_where_connect_finds_a_lake_is_what_counts(
    spark: SparkSession, settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Connect session does not know which file system a path without a scheme is in."""
    assert not settings
    monkeypatch.setattr("pipeline.lake.lake_tables.is_known", lambda *_: False)
    for _ in range(2):
        with pytest.raises(LakeError, match=rf"^file:{tmp_path}/lake/snapshots: Delta's log store for a local folder "):
            Lake(spark, LakeConfig(root=str(tmp_path / "lake"))).prepare()
