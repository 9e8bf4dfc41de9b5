"""Request logs in all the forms in which they are found: Kafka's own formats, log layouts, and containers' wrapping.

The recording is the log of a real Kafka 2.6.3. What is true of it is known from how it was made: the Java consumer and
the one of librdkafka had read all 41 + 50 (+ 9) records, the one of kafka-python all 50 of its partition.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from pipeline.client_positions.request_log import RequestLog
from tests.helpers.recordings import unpacked
from tests.helpers.request_logs import errors, positions, reported

JAVA, RDKAFKA, PYTHON = "java, one", "rd", "kp"
READ = {
    (JAVA, "orders", 0): 41,
    (JAVA, "orders", 1): 50,
    (JAVA, "refunds.eu", 0): 9,
    (RDKAFKA, "orders", 0): 41,
    (RDKAFKA, "orders", 1): 50,
    (PYTHON, "orders", 1): 50,
}
EARLIER, LATER = "2026-11-28T11:11:29.123456789Z", "2026-11-28T11:11:59.123456789Z"
"""When a container's runtime wrote the lines: before the first and after the last request."""
PRODUCE = (
    "RequestHeader(apiKey=PRODUCE, apiVersion=8, clientId=p, correlationId=14) -- {acks=-1},response:{} (logger)\n"
)
DOCKERS_BYTES = 16_384
"""Docker and CRI's runtimes write a longer line in several parts."""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of a broker of Kafka 2.6.3, which logs requests as text."""
    return (unpacked("request-log-2.6", tmp_path_factory.mktemp("old")) / "request.log").read_text().splitlines()


def time_of(line: str) -> datetime:
    return datetime.fromisoformat(line[1:24].replace(",", ".")).replace(tzinfo=UTC)


def message_of(line: str) -> str:
    return line.split(" DEBUG ")[1].removesuffix(" (kafka.request.logger)")


def plain(line: str) -> list[str]:
    return [line]


def without_brackets(line: str) -> list[str]:
    """As Strimzi's brokers write it: %d{ISO8601} %p %m (%c) [%t]."""
    return [f"{line[1:24]}{line[25:]} [data-plane-kafka-network-thread-1-ListenerName(PLAINTEXT)-PLAINTEXT-2]"]


def with_an_offset(line: str) -> list[str]:
    local = time_of(line).astimezone(timezone(timedelta(hours=5, minutes=30)))
    return [f"{local.isoformat(timespec='milliseconds')} DEBUG {message_of(line)}"]


def logstash(line: str) -> list[str]:
    at = time_of(line).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    wrapped = {"@timestamp": at, "level": "DEBUG", "logger_name": "kafka.request.logger", "message": message_of(line)}
    return [json.dumps(wrapped, separators=(",", ":"))]


