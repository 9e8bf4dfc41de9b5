"""What is observed in rows while they are written: it is what was committed, also after a conflict."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipeline.common.epoch import utc_date
from pipeline.config import LakeConfig
from pipeline.lake import Lake, lake_tables, of_snapshots
from pipeline.tables import COMPUTED

ID = 1_769_860_800_000
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("by_driver", [False, True], ids=["spark", "driver"])
def test_the_counts_are_those_of_the_try_that_was_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_driver: bool
) -> None:
    """While the rows are computed for the first time, another writer commits, and one row is missing."""
    if not by_driver:
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

    def counted(seen: Observation) -> DataFrame:
        return lake.frame_of(COMPUTED, rows).where(is_there("job")).observe(seen, F.count("job").alias("rows"))

    observed = lake.replace_observed(COMPUTED, counted, of_snapshots("east", [ID]), 10 if by_driver else 10**6)
    assert begun.exists()
    committed = lake.read(COMPUTED).where("job != 'z'").count()
    assert observed == {"rows": committed}
    # The driver has computed its rows once, before its commit began; Spark computes them again after the conflict.
    assert committed == (2 if by_driver else 3)
    assert lake.read(COMPUTED).count() == committed
