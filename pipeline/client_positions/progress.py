"""Keeps in a file how far a broker's request log was read, so that a batch begins where the previous one ended."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import uuid
from collections.abc import Mapping
from typing import Any, cast

from pyarrow import fs

from pipeline.client_positions.broker_log import place_name
from pipeline.client_positions.request_memory import MOST_BYTES
from pipeline.files import FAILURES, open_file, open_filesystem

MOST_STATE = 6 * MOST_BYTES
"""The most that is read of a state: it has two memories, and a name may be three times as long in JSON."""


class UnreachableError(Exception):
    """The state may exist, but cannot be read now."""


class Progress:
    """How far a broker's log had been read when the last batch began, and when it ended: in one file."""

    def __init__(self, folder: str, path: str) -> None:
        self._files, inside = open_filesystem(folder)
        self._folder = inside.rstrip("/")
        name = f"{hashlib.sha256(place_name(path).encode()).hexdigest()[:32]}.json.gz"
        self._file = f"{self._folder}/{name}"
        self.name = f"{place_name(folder)}/{name}"

    def begun(self, batch: str) -> dict[str, Any]:
        """The state where a batch begins; empty for the first batch. Raises UnreachableError, or one of _DAMAGED."""
        try:
            if self._files.get_file_info(self._file).type == fs.FileType.NotFound:
                return {}
            with open_file(self._files, self._file, self._folder) as file:
                content = file.read(MOST_STATE)
        except FAILURES as error:
            raise UnreachableError(type(error).__name__) from error
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MOST_STATE)
        kept = json.loads(unpacked)
        return cast(dict[str, Any], kept["begun"] if kept["batch"] == batch else kept["ended"])

    def keep(self, batch: str, begun: Mapping[str, Any], ended: Mapping[str, Any]) -> None:
        """Replaces the file as a whole."""
        content = json.dumps({"batch": batch, "begun": begun, "ended": ended}).encode()
        self._files.create_dir(self._folder, recursive=True)
        written = f"{self._file}.{uuid.uuid4().hex}"
        with self._files.open_output_stream(written, compression=None) as file:
            file.write(gzip.compress(content, 5))
        self._files.move(written, self._file)