def log4j2(line: str) -> list[str]:
    """The JsonLayout of log4j2."""
    ms = round(time_of(line).timestamp() * 1000)
    instant = {"epochSecond": ms // 1000, "nanoOfSecond": ms % 1000 * 1_000_000}
    return [json.dumps({"instant": instant, "thread": "t", "level": "DEBUG", "message": message_of(line)})]


def gelf(line: str) -> list[str]:
    return [json.dumps({"version": "1.1", "timestamp": time_of(line).timestamp(), "short_message": message_of(line)})]


def parts_of(line: str) -> list[str]:
    return [line[begin : begin + DOCKERS_BYTES] for begin in range(0, len(line), DOCKERS_BYTES)]


def docker(line: str) -> list[str]:
    *parts, last = parts_of(line)
    wrapped = [{"log": part, "stream": "stdout", "time": LATER} for part in [*parts, f"{last}\n"]]
    return [json.dumps(one) for one in wrapped]


def cri(line: str) -> list[str]:
    *parts, last = parts_of(line)
    written = [f"{LATER} stdout P {part}" for part in parts]
    return [*written, f"{EARLIER} stderr F a warning", f"{LATER} stdout F {last}"]


def cri_of_json(line: str) -> list[str]:
    return [one for part in logstash(line) for one in cri(part)]


LAYOUTS = (plain, without_brackets, with_an_offset, logstash, log4j2, gelf, docker, cri, cri_of_json)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_each_layout_gives_the_offsets_that_the_clients_had_read(
    layout: Callable[[str], list[str]], lines: list[str], log: Path
) -> None:
    log.write_text("".join(f"{wrapped}\n" for line in lines for wrapped in layout(line)))
    rows = reported(log)
    assert errors(rows) == []
    assert positions(rows) == READ
    assert {row["captured_at"] for row in rows} == {time_of(lines[-1])}
    clients = {row["client_id"]: row for row in rows if row["topic"] is None}
    assert {name: row["group_id"] for name, row in clients.items()} == {
        JAVA: "billing run",
        RDKAFKA: "rd-group",
        PYTHON: "kp-group",
    }
    assert {name: row["requests_total"] for name, row in clients.items()} == {JAVA: 45, RDKAFKA: 26, PYTHON: 23}
    # The sizes of the segments that the brokers had on disk: the Java consumer has fetched each record once.
    assert clients[JAVA]["bytes_total"] == 2_459 + 2_911 + 635
    assert clients[PYTHON]["bytes_total"] == 2_911
    assert {row["host"] for row in rows} == {"127.0.0.1"}


@pytest.mark.parametrize("layout", [docker, cri], ids=lambda layout: layout.__name__)
def test_a_line_in_several_parts_is_read_even_if_a_batch_ends_between_them(
    layout: Callable[[str], list[str]], log: Path, tmp_path: Path
) -> None:
    partitions = ",".join(f"{{partition={n},fetch_offset={10 * n}}}" for n in range(2_000))
    line = (
        "[2026-11-28 11:11:39,254] DEBUG Completed request:RequestHeader(apiKey=FETCH, apiVersion=4, clientId=c, "
        f"correlationId=14) -- {{replica_id=-1,topics=[{{topic=123,partitions=[{partitions}]}}]}},response:"
        "{throttle_time_ms=0,responses=[]} from connection 10.0.0.9:9092-10.0.0.31:56712-2;totalTime:1.5,x (logger)"
    )
    wrapped = layout(line)
    assert len(wrapped) >= 4
    log.write_text(f"{wrapped[0]}\n{wrapped[1]}\n")
    first = reported(log, state=tmp_path / "state", batch=1)
    assert positions(first) == {}
    with log.open("a") as file:
        file.writelines(f"{one}\n" for one in wrapped[2:])
    second = reported(log, state=tmp_path / "state", batch=2)
    assert errors(second) == []
    assert positions(second) == {("c", "123", n): 10 * n for n in range(2_000)}


def test_bytes_are_unknown_if_the_log_does_not_have_them() -> None:
    """Earlier versions print the records themselves in place of their size."""
    log = RequestLog()
    for size in ("size=460, file=a", "file=a"):
        log.read(
            "[2026-11-28 11:11:39,254] DEBUG Completed request:RequestHeader(apiKey=FETCH, apiVersion=4, clientId=c, "
            "correlationId=14) -- {replica_id=-1,topics=[{topic=t,partitions=[{partition=0,fetch_offset=5}]}]},"
            "response:{throttle_time_ms=0,responses=[{topic=t,partition_responses=[{partition_header={partition=0},"
            f"record_set=FileRecords({size}, start=0, end=460)}}]}}]}} from connection 1:1-2:2-3;totalTime:1.5,x"
        )
    (client,) = [p for p in log.positions() if p.topic is None]
    assert (client.requests_total, client.bytes_total) == (2, None)
    assert RequestLog.from_state(json.loads(json.dumps(log.state()))).positions() == log.positions()


@pytest.mark.parametrize(
    "line",
    [
        "11:11:39.254 DEBUG Completed request:" + '{"requestHeader":{"requestApiKeyName":"FETCH","clientId":"c"}}',
        "[2026-11-28 11:11:39,254] DEBUG Completed request:apiKey=FETCH",
        '[2026-11-28 11:11:39,254] DEBUG Completed request:{"apiKey":"FETCH"}',
        json.dumps({"message": 'Completed request:{"requestHeader":{"requestApiKeyName":"FETCH","clientId":"c"}}'}),
        '{"message":"Completed request:{',
        '{"@timestamp":"2026-11-28T11:11:39.254Z","log":{"message":"Completed request:RequestHeader(apiKey=FETCH"}}',
    ],
    ids=["a time without a date", "another text", "another JSON", "no time", "torn JSON", "a nested layout"],
)
def test_a_request_in_a_form_that_is_not_known_is_refused_and_not_passed_over(line: str) -> None:
    with pytest.raises(ValueError, match="not a line of Kafka's request log"):
        RequestLog().read(line)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "has no new line, and no consumer's FETCH is known from earlier ones"),
        (
            "[2026-11-28 11:11:39,254] INFO started (kafka.server.KafkaServer)\n",
            "no new line has a request: the level of kafka.request.logger must be DEBUG, with an appender to this file",
        ),
        (
            "[2026-11-28 11:11:39,254] DEBUG Completed request:" + PRODUCE,
            "has requests, but no consumer's FETCH: no client has read from this broker",
        ),
    ],
    ids=["empty", "no request", "no consumer"],
)
def test_a_log_without_a_position_is_a_row_that_says_why(content: str, why: str, log: Path) -> None:
    log.write_text(content)
    (row,) = reported(log)
    assert (row["endpoint"], row["error"], row["client_id"]) == (str(log), why, None)
