"""Who owns a group, by the rules of the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.common.arrow_udf import with_arrow_column
from pipeline.common.data_source import MOST_SEARCHED, arrow_schema
from pipeline.tables.columns import STRING


class Owned(NamedTuple):
    """The columns that say whose a group is; each may be None."""

    owner: str | None = None
    tier: str | None = None
    channel: str | None = None


Rules = Sequence[tuple[str, Owned]]
"""Regular expressions (`re.search`) for names of groups, each with the owner. The first that matches counts."""
_OWNED = StructType([StructField(name, STRING) for name in Owned._fields])


def with_owner(groups: DataFrame, rules: Rules, others: Owned) -> DataFrame:
    """Sets the columns of `Owned` in rows that have `group_id`: those of the first rule that matches, else `others`."""
    if not rules:
        return groups.withColumns({name: F.lit(value).cast(STRING) for name, value in others._asdict().items()})
    found = with_arrow_column(groups, "owned", _owners_by(rules, others), _OWNED, F.col("group_id"))
    return found.withColumns({name: F.col(f"owned.{name}") for name in Owned._fields}).drop("owned")


def _owners_by(rules: Rules, others: Owned) -> Callable[[pa.Array], pa.Array]:
    """A function from names to `Owned`. Each name is searched once, because every snapshot has the same names."""
    fields = arrow_schema(_OWNED)

    def owners(names: pa.Array) -> pa.Array:
        compiled = [(re.compile(expression), owned) for expression, owned in rules]

        @cache
        def owned_of(name: str) -> Owned:
            searched = name[:MOST_SEARCHED]
            return next((owned for expression, owned in compiled if expression.search(searched)), others)

        found = (others if name is None else owned_of(name) for name in names.to_pylist())
        return pa.array([owned._asdict() for owned in found], pa.struct(fields))

    return owners
