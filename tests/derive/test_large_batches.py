"""Batches of several clusters are computed at once, but not the large ones."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import cast

import pytest

from pipeline.common.epoch import utc_now
from pipeline.derive import batches
from pipeline.derive.batch import Batch
from pipeline.derive.settings import Settings
from pipeline.lake import Lake


@pytest.mark.parametrize(("size", "at_once"), [(9, 2), (10, 1)])
def test_of_large_batches_only_one_is_computed_at_a_time(
    monkeypatch: pytest.MonkeyPatch, size: int, at_once: int
) -> None:
    """Each computation waits for the other one for a second."""
    meeting, met = Barrier(2), list[int]()

    def compute(_: Batch) -> tuple[int, bool]:
        with suppress(BrokenBarrierError):
            meeting.wait(1)
        met.append(1 if meeting.broken else 2)
        return 1, False

    monkeypatch.setattr(batches, "ROWS_ALONE", 10)
    monkeypatch.setattr(batches, "read_backlog", lambda *_: SimpleNamespace(batch=["a snapshot"], size=size))
    monkeypatch.setattr(batches, "_compute", compute)
    lake = cast(Lake, SimpleNamespace(expect_rows=lambda _: None))
    with ThreadPoolExecutor(2) as threads:
        results = [
            threads.submit(batches._compute_batch, lake, name, utc_now, Settings(), 1) for name in ("east", "west")
        ]
    assert [result.result() for result in results] == [(1, False)] * 2
    assert met == [at_once] * 2
