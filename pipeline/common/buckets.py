"""Distributes the rows of several tables in buckets, and calls a function of Arrow tables for each bucket.

A bucket has all rows of some values of a key, from each of the tables. Rows travel as Arrow's own bytes: a worker packs
rows that belong to the same bucket into one value of a narrow table, which Spark exchanges and keeps like any other. So
Spark neither joins nor sorts, and does not take rows apart only to put them together again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from pipeline.common.bad_values import bad_values
from pipeline.common.data_source import arrow_schema

Bucket = Mapping[str, pa.Table]
"""The rows of each table in one bucket, by its name."""
OfBucket = Callable[[Bucket], pa.Table]
"""A function of the rows in one bucket, which returns other rows."""
PACKED = StructType().add("part", StringType()).add("bucket", IntegerType()).add("packed", BinaryType())
"""Packed rows of a table in one bucket, which has a number."""
PACKED_BYTES = 48 * 2**20
"""About so many bytes of rows are packed at a time."""
ROWS_A_BUCKET = 50_000
"""Rows of a large table that are computed together, in memory."""
UNCOUNTED = 64
"""If it is not given how many buckets there are, rows are packed for so many, which Spark joins to as few as fit."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class Spread:
    """By which key a table is spread, and over how many buckets. Without a key, any row may be in any bucket."""

    key: tuple[str, ...] = ()
    buckets: int | None = None

    def numbers(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The number of each row's bucket, which is the same in each process. NULL counts as a value."""
        hashes = np.zeros(len(rows), np.int64)
        for name in self.key:
            values = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
            names = values.dictionary.cast(pa.string()).cast(pa.binary()).to_pylist()
            of_value = np.array([0 if value is None else crc32(value) for value in names], np.int64)
            hashes = (hashes * 31 + of_value[values.indices.to_numpy()]) % 2**32
        return hashes % (self.buckets or UNCOUNTED)


@dataclass(frozen=True)
class Packed:
    """Some columns of a table, packed: `rows` are those of PACKED whose `part` is given."""

    rows: DataFrame
    part: str
    schema: StructType
    spread: Spread

    @classmethod
    def of(cls, rows: DataFrame, schema: StructType, spread: Spread) -> Packed:
        """The rows of a table, which has the columns of the schema."""
        types, spreads = arrow_schema(schema), {"": (spread, schema.names)}

        def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for some in _enough(batches):
                with bad_values():
                    yield from packed_rows(pa.Table.from_batches(some).cast(types), spreads)

        return cls(rows.mapInArrow(pack, PACKED), "", schema, spread)

    def unpacked(self) -> DataFrame:
        """The rows, with the columns of the schema."""
        fields = [*range(len(self.schema))]

        def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for packed in batch["packed"]:
                    yield from _unpacked(packed, fields).to_batches()

        return self.rows.where(F.col("part") == self.part).mapInArrow(unpack, self.schema)

    def named(self, name: str) -> DataFrame:
        """The packed rows, with another name of the part."""
        return self.rows.where(F.col("part") == self.part).select(F.lit(name).alias("part"), "bucket", "packed")


def in_buckets(
    parts: Mapping[str, Packed],
    spread: Spread,
    schemas: Mapping[str, StructType],
    function: Callable[[Bucket], Iterator[pa.RecordBatch]],
    returns: StructType,
) -> DataFrame:
    """What the function makes of all buckets, with the columns of `returns`. All parts are spread as `spread` says.

    `schemas` has the columns of each part that the function gets. Without a key, nothing is exchanged.
    """
    rows = reduce(DataFrame.unionAll, (packed.named(part) for part, packed in parts.items()))
    if spread.key:
        rows = rows.repartition("bucket") if spread.buckets is None else rows.repartition(spread.buckets, "bucket")
    fields = {part: [packed.schema.names.index(name) for name in schemas[part].names] for part, packed in parts.items()}
    types = {part: arrow_schema(schemas[part]) for part in parts}

    def of_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for packed in _by_bucket(batches, spread):
            bucket = {part: _together(packed.pop(part, []), fields[part], types[part]) for part in types}
            with bad_values():
                yield from function(bucket)

    return rows.mapInArrow(of_buckets, returns)


def _by_bucket(batches: Iterable[pa.RecordBatch], spread: Spread) -> Iterator[dict[str, list[pa.BinaryScalar]]]:
    """The packed rows of each bucket by part; all are one bucket if it was not given how many there are.

    Without a key, packed rows that come together are a bucket, so that no more of them are in memory.
    """
    buckets: dict[int, dict[str, list[pa.BinaryScalar]]] = {}
    for batch in batches:
        for part, number, rows in zip(*(batch[name] for name in PACKED.names), strict=True):
            if not spread.key:
                yield {part.as_py(): [rows]}
                continue
            of_bucket = buckets.setdefault(0 if spread.buckets is None else number.as_py(), {})
            of_bucket.setdefault(part.as_py(), []).append(rows)
    while buckets:
        yield buckets.popitem()[1]


def _together(packed: Sequence[pa.BinaryScalar], fields: Sequence[int], types: pa.Schema) -> pa.Table:
    tables = (_unpacked(rows, fields).select(types.names) for rows in packed)
    return pa.concat_tables([types.empty_table(), *tables])


def packed_rows(rows: pa.Table, spreads: Mapping[str, tuple[Spread, Sequence[str]]]) -> Iterator[pa.RecordBatch]:
    """The rows as PACKED, for each part that `spreads` names: how it is spread, and which columns it has."""
    for part, (spread, names) in spreads.items() if len(rows) else ():
        numbers = spread.numbers(rows)
        order = np.argsort(numbers, kind="stable")
        buckets, first = np.unique(numbers[order], return_index=True)
        in_order = rows.select([*names]).combine_chunks().take(pa.array(order))
        ends = [*first[1:].tolist(), len(rows)]
        packed = [_packed(in_order.slice(begin, end - begin)) for begin, end in zip(first.tolist(), ends, strict=True)]
        columns = [pa.repeat(part, len(packed)), pa.array(buckets, pa.int32()), pa.array(packed, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=PACKED.names)


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _unpacked(packed: pa.BinaryScalar, fields: Sequence[int]) -> pa.Table:
    """The rows with the columns of these numbers, in ascending order."""
    with pa.ipc.open_stream(
        packed.as_buffer(), options=pa.ipc.IpcReadOptions(included_fields=sorted(fields))
    ) as stream:
        return stream.read_all()


def _enough(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches in lists of about PACKED_BYTES."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        some.append(batch)
        size += batch.nbytes
        if size >= PACKED_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
