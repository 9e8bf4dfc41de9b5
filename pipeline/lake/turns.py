"""Who may commit to a table of a local folder at a time: Spark's writers, or those of the driver.

In a local folder Delta on Spark looks whether the next version is there and then renames a file to it, which would
replace a version that delta-rs has committed in between. Among themselves the writers of each kind are safe: Spark's
within one process, delta-rs's in several.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Turns:
    """Writers of one kind commit side by side, those of two kinds in turn."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._writing: defaultdict[str, Counter[str]] = defaultdict(Counter)

    @contextmanager
    def writing(self, place: str, kind: str) -> Iterator[None]:
        """Wait until nobody of another kind writes at the place, and hold it meanwhile."""
        with self._changed:
            writers = self._writing[place]
            self._changed.wait_for(lambda: writers.total() == writers[kind])
            writers[kind] += 1
        try:
            yield
        finally:
            with self._changed:
                writers[kind] -= 1
                self._changed.notify_all()
