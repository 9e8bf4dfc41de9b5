"""Repeats a job in one session, at the instants of its schedule, until the process is asked to end."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

from pipeline.epoch import to_epoch_ms, utc_text

log = logging.getLogger(__name__)

PID_FILE = "LAGLAKE_PID_FILE"
"""Environment variable: where a process says that it can be sent signals now, and its id."""
_LONGEST_NAP_S = 0.5


class Stop:
    """Whether the process has been asked to end. A flag without a lock, so that a signal handler may set it."""

    signal_name: str | None = None

    def is_set(self) -> bool:
        """Whether a signal has come."""
        return self.signal_name is not None

    def wait(self, seconds: float) -> None:
        """Sleep for so long, or a little less; not for long after a signal."""
        if not self.is_set():
            time.sleep(min(seconds, _LONGEST_NAP_S))


def repeat(every_ms: int, run: Callable[[datetime, int], object], now: Callable[[], datetime], stop: Stop) -> None:
    """Call `run` now and at each multiple of `every_ms` since the epoch, until `stop` is set.

    A run that takes longer is followed by the next at once, of the newest instant. `run` gets the time, and the number
    of instants that were missed just before.
    """
    at, missed = now(), 0
    while not stop.is_set():
        run(at, missed)
        due = _floored(at, every_ms) + every_ms
        at = _wait_until(due, every_ms, now, stop)
        missed = max((_floored(at, every_ms) - due) // every_ms, 0)
        if missed and not stop.is_set():
            log.warning("%d scheduled instants have no snapshot, the first is %s", missed, utc_text(due))


def _floored(instant: datetime, every_ms: int) -> int:
    ms = to_epoch_ms(instant)
    return ms - ms % every_ms


def _wait_until(due_ms: int, every_ms: int, now: Callable[[], datetime], stop: Stop) -> datetime:
    """The time at which the wait was over: it is due, or a signal has come, or the clock was put back by far."""
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


def utc_now() -> datetime:
    """The wall clock that jobs pass on."""
    return datetime.now(UTC)


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """What SIGTERM and SIGINT set. A second signal does what it would have done without this."""
    stop = Stop()
    if current_thread() is not main_thread():  # where signals cannot be handled
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def put_back() -> None:
        for number, handler in before.items():
            # One that was ignored on behalf of Spark's JVM (spark-submit.sh) is to end this process.
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
