"""Log files that the broker writes, rolls over or deletes while they are read."""

import os
from pathlib import Path

import pytest

from pipeline.log_segments.log_dirs import OffsetLocation
from tests.helpers.segments import WHOLE, batch, index, opened, write

AFTER_WHOLE = OffsetLocation(200, 0)


def test_batches_written_after_the_listing_are_ignored(tmp_path: Path) -> None:
    folder = write(tmp_path, {"0.log": WHOLE})
    log = opened(tmp_path)
    with (folder / f"{0:020}.log").open("ab") as file:
        file.write(batch(10, 20, 9_000))
    write(tmp_path, {"0.index": index((20, 200)), "21.log": batch(21, 21)})
    assert (log.end, log.newest, log.at(4)) == ((10, 200, None), (900, None), (100, 100, 700, None))
    assert opened(tmp_path).end == (22, 400, None)


def test_a_batch_that_is_being_written_is_not_damage(tmp_path: Path) -> None:
    folder = write(tmp_path, {"0.log": WHOLE + batch(10, 20)[:50]})
    log = opened(tmp_path)
    with (folder / f"{0:020}.log").open("ab") as file:
        file.write(batch(10, 20)[50:])
    assert (log.end, log.newest, log.at(10)) == ((10, 200, None), (900, None), AFTER_WHOLE)


def test_a_file_that_is_deleted_after_the_listing_is_an_error_only_where_it_is_needed(tmp_path: Path) -> None:
    folder = write(tmp_path, {"0.log": WHOLE, "10.log": batch(10, 12)})
    first, active = (folder / f"{base:020}.log" for base in (0, 10))
    log = opened(tmp_path)
    first.unlink()
    assert log.at(10) == (200, 100, 5_000, None)
    assert str(log.at(9).error).startswith(f"KAFKA_STORAGE_ERROR: {first.name}: ")
    log = opened(tmp_path)
    active.unlink()
    refusal = log.end.error
    assert log.end == (None, None, refusal)
    assert log.newest == (None, refusal)
    assert str(refusal).startswith(f"KAFKA_STORAGE_ERROR: {active.name}: ")


@pytest.mark.parametrize("size", [100, 101, 150])
def test_a_file_that_its_broker_cuts_while_it_is_read_ends_there(tmp_path: Path, size: int) -> None:
    """A full segment loses its preallocated rest, and a follower's log loses what the leader does not have."""
    folder = write(tmp_path, {"0.log": WHOLE})
    log = opened(tmp_path)
    os.truncate(folder / f"{0:020}.log", size)
    assert (log.end, log.newest) == ((4, 100, None), (900, None))


def test_a_preallocated_file_that_is_full_and_cut_while_it_is_read_ends_there(tmp_path: Path) -> None:
    folder = write(tmp_path, {"0.log": WHOLE + bytes(1_000), "0.index": index((9, 100))})
    log = opened(tmp_path)
    os.truncate(folder / f"{0:020}.log", 200)
    assert (log.end, log.newest, log.at(10)) == ((10, 200, None), (900, None), AFTER_WHOLE)


def test_a_scan_continues_after_its_file_is_deleted(tmp_path: Path) -> None:
    folder = write(tmp_path, {"0.log": b"".join(batch(i, i, size=10_000) for i in range(100))})
    scan = opened(tmp_path).segments[0].scan()
    batches = iter(scan)
    first = next(batches)
    (folder / f"{0:020}.log").unlink()
    assert len([first, *batches]) == 100
    assert (scan.end, scan.error) == (1_000_000, None)
