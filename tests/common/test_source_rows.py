"""Data sources read without Spark: in threads, or in processes if there are many tasks."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.common.errors import ClusterError, LakeError
from pipeline.common.source_rows import FEW_TASKS, read_tasks


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
    with pytest.raises(LakeError, match="a process that reads was killed"):
        read_tasks(Reader(), [*[Task(1)] * FEW_TASKS, Task(2, "dies")])
