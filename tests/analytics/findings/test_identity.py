"""The id of a finding: what Spark's to_json and sha2 make of the same key, which older versions used."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.analytics.findings.identity import Key, finding_id, ids_in_cluster
from pipeline.tables import FINDINGS
from tests.helpers.rows import frame

HOSTILE = [
    "plain",
    'a "quoted" name',
    "back\\slash \\u001f",
    "".join(map(chr, range(1, 32))),
    "\x7f\x85\u2028/<>&'",
    "Straße 東京 🚀",
]


@pytest.mark.parametrize("group", [None, *HOSTILE], ids=ascii)
def test_an_id_is_the_one_that_spark_makes(spark: SparkSession, group: str | None) -> None:
    key = Key("recreated_topic", "east", group, None, "pod-1:9102", "t")
    row = spark.createDataFrame(
        [(*key, 1_769_860_800_000)], f"{', '.join(f'{n} string' for n in Key._fields)}, first_seen long"
    )
    (found,) = row.select(F.sha2(F.to_json(F.struct("*")), 256)).first() or ()
    assert finding_id(key, 1_769_860_800_000) == found


def test_under_another_cluster_name_an_id_is_the_one_that_a_finding_there_would_have(spark: SparkSession) -> None:
    names = "finding_id kind group_id topic first_seen"
    first = F.timestamp_millis(F.lit(60_000))
    rows = [
        ("of a group", "no_progress", "g", "t", None),
        ("of a topic", "recreated_topic", None, "t", None),
    ]
    found = ids_in_cluster(frame(spark, FINDINGS, names, *rows).withColumn("first_seen", first), "west").collect()
    assert {row.finding_id: row.new_id for row in found} == {
        "of a group": finding_id(Key("no_progress", "west", "g", None, None, None), 60_000),
        "of a topic": finding_id(Key("recreated_topic", "west", None, None, None, "t"), 60_000),
    }
