"""Arrow tables whose values are in a file."""

from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.common.errors import LakeError
from pipeline.lake.table_files import IN_MEMORY_BYTES, table_in_file

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


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(LakeError, match=f"{file}: many rows cannot be kept in a file: "):
        table_in_file([batch(0, 500_000)], SCHEMA, file)
