"""Arrow tables whose values are in a file instead of the memory. The operating system reads what is used."""

from __future__ import annotations

import logging
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from pipeline.common.errors import LakeError, first_line

log = logging.getLogger(__name__)

IN_MEMORY_BYTES = 8 * 2**20
"""A table of at most about this size stays in memory."""


def table_in_file(batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: Path) -> pa.Table:
    """The rows of some batches. If they are many, they are in a file, and at most IN_MEMORY_BYTES are in memory.

    The file has no name, so nothing is left of it in the folder when the table is gone, or the process. If there can be
    no file in the folder, as in a lake that may only be read, the rows are in memory. Raises LakeError if the file
    cannot be written, as on a full disk.
    """
    first, rest = [], iter(batches)
    size = 0
    for batch in rest:
        first.append(batch)
        size += batch.nbytes
        if size > IN_MEMORY_BYTES:
            break
    file = _new_file(folder) if size > IN_MEMORY_BYTES else None
    if file is None:
        return pa.Table.from_batches([*first, *rest], schema)
    try:
        return _written(chain(first, rest), schema, file, folder)
    finally:
        with suppress(OSError):  # what could not be written is said already
            file.close()


def _new_file(folder: Path) -> BinaryIO | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return cast(BinaryIO, tempfile.TemporaryFile(dir=folder))
    except OSError as exc:
        log.debug("%s: many rows stay in memory: %s", folder, exc)
        return None


def _written(batches: Iterator[pa.RecordBatch], schema: pa.Schema, file: BinaryIO, folder: Path) -> pa.Table:
    with pa.ipc.new_file(pa.PythonFile(file, "w"), schema) as writer:
        for batch in batches:  # an error of these is not one of the file
            with _errors(folder):
                writer.write_batch(batch)
    with _errors(folder):
        file.flush()
        content = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    return pa.ipc.open_file(pa.py_buffer(content)).read_all()


@contextmanager
def _errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise LakeError(f"{folder}: many rows cannot be kept in a file: {first_line(exc)}") from exc
