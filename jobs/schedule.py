"""Repeats a job in one session, at the instants of its schedule, until the process is asked to end."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

from pipeline.common.epoch import rounded_down, utc_now, utc_text

# All jobs take the time from here, so that a test can replace their clock.
__all__ = ["PID_FILE", "Stop", "repeat", "stopped_by_signals", "utc_now"]

log = logging.getLogger(__name__)

PID_FILE = "LAGLAKE_PID_FILE"
"""Environment variable: the file into which a process writes its id when it can be sent signals."""
_LONGEST_NAP_S = 0.5


class Stop:
    """Whether the process has been asked to end. It has no lock, so that a signal handler may set it."""

    signal_name: str | None = None

    def is_set(self) -> bool:
        """Whether a signal has arrived."""
        return self.signal_name is not None

    def wait(self, seconds: float) -> None:
        """Sleeps for this time or a little less; returns soon after a signal."""
        if not self.is_set():
            time.sleep(min(seconds, _LONGEST_NAP_S))


def repeat(every_ms: int, run: Callable[[datetime, int], object], now: Callable[[], datetime], stop: Stop) -> None:
    """Calls `run` now, and at each multiple of `every_ms` since the epoch, until `stop` is set.

    If a run takes longer than that, the next one follows immediately, for the newest instant. `run` gets the time, and
    the number of instants that were missed just before.
    """
    at, missed = now(), 0
    while not stop.is_set():
        run(at, missed)
        due = rounded_down(at, every_ms) + every_ms
        at = _wait_until(due, every_ms, now, stop)
        missed = max((rounded_down(at, every_ms) - due) // every_ms, 0)
        if missed and not stop.is_set():
            log.warning("%d scheduled instants have no snapshot, the first is %s", missed, utc_text(due))


def _wait_until(due_ms: int, every_ms: int, now: Callable[[], datetime], stop: Stop) -> datetime:
    """Waits until the instant is due, a signal arrives, or the clock is set back by a lot; returns the time then."""
    while not stop.is_set():
        at = now()
        left_ms = due_ms - at.timestamp() * 1000
        if left_ms <= 0:
            return at
        if left_ms > 2 * every_ms:
            log.warning("the clock was set back: the next run starts now instead of at %s", utc_text(due_ms))
            return at
        stop.wait(left_ms / 1000)
    return now()


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """A Stop that SIGTERM and SIGINT set. A second signal has its usual effect."""
    stop = Stop()
    if current_thread() is not main_thread():  # other threads cannot handle signals
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def put_back() -> None:
        for number, handler in before.items():
            # A signal that was ignored because of Spark's JVM (spark-submit.sh) must end this process.
            signal.signal(number, signal.SIG_DFL if handler == signal.SIG_IGN else handler)

    def handle(number: int, _: FrameType | None) -> None:
        put_back()
        stop.signal_name = signal.Signals(number).name

    for number in before:
        signal.signal(number, handle)
    if PID_FILE in os.environ:
        Path(os.environ[PID_FILE]).write_text(str(os.getpid()))
    try:
        yield stop
    finally:
        put_back()
