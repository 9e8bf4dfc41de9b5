"""The processes of one embedded Kafka: they are started here, listed on disk, and ended when this process ends.

Three mechanisms end them: `close`; the watchdog, if this process is killed; and the pid files, by which a later start
in the same folder finds processes that are left because the watchdog was killed, too.
"""

import fcntl
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from demo.embedded_kafka import watchdog
from demo.errors import InUseError

Output = int | IO[str] | None
KILL_TIMEOUT_S = 10.0


class Children:
    """Starts processes that do not outlive this one, for one folder at a time.

    Every command must have `marker` as one of its arguments: it proves that a process belongs to the folder.

    Raises:
        InUseError: a running process uses the same folder.
    """

    def __init__(self, directory: Path) -> None:
        self.marker = f"-Dlaglake.home={directory}"
        self._pids = directory / "pids"
        self._pids.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(directory / ".lock")
        self._started: list[subprocess.Popen[str]] = []
        self._end_leftovers()
        read_end, self._pipe = os.pipe()
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, self.marker, str(os.getpid())],
            stdin=read_end,
            start_new_session=True,
        )
        os.close(read_end)

    def start(
        self, command: list[str], stdout: Output = subprocess.DEVNULL, stderr: Output = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        """Starts a process that runs until it ends by itself, is reaped, or `close` is called."""
        if self.marker not in command:
            raise ValueError(f"a command must carry {self.marker}")
        # In a new session, so that Ctrl-C reaches only this process, which ends the children in its own order.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True, start_new_session=True
        )
        self._notify_watchdog(f"+{process.pid}")
        self._started.append(process)
        (self._pids / str(process.pid)).touch()
        return process

    def reap(self, process: subprocess.Popen[str]) -> None:
        """Kills the process if it is running, waits for its end and forgets it; a second call does nothing."""
        if process not in self._started:
            return
        process.kill()
        process.wait(KILL_TIMEOUT_S)
        self._started.remove(process)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        (self._pids / str(process.pid)).unlink(missing_ok=True)
        self._notify_watchdog(f"-{process.pid}")

    def close(self) -> None:
        """Kills every process that is left, and releases the folder; a second call does nothing."""
        for process in self._started:
            process.kill()  # all of them before waiting, because each takes a moment to end
        for process in list(self._started):
            self.reap(process)
        if not self.is_closed:
            os.close(self._pipe)
            self._watchdog.wait(KILL_TIMEOUT_S)
            self._lock.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._lock.closed

    def _notify_watchdog(self, line: str) -> None:
        # The watchdog may have been killed. It is only a safety net, so this is no reason to fail.
        with suppress(BrokenPipeError):
            os.write(self._pipe, f"{line}\n".encode())

    def _end_leftovers(self) -> None:
        for file in self._pids.iterdir():
            pid = int(file.name)
            if watchdog.is_ours(pid, self.marker):
                watchdog.kill(pid)
                _wait_for_end(pid, self.marker)
            file.unlink(missing_ok=True)


def _lock(path: Path) -> IO[str]:
    """The lock on a folder, which is held until the file is closed or this process ends."""
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        owner = handle.read().strip() or "unknown"
        handle.close()
        raise InUseError(f"process {owner} runs a Kafka in {path.parent}; end it, or choose another folder") from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def _wait_for_end(pid: int, marker: str) -> None:
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while watchdog.is_ours(pid, marker) and time.monotonic() < deadline:
        time.sleep(0.02)
