"""What clients and endpoints report is read in linear time, however it is made; see also test_hostile_input.py."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.client_positions import request_log
from pipeline.client_positions.metrics_source import ClientMetricsSource, PositionsSource, StatisticsSource
from pipeline.client_positions.request_log import RequestLog
from tests.client_positions.test_hostile_input import REPORTED, reported
from tests.helpers.growth import assert_linear
from tests.helpers.recordings import unpacked

Made = Callable[[int], Any]


def statistics(**more: Any) -> str:
    return json.dumps({"client_id": "c", "type": "consumer", "rxmsg_bytes": 0, "brokers": {}, "topics": {}} | more)


def partition(number: int) -> dict[str, Any]:
    offsets = dict.fromkeys(("next_offset", "app_offset", "consumer_lag", "fetchq_size", "rxbytes"), number)
    return {"partition": number, "fetch_state": "active", **offsets}


def reporter(partitions: int, position: int = 4) -> str:
    one = REPORTED["partitions"][0] | {"position": position}
    return json.dumps(REPORTED | {"partitions": [one | {"partition": n} for n in range(partitions)]})


def logged(api: str, request: Any, response: Any, client: str = "c", connection: str = "") -> str:
    """A line of a request log."""
    body = {
        "requestHeader": {"requestApiKeyName": api, "clientId": client},
        "request": request,
        "response": response,
        "connection": connection,
        "totalTimeMs": 0,
    }
    return f"[2026-11-21 10:00:00,000] DEBUG Completed request:{json.dumps(body, separators=(',', ':'))}"


def fetched(partitions: int, session: int = 0, epoch: int = 0, client: str = "c") -> str:
    named = [{"topic": f"t{n}", "partitions": [{"partition": n, "fetchOffset": n}]} for n in range(partitions)]
    request = {"sessionId": session, "sessionEpoch": epoch, "topics": named, "forgottenTopicsData": []}
    return logged("FETCH", request, {"sessionId": session, "responses": []}, client)


STATISTICS: dict[str, Made] = {
    "partitions": lambda n: statistics(topics={"t": {"partitions": {str(i): partition(i) for i in range(n)}}}),
    "topics": lambda n: statistics(topics={f"t{i}": {"partitions": {"0": partition(0)}} for i in range(n)}),
    "brokers": lambda n: statistics(
        brokers={f"b{i}": {"nodeid": i, "nodename": f"b{i}", "req": {"Fetch": 1}} for i in range(n)}
    ),
    "lines": lambda n: f"{statistics()}\n" * n,
    "torn lines": lambda n: f"{statistics()}\n" + "{\n" * n,
    "a name": lambda n: statistics(client_id="c" * 100 * n),
    "digits": lambda n: statistics(rxmsg_bytes=1).replace(":1", ":1" + "0" * n),
    "nesting": lambda n: statistics(topics=1).replace("1", "[" * n),
}
REPORTERS: dict[str, Made] = {
    "partitions": reporter,
    "lines": lambda n: f"{reporter(1)}\n" * n,
    "lines without a client": lambda n: f"{reporter(1)}\n" + "{}\n" * n,
    "digits": lambda n: reporter(1).replace('"position": 4', '"position": 4' + "0" * n),
    "keys": lambda n: reporter(1)[:-1] + "".join(f', "k{i}": 0' for i in range(n)) + "}",
}
REQUESTS: dict[str, Made] = {
    "partitions": lambda n: [fetched(n)],
    "partitions of a session": lambda n: [fetched(n, 7), *(fetched(1, 7, epoch) for epoch in range(1, n))],
    "sessions": lambda n: [fetched(1, session) for session in range(1, n)],
    "clients": lambda n: [fetched(1, client=f"c{i}") for i in range(n)],
    "forgotten partitions": lambda n: [
        fetched(n, 7),
        logged(
            "FETCH",
            {
                "sessionId": 7,
                "sessionEpoch": 1,
                "topics": [],
                "forgottenTopicsData": [{"topic": f"t{i}", "partitions": [i]} for i in range(n)],
            },
            {"responses": []},
        ),
    ],
    "topics": lambda n: [
        logged("METADATA", {}, {"topics": [{"name": f"t{i}", "topicId": f"id-{i}"} for i in range(n)]})
    ],
    "groups": lambda n: [logged("OFFSET_COMMIT", {"groupId": f"g{i}"}, {}) for i in range(n)],
    "a connection": lambda n: [logged("OFFSET_COMMIT", {"groupId": "g"}, {}, connection=":1-1" * n)],
    "connections": lambda n: [logged("OFFSET_COMMIT", {"groupId": "g"}, {}, connection=":1-1" * 70)] * n,
    "braces": lambda n: [logged("FETCH", {}, {}) + "}" * n + " (a.b" * n],
    "blanks": lambda n: [logged("FETCH", {}, {}) + "} " * n + " " * n + "x"],
    "other lines": lambda n: [logged("PRODUCE", {}, {})] * n,
    "torn lines": lambda n: [logged("FETCH", {}, {})[:-5]] * n,
}


TEXT = (
    "[2026-11-21 10:00:00,000] DEBUG Completed request:RequestHeader(apiKey=FETCH, apiVersion=11, clientId=c, "
    "correlationId=1) -- {replica_id=-1,session_id=0,session_epoch=0,topics=[{topic=t,partitions=[{partition=0,"
    "fetch_offset=5}]}],forgotten_topics_data=[],rack_id=},response:{error_code=0,session_id=7,responses=[{topic=t,"
    "partition_responses=[{record_set=FileRecords(size=460, file=x)}]}]} from connection 1:1-2:2-3;totalTime:1.5,x"
)
WORDS = ("clientId=c, correlationId=1", "topic=t", "record_set=FileRecords", "session_id=7", " from connection ", "{")
REQUESTS |= {f"text, {word}": lambda n, word=word: [TEXT.replace(word, word * n)] for word in WORDS}
REQUESTS |= {
    "a layout in JSON": lambda n: [json.dumps({f"f{i}": f"{logged('FETCH', {}, {})}" for i in range(n)})],
    # The first part is nearly as long as a line may be, so that a copy of all parts for each further one takes long.
    "parts of a line": lambda n: [f"2026-11-21T10:00:00.1Z stdout P {text}" for text in ("x" * 2_000 * n, *"x" * n)],
    "streams": lambda n: [json.dumps({"log": "x", "stream": f"s{i}"}) for i in range(n)],
}


def log_of(lines: list[str]) -> RequestLog:
    log = RequestLog()
    for line in lines:
        with suppress(ValueError):
            log.read(line)
    log.positions()
    log.forget()
    return log


@pytest.mark.parametrize("case", STATISTICS)
def test_statistics_take_linear_time(case: str) -> None:
    assert_linear(lambda text: reported(StatisticsSource, text), STATISTICS[case], 1_000)


@pytest.mark.parametrize("case", REPORTERS)
def test_lines_of_a_reporter_take_linear_time(case: str) -> None:
    assert_linear(lambda text: reported(ClientMetricsSource, text), REPORTERS[case], 1_000)


@pytest.mark.parametrize("case", REQUESTS)
def test_lines_of_a_request_log_take_linear_time(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "BYTES_BETWEEN_CHECKS", 1_000_000)
    assert_linear(log_of, REQUESTS[case], 1_000)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A real line of each kind."""
    folder = tmp_path_factory.mktemp("recordings")
    requests = (unpacked("request-log", folder) / "request.log").read_text().splitlines()
    return {
        "statistics": first_line(unpacked("librdkafka", folder) / "statistics.jsonl"),
        "reporter": json.dumps(REPORTED),
        "request": next(line for line in requests if '"requestApiKeyName":"FETCH"' in line),
    }


def first_line(file: Path) -> str:
    return file.read_text().partition("\n")[0]


SOURCES: dict[str, type[PositionsSource]] = {"statistics": StatisticsSource, "reporter": ClientMetricsSource}


@settings(max_examples=60)
@given(data=st.data())
def test_a_line_with_a_repeated_part_takes_linear_time(recorded: dict[str, str], data: st.DataObject) -> None:
    """Expressions that try each way to divide a text take long for such texts, and parsers for what they nest."""
    kind = data.draw(st.sampled_from([*recorded]))
    line = recorded[kind]
    begin = data.draw(st.integers(0, len(line) - 1))
    part = line[begin : begin + data.draw(st.integers(1, 40))] + data.draw(st.sampled_from(["", " ", "\n", '"', "}"]))
    rest = line[begin:] if data.draw(st.booleans()) else ""

    def made(size: int) -> str:
        return line[:begin] + part * (size // len(part)) + rest

    def read(text: str) -> None:
        if kind == "request":
            log_of(text.split("\n"))
        else:
            reported(SOURCES[kind], text)

    assert_linear(read, made, 20_000)
