"""Lakes that are made once and copied for each test that changes them."""

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.config import LakeConfig
from pipeline.lake import Lake


def copied(spark: SparkSession, lake: Path, folder: Path) -> Lake:
    """The lake again, below `folder`."""
    return Lake(spark, LakeConfig(root=str(shutil.copytree(lake, folder / "lake"))))
