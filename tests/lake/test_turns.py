"""Which writers may commit to a table at the same time: threads of one process, and processes, by a lock."""

import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.common.errors import LakeError
from pipeline.lake.turns import Turns


def test_writers_of_two_kinds_take_turns_and_those_of_one_do_not() -> None:
    turns, order = Turns(), list[str]()
    inside = threading.Event()

    def write(kind: str) -> None:
        with turns.writing("lag", kind):
            order.append(kind)
            inside.set()

    with turns.writing("lag", "spark"):
        alike, elsewhere, other = (
            threading.Thread(target=write, args=("spark",)),
            threading.Thread(target=lambda: turns.writing("findings", "driver").__enter__()),
            threading.Thread(target=write, args=("driver",)),
        )
        other.start()
        alike.start()
        elsewhere.start()
        alike.join(30)
        elsewhere.join(30)
        assert order == ["spark"]
    other.join(30)
    assert order == ["spark", "driver"]


def test_the_lock_of_another_user_is_taken_and_a_wait_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.lake.turns.LONGEST_WAIT_S", 0.2)
    lock = tmp_path / "_locks" / "lag"
    mine, theirs = Turns(), Turns()  # as of two processes
    with mine.writing("lag", "driver", lock), theirs.writing("lag", "driver", lock):
        with pytest.raises(LakeError, match="another process holds this lock"), Turns().writing("lag", "spark", lock):
            pass
        with pytest.raises(LakeError, match="other writers of this process"), mine.writing("lag", "spark", lock):
            pass
    opened = Path.open

    def refused(path: Path, mode: str = "r") -> Any:
        if "a" in mode:
            raise PermissionError(13, "Permission denied")
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", refused)
    with theirs.writing("lag", "spark", lock), pytest.raises(LakeError), mine.writing("lag", "driver", lock):
        pass


def test_spark_does_not_write_where_nothing_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    lock = tmp_path / "_locks" / "lag"
    with pytest.raises(LakeError, match=r"lag: cannot be locked: .*not supported; Spark's writers need locks"):
        Turns().writing("lag", "spark", lock).__enter__()
    with Turns().writing("lag", "driver", lock):  # a link replaces nothing
        pass
