"""The data source of brokers' request logs: what it reads in batches, however files are cut, renamed and compressed."""

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.client_positions import progress, request_log_source, request_memory
from pipeline.client_positions.broker_log import BLOCK_BYTES, HEAD_BYTES, LINE_BYTES, BrokerLog
from pipeline.client_positions.position_rows import POSITIONS
from pipeline.client_positions.request_lines import Fetch
from pipeline.client_positions.request_log import RequestLog
from pipeline.client_positions.request_log_source import RequestLogOptions, RequestLogSource
from pipeline.client_positions.request_memory import Memory
from pipeline.common.errors import ConfigError
from tests.helpers.hostile import changed
from tests.helpers.recordings import by_partition, table, unpacked

Rows = list[dict[str, Any]]
CLIENTS = {"shop-agg-1", "ledger-rc", "ledger-ru"}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("request-log", tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def lines(recording: Path) -> list[str]:
    return (recording / "request.log").read_text().splitlines(keepends=True)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "broker-1").mkdir()
    return tmp_path / "broker-1" / "kafka-request.log"


def reported(*paths: Path, state: Path | None = None, batch: object = None, **options: str) -> Rows:
    """What is read without Spark; sorted, because the order has no meaning."""
    options |= {"path": ",".join(map(str, paths))}
    if state:
        options |= {"state": str(state), "batch": str(batch)}
    reader = RequestLogSource(options).reader(POSITIONS)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(rows, key=str)


def errors(rows: Rows) -> list[str]:
    return [row["error"] for row in rows if row["error"]]


def positions(rows: Rows) -> dict[tuple[str, str, int], int]:
    return {(r["client_id"], r["topic"], r["partition"]): r["fetched_offset"] for r in rows if r["topic"]}


def same_place(rows: Rows) -> Rows:
    return [row | {"endpoint": None} for row in rows]


def written_at(line: str) -> datetime:
    """When a line was written, by its own time."""
    return datetime.fromisoformat(line[1:24].replace(",", ".")).replace(tzinfo=UTC)


def append(log: Path, content: bytes) -> None:
    with log.open("ab") as file:
        file.write(content)


def roll_over(log: Path, number: int, packed: bool) -> None:
    """Rolls the log over, as log4j does every hour; the file may then be compressed."""
    rolled = log.rename(log.with_name(f"{log.name}.2026-11-21-{number:02}"))
    if packed:
        rolled.with_name(f"{rolled.name}.gz").write_bytes(gzip.compress(rolled.read_bytes()))
        rolled.unlink()


@pytest.fixture(scope="module")
def steps(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Rows]:
    """What is read in many small batches; some are read twice, and the log is rolled over meanwhile."""
    folder, chance = tmp_path_factory.mktemp("steps"), random.Random(532)
    content = (recording / "request.log").read_bytes()
    cuts = [0, *sorted(chance.sample(range(len(content)), 90)), len(content)]
    (folder / "broker").mkdir()
    log, found = folder / "broker" / "kafka-request.log", []
    for number, (begin, end) in enumerate(pairwise(cuts)):
        line_end = content.rfind(b"\n", begin, end) + 1
        if number % 9 == 8 and line_end:  # a file ends with a complete line, as in log4j
            append(log, content[begin:line_end])
            roll_over(log, number, packed=number % 2 == 0)
            append(log, content[line_end:end])
        else:
            append(log, content[begin:end])
        found.append(reported(log.parent, state=folder / "state", batch=number))
        if number % 4 == 0:
            assert reported(log.parent, state=folder / "state", batch=number) == found[-1]
    assert len(list(log.parent.iterdir())) > 5
    return found


def test_many_small_batches_give_the_same_positions_as_one_large_batch(recording: Path, steps: list[Rows]) -> None:
    whole = reported(recording / "request.log")
    assert same_place(steps[-1]) == same_place(whole)
    assert {row["client_id"] for row in whole} == CLIENTS
    assert [error for rows in steps for error in errors(rows)] == []


def test_each_batch_is_between_the_applications_position_and_the_high_watermark(
    recording: Path, steps: list[Rows]
) -> None:
    ends = by_partition(table(recording / "truth.csv"))
    applications = table(recording / "positions.csv")
    compared = 0
    for client in CLIENTS:
        for place, truth in by_partition([r for r in applications if r["client_id"] == client]).items():
            for rows in steps:
                for row in (r for r in rows if (r["client_id"], r["topic"], r["partition"]) == (client, *place)):
                    as_of_ms = row["as_of"].timestamp() * 1_000
                    consumed = [int(r["position"]) for r in truth if int(r["ts"]) < as_of_ms]
                    end = [int(r["high_watermark"]) for r in ends[place] if int(r["ts"]) >= as_of_ms]
                    if consumed and end:
                        assert consumed[-1] <= row["fetched_offset"] <= end[0]
                        compared += 1
    assert compared > 500


