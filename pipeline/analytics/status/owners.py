"""Who owns a group, by the rules of the configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from pipeline.common.data_source import MOST_SEARCHED


class Owned(NamedTuple):
    """The columns that say whose a group is; each may be None."""

    owner: str | None = None
    tier: str | None = None
    channel: str | None = None


NOBODY = Owned()
Rules = Sequence[tuple[str, Owned]]
"""Regular expressions (`re.search`) for names of groups, each with the owner. The first that matches counts."""
_COLUMNS = pa.schema([(name, pa.string()) for name in Owned._fields])


def owners_of(names: pa.ChunkedArray, rules: Rules, others: Owned) -> pa.Table:
    """The columns of `Owned` for each name of a group: those of the first rule that matches, else `others`.

    Only the first MOST_SEARCHED characters of a name are searched. No rule matches a name of NULL.
    """
    compiled = [(re.compile(expression), owned) for expression, owned in rules]

    def owner_of(name: str) -> Owned:
        searched = name[:MOST_SEARCHED]
        return next((owned for expression, owned in compiled if expression.search(searched)), others)

    # Every snapshot has the same names, so each name is searched once.
    encoded = names.combine_chunks().dictionary_encode()
    found = [owner_of(name) for name in encoded.dictionary.to_pylist()]
    distinct = pa.Table.from_pylist([owned._asdict() for owned in (*found, others)], _COLUMNS)
    return distinct.take(encoded.indices.fill_null(len(found)))
