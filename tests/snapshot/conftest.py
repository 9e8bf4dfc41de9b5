"""Fixtures for tests of snapshots. The tests of a file share one lake, and one topic whose name begins with its PREFIX.

Each test has its own cluster name, and so its own rows in the ledger.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.lake import Lake
from pipeline.snapshot import SnapshotOutcome, take_snapshots
from tests.helpers.quiet import config, seed
from tests.helpers.snapshots import DEAD, Take, clock


@pytest.fixture(scope="module")
def prefix(request: pytest.FixtureRequest) -> str:
    """The PREFIX of the file, with which the names of its topics and groups begin."""
    named: str = request.module.PREFIX
    return named


@pytest.fixture(scope="module")
def servers(kafka: EmbeddedKafka, prefix: str) -> str:
    seed(kafka, prefix)
    return kafka.bootstrap_servers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, prefix: str) -> Path:
    return tmp_path_factory.mktemp(prefix)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, folder: Path, prefix: str, few_rows: None) -> Lake:
    lake = Lake(spark, config(folder, prefix, {"any": DEAD}).lake)
    lake.prepare()
    return lake


@pytest.fixture
def take(spark: SparkSession, lake: Lake, folder: Path, prefix: str) -> Take:
    """Takes snapshots of clusters (name → bootstrap servers) some seconds after T0; returns the outcome of each."""

    def take(clusters: Mapping[str, str], seconds: float = 0.0) -> dict[str, SnapshotOutcome]:
        settings = config(folder, prefix, clusters)
        return {o.cluster: o for o in take_snapshots(spark, settings, list(clusters), None, clock(seconds))}

    return take
