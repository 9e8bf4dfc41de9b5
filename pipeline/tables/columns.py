"""What the definitions of tables are made of: the class Table, and columns that several tables have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

INT, LONG, STRING, BINARY, BOOLEAN = IntegerType(), LongType(), StringType(), BinaryType(), BooleanType()

DATE, TIMESTAMP = DateType(), TimestampType()

Column = tuple[str, DataType, str]


def schema(*columns: Column) -> StructType:
    """The schema with these columns, each given by its name, type and meaning."""
    return StructType([StructField(name, type_, True, {"comment": comment}) for name, type_, comment in columns])


SNAPSHOT_AT = StructField("snapshot_at", TIMESTAMP, True, {"comment": "snapshot_id as a timestamp, for queries"})
"""Written with each row that has a `snapshot_id`."""


@dataclass(frozen=True)
class Table:
    """One Delta table. `about` says what it holds; `key` names what is unique among the rows without an error.

    `schema` is what laglake computes and reads. Where it has `snapshot_id`, the table has SNAPSHOT_AT as well.
    `series` names the columns whose rows belong together over time, where the key does not say so.
    """

    name: str
    about: str
    schema: StructType
    key: tuple[str, ...]
    partitioned_by: tuple[str, ...]
    series: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The column names, in the order of the table."""
        return self.schema.names

    def some(self, columns: Sequence[str]) -> StructType:
        """The schema of some columns."""
        return StructType([self.schema[name] for name in columns])

    @property
    def stored(self) -> StructType:
        """The columns as people find them: `schema`, and the snapshot's instant as a timestamp."""
        return StructType([*self.schema, SNAPSHOT_AT]) if "snapshot_id" in self.columns else self.schema

    @property
    def sort_order(self) -> tuple[str, ...]:
        """How the job `maintain` sorts the rows of a past day: each series by itself, in the order of time.

        Neighbouring rows are then almost equal, so that they take little storage, and the rows of one group lie
        together. Partitions come first, because Spark would otherwise sort once more by them.
        """
        series = self.series or tuple(name for name in self.key if name not in (*self.partitioned_by, *_TIMES))
        return (*self.partitioned_by, *series, *(name for name in _TIMES if name in self.columns))

    @property
    def observed(self) -> StructType:
        """The columns that a data source observes: all but those that name the snapshot."""
        return StructType([f for f in self.schema.fields if f.name not in _SNAPSHOT_NAMES])


CLUSTER: Column = ("cluster", STRING, "name of the cluster in the configuration")

SNAPSHOT: tuple[Column, ...] = (
    CLUSTER,
    ("snapshot_id", LONG, "the scheduled instant, epoch ms"),
    ("snapshot_date", DATE, "UTC date of snapshot_id"),
)

_TIMES = ("snapshot_id", "window_start")

_SNAPSHOT_NAMES = {name for name, _, _ in SNAPSHOT}

CAPTURED: Column = ("captured_at", TIMESTAMP, "when the broker's answer arrived")

ERROR: Column = ("error", STRING, "Kafka's name of the error that kept the row from being read, or NULL")

GROUP: Column = ("group_id", STRING, "consumer group")

TOPIC: Column = ("topic", STRING, "topic")

TOPIC_ID: Column = ("topic_id", STRING, "Kafka's topic id, base64url; it changes when a topic is recreated")

PARTITION: Column = ("partition", INT, "partition")
