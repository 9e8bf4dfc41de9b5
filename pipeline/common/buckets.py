"""Distributes the rows of several tables in buckets, and calls a function of Arrow tables for each bucket.

A bucket has all rows of some values of a key, from each of the tables. All tables are exchanged at once: their columns
are packed into those of one narrow table, in which columns of the same type share their place. So Spark neither joins
nor sorts, and an exchange has no columns that are NULL in most rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pipeline.common.bad_values import bad_values
from pipeline.common.data_source import arrow_schema

Bucket = Mapping[str, pa.Table]
"""The rows of each table in one bucket, by its name."""
OfBucket = Callable[[Bucket], pa.Table]
_PART = "part"


def parts_in_buckets(
    parts: Mapping[str, DataFrame],
    schemas: Mapping[str, StructType],
    key: Sequence[str],
    function: OfBucket,
    returns: StructType,
    buckets: int | None = None,
) -> DataFrame:
    """What the function makes of all buckets. `schemas` has the columns of each part; `returns`, those of the result.

    All parts have the columns of the key. Without a number of buckets, Spark decides. Without a key, any rows may be in
    any bucket, so that nothing is exchanged.
    """
    packing = _Packing.of({name: schemas[name] for name in parts}, key)
    packed = reduce(DataFrame.unionAll, (packing.packed(name, rows) for name, rows in parts.items()))
    spread = packed
    if key:
        spread = packed.repartition(*key) if buckets is None else packed.repartition(buckets, *key)

    def of_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if bucket := [*batches]:
            with bad_values():
                yield from function(packing.unpacked(pa.Table.from_batches(bucket))).to_batches()

    return spread.mapInArrow(of_bucket, returns)


@dataclass(frozen=True)
class _Packing:
    """Which place each column of each part has in the packed table.

    `places` are the names and types of the packed columns; `taken` has for each part and column the name of its place.
    """

    schemas: Mapping[str, StructType]
    key: Sequence[str]
    places: Mapping[str, DataType]
    taken: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, schemas: Mapping[str, StructType], key: Sequence[str]) -> _Packing:
        places: dict[str, DataType] = {}
        taken: dict[str, dict[str, str]] = {}
        kinds: dict[str, int] = {}
        for part, schema in schemas.items():
            counts: dict[int, int] = {}
            taken[part] = {}
            for field in schema:
                if field.name in key:
                    continue
                kind = kinds.setdefault(field.dataType.simpleString(), len(kinds))
                counts[kind] = counts.get(kind, 0) + 1
                place = f"_{kind}_{counts[kind]}"
                places[place] = field.dataType
                taken[part][field.name] = place
        return cls(schemas, key, places, taken)

    def packed(self, part: str, rows: DataFrame) -> DataFrame:
        """The rows of a part in the columns of the packed table."""
        of_place = {place: name for name, place in self.taken[part].items()}

        def value(place: str, kind: DataType) -> Column:
            name = of_place.get(place)
            return (F.lit(None) if name is None else F.col(name)).cast(kind).alias(place)

        number = F.lit([*self.schemas].index(part)).cast("tinyint").alias(_PART)
        return rows.select(number, *self.key, *(value(place, kind) for place, kind in self.places.items()))

    def unpacked(self, rows: pa.Table) -> dict[str, pa.Table]:
        """The rows of each part, with the Arrow types of its schema."""
        parts = {}
        for number, (part, schema) in enumerate(self.schemas.items()):
            own = rows.filter(pc.equal(rows[_PART], pa.scalar(number, pa.int8())))
            names = [self.taken[part].get(name, name) for name in schema.names]
            parts[part] = own.select(names).rename_columns(schema.names).cast(arrow_schema(schema))
        return parts
