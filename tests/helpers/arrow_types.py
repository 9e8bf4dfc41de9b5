"""The Arrow types of the files of a lake, as writers recorded them and as readers get them."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq


def odd_types(root: Path) -> list[str]:
    """The columns of all Parquet files of a lake whose text or bytes have another Arrow type than `string` or `binary`.

    Delta's log is not among them. Files that no version needs any more are.
    """
    found = []
    for file in sorted(root.rglob("*.parquet")):
        if "_delta_log" in file.parts:
            continue
        schemas = {"recorded": _recorded(file), "read": ds.dataset(file).schema}
        for name, schema in schemas.items():
            odd = [f"{field.name}: {field.type}" for field in schema if {*_parts(field.type)} - {*_plain(field.type)}]
            found += [f"{file.relative_to(root)}: {name}: {column}" for column in odd]
    return found


def _recorded(file: Path) -> pa.Schema:
    """The schema that the writer has put into the footer; empty if it has put none there, like Spark."""
    text = (pq.read_metadata(file).metadata or {}).get(b"ARROW:schema")
    return pa.schema([]) if text is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _parts(of: pa.DataType) -> Iterator[pa.DataType]:
    """A type and the types of what is in it."""
    yield of
    for number in range(of.num_fields):
        yield from _parts(of.field(number).type)


def _plain(of: pa.DataType) -> Iterator[pa.DataType]:
    """Those of its parts that every reader can compare."""
    return (part for part in _parts(of) if not any(word in str(part) for word in ("view", "large_")))
