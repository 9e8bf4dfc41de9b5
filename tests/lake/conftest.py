"""Fixtures for tests of a lake: the driver reads and writes few rows, or Spark does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config import LakeConfig
from pipeline.lake import Lake, lake_tables
from pipeline.lake.few_rows import for_few_rows


@pytest.fixture
def few(spark: SparkSession) -> Iterator[SparkSession]:
    with for_few_rows(spark):
        yield spark


@pytest.fixture
def by_driver(few: SparkSession, tmp_path: Path) -> Lake:
    lake = Lake(few, LakeConfig(root=str(tmp_path / "lake")))
    lake.prepare()
    assert lake._driver
    return lake


@pytest.fixture
def by_spark(by_driver: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The same lake, read and written only by Spark."""
    lake = Lake(by_driver.spark, by_driver._config)
    monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
    assert lake._driver is None
    return lake
