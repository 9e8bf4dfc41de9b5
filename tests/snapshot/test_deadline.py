"""All that a snapshot reads must be read within `limits.read_timeout`."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.config.consumers import PositionsConfig
from pipeline.lake import Lake
from pipeline.lake.few_rows import for_few_rows
from pipeline.snapshot import take_snapshots
from pipeline.snapshot.client_positions import positions_options
from pipeline.snapshot.land import in_time
from pipeline.tables import CLIENT_POSITIONS, COMMITTED_OFFSETS
from tests.helpers.network import served
from tests.helpers.quiet import config, seed

PREFIX = "deadline"
ENDPOINTS = 100
"""On two cores, eight at a time on each, these would take six seconds."""


class Slow(BaseHTTPRequestHandler):
    """An endpoint that answers after a second."""

    def do_GET(self) -> None:
        time.sleep(1)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def slow() -> Iterator[str]:
    with served(Slow) as url:
        yield url


def test_later_reads_get_the_rest_of_the_timeout(tmp_path: Path) -> None:
    cluster = config(tmp_path, PREFIX, {"east": "127.0.0.1:1"}).clusters["east"]
    left = in_time(cluster, time.monotonic() + 100).limits.read_timeout_ms
    assert 90_000 < left <= 100_000
    assert in_time(cluster, time.monotonic() - 1).limits.read_timeout_ms == 1


@pytest.mark.parametrize(("left_ms", "expected_ms"), [(600_000, 120_000), (100_000, 50_000), (1, 1)])
def test_positions_leave_half_of_the_time_to_kafka(left_ms: int, expected_ms: int, tmp_path: Path) -> None:
    cluster = config(tmp_path, PREFIX, {"east": "127.0.0.1:1"}).clusters["east"]
    limits = cluster.limits.model_copy(update={"read_timeout_ms": left_ms})
    positions = PositionsConfig(source="kafka_client_metrics", endpoints=("http://a",))
    options = positions_options(cluster.model_copy(update={"limits": limits}), positions, 0)
    assert options["read_timeout_ms"] == str(expected_ms)


def test_slow_endpoints_take_no_longer_than_their_timeout(
    spark: SparkSession, kafka: EmbeddedKafka, slow: str, tmp_path: Path
) -> None:
    seed(kafka, PREFIX)
    settings = config(tmp_path, PREFIX, {"east": kafka.bootstrap_servers})
    endpoints = tuple(f"{slow}/{number}" for number in range(ENDPOINTS))
    positions = (PositionsConfig(source="kafka_client_metrics", endpoints=endpoints),)
    cluster = settings.clusters["east"].model_copy(update={"positions": positions, "positions_timeout_ms": 1_500})
    settings = settings.model_copy(update={"clusters": {"east": cluster}})
    lake = Lake(spark, settings.lake)
    with for_few_rows(spark):
        (outcome,) = take_snapshots(spark, settings, ["east"], None, lambda: datetime.now(UTC))
    assert outcome.status == "partial"
    errors = [row.error for row in lake.frame(CLIENT_POSITIONS).collect()]
    unread = [error for error in errors if error and error.startswith("not read: ")]
    assert unread
    assert lake.frame(COMMITTED_OFFSETS, "error IS NULL").count() == 3
