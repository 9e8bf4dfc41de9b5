"""The stored state of a request log, which says how far it was read: lost, damaged, too large, or changed."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.client_positions import progress, request_memory
from pipeline.client_positions.request_lines import Fetch
from pipeline.client_positions.request_memory import Memory
from tests.helpers.hostile import changed
from tests.helpers.request_logs import (
    append,
    errors,
    reported,
)


def test_a_batch_whose_state_was_lost_is_read_again(log: Path, lines: list[str], tmp_path: Path) -> None:
    state, backup = tmp_path / "state", tmp_path / "backup"
    log.write_text("".join(lines[:1_500]))
    reported(log.parent, state=state, batch=1)
    shutil.copytree(state, backup)
    append(log, "".join(lines[1_500:3_000]).encode())
    killed = reported(log.parent, state=state, batch=2)
    shutil.rmtree(state)
    backup.rename(state)
    (state / f"{next(state.iterdir()).name}.unfinished").write_bytes(b"half a sta")
    assert reported(log.parent, state=state, batch=3) == killed
    log.write_text("".join(lines))
    # Between batches, nothing is read twice or left out.
    assert reported(log.parent, state=state, batch=4) == reported(log.parent)


def test_a_state_that_is_damaged_or_cannot_be_written_is_an_error_row(
    log: Path, lines: list[str], tmp_path: Path
) -> None:
    log.write_text("".join(lines[:1_000]))
    state = tmp_path / "state"
    first = reported(log.parent, state=state, batch=1)
    for damaged in (b"", b"torn", gzip.compress(b"[]"), gzip.compress(b"{}")[:-9]):
        (file,) = state.iterdir()
        file.write_bytes(damaged)
        rows = reported(log.parent, state=state, batch=2)
        (error,) = errors(rows)
        assert error.startswith("the state is damaged, so the log was read from its beginning: ")
        assert [row for row in rows if not row["error"]] == first
    rows = reported(log.parent, state=log / "below-a-file", batch=1)
    assert [error.split(":")[0] for error in errors(rows)] == ["the state cannot be written"]
    assert [row for row in rows if not row["error"]] == first


@given(data=st.data())
def test_any_change_to_a_state_is_reported_as_damage_or_does_not_stop_reading(
    data: st.DataObject, lines: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Someone who may write there can make it read any number and text, but cannot stop it."""
    folder = tmp_path_factory.mktemp("odd")
    log, state = folder / "kafka-request.log", folder / "state"
    log.write_text("".join(lines[:200]))
    first = reported(log, state=state, batch=1)
    (file,) = state.iterdir()
    kept = data.draw(changed(json.loads(gzip.decompress(file.read_bytes()))))
    file.write_bytes(gzip.compress(json.dumps(kept).encode()))
    rows = reported(log, state=state, batch=2)
    for error in errors(rows):
        assert error.startswith("the state is damaged, so the log was read from its beginning: ")
        assert [row for row in rows if not row["error"]] == first
    assert reported(log, state=state, batch=3) == [row for row in rows if not row["error"]]


def test_a_state_that_is_too_long_or_a_pipe_does_not_stop_reading(
    log: Path, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_text("".join(lines[:1_000]))
    first = reported(log.parent, state=tmp_path / "state", batch=1)
    (file,) = (tmp_path / "state").iterdir()
    monkeypatch.setattr(progress, "MOST_STATE", 1_000_000)
    file.write_bytes(gzip.compress(b" " * 1_000_000 + gzip.decompress(file.read_bytes())))
    rows = reported(log.parent, state=tmp_path / "state", batch=2)
    assert [error.split(":")[0] for error in errors(rows)] == [
        "the state is damaged, so the log was read from its beginning"
    ]
    assert [row for row in rows if not row["error"]] == first
    file.unlink()
    os.mkfifo(file)
    assert errors(reported(log.parent, state=tmp_path / "state", batch=3)) == [
        "the state cannot be read, so the log was not read: NotAFileError"
    ]


def test_a_small_state_is_read_with_little_memory(log: Path, lines: list[str], tmp_path: Path) -> None:
    log.write_text("".join(lines[:100]))
    first = reported(log, state=tmp_path / "state", batch=1)
    tracemalloc.start()
    again = reported(log, state=tmp_path / "state", batch=2)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert again == first
    assert most < 20 * 1024**2


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read from /proc")
def test_a_state_that_does_not_fit_into_memory_is_kept(log: Path, lines: list[str], tmp_path: Path) -> None:
    log.write_text("".join(lines[:100]))
    reported(log, state=tmp_path / "state", batch=1)
    (file,) = (tmp_path / "state").iterdir()
    with gzip.open(file, "wb", 1) as large:
        for _ in range(400):
            large.write(b" " * 1024**2)
    before = file.read_bytes()
    program = f"""
import resource
from pathlib import Path
from tests.helpers.request_logs import errors, reported
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 200 * 1024**2,) * 2)
print(*errors(reported(Path({str(log)!r}), state=Path({str(file.parent)!r}), batch=2)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "the state cannot be read, so the log was not read: MemoryError\n"
    assert file.read_bytes() == before


@pytest.mark.parametrize("character", ["\x01", "é", "€", "\U0001f600", '"'])
def test_a_state_with_two_full_memories_can_be_read_whatever_its_names_are(
    character: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = 512
    for bound in ("MOST_BYTES", "MOST_SHARE"):
        monkeypatch.setattr(request_memory, bound, getattr(request_memory, bound) // parts)
    memory, long = Memory(), character * 990
    sessions = request_memory.MOST_SHARE // (request_memory.ENTRY_BYTES + 2 + len(long.encode())) - 1
    for n in range(800):
        memory.name(f"{long}{n}", f"{long}{n}")
        memory.fetched((f"{long}{n % 8}", None), Fetch(0, 0, True, 0, 0, {(f"{long}{n}", 0): 0}, [], 0), 0)
    for n in range(4 * sessions):
        memory.fetched((f"{long}{10 + n % 4}", None), Fetch(n + 1, 0, True, 0, 0, {}, [], 0), 0)
    memory.forget_excess()
    assert min(memory.forgotten[what] for what in ("topic names", "offsets", "clients")) > 0
    assert len(memory.state()["sessions"]) == 4 * sessions
    state = json.dumps({"begun": memory.state(), "ended": memory.state()})
    assert len(state) <= progress.MOST_STATE // parts


def test_a_state_that_is_nested_too_deeply_is_damaged(log: Path, lines: list[str], tmp_path: Path) -> None:
    log.write_text("".join(lines[:1_000]))
    first = reported(log.parent, state=tmp_path / "state", batch=1)
    (file,) = (tmp_path / "state").iterdir()
    file.write_bytes(gzip.compress(b"[" * 100_000))
    rows = reported(log.parent, state=tmp_path / "state", batch=2)
    assert errors(rows) == ["the state is damaged, so the log was read from its beginning: RecursionError"]
    assert [row for row in rows if not row["error"]] == first
