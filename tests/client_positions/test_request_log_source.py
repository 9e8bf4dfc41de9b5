"""The data source of brokers' request logs: its batches, their limits, its options, and the file of topics."""

import gzip
import os
import random
import time
import tracemalloc
from datetime import UTC
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.client_positions import request_log_source, request_memory
from pipeline.client_positions.broker_log import BLOCK_BYTES, HEAD_BYTES
from pipeline.client_positions.position_rows import POSITIONS
from pipeline.client_positions.request_log_source import RequestLogOptions, RequestLogSource
from pipeline.common.errors import ConfigError
from tests.helpers.recordings import by_partition, table
from tests.helpers.request_logs import (
    CLIENTS,
    Rows,
    append,
    errors,
    positions,
    reported,
    roll_over,
    written_at,
)


def without_endpoint(rows: Rows) -> Rows:
    return [row | {"endpoint": None} for row in rows]


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
    assert without_endpoint(steps[-1]) == without_endpoint(whole)
    assert {row["client_id"] for row in whole} == CLIENTS
    assert [error for rows in steps for error in errors(rows)] == []


def test_each_batch_is_between_the_applications_position_and_the_high_watermark(
    recording: Path, steps: list[Rows]
) -> None:
    ends = by_partition(table(recording / "truth.csv"))
    applications = table(recording / "positions.csv")
    compared = 0
    for client in CLIENTS:
        for partition, truth in by_partition([r for r in applications if r["client_id"] == client]).items():
            for rows in steps:
                for row in (r for r in rows if (r["client_id"], r["topic"], r["partition"]) == (client, *partition)):
                    as_of_ms = row["as_of"].timestamp() * 1_000
                    consumed = [int(r["position"]) for r in truth if int(r["ts"]) < as_of_ms]
                    end = [int(r["high_watermark"]) for r in ends[partition] if int(r["ts"]) >= as_of_ms]
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


def test_a_batch_without_new_lines_repeats_the_positions_with_their_times(
    log: Path, lines: list[str], tmp_path: Path
) -> None:
    log.write_text("".join(lines))
    first = reported(log.parent, state=tmp_path / "state", batch=1)
    assert reported(log.parent, state=tmp_path / "state", batch=2) == first
    assert {row["captured_at"] for row in first} == {written_at(lines[-1])}
    assert all(row["as_of"] <= row["captured_at"] for row in first)


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
    assert errors(found[0]) == ["more than 1000000 bytes are new: some lines were not read"]
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
    assert errors(late) == ["the read timeout was over: some lines were not read"]
    read = {row["captured_at"] for row in late if row["client_id"]}
    assert max(read) == written_at(lines[len(log.read_bytes()[: BLOCK_BYTES + HEAD_BYTES].splitlines()) - 2])
    assert reported(log, state=tmp_path / "state", batch=2) == reported(log)


def test_each_batch_reads_a_part_of_a_log_even_if_its_task_begins_too_late(
    log: Path, lines: list[str], tmp_path: Path
) -> None:
    log.write_text("x" * (BLOCK_BYTES + 5_000) + "\n" + "".join(lines))
    found: list[Rows] = []
    while not found or "the read timeout was over: some lines were not read" in errors(found[-1]):
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
    assert errors(rows) == ["too much to remember, so the oldest were forgotten (2 clients)"]
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
