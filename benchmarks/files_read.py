"""Counts the files below a folder that are opened, by whichever process (Linux only)."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self

_IN_OPEN, _IN_CREATE, _IN_MOVED_TO = 0x20, 0x100, 0x80
_HEAD = struct.Struct("iIII")


class FilesRead:
    """While the block runs, `data` and `log` become the files that are opened in the tables and in Delta's log.

    Files that are created in the meantime do not count.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._ended = Event()
        self._opened: set[Path] = set()
        self._made: set[Path] = set()
        self.data: set[Path] = set()
        self.log: set[Path] = set()

    def __enter__(self) -> Self:
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK)
        folders = [self._root, *(path for path in self._root.rglob("*") if path.is_dir())]
        mask = _IN_OPEN | _IN_CREATE | _IN_MOVED_TO
        self._folders = {self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask): path for path in folders}
        self._reader = Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._reader.join()
        os.close(self._fd)
        found = {path for path in self._opened - self._made if not path.name.startswith((".", "_"))}
        self.log = {path for path in found if "_delta_log" in path.parts}
        self.data = {path for path in found - self.log if path.suffix == ".parquet" and "_staging" not in path.parts}

    def _read(self) -> None:
        while True:
            is_last = self._ended.is_set()
            try:
                events = os.read(self._fd, 1 << 20)
            except BlockingIOError:
                if is_last:
                    return
                self._ended.wait(0.01)
                continue
            at = 0
            while at < len(events):
                watch, mask, _, length = _HEAD.unpack_from(events, at)
                name = os.fsdecode(events[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0"))
                at += _HEAD.size + length
                if name and watch in self._folders:
                    (self._opened if mask & _IN_OPEN else self._made).add(self._folders[watch] / name)
