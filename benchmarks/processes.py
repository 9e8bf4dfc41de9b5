"""A process and its descendants, as Linux lists them in /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process. `cpu_s` includes the CPU time of children that have ended."""

    name: str
    parent: int
    cpu_s: float


def family(root: int) -> dict[int, Process]:
    """The process `root` and all its descendants, by process id."""
    found: dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            pid = int(entry.name)
            head, _, tail = (entry / "stat").read_text().rpartition(")")
            values = tail.split()
            cpu_s = sum(map(int, values[11:15])) / os.sysconf("SC_CLK_TCK")
            found[pid] = Process(head.split("(", 1)[1], int(values[1]), cpu_s)
    return {pid: process for pid, process in found.items() if _descends(pid, root, found)}


def _descends(pid: int, root: int, processes: dict[int, Process]) -> bool:
    while pid in processes and pid != root:
        pid = processes[pid].parent
    return pid == root
