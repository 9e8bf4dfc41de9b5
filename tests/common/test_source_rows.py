"""Data sources read without Spark: in threads, or in processes if there are many tasks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.common.errors import ClusterError, LakeError
from pipeline.common.source_rows import FEW_TASKS, read_tasks
from tests.conftest import ROOT


@dataclass
class Task(InputPartition):
    """A task that returns its number and the process that read it."""

    number: int
    what: str = "rows"


class Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        if partition.what == "fails":
            raise ClusterError("the cluster is down")
        if partition.what == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if partition.what == "sleeps":
            Path(os.environ["LAGLAKE_TEST_READS"]).write_text(str(os.getpid()))
            time.sleep(600)
        yield pa.record_batch({"number": [partition.number], "process": [os.getpid()]})
        yield pa.record_batch({"number": [-partition.number], "process": [os.getpid()]})


def turned_round(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["process", "number"])


@pytest.mark.parametrize("tasks", [0, 1, FEW_TASKS, FEW_TASKS + 1])
def test_all_batches_come_in_the_order_of_tasks_and_of_each_task(tasks: int) -> None:
    batches = read_tasks(Reader(), [Task(number) for number in range(1, tasks + 1)], turned_round)
    assert [batch["number"][0].as_py() for batch in batches] == [
        sign * number for number in range(1, tasks + 1) for sign in (1, -1)
    ]
    assert all(batch.schema.names == ["process", "number"] for batch in batches)


def test_only_many_tasks_are_read_by_other_processes() -> None:
    few, many = (read_tasks(Reader(), [Task(1)] * count) for count in (FEW_TASKS, FEW_TASKS + 1))
    assert {batch["process"][0].as_py() for batch in few} == {os.getpid()}
    assert os.getpid() not in {batch["process"][0].as_py() for batch in many}


@pytest.mark.parametrize("others", [0, FEW_TASKS])
def test_an_error_of_the_source_is_raised_as_it_is(others: int) -> None:
    with pytest.raises(ClusterError, match=r"^the cluster is down$"):
        read_tasks(Reader(), [*[Task(1)] * others, Task(2, "fails")])


def test_a_process_that_the_system_kills_is_one_clear_error() -> None:
    with pytest.raises(LakeError, match="a process that reads the cluster has ended"):
        read_tasks(Reader(), [*[Task(1)] * FEW_TASKS, Task(2, "dies")])


def test_processes_that_read_end_with_a_killed_job(tmp_path: Path) -> None:
    reads = tmp_path / "reads"
    program = (
        "from pipeline.common.source_rows import read_tasks\n"
        "from tests.common.test_source_rows import Reader, Task\n"
        f"if __name__ == '__main__': read_tasks(Reader(), [Task(1, 'sleeps')] * {FEW_TASKS + 1})\n"
    )
    (tmp_path / "job.py").write_text(program)
    place = {**os.environ, "PYTHONPATH": str(ROOT), "LAGLAKE_TEST_READS": str(reads)}
    with subprocess.Popen([sys.executable, str(tmp_path / "job.py")], env=place) as job:
        wait_for(lambda: reads.exists() and bool(reads.read_text()))
        job.kill()
    reader = int(reads.read_text())
    wait_for(lambda: not Path(f"/proc/{reader}").exists())


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)
