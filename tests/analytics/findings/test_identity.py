"""The id of a finding: what Spark's to_json and sha2 make of the same key, so that a query can compute it."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.analytics.findings.identity import Key, finding_id, ids_in_cluster

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


def test_under_another_cluster_name_an_id_is_the_one_that_a_finding_there_would_have() -> None:
    begun = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    whose = dict.fromkeys(("group_id", "client_id", "instance", "topic", "cause_id"))
    found = ids_in_cluster(
        [
            {
                **whose,
                "finding_id": "of a group",
                "kind": "no_progress",
                "group_id": "g",
                "first_seen": begun,
                "cause_id": "shared",
            },
            {**whose, "finding_id": "of a topic", "kind": "recreated_topic", "topic": "t", "first_seen": begun},
        ],
        "west",
    )
    assert len(found.pop("shared")) == 64  # another one, which no cause has
    assert found == {
        "of a group": finding_id(Key("no_progress", "west", "g", None, None, None), 60_000),
        "of a topic": finding_id(Key("recreated_topic", "west", None, None, None, "t"), 60_000),
    }
