"""The peak resident memory of this process's Python descendants, as Linux counts it (VmHWM)."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

EVERY_S = 0.1


class PeakMemory:
    """Watches in the background within a `with` block; `driver_mb` and `worker_mb` are the peaks."""

    def __enter__(self) -> PeakMemory:
        self.worker_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.driver_mb = _peak_mb(os.getpid())

    def _watch(self) -> None:
        while not self._stop.wait(EVERY_S):
            for pid in _python_descendants(os.getpid()):
                self.worker_mb = max(self.worker_mb, _peak_mb(pid))


def _python_descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            pid = int(entry.name)
            head, _, tail = (entry / "stat").read_text().rpartition(")")
            names[pid], parents[pid] = head.split("(", 1)[1], int(tail.split()[1])
    found = []
    for pid in parents:
        ancestor = parents.get(pid, 0)
        while ancestor and ancestor != root:
            ancestor = parents.get(ancestor, 0)
        if ancestor == root and names[pid].startswith("python"):
            found.append(pid)
    return found


def _peak_mb(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0
