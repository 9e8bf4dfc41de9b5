"""Repeats a job in one session, at the instants of its schedule, until the process is asked to end."""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event, current_thread, main_thread
from types import FrameType

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 30.0
"""The clock is looked at anew after this, as it may be set, and machines may sleep."""


def repeat(every_ms: int, run: Callable[[int], object], now: Callable[[], datetime], stop: Event) -> None:
    """Call `run` now and at each multiple of `every_ms` since the epoch, until `stop` is set.

    A run that takes longer is followed by the next at once, of the newest instant; `run` gets the number of instants
    that were missed just before its own.
    """
    due = _floored(now(), every_ms)
    missed = 0
    while not stop.is_set():
        run(missed)
        newest = max(_floored(now(), every_ms), due + every_ms)
        missed = (newest - due) // every_ms - 1
        if missed and not stop.is_set():
            log.warning("the run of %s took too long: there is no snapshot of %d instants after it", _utc(due), missed)
        due = newest
        _wait_until(due, now, stop)


def _floored(instant: datetime, every_ms: int) -> int:
    ms = round(instant.timestamp() * 1000)
    return ms - ms % every_ms


def _utc(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _wait_until(due_ms: int, now: Callable[[], datetime], stop: Event) -> None:
    while (left_s := due_ms / 1000 - now().timestamp()) > 0:
        if stop.wait(min(left_s, LONGEST_WAIT_S)):
            return


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """An event that SIGTERM and SIGINT set. A second signal ends the process as if this were not there."""
    stop = Event()
    if current_thread() is not main_thread():  # where signals cannot be handled
        yield stop
        return
    names = (signal.SIGTERM, signal.SIGINT)
    before = {name: signal.getsignal(name) for name in names}

    def put_back() -> None:
        for name, handler in before.items():
            signal.signal(name, handler)

    def handle(number: int, _: FrameType | None) -> None:
        log.info("%s: the job ends after the step at hand", signal.Signals(number).name)
        stop.set()
        put_back()

    for name in names:
        signal.signal(name, handle)
    try:
        yield stop
    finally:
        put_back()
