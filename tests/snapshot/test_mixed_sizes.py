"""One run with a large cluster and a small one: each is read and written as suits its own size."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.snapshot import take_snapshots
from pipeline.tables import COMMITTED_OFFSETS, LAG
from tests.helpers.quiet import config
from tests.helpers.snapshots import ALL_ROWS, clock

PREFIX = "mixed"


def test_a_large_cluster_does_not_take_the_quick_way_from_a_small_one(
    lake: Lake, spark: SparkSession, servers: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, a cluster with all rows of the quiet cluster counts as large, and so do its commits alone.

    The small cluster has one group of two.
    """
    for name in ("MANY_ROWS", "ROWS_TO_COLLECT"):
        monkeypatch.setattr(f"pipeline.lake.lake.{name}", sum(ALL_ROWS.values()))
    monkeypatch.setattr("pipeline.lake.lake.FEW_FOR_SPARK", ALL_ROWS[COMMITTED_OFFSETS.name])
    settings = config(folder, PREFIX, {"large": servers, "small": servers})
    small = settings.clusters["small"]
    one_group = small.groups.model_copy(update={"allow": (f"^{PREFIX}-audit$",)})
    clusters = settings.clusters | {"small": small.model_copy(update={"groups": one_group})}
    settings = settings.model_copy(update={"clusters": clusters})
    outcomes = take_snapshots(spark, settings, ["large", "small"], None, clock(0))
    assert [outcome.status for outcome in outcomes] == ["complete", "complete"], outcomes
    assert compute_lag(spark, settings, ["large", "small"], clock(0)) == 2
    commits = DeltaTable(folder / "lake" / LAG.name).history()
    writers = {
        cluster: commit["engineInfo"].partition(":")[0].partition("/")[0]
        for commit in commits
        for cluster in ("large", "small")
        if f"'{cluster}'" in str(commit["operationParameters"])
    }
    assert writers == {"large": "Apache-Spark", "small": "delta-rs"}