def test_spark_reads_two_brokers(spark: SparkSession, lines: list[str], tmp_path: Path) -> None:
    brokers = [tmp_path / "broker-1", tmp_path / "broker-2"]
    halves = lines[:2_000], lines
    for broker, half in zip(brokers, halves, strict=True):
        broker.mkdir()
        (broker / "request.log.gz").write_bytes(gzip.compress("".join(half).encode()))
    spark.dataSource.register(RequestLogSource)
    options = {"state": str(tmp_path / "state"), "batch": "7"}
    frame = spark.read.format("kafka_request_log").options(**options).load(",".join(map(str, brokers)))
    rows = frame.collect()
    assert set(frame.columns) == set(POSITIONS.names)
    assert {row.source for row in rows} == {"kafka_request_log"}
    for broker, half in zip(brokers, halves, strict=True):
        mine = [row for row in rows if row.endpoint == str(broker)]
        assert {row.client_id for row in mine} == CLIENTS
        assert {row.captured_at.astimezone(UTC) for row in mine} == {written_at(half[-1])}
    assert sorted(map(str, frame.collect())) == sorted(map(str, rows))
    assert len(list((tmp_path / "state").iterdir())) == 2


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


def test_a_batch_without_new_lines_repeats_the_positions_with_their_times(
    log: Path, lines: list[str], tmp_path: Path
) -> None:
    log.write_text("".join(lines))
    first = reported(log.parent, state=tmp_path / "state", batch=1)
    assert reported(log.parent, state=tmp_path / "state", batch=2) == first
    assert {row["captured_at"] for row in first} == {written_at(lines[-1])}
    assert all(row["as_of"] <= row["captured_at"] for row in first)


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
    assert row["error"] == "12 lines refused, the first: line 7: not a line of Kafka's request log"
    assert row["endpoint"] == str(log)
    assert positions(rows) == positions(reported_of(lines[:1_000], tmp_path))
    append(log, b"\xff\0 garbage\n" + wild.encode())
    (error,) = errors(reported(log.parent, state=tmp_path / "state", batch=2))
    assert error.startswith("1 line refused, the first: line 1014: ")


def reported_of(lines: Sequence[str], folder: Path) -> Rows:
    """What is read from one file of lines."""
    (folder / "one.log").write_text("".join(lines))
    return reported(folder / "one.log")


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
        broker._read_on(file)
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
    broker._read_on(file)
    assert broker.errors == [(str(log), "cannot be read from byte 0 on: FileNotFoundError")]
    assert (broker.log.at_ms, file.known.position) == (None, 0)


def test_a_batch_reads_at_most_most_bytes(log: Path, lines: list[str], tmp_path: Path) -> None:
    log.write_text("".join(lines[:2_500]))
    roll_over(log, 10, packed=True)
    log.write_text("".join(lines[2_500:]))
    bound = 1_000_000
    found: list[Rows] = []
    while not found or errors(found[-1]):
        found.append(reported(log.parent, state=tmp_path / "state", batch=len(found), most_bytes=str(bound)))
    size = sum(map(len, lines))
    assert size // (2 * bound) < len(found) <= size // bound + 1
    assert errors(found[0]) == ["more than 1000000 bytes are new: not all was read"]
    assert found[-1] == reported(log.parent)


def too_late(log: Path, state: Path, batch: int) -> Rows:
    """What a batch reads whose time was up before it began."""
    options = {"path": str(log), "state": str(state), "batch": str(batch), "read_timeout_ms": "1"}
    reader = RequestLogSource(options).reader(POSITIONS)
    (broker,) = reader.partitions()
    time.sleep(0.01)
    return [row for batch in reader.read(broker) for row in batch.to_pylist()]


def test_lines_that_a_batch_has_no_time_to_read_are_in_the_next_one(
    log: Path, lines: list[str], tmp_path: Path
) -> None:
    log.write_text("".join(lines))
    late = too_late(log, tmp_path / "state", 1)
    assert errors(late) == ["the time to read was up: not all was read"]
    read = {row["captured_at"] for row in late if row["client_id"]}
    assert max(read) == written_at(lines[len(log.read_bytes()[: BLOCK_BYTES + HEAD_BYTES].splitlines()) - 2])
    assert reported(log, state=tmp_path / "state", batch=2) == reported(log)


