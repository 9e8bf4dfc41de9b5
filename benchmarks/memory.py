"""The peak resident memory of this process's descendants, as Linux counts it (VmHWM)."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from benchmarks.processes import family

EVERY_S = 0.1


class PeakMemory:
    """Measures in the background during a `with` block; `driver_mb` and `worker_mb` are the peaks."""

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
    return [pid for pid, process in family(root).items() if pid != root and process.name.startswith("python")]


def _peak_mb(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0
