"""A process and its descendants, as Linux lists them in /proc, and what a command needs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

EVERY_S = 0.2
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


class Process(NamedTuple):
    """One process. `cpu_s` includes the CPU time of children that have ended.

    `resident_mb` is without the pages of files, which the system can drop.
    """

    name: str
    parent: int
    cpu_s: float
    resident_mb: float


class Needs(NamedTuple):
    """What a command needed, with all of its processes: the memory is the largest sum of what was resident at a time.

    Memory that several processes share counts for each of them.
    """

    seconds: float
    cpu_s: float
    memory_mb: float


def needs_of(command: Sequence[str], log: Path) -> Needs:
    """Runs a command, whose output goes to the end of a file, and measures what it needs.

    Raises CalledProcessError if the command fails.
    """
    began_s, cpu_s, memory_mb = time.monotonic(), 0.0, 0.0
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        while process.poll() is None:
            processes = family(process.pid).values()
            # A process that nobody waited for takes its time along. So the sum may fall at the end.
            cpu_s = max(cpu_s, sum(each.cpu_s for each in processes))
            memory_mb = max(memory_mb, sum(each.resident_mb for each in processes))
            time.sleep(EVERY_S)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Needs(time.monotonic() - began_s, cpu_s, memory_mb)


def family(root: int) -> dict[int, Process]:
    """The process `root` and all its descendants, by process id."""
    found: dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            pid = int(entry.name)
            head, _, tail = (entry / "stat").read_text().rpartition(")")
            values = tail.split()
            cpu_s = sum(map(int, values[11:15])) / os.sysconf("SC_CLK_TCK")
            _, resident, of_files, *_ = map(int, (entry / "statm").read_text().split())
            found[pid] = Process(head.split("(", 1)[1], int(values[1]), cpu_s, (resident - of_files) * _PAGE_MB)
    return {pid: process for pid, process in found.items() if _descends(pid, root, found)}


def _descends(pid: int, root: int, processes: dict[int, Process]) -> bool:
    while pid in processes and pid != root:
        pid = processes[pid].parent
    return pid == root