def test_each_batch_reads_a_part_of_a_log_even_if_its_task_begins_too_late(
    log: Path, lines: list[str], tmp_path: Path
) -> None:
    log.write_text("x" * (BLOCK_BYTES + 5_000) + "\n" + "".join(lines))
    found: list[Rows] = []
    while not found or "the time to read was up: not all was read" in errors(found[-1]):
        assert len(found) < 5 + log.stat().st_size // BLOCK_BYTES
        found.append(too_late(log, tmp_path / "state", len(found)))
    assert len(found) > 2
    assert sorted(found[-1], key=str) == [row for row in reported(log) if not row["error"]]


def test_each_broker_is_the_first_of_some_batches_and_a_repeated_batch_has_the_same_order() -> None:
    brokers = {"/a", "/b", "/c"}
    orders = []
    for batch in range(40):
        options = {"path": ",".join(sorted(brokers)), "state": "/s", "batch": str(batch)}
        order, again = (
            [broker.path for broker in RequestLogSource(options).reader(POSITIONS).partitions()] for _ in range(2)
        )
        assert order == again
        assert set(order) == brokers
        orders.append(order)
    assert {order[0] for order in orders} == {order[-1] for order in orders} == brokers


def test_a_line_without_an_end_is_not_waited_for(log: Path, lines: list[str]) -> None:
    append(log, "".join(lines[:100]).encode())
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size + LINE_BYTES + 5_000_000)  # zeros, as after a power failure
    append(log, ("\n" + "".join(lines[100:200])).encode())
    assert {row["captured_at"] for row in reported(log)} == {written_at(lines[199])}
    bounded = reported(log, most_bytes=str(LINE_BYTES - 1_000_000))
    assert {row["captured_at"] for row in bounded} == {written_at(lines[99])}


def test_a_client_that_is_silent_for_a_day_is_forgotten(log: Path, lines: list[str], tmp_path: Path) -> None:
    log.write_text("".join(lines[:2_000]))
    roll_over(log, 10, packed=False)
    assert {row["client_id"] for row in reported(log.parent, state=tmp_path / "state", batch=1)} == CLIENTS
    of_next_day = [line.replace("[2026-11-21", "[2026-11-22") for line in lines[2_000:] if "ledger-rc" in line]
    log.write_text("".join(of_next_day))
    rows = reported(log.parent, state=tmp_path / "state", batch=2)
    assert {row["client_id"] for row in rows} == {"ledger-rc"}
    # A file that was read long ago and still exists is not read again.
    assert reported(log.parent, state=tmp_path / "state", batch=3) == rows


def test_clients_that_are_forgotten_because_there_are_too_many_are_counted(
    log: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_memory, "MOST_BYTES", 2_600)
    log.write_text("".join(lines[:2_000]))
    rows = reported(log)
    assert errors(rows) == ["too much to remember: the oldest are forgotten (2 clients)"]
    assert len({row["client_id"] for row in rows if not row["error"]}) == 1


def test_a_forgotten_session_does_not_move_offsets_back(log: Path, lines: list[str]) -> None:
    of_client = [line for line in lines[:2_000] if '"clientId":"ledger-rc"' in line and '"FETCH"' in line]
    session = '"sessionId":442455871'
    assert session in of_client[0]
    later = of_client[0].replace(session, '"sessionId":0').replace("[2026-11-21 10", "[2026-11-22 09")
    last = later.replace("[2026-11-22 09", "[2026-11-22 11").replace('"partition":', '"partition":1')
    log.write_text("".join([*of_client, later, last]))
    assert {p: o for (_, _, p), o in positions(reported(log)).items()} == {0: 0, 1: 0, 10: 0, 11: 0}


def test_times_are_converted_from_the_brokers_time_zone(log: Path, lines: list[str]) -> None:
    # On 25 October 2026 Berlin has 2 o'clock at 0:00 UTC, and again at 1:00 UTC.
    hours = {"2026-10-25 01:10": 23, "2026-10-25 02:50": 0, "2026-10-25 02:20": 1, "2026-10-25 03:00": 2}
    fetch = next(line for line in lines if '"requestApiKeyName":"FETCH"' in line)
    for local, expected in hours.items():
        append(log, f"[{local}{fetch[17:]}".encode())
        (at,) = {row["captured_at"] for row in reported(log, timezone="Europe/Berlin")}
        assert (at.hour, at.minute) == (expected, int(local[-2:]))


