"""Blocked fetchers of old consumers, in recordings of three of its versions."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics.clients.instances import observed
from pipeline.analytics.clients.scala_fetchers import fetcher_states
from pipeline.client_positions.position import of_metrics
from tests.helpers.recordings import rounds, table, unpacked

POSITIONS = (
    "cluster string, snapshot_id long, client_id string, fetcher string, topic string, "
    "queue_chunks long, requests_total long, bytes_total long, "
    "endpoint string, host string, partition int, error string, captured_at timestamp"
)
PLACE = ("http://app:9404", None, None, None, None)
ENDS = "cluster string, snapshot_id long, topic string, high_watermark long"
# When a topic's thread began to sleep for ever, by the application's own log; that topic, and the others.
ASLEEP = {
    "legacy-a2-blocked": (1795255108265, ["order.events"], ["mail_queue", "web-clicks"]),
    "legacy-a2-kafka-0.8.1.1": (1795256677405, ["hist.orders"], ["hist-clicks"]),
    "legacy-a2-kafka-1.1.1": (1795256542808, ["stock.levels"], ["cart-events"]),
}
SAMPLE_MS = 2_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


def sampled(spark: SparkSession, recording: Path, every: int, first: int) -> tuple[DataFrame, DataFrame]:
    """The positions and log ends of every n-th round, from the first one on."""
    truth = table(recording / "truth.csv")
    positions, ends = [], []
    for at_ms, metrics, _ in list(rounds(recording))[first::every]:
        for p in of_metrics(metrics):
            counters = p.queue_chunks, p.requests_total, p.bytes_total
            positions.append(("east", at_ms, p.client_id, p.fetcher, p.topic, *counters, *PLACE))
        newest = max(int(r["ts"]) for r in truth if int(r["ts"]) <= at_ms)
        ends += [("east", at_ms, r["topic"], int(r["high_watermark"])) for r in truth if int(r["ts"]) == newest]
    return spark.createDataFrame(positions, POSITIONS), spark.createDataFrame(ends, ENDS)


def states(spark: SparkSession, folder: Path, recording: str, every: int = 1, first: int = 0) -> list[Any]:
    frames = sampled(spark, unpacked(recording, folder), every, first)
    return fetcher_states(observed(frames[0]), frames[1], {}).orderBy("snapshot_id").collect()


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("recording", ASLEEP)
def test_a_blocked_connector_is_seen_with_its_culprit_and_victims(
    spark: SparkSession, folder: Path, recording: str, every: int
) -> None:
    asleep_ms, culprits, victims = ASLEEP[recording]
    found = states(spark, folder, recording, every)
    before = [row for row in found if row.snapshot_id <= asleep_ms]
    assert len(before) >= 2
    assert {row.state for row in before} <= {"fetching", "idle"}
    # The queue first takes two more chunks. Then two samples are needed; the first may be from just before.
    after = [row for row in found if row.snapshot_id > asleep_ms + (1 + 2 * every) * SAMPLE_MS]
    assert len(after) * every >= 15
    assert {(row.state, *row.culprits) for row in after} == {("blocked", *culprits)}
    assert {tuple(row.victims) for row in after} == {tuple(victims)}
    (since,) = {row.since_snapshot_id for row in after}
    assert asleep_ms < since <= asleep_ms + (1 + 2 * every) * SAMPLE_MS


def made(spark: SparkSession, *rows: tuple[int, int, int, int, int]) -> list[tuple[str | None, list[str], list[str]]]:
    """The states of a client with topics a and b, from (requests, bytes, chunks of a, chunks of b, log end of both)."""
    positions = [("east", at, "c", "b:1", None, None, r, b, *PLACE) for at, (r, b, *_) in enumerate(rows)]
    positions += [
        ("east", at, "c", "0", t, row[2 + n], None, None, *PLACE)
        for at, row in enumerate(rows)
        for n, t in enumerate("ab")
    ]
    ends = [("east", at, topic, row[4]) for at, row in enumerate(rows) for topic in "ab"]
    frames = spark.createDataFrame(positions, POSITIONS), spark.createDataFrame(ends, ENDS)
    found = fetcher_states(observed(frames[0]), frames[1], {}).orderBy("snapshot_id").collect()
    return [(r.state, r.culprits, r.victims) for r in found]


def test_a_client_with_nothing_to_fetch_is_idle(spark: SparkSession) -> None:
    assert made(spark, (1, 9, 0, 0, 5), (21, 9, 0, 0, 5)) == [("idle", [], [])]


def test_a_stopped_client_whose_logs_do_not_grow_has_no_state(spark: SparkSession) -> None:
    assert made(spark, (1, 9, 0, 0, 5), (1, 9, 0, 0, 5)) == [(None, [], [])]


def test_a_slow_consumer_has_no_victims(spark: SparkSession) -> None:
    assert made(spark, (1, 9, 2, 2, 5), (1, 9, 2, 2, 6)) == [("blocked", ["a", "b"], [])]


def test_a_restart_is_not_a_stall_and_recovery_shows_at_once(spark: SparkSession) -> None:
    rows = [(9, 9, 0, 0, 5), (9, 9, 2, 0, 6), (9, 9, 2, 0, 7), (2, 4, 0, 0, 8), (8, 9, 0, 0, 9)]
    assert [state for state, _, _ in made(spark, *rows)] == ["blocked", "blocked", "fetching", "fetching"]


def test_with_one_sample_a_minute_a_fetcher_is_blocked_after_a_minute_without_requests(
    spark: SparkSession, folder: Path
) -> None:
    """In the first minute, from 20 s on, it still fetched for half of the time; in the second minute it never did."""
    recording = "legacy-a2-blocked"
    _, culprits, victims = ASLEEP[recording]
    before, after = states(spark, folder, recording, every=30, first=10)
    assert before.state == "fetching"
    assert (after.state, after.culprits, after.victims) == ("blocked", culprits, victims)
    assert after.since_snapshot_id == after.snapshot_id
