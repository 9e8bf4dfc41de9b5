"""What the Kafka data sources share: planning, one client per task, Arrow batches, counting of requests.

At every action, Spark runs `partitions()` once on the driver and `read()` for each partition on an executor. So write
a source to a table once, and then read that table.
"""

from __future__ import annotations

import gc
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from pipeline.common.data_source import MAX_BATCH_ROWS, arrow_schema
from pipeline.common.errors import ClusterError
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.options import SourceOptions

MAX_BATCH_BYTES = 16 * 1024**2
"""The largest batch. A commit may have 4 KB of metadata, and Spark keeps several batches in memory."""

REQUEST_COLUMNS = (StructField("request_broker", IntegerType()), StructField("requests", LongType()))
"""With the option `count_requests`, rows with only these two columns say how many requests a task sent to a broker. A
row without a broker says how often the task was tried before: what those attempts have sent is lost with them."""


Columns = Mapping[str, Sequence[Any]]


@dataclass
class Chunk(InputPartition):
    """What one executor task reads: items of one broker or several, and partitions with their placements.

    `planned` counts the requests made for planning; `unreachable` are the brokers that could not be asked then, and
    why. `cluster_id` is the cluster found when planning; no other is read. Nothing is read after `until_ms`.
    """

    broker: int | None
    address: str | None
    items: Sequence[Any]
    planned: Mapping[int, int] = field(default_factory=dict)
    placements: Mapping[Any, Any] = field(default_factory=dict)
    unreachable: Mapping[int, str] = field(default_factory=dict)
    cluster_id: str | None = None
    until_ms: float = math.inf

    @property
    def has_work(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.items or self.placements)


class KafkaSource(DataSource):
    """A PySpark data source over one Kafka cluster. Options: see `pipeline.kafka.options.SourceOptions`."""

    observed: ClassVar[StructType]
    reader_class: ClassVar[type[KafkaReader]]

    def schema(self) -> StructType:
        """The observed columns, and those for request counts if these are wanted."""
        options = SourceOptions.parse(dict(self.options))
        extra = REQUEST_COLUMNS if options.count_requests else ()
        return StructType([*self.observed.fields, *extra])

    def reader(self, schema: StructType) -> KafkaReader:
        """The reader that Spark sends to the executors."""
        return self.reader_class(schema, SourceOptions.parse(dict(self.options)))


class KafkaReader(DataSourceReader):
    """Plans chunks on the driver, reads one on an executor."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self.schema = schema
        self.options = options

    def plan(self, client: KafkaClient) -> list[Chunk]:
        """The chunks to read."""
        raise NotImplementedError

    def fetch(self, client: KafkaClient, chunk: Chunk) -> Iterator[Columns]:
        """The rows of one chunk, in columns. What cannot be read is a row with its error."""
        raise NotImplementedError

    def unread(self, chunk: Chunk, reason: ClusterError) -> Iterator[Columns]:
        """The error rows of a chunk, if the cluster cannot be reached, or not any more."""
        raise NotImplementedError

    def counted(self, requests: Mapping[int | None, int]) -> Columns:
        """The rows that count requests by broker, and attempts without one."""
        return {"request_broker": [*requests], "requests": [*requests.values()]}

    def partitions(self) -> Sequence[InputPartition]:
        """Raises ClusterError if no bootstrap server answers."""
        deadline_ms = self.options.deadline_ms()
        with KafkaClient(self.options.until(deadline_ms)) as client:
            chunks = self.plan(client) or [Chunk(None, None, ())]
            chunks[0].planned = dict(client.requests)
            for chunk in chunks:
                chunk.unreachable, chunk.cluster_id = client.unreachable(), client.cluster_id()
                chunk.until_ms = deadline_ms
        return chunks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one chunk."""
        chunk = cast(Chunk, partition)
        # Python 3.11 warns that kafka-python's IO thread may be forked; a task does not fork while it has a client.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        # An answer is decoded into many objects, without cycles; garbage collection would only take time.
        gc.disable()
        try:
            yield from self._read(chunk)
        finally:
            gc.enable()

    def _read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        requests: Counter[int | None] = Counter(chunk.planned)
        requests[None] = attempts_before()
        if chunk.has_work:
            try:
                options = replace(
                    self.options.until(chunk.until_ms), cluster_id=chunk.cluster_id or self.options.cluster_id
                )
                with KafkaClient(options, [chunk.address] if chunk.address else []) as client:
                    client.give_up(chunk.unreachable)
                    for columns in self.fetch(client, chunk):
                        yield from self.batches(columns)
                    requests += client.requests
            except ClusterError as reason:
                for columns in self.unread(chunk, reason):
                    yield from self.batches(columns)
        if self.options.count_requests:
            yield from self.batches(self.counted({broker: count for broker, count in requests.items() if count}))

    def batches(self, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Arrow batches with all columns of the source; those that are not given are NULL."""
        schema = arrow_schema(self.schema)
        rows = max(map(len, columns.values()), default=0)
        arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema]
        table = pa.Table.from_arrays(arrays, schema=schema)
        for batch in table.to_batches(max_chunksize=MAX_BATCH_ROWS):
            yield from _split(batch)


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in batches that are not larger than MAX_BATCH_BYTES, unless they have only one row."""
    if batch.num_rows <= 1 or batch.nbytes <= MAX_BATCH_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half))
    yield from _split(batch.slice(half))


def attempts_before() -> int:
    """How often Spark has tried this task before: after a lost executor, or beside a slow one (speculation)."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def known(value: int) -> int | None:
    """The value, or None for -1, which in Kafka means an unknown offset, epoch, broker or timestamp."""
    return None if value < 0 else value
