"""Arrow tables whose values are in a file."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.common.errors import LakeError
from pipeline.lake.table_files import IN_MEMORY_BYTES, table_in_file
from tests.helpers.full_disk import full_disk

SCHEMA = pa.schema({"number": pa.int64(), "name": pa.string(), "when": pa.timestamp("us", "UTC")})


def batch(first: int, rows: int) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    columns = [numbers, [f"{number}" * 5 if number % 3 else None for number in numbers], numbers]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def test_many_rows_are_in_a_file_without_a_name(tmp_path: Path) -> None:
    folder, before = tmp_path / "not" / "there", pa.total_allocated_bytes()
    batches = [batch(first, 50_000) for first in range(0, 500_000, 50_000)]
    assert sum(each.nbytes for each in batches) > 2 * IN_MEMORY_BYTES
    expected = pa.Table.from_batches(batches)
    found = table_in_file(iter(batches), SCHEMA, folder)
    assert found.equals(expected)
    assert found.schema == SCHEMA
    del batches, expected
    assert pa.total_allocated_bytes() - before < 2**20
    assert found["number"].combine_chunks().to_numpy().sum() == sum(range(500_000))
    assert list(folder.iterdir()) == []


def test_few_rows_stay_in_memory(tmp_path: Path) -> None:
    folder = tmp_path / "not there"
    assert table_in_file([batch(0, 10), batch(10, 10)], SCHEMA, folder).equals(pa.Table.from_batches([batch(0, 20)]))
    assert table_in_file([], SCHEMA, folder).equals(SCHEMA.empty_table())
    assert not folder.exists()


def test_if_there_can_be_no_file_the_rows_are_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    many = [batch(0, 300_000), batch(300_000, 200_000)]
    assert table_in_file(many, SCHEMA, tmp_path / "file").equals(pa.Table.from_batches(many))


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with full_disk(tmp_path / "full") as why, pytest.raises(LakeError, match=f"full: many rows .* in a file: .*{why}"):
        table_in_file([batch(0, 300_000), batch(300_000, 200_000)], SCHEMA, tmp_path / "full")


def test_an_error_of_the_rows_is_not_one_of_the_file(tmp_path: Path) -> None:
    def lost() -> Iterator[pa.RecordBatch]:
        yield batch(0, 500_000)
        raise FileNotFoundError("a file of the table")

    with pytest.raises(FileNotFoundError, match="a file of the table"):
        table_in_file(lost(), SCHEMA, tmp_path)
