"""Kills the brokers when the process that started them has ended, in whatever way (also by SIGKILL).

It is a separate process, started by path and without site-packages, so it needs only a few MB and no start-up time:

    python -I -S watchdog.py MARKER PARENT_PID

Its input lists the children, one per line: `+pid` when one is started, `-pid` when it has ended. The end of the input
means that the parent has ended. A forked copy of the parent (multiprocessing) would keep the pipe open, so the parent's
pid is watched, too. Linux's PR_SET_PDEATHSIG would be shorter, but it fires when the starting *thread* ends, and needs
a preexec_fn, which may deadlock in a process with threads.
"""

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

POLL_S = 1.0


def is_ours(pid: int, marker: str) -> bool | None:
    """Whether process `pid` was started with the argument `marker`; None if that cannot be known (no /proc)."""
    if not Path("/proc/self/cmdline").exists():
        return None
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(marker) in arguments


def kill(pid: int) -> None:
    """Sends SIGKILL, also to a stopped process; does nothing if it has already ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _watch(parent: int) -> set[int]:
    """The children that are still running when the parent has ended."""
    children: set[int] = set()
    pending = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], POLL_S)[0]:
            continue
        received = os.read(0, 4096)
        if not received:
            break
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            (children.add if line[:1] == b"+" else children.discard)(int(line[1:]))
    return children


def main(marker: str, parent: int) -> None:
    """Waits for the parent's end, then kills the children that are left."""
    for pid in _watch(parent):
        # A pid may have been reused since. A process is not killed if it is known to be another one.
        if is_ours(pid, marker) is not False:
            kill(pid)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
