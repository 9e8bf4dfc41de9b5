"""A full disk: the error is one line, which has the cause and what to do."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.common.errors import LakeError, first_line
from pipeline.config import LakeConfig
from pipeline.lake import FAILURES, Lake
from tests.helpers.full_disk import full_disk, limited_files

REMEDIES = {
    os.strerror(errno.ENOSPC): "free some space",
    os.strerror(errno.EFBIG): "raise the limit on the size of files (ulimit -f)",
}


@contextmanager
def limited(folder: Path, *processes: int) -> Iterator[str]:
    """What `full_disk` does where no disk can be mounted."""
    folder.mkdir()
    with limited_files(os.getpid(), *processes):
        yield os.strerror(errno.EFBIG)


@pytest.mark.parametrize("without_space", [full_disk, limited])
def test_a_lake_that_cannot_be_made_on_a_full_disk_says_in_one_line_why_and_what_to_do(
    spark: SparkSession, tmp_path: Path, without_space: Callable[..., AbstractContextManager[str]]
) -> None:
    lake = Lake(spark, LakeConfig(root=f"{tmp_path}/full/lake"))
    with without_space(tmp_path / "full") as refused, pytest.raises(LakeError) as failure:
        lake.prepare()
    line = str(failure.value)
    assert line.startswith(f"the lake cannot be made: {tmp_path}/full/lake: ")
    assert line.endswith(f": {refused}; {REMEDIES[refused]}")
    assert "\n" not in line
    assert "\x1b" not in line


@pytest.mark.parametrize("without_space", [full_disk, limited])
def test_the_line_of_an_error_of_spark_on_a_full_disk_has_the_cause(
    spark: SparkSession, tmp_path: Path, without_space: Callable[..., AbstractContextManager[str]]
) -> None:
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    with without_space(tmp_path / "full", java) as refused, pytest.raises(FAILURES) as failure:
        spark.range(10**6).write.parquet(f"{tmp_path}/full/rows")
    line = first_line(failure.value)
    assert "TASK_WRITE_FAILED" in line
    assert line.endswith(f": {refused}; {REMEDIES[refused]}")