def test_topics_without_metadata_get_their_names_from_a_file(recording: Path, lines: list[str], log: Path) -> None:
    log.write_text("".join(line for line in lines if '"METADATA"' not in line))
    assert {len(topic) for _, topic, _ in positions(reported(log))} == {22}
    named = positions(reported(log, topics_file=str(recording / "topic_ids.csv")))
    assert named == positions(reported(recording / "request.log"))


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
        assert error.startswith("the state is damaged, the log is read anew: ")
        assert [row for row in rows if not row["error"]] == first
    rows = reported(log.parent, state=log / "below-a-file", batch=1)
    assert [error.split(":")[0] for error in errors(rows)] == ["the state cannot be written"]
    assert [row for row in rows if not row["error"]] == first


@settings(max_examples=200, deadline=None)
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
        assert error.startswith("the state is damaged, the log is read anew: ")
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
    assert [error.split(":")[0] for error in errors(rows)] == ["the state is damaged, the log is read anew"]
    assert [row for row in rows if not row["error"]] == first
    file.unlink()
    os.mkfifo(file)
    assert errors(reported(log.parent, state=tmp_path / "state", batch=3)) == [
        "the state cannot be read, nor therefore the log: NotAFileError"
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
from tests.client_positions.test_request_log_source import errors, reported
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 200 * 1024**2,) * 2)
print(*errors(reported(Path({str(log)!r}), state=Path({str(file.parent)!r}), batch=2)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "the state cannot be read, nor therefore the log: MemoryError\n"
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
    assert errors(rows) == ["the state is damaged, the log is read anew: RecursionError"]
    assert [row for row in rows if not row["error"]] == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'path' is needed"),
        ({"path": "/a,/b,/a/"}, "option 'path' names the same path twice"),
        ({"path": "/a", "state": "/s"}, "options 'state' and 'batch' must be given together"),
        ({"path": "/a", "bach": "1"}, "unknown option 'bach'"),
        ({"path": "/a", "most_bytes": "0"}, "option 'most_bytes' must be a whole number above 0"),
        ({"path": "/a", "timezone": "Mars/Crater"}, "option 'timezone': 'Mars/Crater' is not the name of a time zone"),
        ({"path": "nowhere://user:secret@a/b"}, "'nowhere://a/b' is not a path, and not a URI"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RequestLogOptions.parse(options)


def test_a_file_that_is_not_a_topics_file_is_named(log: Path, lines: list[str]) -> None:
    log.write_text(lines[0])
    for file in (log, log.with_name("none.csv")):
        with pytest.raises(ConfigError, match=r"option 'topics_file': .* is not a CSV file of topic and topic_id"):
            reported(log, topics_file=str(file))


TOPICS = b"topic,topic_id\nt,AAAAAAAAAAAAAAAAAAAAAA\n"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", TOPICS + b"\xff", "UnicodeDecodeError"),
        ("t.csv", TOPICS + b"," * 1_000, "larger than 1000 bytes"),
        ("t.csv.gz", gzip.compress(TOPICS + b"\n" * 1_000), "larger than 1000 bytes"),
        ("t.csv", TOPICS.replace(b"t,", b"t" * 1_001 + b","), "a name of 1001 characters, more than 1000"),
        ("t.csv", b"name,id\nt,A\n", "ValueError"),
        ("t.csv", b"", "ValueError"),
        ("t.csv", None, "not a regular file"),
        ("a/t.csv", None, "FileNotFoundError"),
    ],
    ids=["not UTF-8", "too long", "too long unpacked", "a long name", "no topic_id", "empty", "a pipe", "none"],
)
def test_a_topics_file_is_refused_in_one_line_with_the_reason(
    name: str, content: bytes | None, reason: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log_source, "MOST_TOPICS_BYTES", 1_000 + 1_100 * ("name" in reason))
    if content is not None:
        (tmp_path / name).write_bytes(content)
    elif "/" not in name:
        os.mkfifo(tmp_path / name)
    log.touch()
    with pytest.raises(ConfigError) as refused:
        reported(log, topics_file=str(tmp_path / name))
    what = f"option 'topics_file': {str(tmp_path / name)!r} is not a CSV file of topic and topic_id"
    assert str(refused.value) == f"{what}: {reason}"


def test_a_topics_file_that_unpacks_to_many_bytes_uses_bounded_memory(log: Path, tmp_path: Path) -> None:
    log.touch()
    with gzip.open(tmp_path / "t.csv.gz", "wb") as file:
        for _ in range(100):
            file.write(bytes(1024**2))
    tracemalloc.start()
    with pytest.raises(ConfigError, match=f"larger than {16 * 1024**2} bytes"):
        reported(log, topics_file=str(tmp_path / "t.csv.gz"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 40 * 1024**2
