"""Lines of containers' logs: whatever their fields hold, and whoever has wrapped them, no line stops the reading."""

import json
from pathlib import Path

import pytest

from pipeline.client_positions.request_log import RequestLog
from pipeline.replay.recording import Recording
from tests.helpers.request_logs import append, errors, positions, reported

BODY = (
    '{"requestHeader":{"requestApiKeyName":"FETCH","clientId":"c"},"request":{"replicaId":-1,"sessionId":0,'
    '"sessionEpoch":-1,"topics":[{"topic":"t","partitions":[{"partition":0,"fetchOffset":5}]}],'
    '"forgottenTopicsData":[]},"response":{"sessionId":0,"responses":[]},"connection":"1:1-2:2-3","totalTimeMs":1}'
)
FETCHED = f"[2026-11-28 11:11:39,254] DEBUG Completed request:{BODY} (kafka.request.logger)"
READ = {("c", "t", 0): 5}
LARGE = "1" + "0" * 400
"""A number that is larger than any float, and that JSON may have nevertheless."""
HUGE_TIMES = {
    "GELF": f'{{"timestamp":{LARGE},"short_message":"x"}}',
    "GELF, before 1970": f'{{"timestamp":-{LARGE},"short_message":"x"}}',
    "a float, before 1970": '{"timestamp":-1e308,"short_message":"x"}',
    "log4j2": f'{{"instant":{{"epochSecond":{LARGE},"nanoOfSecond":{LARGE}}},"message":"x"}}',
    "Docker": f'{{"log":"x\\n","stream":"stdout","time":{LARGE}}}',
}


@pytest.mark.parametrize("case", HUGE_TIMES)
def test_a_number_that_is_no_time_does_not_stop_the_reading_of_a_log(case: str, log: Path) -> None:
    log.write_text(f"{HUGE_TIMES[case]}\n{FETCHED}\n")
    rows = reported(log)
    assert errors(rows) == []
    assert positions(rows) == READ


def test_a_request_whose_time_is_such_a_number_is_refused(log: Path) -> None:
    wrapped = json.dumps({"message": f"Completed request:{BODY}", "timestamp": 0}).replace(": 0}", f": {LARGE}}}")
    log.write_text(f"{wrapped}\n{FETCHED}\n")
    rows = reported(log)
    assert errors(rows) == [
        "1 line refused, the first: line 1: not a line of Kafka's request log: it has no date and time"
    ]
    assert positions(rows) == READ


def test_a_line_that_overflows_is_refused_alone(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line can say anything, so that a sum that nobody thought of must not stop the reading for good."""
    unwrap = RequestLog.unwrap
    too_large = "too large"

    def overflowing(self: RequestLog, line: str) -> object:
        if line.startswith("odd"):
            raise OverflowError(too_large)
        return unwrap(self, line)

    monkeypatch.setattr(RequestLog, "unwrap", overflowing)
    log.write_text(f"odd\n{FETCHED}\n")
    rows = reported(log)
    assert errors(rows) == ["1 line refused, the first: line 1: too large"]
    assert positions(rows) == READ
    log.rename(log.with_name("request.log"))
    ((_, logged),) = Recording(log.parent, {1_800_000_000_000: []}, request_log=log.with_name("request.log")).logged()
    assert logged.error == "1 line refused, the first: line 1: too large"
    assert [p.fetched_offset for p in logged.positions if p.topic] == [5]


@pytest.mark.parametrize("stream", ["\ud800", "stdin", "", 7, None, ["stdout"]])
def test_a_state_can_be_read_again_whatever_a_stream_is_called(stream: object, log: Path, tmp_path: Path) -> None:
    line = json.dumps({"log": "x" * 20_000, "stream": stream})
    log.write_text(f"{line}\n{FETCHED}\n")
    first = reported(log, state=tmp_path / "state", batch=1)
    append(log, f"{line}\n".encode())
    second = reported(log, state=tmp_path / "state", batch=2)
    assert errors(first) == errors(second) == []
    assert positions(first) == positions(second) == READ


def test_a_state_without_parts_of_lines_is_read_as_one_without_any() -> None:
    """A state is kept for long, and most logs never have a line in parts."""
    log = RequestLog()
    log.read(FETCHED)
    state = {name: value for name, value in log.state().items() if name != "parts"}
    assert RequestLog.from_state(state).positions() == log.positions()
