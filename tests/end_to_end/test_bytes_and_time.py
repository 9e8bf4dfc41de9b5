"""Lag in bytes and time on a real broker, compared with what was produced and with the broker's own files."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.workload.seeding import commit_offsets
from pipeline.analytics.log_index.time_search import FINEST_MS
from pipeline.config import Config, load_config
from pipeline.derive import compute_lag
from pipeline.derive import log_index as index
from pipeline.lake import Lake, of_cluster
from pipeline.snapshot import take_snapshots
from pipeline.tables import LAG, LAG_HISTOGRAMS, LOG_INDEX, LOG_SAMPLES, SNAPSHOTS
from tests.helpers.quiet import write_config

TOPIC = "ruled-orders"
CHUNK = 300
RUNGS = (0, 1, 57, 299, 300, 450, 601, 899, 900)
START = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=12)
GAPS_MS: dict[int, Callable[[random.Random], float]] = {
    0: lambda chance: 20_000,
    1: lambda chance: 3_600_000 if chance.random() < 0.005 else chance.lognormvariate(6, 2),
}
"""Partition → the time between two records: steady, and bursts with hours in between."""


class Producing:
    """Writes chunks of records with known timestamps and sizes (10 B to 20 kB), three a batch, compressed or not."""

    def __init__(self, servers: str) -> None:
        self.times_ms: dict[int, list[int]] = {partition: [] for partition in GAPS_MS}
        self._servers = servers
        self._chance = random.Random(11)

    def chunk(self) -> None:
        for partition, gap_ms in GAPS_MS.items():
            with_codec = {"compression_type": "gzip"} if partition else {}
            producer = KafkaProducer(bootstrap_servers=self._servers, linger_ms=50, **with_codec)
            for number in range(CHUNK):
                newest = self.times_ms[partition][-1:] or [int(START.timestamp() * 1000)]
                self.times_ms[partition].append(newest[0] + int(gap_ms(self._chance)))
                size = int(10 ** self._chance.uniform(1, 4.3))
                value = self._chance.randbytes(size)
                producer.send(TOPIC, value, partition=partition, timestamp_ms=self.times_ms[partition][-1])
                if number % 3 == 2:
                    producer.flush()
            producer.close()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, kafka: EmbeddedKafka) -> Config:
    """Three clusters that are the same broker; one is read as an older version, and another one's files can be read."""
    folder = tmp_path_factory.mktemp("ruled")
    servers = kafka.bootstrap_servers
    path = write_config(folder, "ruled", {"ruler": servers, "files": servers, "old": servers})
    log_dir = kafka.directory / "node-1" / "data"
    text = path.read_text().replace("[clusters.files]\n", f'[clusters.files]\nlog_dirs = ["{log_dir}"]\n')
    path.write_text(text + 'api_version = "2.8"\n')  # the last table in the text is the client of `old`
    return load_config(path, {})


@pytest.fixture(scope="module")
def produced(spark: SparkSession, kafka: EmbeddedKafka, settings: Config, few_rows: None) -> Iterator[Producing]:
    """Three chunks, with a snapshot after each, and the lag of all; the index is written after two of them."""
    producing = Producing(kafka.bootstrap_servers)
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin, pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "WRITTEN_EVERY", 2)
        create_topics(admin, {TOPIC: 2})
        for number in range(3):
            producing.chunk()
            for rung in (r for r in RUNGS if r <= CHUNK * (number + 1)):
                commit_offsets(admin, f"ruled-{rung}", {(TOPIC, partition): rung for partition in GAPS_MS})
            at = datetime.now(UTC) + timedelta(minutes=number)
            clusters = ["ruler", "old", "files"] if number == 2 else ["ruler", "old"]
            outcomes = take_snapshots(spark, settings, clusters, None, lambda at=at: at)
            assert {outcome.status for outcome in outcomes} == {"complete"}, outcomes
            compute_lag(spark, settings, clusters, lambda at=at: at)
        yield producing


@pytest.fixture(scope="module")
def lake(spark: SparkSession, settings: Config) -> Lake:
    return Lake(spark, settings.lake)


