"""Where Delta's commits are safe, and that a lake elsewhere is refused."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipeline.config import LakeConfig
from pipeline.errors import LakeError
from pipeline.lake import Lake
from pipeline.lake.stores import why_unsafe

DELTAS_OWN = "io.delta.storage.S3SingleDriverLogStore"
SETTINGS = ("spark.delta.logStore.class", *(f"spark.delta.logStore.{scheme}.impl" for scheme in ("s3", "s3a", "oss")))


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session without a setting of log stores."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name in SETTINGS:
        spark.conf.unset(name)
    yield spark
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_the_settings_of_every_job_make_s3_safe(spark: SparkSession) -> None:
    assert why_unsafe(spark, "s3a://bucket/lake") is None
    assert why_unsafe(spark, "s3://bucket/lake") is None


@pytest.mark.parametrize(
    ("place", "settings", "expected"),
    [
        ("/lake", {}, True),
        ("file:/lake", {}, True),
        ("hdfs://name/lake", {}, True),
        ("abfss://lake@account.dfs.core.windows.net/a", {}, True),
        ("gs://bucket/lake", {}, True),
        ("s3a://bucket/lake", {}, False),
        ("S3A://bucket/lake", {}, False),
        ("s3://bucket/lake", {"spark.delta.logStore.s3a.impl": "laglake.S3LogStore"}, False),
        ("s3a://bucket/lake", {"spark.delta.logStore.s3a.impl": DELTAS_OWN}, False),
        ("s3a://bucket/lake", {"spark.delta.logStore.class": DELTAS_OWN}, False),
        ("s3a://bucket/lake", {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}, True),
        ("s3a://bucket/lake", {"spark.delta.logStore.class": "com.example.Store"}, True),
        ("oss://bucket/lake", {}, False),
        ("oss://bucket/lake", {"spark.delta.logStore.oss.impl": "com.example.Store"}, True),
    ],
)
def test_where_two_writers_are_safe(
    session: SparkSession, place: str, settings: dict[str, str], expected: bool
) -> None:
    for name, value in settings.items():
        session.conf.set(name, value)
    assert (why_unsafe(session, place) is None) is expected


def test_databricks_sees_to_it_itself(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert why_unsafe(session, "s3://bucket/lake") is None


def test_a_lake_that_is_not_safe_is_refused_before_anything_is_written(session: SparkSession) -> None:
    with pytest.raises(LakeError) as refused:
        Lake(session, LakeConfig(root="s3a://bucket/lake")).prepare()
    assert str(refused.value) == (
        "s3a://bucket/lake: Delta's log store for s3a:// (its own) loses commits when two jobs write at once: "
        "set spark.delta.logStore.s3a.impl to laglake.S3LogStore, which conf/spark-defaults.conf does"
    )
