"""A file of lines with a limited size. Errors in writing it never reach the application."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from logging.handlers import RotatingFileHandler

_LOG = logging.getLogger(__name__)


class RotatingLines(RotatingFileHandler):
    """Appends lines to a file. At most_bytes, it is renamed to <file>.1, that one to .2 and so on; `files` are kept.

    Threads may share it. Each process needs its own file: if two processes rotate the same file, lines are lost. Lines
    that cannot be written are lost; this is logged once until lines can be written again.
    """

    def __init__(self, path: str | os.PathLike[str], most_bytes: int = 20_000_000, files: int = 5) -> None:
        if most_bytes < 1 or files < 2:
            raise ValueError("most_bytes must be above 0, and files above 1: otherwise the file grows without bound")
        super().__init__(path, maxBytes=most_bytes, backupCount=files - 1, encoding="utf-8", delay=True)
        self._error = ""

    def append(self, line: str) -> None:
        """Writes a line, which is given without its line end. Never raises an exception."""
        self.handle(logging.makeLogRecord({"msg": line}))

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record's message with one system call, and closes the file, so that others may rename it."""
        earlier, self._error = self._error, ""
        if earlier:
            record.msg = f"\n{record.msg}"  # a full disk may have cut off the last line
        super().emit(record)
        with suppress(OSError):
            self.close()
        if self._error and not earlier:
            _LOG.warning("lines could not be written to %s and are lost: %s", self.baseFilename, self._error)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Remembers why a line could not be written."""
        error = sys.exc_info()[1]
        self._error = str(error) or repr(error)
