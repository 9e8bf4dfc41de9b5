"""Reuse distances in frames, against logs with nothing hidden."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.page_cache import with_reuse
from pipeline.analytics.ruler import Ruler, begun, continued
from pipeline.analytics.ruler_binary import to_bytes
from pipeline.tables import LAG, WATERMARKS
from tests.helpers.rows import frame
from tests.test_ruler import MINUTE
from tests.test_written_since import Remembering

REPLICAS = {"led": [1, 2], "followed": [2, 1], "elsewhere": [2, 3]}
RECORDS = {"led": 3, "followed": 50, "elsewhere": 700}
"""A minute."""
MINUTES = 400
KEPT_MINUTES = 100
"""Of `elsewhere`, whose older records are deleted."""


@pytest.fixture(scope="module")
def logs() -> dict[str, tuple[Remembering, Ruler]]:
    return {topic: written(records, is_trimmed=topic == "elsewhere") for topic, records in RECORDS.items()}


def written(records: int, *, is_trimmed: bool) -> tuple[Remembering, Ruler]:
    """A log, unevenly written, and its ruler after a look each minute."""
    log = Remembering(segment_bytes=10**9)
    ruler = begun(log.observe())
    for minute in range(MINUTES):
        log.append(records, records * (100 + 50 * (minute % 7)))
        log.wait(MINUTE)
        if is_trimmed and minute == MINUTES - 20:
            log.delete_records(records * (MINUTES - KEPT_MINUTES))
        ruler = continued(ruler, log.observe())
    return log, ruler.thinned()


def reuse(
    spark: SparkSession, logs: dict[str, tuple[Remembering, Ruler]], *readers: tuple[int | None, float | None]
) -> list[Any]:
    """The rows of readers (leader, age in minutes)."""
    lag = [
        (1, f"group-{number}", "led", 0, leader, None if age is None else round(age * MINUTE), 0)
        for number, (leader, age) in enumerate(readers)
    ]
    stored = [("east", 1, topic, 0, bytearray(to_bytes(ruler))) for topic, (_, ruler) in logs.items()]
    rows = with_reuse(
        frame(spark, LAG, "snapshot_id group_id topic partition leader consumer_age_ms time_error_ms", *lag),
        spark.createDataFrame(stored, "cluster string, snapshot_id long, topic string, partition int, ruler binary"),
        frame(spark, WATERMARKS, "snapshot_id topic partition replicas", *((1, t, 0, r) for t, r in REPLICAS.items())),
    )
    assert [name for name in rows.columns if name not in LAG.columns] == [
        "reuse_bytes",
        "reuse_error_bytes",
        "reuse_method",
    ]
    return sorted(rows.collect(), key=lambda row: int(row.group_id.split("-")[1]))


def test_a_reader_is_as_far_back_as_its_broker_has_written_since(
    spark: SparkSession, logs: dict[str, tuple[Remembering, Ruler]]
) -> None:
    readers = [(leader, age) for leader in (1, 2) for age in (1.5, 5.25, 30.75, 90.5)]
    for (leader, age), row in zip(readers, reuse(spark, logs, *readers), strict=True):
        own = [logs[topic][0] for topic, replicas in REPLICAS.items() if leader in replicas]
        truth = sum(log.written_since(age * MINUTE) for log in own)
        assert truth > 0
        assert abs(row.reuse_bytes - truth) <= row.reuse_error_bytes
        assert row.reuse_bytes == pytest.approx(truth, rel=0.15 if age > 30 else 0.7)
        assert row.reuse_method == "interpolated"


def test_what_was_deleted_unseen_makes_it_a_least(
    spark: SparkSession, logs: dict[str, tuple[Remembering, Ruler]]
) -> None:
    whole, trimmed = reuse(spark, logs, (1, 200.5), (2, 200.5))
    assert (whole.reuse_method, trimmed.reuse_method) == ("interpolated", "at_least")
    elsewhere = logs["elsewhere"][0]
    assert trimmed.reuse_bytes - whole.reuse_bytes >= 0.9 * elsewhere.written_since(KEPT_MINUTES * MINUTE)


def test_nothing_unread_is_no_distance_and_what_is_unknown_is_null(
    spark: SparkSession, logs: dict[str, tuple[Remembering, Ruler]]
) -> None:
    found = [(r.reuse_bytes, r.reuse_error_bytes, r.reuse_method) for r in reuse(spark, logs, (1, 0), (1, None))]
    assert found == [(0, 0, "interpolated"), (None, None, None)]
    (leaderless,) = reuse(spark, logs, (None, 5.0))
    assert (leaderless.reuse_bytes, leaderless.reuse_method) == (None, None)
