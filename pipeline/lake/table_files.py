"""Arrow tables whose values are in a file instead of the memory. The operating system reads what is used."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa

from pipeline.common.errors import LakeError, first_line

IN_MEMORY_BYTES = 8 * 2**20
"""A table of at most about this size stays in memory."""


def table_in_file(batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: Path) -> pa.Table:
    """The rows of some batches. If they are many, they are in a file, and at most IN_MEMORY_BYTES are in memory.

    The file has no name, so nothing is left of it in the folder when the table is gone, or the process. Raises
    LakeError if it cannot be written.
    """
    first, rest = [], iter(batches)
    size = 0
    for batch in rest:
        first.append(batch)
        size += batch.nbytes
        if size > IN_MEMORY_BYTES:
            return _written(chain(first, rest), schema, folder)
    return pa.Table.from_batches(first, schema)


def _written(batches: Iterator[pa.RecordBatch], schema: pa.Schema, folder: Path) -> pa.Table:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            with pa.ipc.new_file(pa.PythonFile(file, "w"), schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            content = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    except OSError as exc:
        raise LakeError(f"{folder}: many rows cannot be kept in a file: {first_line(exc)}") from exc
    return pa.ipc.open_file(pa.py_buffer(content)).read_all()
