"""Locks a table in a local folder, so that either Spark in one process commits to it, or writers with delta-rs do.

In a local folder, Delta on Spark checks whether the next version exists and then renames a file to it, which would
replace a version that another process, or delta-rs, has committed in between. delta-rs creates a hard link, which
replaces nothing. So Spark's writers of one process may commit side by side, because Delta coordinates them, and so may
all writers that use delta-rs.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from threading import Condition, Lock
from typing import Literal

from pipeline.common.errors import LakeError, first_line

log = logging.getLogger(__name__)

Kind = Literal["driver", "spark"]
LONGEST_WAIT_S = 1_800.0
"""How long to wait for another process, which may be writing millions of rows. After that, it has probably hung."""
_EVERY_S = 0.02


@dataclass
class _Writers:
    """The writers of one table in this process. `held`: the lock file that keeps other processes out."""

    kind: Kind = "driver"
    writers: int = 0
    locking: Lock = field(default_factory=Lock)
    held: TextIOWrapper | None = None


class Turns:
    """Lets writers of one kind commit at the same time, and writers of two kinds in turn.

    With a lock file, this includes the writers of other processes.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._tables: defaultdict[str, _Writers] = defaultdict(_Writers)

    @contextmanager
    def writing(self, table: str, kind: Kind, lock: Path | None = None) -> Iterator[None]:
        """Waits until no writer of the other kind writes to the table, and keeps these out until the block ends.

        `lock` is the lock file that processes share. Raises LakeError if another process does not release it.
        """
        until = time.monotonic() + LONGEST_WAIT_S
        with self._changed:
            own = self._tables[table]
            if not self._changed.wait_for(lambda: not own.writers or own.kind == kind, LONGEST_WAIT_S):
                raise LakeError(f"{table}: waited for {LONGEST_WAIT_S:.0f} s: other writers of this process hold it")
            own.kind = kind
            own.writers += 1
        try:
            with own.locking:
                if lock and not own.held:
                    own.held = _locked(lock, kind, until)
            yield
        finally:
            with self._changed:
                own.writers -= 1
                if not own.writers and own.held:
                    fcntl.flock(own.held, fcntl.LOCK_UN)  # if the process ends, it is released as well
                    own.held.close()
                    own.held = None
                self._changed.notify_all()


def _locked(path: Path, kind: Kind, until: float) -> TextIOWrapper | None:
    """The open lock file, once it is locked: shared for delta-rs, exclusive for Spark. None if delta-rs cannot lock."""
    file = _opened(path)
    operation = (fcntl.LOCK_SH if kind == "driver" else fcntl.LOCK_EX) | fcntl.LOCK_NB
    while True:
        try:
            fcntl.flock(file, operation)
            return file
        except BlockingIOError:
            if time.monotonic() >= until:
                file.close()
                waited = f"waited for {LONGEST_WAIT_S:.0f} s"
                raise LakeError(f"{path}: {waited}: another process holds this lock; perhaps it hangs") from None
            time.sleep(_EVERY_S)
        except OSError as exc:  # a file system without locks
            file.close()
            reason = f"{path}: cannot be locked: {first_line(exc)}"
            if kind == "spark":
                raise LakeError(
                    f"{reason}; Spark's writers need locks, as one could replace the commit of another process: keep "
                    "the lake on a file system that has them, or in an object store"
                ) from exc
            log.debug("%s; delta-rs commits safely without", reason)
            return None


def _opened(path: Path) -> TextIOWrapper:
    """The lock file, opened for reading, too, because NFS needs this for a shared lock."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return path.open("a+")
        except PermissionError:  # another user's file: a lock does not need write access
            return path.open("r")
    except OSError as exc:
        raise LakeError(f"{path}: cannot be written: {first_line(exc)}") from exc
