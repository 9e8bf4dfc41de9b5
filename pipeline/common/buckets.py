"""Distributes the rows of several tables in buckets, and calls a function of Arrow tables for each bucket.

A bucket has all rows of some values of a key, from each of the tables. Rows travel as Arrow's own bytes: a worker packs
rows that belong to the same bucket into one value of a narrow table, which Spark exchanges and keeps like any other. So
Spark neither joins nor sorts, and does not take rows apart only to put them together again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import NamedTuple
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
"""The rows of each table in one bucket, by the table's name."""
OfBucket = Callable[[Bucket], pa.Table]
"""A function of the rows in one bucket, which returns other rows."""
PACKED = StructType().add("part", StringType()).add("bucket", IntegerType()).add("packed", BinaryType())
"""Rows of a table (`part`) in one bucket (its number), as an Arrow stream."""
PACKED_BYTES = 48 * 2**20
"""Rows of about this many bytes are packed at a time."""
JOINED_BYTES = 4 * 2**20
"""Buckets of one task are computed together until they have this many packed bytes, some 100,000 rows. Spark joins
buckets to tasks by the size of their packed rows, so a task may have far more rows than fit into a worker."""
ROWS_A_BUCKET = 100_000
"""Rows of a large table that are computed together, with those from which they continue. More rows need more memory,
fewer rows need more calls."""
BUCKETS_IF_NOT_GIVEN = 64
"""Rows are packed for this many buckets if their number is not given. Spark joins them to as few tasks as fit."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class Spread:
    """By which key a table is spread, and over how many buckets. Without a key, any row may be in any bucket."""

    key: tuple[str, ...] = ()
    buckets: int | None = None

    def split_tables(self, tables: Bucket, count: int) -> Sequence[Callable[[], Bucket]]:
        """Functions that return the rows of the tables in each of `count` buckets, in this process."""
        numbers = {name: self._hashes(rows) % count for name, rows in tables.items()}

        def of_bucket(number: int) -> Bucket:
            # By a filter, because `take` would first copy all rows of a table in several chunks.
            return {name: rows.filter(pa.array(numbers[name] == number)) for name, rows in tables.items()}

        return [partial(of_bucket, number) for number in range(count)]

    def bucket_numbers(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The number of each row's bucket, which is the same in each process."""
        count = self.buckets or BUCKETS_IF_NOT_GIVEN
        return _numbers_by_task(count)[self._hashes(rows) % count]

    def _hashes(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """A hash of each row's key. NULL counts as a value."""
        hashes = np.zeros(len(rows), np.int64)
        for name in self.key:
            values = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
            texts = values.dictionary.cast(pa.string()).cast(pa.binary()).to_pylist()
            hash_of_text = np.array([0 if text is None else crc32(text) for text in texts], np.int64)
            hashes = (hashes * 31 + hash_of_text[values.indices.to_numpy()]) % 2**32
        return hashes


@cache
def _numbers_by_task(count: int) -> npt.NDArray[np.int64]:
    """A number for each of `count` buckets, such that Spark puts each into a task of its own.

    Spark hashes the number again. With the numbers from 0 on, buckets would share tasks: of 20, five would be in one
    task, and nine tasks would have none.
    """
    numbers: dict[int, int] = {}
    candidate = 0
    while len(numbers) < count:
        numbers.setdefault(_murmur3(candidate) % count, candidate)
        candidate += 1
    return np.array([numbers[task] for task in range(count)], np.int64)


def _murmur3(number: int) -> int:
    """The hash by which Spark spreads an integer: its Murmur3_x86_32, with the seed 42, as a signed number."""
    mixed = number * 0xCC9E2D51 % 2**32
    mixed = (mixed << 15 | mixed >> 17) % 2**32 * 0x1B873593 % 2**32
    hashed = 42 ^ mixed
    hashed = ((hashed << 13 | hashed >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32
    hashed ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = (hashed ^ hashed >> shift) * factor % 2**32
    hashed ^= hashed >> 16
    return hashed - 2**32 if hashed >= 2**31 else hashed


class Form(NamedTuple):
    """How rows of a table travel on: with which columns, and how they are spread."""

    schema: StructType
    spread: Spread


@dataclass(frozen=True)
class Packed:
    """Some columns of a table, packed: the rows of PACKED in `rows` whose column `part` is `part`."""

    rows: DataFrame
    part: str
    form: Form

    @classmethod
    def of(cls, rows: DataFrame, form: Form) -> Packed:
        """The rows of a table, which has the columns of the form."""
        types = arrow_schema(form.schema)

        def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            exempt_modules()
            for some in _lists_to_pack(batches):
                with bad_values():
                    yield from packed_rows(pa.Table.from_batches(some).cast(types), {"": form})

        return cls(rows.mapInArrow(pack, PACKED), "", form)

    def unpacked(self) -> DataFrame:
        """The rows, with the columns of the form."""
        fields = [*range(len(self.form.schema))]

        def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            exempt_modules()
            for batch in batches:
                for packed in batch["packed"]:
                    yield from _unpacked(packed, fields).to_batches()

        return self.rows.where(F.col("part") == self.part).mapInArrow(unpack, self.form.schema)

    def named(self, name: str) -> DataFrame:
        """The packed rows, with another name of the part."""
        return self.rows.where(F.col("part") == self.part).select(F.lit(name).alias("part"), "bucket", "packed")


@cache
def exempt_modules() -> None:
    """Exempts what a worker of Spark has imported from its garbage collection.

    PySpark collects garbage after each task. Without this, it looks at all objects of all modules each time, which
    takes two thirds of the time of a small task.
    """
    gc.freeze()


def in_buckets(
    parts: Mapping[str, Packed],
    spread: Spread,
    schemas: Mapping[str, StructType],
    function: Callable[[Bucket], Iterator[pa.RecordBatch]],
    returns: StructType,
) -> DataFrame:
    """What the function makes of all buckets, with the columns of `returns`.

    With a key, all parts are spread as `spread` says. Without one, they may be spread in any way, and nothing is
    exchanged. `schemas` has the columns of each part that the function gets.
    """
    rows = reduce(DataFrame.unionAll, (packed.named(part) for part, packed in parts.items()))
    if spread.key:
        rows = rows.repartition("bucket") if spread.buckets is None else rows.repartition(spread.buckets, "bucket")
    fields = {
        part: [packed.form.schema.names.index(name) for name in schemas[part].names] for part, packed in parts.items()
    }
    types = {part: arrow_schema(schemas[part]) for part in parts}

    def of_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        exempt_modules()
        for packed in _by_bucket(batches, spread):
            bucket = {part: _joined_rows(packed.pop(part, []), fields[part], types[part]) for part in types}
            with bad_values():
                yield from function(bucket)

    return rows.mapInArrow(of_buckets, returns)


def _by_bucket(batches: Iterable[pa.RecordBatch], spread: Spread) -> Iterator[dict[str, list[pa.BinaryScalar]]]:
    """The packed rows of the buckets of a task, by part; small ones are one bucket.

    Without a key, each packed value is a bucket, so that no more of them are in memory.
    """
    buckets: dict[int, dict[str, list[pa.BinaryScalar]]] = {}
    for batch in batches:
        for part, number, rows in zip(*(batch[name] for name in PACKED.names), strict=True):
            if not spread.key:
                yield {part.as_py(): [rows]}
                continue
            buckets.setdefault(number.as_py(), {}).setdefault(part.as_py(), []).append(rows)
    joined: dict[str, list[pa.BinaryScalar]] = {}
    size = 0
    while buckets:
        for part, packed in buckets.popitem()[1].items():
            joined.setdefault(part, []).extend(packed)
            size += sum(rows.as_buffer().size for rows in packed)
        if size >= JOINED_BYTES or not buckets:
            yield joined
            joined, size = {}, 0


def _joined_rows(packed: Sequence[pa.BinaryScalar], fields: Sequence[int], types: pa.Schema) -> pa.Table:
    tables = (_unpacked(rows, fields).select(types.names) for rows in packed)
    return pa.concat_tables([types.empty_table(), *tables])


def packed_rows(rows: pa.Table, forms: Mapping[str, Form]) -> Iterator[pa.RecordBatch]:
    """The rows as PACKED, once in each form; `forms` has the name of the part of each."""
    if not len(rows):
        return
    for part, (schema, spread) in forms.items():
        numbers = spread.bucket_numbers(rows)
        order = np.argsort(numbers, kind="stable")
        buckets, first = np.unique(numbers[order], return_index=True)
        in_order = rows.select(schema.names).combine_chunks().take(pa.array(order))
        ends = [*first[1:].tolist(), len(rows)]
        packed = [
            _ipc_bytes(in_order.slice(begin, end - begin)) for begin, end in zip(first.tolist(), ends, strict=True)
        ]
        columns = [pa.repeat(part, len(packed)), pa.array(buckets, pa.int32()), pa.array(packed, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=PACKED.names)


def _ipc_bytes(rows: pa.Table) -> bytes:
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


def _lists_to_pack(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches in lists of about PACKED_BYTES."""
    collected: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        collected.append(batch)
        size += batch.nbytes
        if size >= PACKED_BYTES:
            yield collected
            collected, size = [], 0
    if collected:
        yield collected
