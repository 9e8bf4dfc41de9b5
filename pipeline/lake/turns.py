"""Locks a table of a local folder, so that either the Spark of one process commits to it, or writers with delta-rs.

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

from pipeline.errors import LakeError, first_line

log = logging.getLogger(__name__)

Kind = Literal["driver", "spark"]
LONGEST_WAIT_S = 1_800.0
"""For another process, which may write millions of rows; then it is more likely to have stopped."""
_EVERY_S = 0.02


@dataclass
class _Place:
    """Who is writing at a place, in this process. `held`: the lock that keeps other processes out."""

    kind: Kind = "driver"
    writers: int = 0
    locking: Lock = field(default_factory=Lock)
    held: TextIOWrapper | None = None


class Turns:
    """Writers of one kind commit side by side, those of two kinds in turn; other processes' too, given a folder."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._places: defaultdict[str, _Place] = defaultdict(_Place)

    @contextmanager
    def writing(self, place: str, kind: Kind, lock: Path | None = None) -> Iterator[None]:
        """Wait until nobody of another kind writes at the place, and hold it meanwhile.

        `lock` is the file by which processes know of each other. Raises LakeError if another does not let go of it.
        """
        until = time.monotonic() + LONGEST_WAIT_S
        with self._changed:
            at = self._places[place]
            if not self._changed.wait_for(lambda: not at.writers or at.kind == kind, LONGEST_WAIT_S):
                raise LakeError(f"{place}: waited for {LONGEST_WAIT_S:.0f} s: other writers of this process hold it")
            at.kind = kind
            at.writers += 1
        try:
            with at.locking:
                if lock and not at.held:
                    at.held = _locked(lock, kind, until)
            yield
        finally:
            with self._changed:
                at.writers -= 1
                if not at.writers and at.held:
                    fcntl.flock(at.held, fcntl.LOCK_UN)  # the end of the process does so too
                    at.held.close()
                    at.held = None
                self._changed.notify_all()


def _locked(path: Path, kind: Kind, until: float) -> TextIOWrapper | None:
    """The open file whose lock is held: shared by those that use delta-rs, else this process's alone."""
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
            log.warning("%s: cannot be locked, so no other process may write to the lake: %s", path, first_line(exc))
            return None


def _opened(path: Path) -> TextIOWrapper:
    """The lock's file; to be read as well, as NFS asks for that where a lock is shared."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return path.open("a+")
        except PermissionError:  # another user's: to lock it, it need not be written
            return path.open("r")
    except OSError as exc:
        raise LakeError(f"{path}: cannot be written: {first_line(exc)}") from exc
