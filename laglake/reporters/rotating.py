"""A file of lines with a bounded size. Errors of writing it never reach the application."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from logging.handlers import RotatingFileHandler

_LOG = logging.getLogger(__name__)


class RotatingLines(RotatingFileHandler):
    """Appends lines to a file, which at most_bytes becomes <file>.1, that one .2 and so on, `files` of them in all.

    Threads may share it. Each process needs a file of its own: two that rotate the same one lose some of it. What
    cannot be written is lost, and logged once until lines can be written again.
    """

    def __init__(self, path: str | os.PathLike[str], most_bytes: int = 20_000_000, files: int = 5) -> None:
        if most_bytes < 1 or files < 2:
            raise ValueError("most_bytes must be above 0, and files above 1: otherwise the file grows without bound")
        super().__init__(path, maxBytes=most_bytes, backupCount=files - 1, encoding="utf-8", delay=True)
        self._error = ""

    def append(self, line: str) -> None:
        """Write a line, given without its end. Raises nothing."""
        self.handle(logging.makeLogRecord({"msg": line}))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's message with one system call, and close the file: others may rename or remove it."""
        earlier, self._error = self._error, ""
        if earlier:
            record.msg = f"\n{record.msg}"  # A full disk may have cut the last line short.
        super().emit(record)
        with suppress(OSError):
            self.close()
        if self._error and not earlier:
            _LOG.warning("lines could not be written to %s and are lost: %s", self.baseFilename, self._error)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Keep in mind why a line could not be written."""
        error = sys.exc_info()[1]
        self._error = str(error) or repr(error)
