"""Who owns a group, by the rules of the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.common.arrow_udf import with_arrow_column
from pipeline.common.data_source import MOST_SEARCHED
from pipeline.tables.columns import STRING

Rules = Sequence[tuple[str, str]]
"""Regular expressions (`re.search`) for names of groups, each with the owner. The first that matches counts."""


def with_owner(groups: DataFrame, rules: Rules) -> DataFrame:
    """Sets the column `owner` of rows that have `group_id`: the owner, or NULL if no rule matches."""
    if not rules:
        return groups.withColumn("owner", F.lit(None).cast(STRING))
    return with_arrow_column(groups, "owner", _owners_by(rules), STRING, F.col("group_id"))


def _owners_by(rules: Rules) -> Callable[[pa.Array], pa.Array]:
    """A function from names to owners. Each name is searched once, because every snapshot has the same names."""

    def owners(names: pa.Array) -> pa.Array:
        compiled = [(re.compile(expression), owner) for expression, owner in rules]

        @cache
        def owner_of(name: str) -> str | None:
            searched = name[:MOST_SEARCHED]
            return next((owner for expression, owner in compiled if expression.search(searched)), None)

        return pa.array([None if name is None else owner_of(name) for name in names.to_pylist()], pa.string())

    return owners