def rows(lake: Lake, cluster: str, snapshot: int) -> list[Any]:
    """The rows of lag for a cluster's snapshot, given by its number."""
    found = lake.frame(LAG, of_cluster(cluster))
    ids = sorted(row[0] for row in found.select("snapshot_id").distinct().collect())
    return found.where(F.col("snapshot_id") == ids[snapshot]).orderBy("partition", "committed_offset").collect()


@pytest.mark.parametrize(("cluster", "newest_error_ms"), [("ruler", 0), ("old", FINEST_MS)])
@pytest.mark.parametrize("snapshot", [0, 1, 2])
def test_time_is_right_from_the_first_snapshot_on(
    produced: Producing, lake: Lake, snapshot: int, cluster: str, newest_error_ms: int
) -> None:
    """Brokers before Kafka 3.0 do not report the newest record, so it is looked up."""
    found = rows(lake, cluster, snapshot)
    end = CHUNK * (snapshot + 1)
    assert [(r.partition, r.committed_offset) for r in found] == [(p, x) for p in (0, 1) for x in RUNGS if x <= end]
    for row in found:
        times_ms = produced.times_ms[row.partition]
        if row.committed_offset == end:
            assert (row.consumer_lag_ms, row.consumer_age_ms, row.time_error_ms) == (0, 0, 0)
            continue
        true_ms = times_ms[end - 1] - times_ms[row.committed_offset]
        age_ms = int(row.captured_at.timestamp() * 1000) - times_ms[row.committed_offset]
        off = (row.consumer_lag_ms - true_ms, row.consumer_age_ms - age_ms, row.headroom_ms)
        assert abs(off[0]) <= row.time_error_ms <= max(100, 0.01 * true_ms) + 1 + newest_error_ms, row
        assert off[1] == pytest.approx(off[0], abs=1)


def test_bytes_between_snapshots_are_within_their_error_of_what_the_files_say(produced: Producing, lake: Lake) -> None:
    reported, exact = rows(lake, "ruler", 2), rows(lake, "files", 0)
    assert {row.bytes_method for row in reported} == {"interpolated", "exact"}
    assert {(row.bytes_method, row.bytes_error) for row in exact} == {("exact", 0)}
    for one, other in zip(reported, exact, strict=True):
        assert abs(one.consumer_lag_bytes - other.consumer_lag_bytes) <= one.bytes_error
        assert one.kip532_bytes == one.consumer_lag_bytes
        if one.committed_offset in (300, 900):  # a snapshot saw the log's end here, so nothing is interpolated
            assert (one.consumer_lag_bytes, one.bytes_error) == (other.consumer_lag_bytes, 0)


def test_known_times_are_not_looked_up_again(produced: Producing, lake: Lake) -> None:
    counts = lake.frame(LOG_SAMPLES, "cluster = 'ruler'").groupBy("snapshot_id").count().orderBy("snapshot_id")
    first, *later = (row["count"] for row in counts.collect())
    assert first > 0
    ledger = lake.frame(SNAPSHOTS, "cluster = 'ruler'").orderBy("snapshot_id").collect()
    assert [row.rows["log_samples"] for row in ledger] == [first, *later]
    assert [row.warnings for row in ledger] == [{}] * 3
    index_rows = lake.frame(LOG_INDEX, "cluster = 'ruler'").collect()
    assert {row.through_snapshot_id for row in index_rows} == {ledger[2].snapshot_id}


def test_histograms_count_every_reader(produced: Producing, lake: Lake) -> None:
    found = lake.frame(LAG_HISTOGRAMS, "cluster = 'ruler' AND window_ms = 0 AND scope = 'topic'")
    by_measure = {r.measure: r for r in found.orderBy("window_start").collect()}
    lag_ms = [row.consumer_lag_ms for row in rows(lake, "ruler", 2)]
    last = by_measure["consumer_lag_ms"]
    assert (last["count"], last.zero_count, last.min, last.max) == (len(lag_ms), lag_ms.count(0), 0, max(lag_ms))
    assert (last["sum"], last.scope_value, by_measure["fetcher_lag"].null_count) == (sum(lag_ms), TOPIC, len(lag_ms))
