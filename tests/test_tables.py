"""One walk over every schema: names, units, keys."""

import re

import pytest
from pyspark.sql.types import IntegerType, LongType, TimestampType

from pipeline.tables import BRONZE, SNAPSHOTS, TABLES, Table

ALL = [pytest.param(table, id=table.name) for table in TABLES]
NOT_OF_ONE_SNAPSHOT = {
    "findings": (
        *("first_seen", "last_seen", "resolved_at", "resolution_confirmed_at", "worst_at"),
        *("cause_since", "grouped_at"),
    ),
    "lag_histograms": ("window_start",),
    "lag_rollup": ("window_start", "first_captured_at", "last_captured_at"),
    "log_index": ("seen_at",),
    "notifications": ("first_tried_at", "last_tried_at"),
}
"""The tables whose rows are not of one snapshot, but of several or of a time, and the columns that say so."""


@pytest.mark.parametrize("table", ALL)
def test_columns_are_lower_snake_case_and_unique(table: Table) -> None:
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in table.columns)
    assert len(set(table.columns)) == len(table.columns)


@pytest.mark.parametrize("table", ALL)
def test_units_have_their_types(table: Table) -> None:
    for column in table.schema:
        if re.search(r"_(ms|bytes|offset)$", column.name):
            assert column.dataType == LongType(), column.name
        if column.name.endswith("_at"):
            assert column.dataType == TimestampType(), column.name
        if column.name in ("partition", "leader", "leader_epoch"):
            assert column.dataType == IntegerType(), column.name


@pytest.mark.parametrize("table", ALL)
def test_every_column_is_explained(table: Table) -> None:
    assert all(column.metadata["comment"] for column in table.schema)


@pytest.mark.parametrize("table", ALL)
def test_every_table_is_partitioned_by_cluster_first_and_its_key_starts_there(table: Table) -> None:
    assert table.partitioned_by[0] == "cluster"
    assert {*table.partitioned_by, *table.key} <= set(table.columns)
    assert table.key == () or table.key[0] == "cluster"


def test_the_ledger_is_made_last() -> None:
    assert TABLES[-1] is SNAPSHOTS


@pytest.mark.parametrize("table", [pytest.param(t, id=t.name) for t in BRONZE])
def test_a_source_observes_all_but_the_snapshot(table: Table) -> None:
    assert ["cluster", "snapshot_id", "snapshot_date", *table.observed.names] == table.columns


@pytest.mark.parametrize("table", ALL)
def test_the_snapshot_of_a_row_is_a_timestamp_too(table: Table) -> None:
    instants = {column.name for column in table.stored if column.dataType == TimestampType()}
    if table.name in NOT_OF_ONE_SNAPSHOT:
        assert "snapshot_id" not in table.columns
        assert set(NOT_OF_ONE_SNAPSHOT[table.name]) == instants
    else:
        assert "snapshot_id" in table.columns
        assert "snapshot_at" in instants
        assert "snapshot_at" not in table.columns, "laglake neither computes nor reads it"
