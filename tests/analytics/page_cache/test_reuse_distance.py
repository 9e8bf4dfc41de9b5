"""Reuse distances of readers, compared with simulated logs."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.histograms.lag_histograms import histograms
from pipeline.analytics.log_index.index import RULER_ROWS
from pipeline.analytics.log_index.ruler import Ruler, begun, continued
from pipeline.analytics.log_index.ruler_storage import to_bytes
from pipeline.analytics.page_cache.reuse_distance import PARTITION_CURVES, SERVED, broker_curves, page_cache, with_reuse
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows
from pipeline.tables import LAG, WATERMARKS
from tests.analytics.log_index.test_ruler import MINUTE
from tests.analytics.page_cache.test_write_curves import Remembering
from tests.helpers.rows import few_rows, frame

REPLICAS = {"led": [1, 2], "followed": [2, 1], "elsewhere": [2, 3]}
RECORDS = {"led": 3, "followed": 50, "elsewhere": 700}
"""Records written per minute."""
READERS = pa.schema(
    {
        "cluster": pa.string(),
        "snapshot_id": pa.int64(),
        "group_id": pa.string(),
        "leader": pa.int32(),
        "is_tail_reader": pa.bool_(),
        "reader_age_ms": pa.int64(),
        "reader_age_error_ms": pa.int64(),
    }
)
MINUTES = 400
KEPT_MINUTES = 100
"""How long records of `elsewhere` are kept; older ones are deleted."""


@pytest.fixture(scope="module")
def logs() -> dict[str, tuple[Remembering, Ruler]]:
    return {topic: written(records, is_trimmed=topic == "elsewhere") for topic, records in RECORDS.items()}


def written(records: int, *, is_trimmed: bool) -> tuple[Remembering, Ruler]:
    """A log that is written at an uneven rate, and its ruler after an observation each minute."""
    log = Remembering(segment_bytes=10**9)
    ruler = begun(log.observe())
    for minute in range(MINUTES):
        log.append(records, records * (100 + 50 * (minute % 7)))
        log.wait(MINUTE)
        if is_trimmed and minute == MINUTES - 20:
            log.delete_records(records * (MINUTES - KEPT_MINUTES))
        ruler = continued(ruler, log.observe())
    return log, ruler.thinned()


SEEN = (PARTITION_CURVES["watermarks"], RULER_ROWS)


def seen(logs: dict[str, tuple[Remembering, Ruler]], late_ms: int = 0) -> tuple[Rows, Rows]:
    """The watermarks of the logs in one snapshot, and their rulers."""
    seen_ms = late_ms + max(ruler.last.captured_ms for _, ruler in logs.values())
    captured = [(1, t, 0, r, datetime.fromtimestamp(seen_ms / 1000, UTC)) for t, r in REPLICAS.items()]
    rulers = [("east", 1, topic, 0, to_bytes(ruler)) for topic, (_, ruler) in logs.items()]
    types = arrow_schema(RULER_ROWS)
    stored = pa.Table.from_pylist([dict(zip(types.names, row, strict=True)) for row in rulers], types)
    watermarks = few_rows(WATERMARKS, "snapshot_id topic partition replicas captured_at", *captured)
    return watermarks.chosen(SEEN[0]), Rows(stored)


def reuse(
    logs: dict[str, tuple[Remembering, Ruler]],
    *readers: tuple[int | None, float | None],
    late_ms: int = 0,
) -> list[Any]:
    """The rows of readers, given as (leader, age in minutes); a reader with age 0 is at the tail."""
    lag = [
        ("east", 1, f"group-{number}", leader, age == 0, None if age is None else round(age * MINUTE), 0)
        for number, (leader, age) in enumerate(readers)
    ]
    rows = pa.Table.from_pylist([dict(zip(READERS.names, row, strict=True)) for row in lag], READERS)
    found = with_reuse(rows, broker_curves(*seen(logs, late_ms)))
    return [SimpleNamespace(**row) for row in found.to_pylist()]


def test_reuse_distance_is_what_the_broker_has_written_since(logs: dict[str, tuple[Remembering, Ruler]]) -> None:
    readers = [(leader, age) for leader in (1, 2) for age in (1.5, 5.25, 30.75, 90.5)]
    for (leader, age), row in zip(readers, reuse(logs, *readers), strict=True):
        own = [logs[topic][0] for topic, replicas in REPLICAS.items() if leader in replicas]
        truth = sum(log.written_since(age * MINUTE) for log in own)
        assert truth > 0
        assert abs(row.reuse_bytes - truth) <= row.reuse_error_bytes
        assert row.reuse_bytes == pytest.approx(truth, rel=0.15 if age > 30 else 0.7)
        assert row.reuse_method == "interpolated"


def test_curves_of_many_partitions_are_summed_in_buckets(
    spark: SparkSession, logs: dict[str, tuple[Remembering, Ruler]]
) -> None:
    few = seen(logs)
    many = tuple(Rows(rows.frame(spark, schema).repartition(3)) for rows, schema in zip(few, SEEN, strict=True))
    whole, summed = broker_curves(*few), broker_curves(*many, buckets=3)
    assert {*whole.numbers} == {*summed.numbers} == {("east", 1, broker) for broker in (1, 2, 3)}
    for key, number in whole.numbers.items():
        other = summed.numbers[key]
        assert whole.known_ms[number] == summed.known_ms[other]
        assert whole.written[number] == pytest.approx(summed.written[other], rel=1e-6)
        assert whole.doubt[number] == pytest.approx(summed.doubt[other], rel=1e-6)


def test_deleted_records_make_the_distance_a_lower_bound(logs: dict[str, tuple[Remembering, Ruler]]) -> None:
    whole, trimmed = reuse(logs, (1, 200.5), (2, 200.5))
    assert (whole.reuse_method, trimmed.reuse_method) == ("interpolated", "at_least")
    elsewhere = logs["elsewhere"][0]
    assert trimmed.reuse_bytes - whole.reuse_bytes >= 0.9 * elsewhere.written_since(KEPT_MINUTES * MINUTE)


def test_without_unread_records_the_distance_is_0_and_an_unknown_one_is_null(
    logs: dict[str, tuple[Remembering, Ruler]],
) -> None:
    found = [(r.reuse_bytes, r.reuse_error_bytes, r.reuse_method) for r in reuse(logs, (1, 0), (1, None))]
    assert found == [(0, 0, "interpolated"), (None, None, None)]
    (leaderless,) = reuse(logs, (None, 5.0))
    assert (leaderless.reuse_bytes, leaderless.reuse_method) == (None, None)


def test_rulers_of_another_snapshot_give_no_distance(logs: dict[str, tuple[Remembering, Ruler]]) -> None:
    tail, far = reuse(logs, (1, 0), (1, 30.0), late_ms=-MINUTE)
    assert (tail.reuse_bytes, far.reuse_bytes, far.reuse_method) == (0, None, None)


def test_a_partition_that_could_not_be_read_makes_the_distance_a_lower_bound(
    logs: dict[str, tuple[Remembering, Ruler]],
) -> None:
    (known,) = reuse(logs, (1, 30.0))
    (less,) = reuse({"led": logs["led"]}, (1, 30.0))
    assert less.reuse_bytes < known.reuse_bytes
    assert (known.reuse_method, less.reuse_method) == ("interpolated", "at_least")


def test_an_unread_record_from_the_future_is_not_the_tail(logs: dict[str, tuple[Remembering, Ruler]]) -> None:
    (ahead,) = reuse(logs, (1, -2.0))
    assert ahead.reuse_bytes == 0
    lost = sum(logs[topic][0].written_since(2 * MINUTE) for topic in ("led", "followed"))
    assert ahead.reuse_error_bytes >= lost > 0


def test_cache_sizes_by_the_share_of_readers_that_they_serve(spark: SparkSession) -> None:
    known = [(7, "g", n, 1000 * n, "interpolated") for n in range(1, 951)]
    tails = [(7, "tail", n, 0, "interpolated") for n in range(40)]
    far = [(7, "far", n, 5_000, "at_least") for n in range(6)]
    lost = [(7, "lost", n, None, None) for n in range(4)]
    rows = frame(
        spark, LAG, "leader group_id partition reuse_bytes reuse_method snapshot_id topic",
        *((*row, 1_760_000_000_000, "t") for row in [*known, *tails, *far, *lost]),
    )  # fmt: skip
    (made,) = page_cache(histograms(rows)).collect()
    assert (made.broker, made.readers, made.tail_readers, made.unknown_readers) == (7, 1000, 40, 10)
    # Of a thousand readers, the 500th is the 460th that is not at the tail; the 999th is not known.
    assert [made[name] for name in SERVED] == [
        *(pytest.approx(exact, rel=0.0433) for exact in (460_000, 860_000, 910_000, 950_000)),
        None,
    ]


def test_readers_that_are_all_at_the_tail_need_no_cache(spark: SparkSession) -> None:
    rows = frame(
        spark, LAG, "snapshot_id leader group_id topic partition reuse_bytes reuse_method",
        *((1_760_000_000_000, 7, "g", "t", n, 0, "interpolated") for n in range(3)),
    )  # fmt: skip
    (made,) = page_cache(histograms(rows)).collect()
    assert [made[name] for name in ("readers", "tail_readers", *SERVED)] == [3, 3, 0, 0, 0, 0, 0]
