"""Stores in a file how far a broker's request log was read, so that each batch begins where the previous one ended."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import uuid
from collections.abc import Mapping
from typing import IO, Any, cast

import pyarrow as pa
from pyarrow import fs

from pipeline.client_positions.broker_log import location_name
from pipeline.client_positions.log_layouts import LONGEST_JOINED, STREAMS
from pipeline.client_positions.request_memory import MOST_BYTES, MOST_SHARE
from pipeline.common.files import FAILURES, open_file, open_filesystem

MOST_STATE = 2 * (6 * (MOST_BYTES + MOST_SHARE) + 12 * LONGEST_JOINED * len(STREAMS))
"""The most that is read of a state. It has two memories, each with MOST_SHARE for the names of topics. A name may be
six times as long in JSON, as a control character is; the numbers take less than what counts for each entry. A character
of the parts of lines takes up to 12 bytes.
"""
_BLOCK_BYTES = 1024**2
"""The most that is read at once, because a read allocates all that it may return."""


class UnreachableError(Exception):
    """The state may exist, but cannot be read now."""


class Progress:
    """How far a broker's log had been read when the last batch began, and when it ended: in one file."""

    def __init__(self, folder: str, path: str) -> None:
        self._files, inside = open_filesystem(folder)
        self._folder = inside.rstrip("/")
        name = f"{hashlib.sha256(location_name(path).encode()).hexdigest()[:32]}.json.gz"
        self._file = f"{self._folder}/{name}"
        self.name = f"{location_name(folder)}/{name}"

    def begun(self, batch: str) -> dict[str, Any]:
        """The state where a batch begins; empty for the first batch. Raises UnreachableError, or one of _DAMAGED."""
        try:
            if self._files.get_file_info(self._file).type == fs.FileType.NotFound:
                return {}
            with open_file(self._files, self._file, self._folder) as file:
                content = _read_state(file)
        except (*FAILURES, MemoryError) as error:
            raise UnreachableError(type(error).__name__) from error
        try:
            kept = json.loads(_read_state(gzip.GzipFile(fileobj=io.BytesIO(content))))
        except MemoryError as error:
            raise UnreachableError(type(error).__name__) from error
        return cast(dict[str, Any], kept["begun"] if kept["batch"] == batch else kept["ended"])

    def keep(self, batch: str, begun: Mapping[str, Any], ended: Mapping[str, Any]) -> None:
        """Replaces the file as a whole."""
        content = json.dumps({"batch": batch, "begun": begun, "ended": ended}).encode()
        self._files.create_dir(self._folder, recursive=True)
        written = f"{self._file}.{uuid.uuid4().hex}"
        with self._files.open_output_stream(written, compression=None) as file:
            file.write(gzip.compress(content, 5))
        self._files.move(written, self._file)


def _read_state(file: IO[bytes] | pa.NativeFile) -> bytearray:
    """The content of a file, up to MOST_STATE."""
    content = bytearray()
    while block := file.read(min(_BLOCK_BYTES, MOST_STATE - len(content))):
        content += block
    return content
