"""The files of a broker's request log: incomplete, refused, unreadable, linked, truncated and renamed."""

import gzip
import os
import shutil
from pathlib import Path

from pipeline.client_positions.broker_log import HEAD_BYTES, LINE_BYTES, BrokerLog
from pipeline.client_positions.request_log import RequestLog
from tests.helpers.request_logs import (
    CLIENTS,
    append,
    errors,
    positions,
    reported,
    reported_of,
    roll_over,
    written_at,
)


def test_an_incomplete_last_line_is_left_for_the_next_batch(log: Path, lines: list[str], tmp_path: Path) -> None:
    log.write_text("".join(lines[:300]) + lines[300][:400])
    rows = reported(log.parent, state=tmp_path / "state", batch=1)
    assert errors(rows) == []
    assert {row["captured_at"] for row in rows} == {written_at(lines[299])}
    append(log, lines[300][400:].encode())
    rows = reported(log.parent, state=tmp_path / "state", batch=2)
    assert errors(rows) == []
    assert {row["captured_at"] for row in rows} == {written_at(lines[300])}


def test_lines_that_are_refused_are_counted_by_file(log: Path, lines: list[str], tmp_path: Path) -> None:
    fetches = [line for line in lines if '"requestApiKeyName":"FETCH"' in line]
    torn = [line[:500] + "\n" for line in fetches[20:32]]
    wild = fetches[40].replace('"partition":', '"partition":99999999999')
    log.write_text("".join(lines[:6] + torn[:1] + lines[6:1_000] + torn[1:]))
    rows = reported(log.parent, state=tmp_path / "state", batch=1)
    assert reported(log.parent, state=tmp_path / "state", batch=1) == rows
    (row,) = [row for row in rows if row["error"]]
    why = "not a line of Kafka's request log: its request is incomplete"
    assert row["error"] == f"12 lines refused, the first: line 7: {why}"
    assert row["endpoint"] == str(log)
    assert positions(rows) == positions(reported_of(lines[:1_000], tmp_path))
    append(log, b"\xff\0 garbage\n" + wild.encode())
    (error,) = errors(reported(log.parent, state=tmp_path / "state", batch=2))
    assert error.startswith("1 line refused, the first: line 1014: ")


def test_files_that_cannot_be_read_do_not_affect_the_others(log: Path, lines: list[str], tmp_path: Path) -> None:
    log.write_text("".join(lines[2_000:]))
    packed = gzip.compress("".join(lines[:2_000]).encode())
    torn = log.with_name(f"{log.name}.1.gz")
    torn.write_bytes(packed[: len(packed) // 2])
    log.with_name("server.log").write_text("[2026-11-21 10:00:00,000] INFO started (kafka.server.KafkaServer)\n")
    (tmp_path / "empty").mkdir()
    rows = reported(log.parent, tmp_path / "empty", tmp_path / "none", state=tmp_path / "state", batch=1)
    failed = {row["endpoint"]: row["error"] for row in rows if row["error"]}
    assert failed.pop(str(torn)).startswith("cannot be read from byte ")
    assert failed.pop(str(tmp_path / "empty")) == "no file in the folder has 'request' in its name"
    assert failed.pop(str(tmp_path / "none")) == "is not a file or folder that can be read: FileNotFoundError"
    assert failed == {}
    assert {row["client_id"] for row in rows if row["topic"]} == CLIENTS
    # When the file is complete, its lines are older than what is known, and change nothing.
    torn.write_bytes(packed)
    later = reported(log.parent, state=tmp_path / "state", batch=2)
    assert errors(later) == []
    assert positions(later) == positions(reported_of(lines, tmp_path))


def test_a_link_in_a_folder_is_not_followed(log: Path, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("".join(lines[:100]))
    log.with_name("request-linked.log").symlink_to(tmp_path / "outside")
    assert errors(reported(log.parent)) == ["no file in the folder has 'request' in its name"]
    log.write_text("".join(lines[:50]))
    assert {row["captured_at"] for row in reported(log.parent)} == {written_at(lines[49])}


def test_a_file_that_has_become_a_link_or_a_pipe_since_it_was_listed_is_not_read(
    log: Path, lines: list[str], tmp_path: Path
) -> None:
    log.write_text("".join(lines[:100]))
    shutil.copy(log, tmp_path / "outside")
    for name in ("link", "pipe"):
        broker = BrokerLog(str(log.parent), RequestLog(), 1_000_000)
        (file,), _ = broker._listed()
        log.unlink()
        if name == "link":
            log.symlink_to(tmp_path / "outside")
        else:
            os.mkfifo(log)
        broker._read_new_lines(file)
        assert broker.errors == [(str(log), "cannot be read from byte 0 on: NotAFileError")]
        log.unlink()
        log.write_text("".join(lines[:100]))
    # A file that the configuration itself names may be a link.
    (tmp_path / "link").symlink_to(log)
    assert positions(reported(tmp_path / "link")) == positions(reported(log))


def test_a_truncated_log_is_read_from_its_beginning(log: Path, lines: list[str], tmp_path: Path) -> None:
    state, copy = tmp_path / "state", log.with_name(f"{log.name}.1")
    log.write_text("".join(lines[:1_000]))
    first = reported(log.parent, state=state, batch=1)
    # As logrotate's copytruncate does it. While it copies, there are two files with the same beginning.
    copy.write_text("".join(lines[:300]))
    assert reported(log.parent) == first
    assert reported(log.parent, state=state, batch=2) == first
    copy.write_text("".join(lines[:1_000]))
    log.write_text("".join(lines[1_000:1_200]))
    assert reported(log.parent, state=state, batch=3) == reported(log.parent)
    log.write_text("".join(lines[1_000:1_050]) + lines[1_050][:300] + "\n")
    (error,) = errors(reported(log.parent, state=state, batch=4))
    assert error.startswith("1 line refused, the first: line 51: ")
    # If it is cut to less than its first line, no other file can be mistaken for it.
    log.write_text(lines[1_000][:-9])
    reported(log.parent, state=state, batch=5)
    assert len(lines[1_000]) > HEAD_BYTES + 9
    for number, begin in ((2, 1_200), (3, 1_300)):
        log.with_name(f"{log.name}.{number}").write_text("".join(lines[begin : begin + 100]))
    later = reported(log.parent, state=state, batch=6)
    assert positions(later) == positions(reported_of(lines[:1_050] + lines[1_200:1_400], tmp_path))


def test_a_file_that_is_renamed_while_it_is_read_is_read_by_the_next_batch(log: Path, lines: list[str]) -> None:
    log.write_text("".join(lines[:100]))
    broker = BrokerLog(str(log.parent), RequestLog(), 1_000_000)
    (file,), _ = broker._listed()
    roll_over(log, 10, packed=False)
    log.write_text("".join(lines[100:200]))
    broker._read_new_lines(file)
    assert broker.errors == [(str(log), "cannot be read from byte 0 on: FileNotFoundError")]
    assert (broker.log.at_ms, file.known.position) == (None, 0)


def test_a_line_without_an_end_is_not_waited_for(log: Path, lines: list[str]) -> None:
    append(log, "".join(lines[:100]).encode())
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size + LINE_BYTES + 5_000_000)  # zeros, as after a power failure
    append(log, ("\n" + "".join(lines[100:200])).encode())
    assert {row["captured_at"] for row in reported(log)} == {written_at(lines[199])}
    bounded = reported(log, most_bytes=str(LINE_BYTES - 1_000_000))
    assert {row["captured_at"] for row in bounded} == {written_at(lines[99])}
