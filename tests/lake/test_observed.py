"""What is observed in rows while they are written: it is what was committed, also after a conflict."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.common.epoch import utc_date
from pipeline.common.rows import Rows
from pipeline.config import LakeConfig
from pipeline.lake import Lake, lake_tables, of_snapshots
from pipeline.tables import COMPUTED

ID = 1_769_860_800_000
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_the_count_is_that_of_the_try_that_was_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Spark computes the rows for the first time, another writer commits, and one row is missing."""
    monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
    lake = Lake(spark, LakeConfig(root=str(tmp_path / "lake")))
    lake.prepare()
    rows = [("east", job, ID, utc_date(ID), "r", NOON) for job in ("a", "b", "c")]
    lake.replace_rows(COMPUTED, [("east", "z", *rows[0][2:])], of_snapshots("east", [ID]))
    location, begun = str(tmp_path / "lake" / COMPUTED.name), tmp_path / "begun"
    others = lake.read(COMPUTED).withColumn("snapshot_at", F.timestamp_millis("snapshot_id")).toArrow()

    @F.udf("boolean")
    def is_there(_: str) -> bool:
        if begun.exists():
            return True
        begun.touch()
        write_deltalake(location, others, mode="append")
        return False

    found = Rows(lake.frame_of(COMPUTED, rows).where(is_there("job")))
    counted = lake.replace_counted(COMPUTED, found, of_snapshots("east", [ID]))
    assert begun.exists()
    assert counted == lake.read(COMPUTED).count() == 3
    assert lake.read(COMPUTED).where("job = 'z'").count() == 0
