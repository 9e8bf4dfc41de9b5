"""Lines of containers' logs: whatever their fields hold, and whoever has wrapped them, no line stops the reading."""

import json
from pathlib import Path

import pytest

from pipeline.client_positions import log_layouts
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
SHORT, LONG = "started (kafka.server.KafkaServer)", "y" * 20_000
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


def collected(text: str, **more: str) -> str:
    """A line as fluentd or fluent-bit stores it: it has removed the newline."""
    return json.dumps({"time": "2026-11-28T11:11:40Z", "stream": "stdout", **more, "log": text}) + "\n"


FLUENT = {
    "fluentd": [collected(SHORT), collected(FETCHED)],
    "fluent-bit": [collected(SHORT, logtag="F"), collected(LONG, logtag="F"), collected(FETCHED, logtag="F")],
    "a multiline parser": [collected(SHORT, _p="F"), collected(LONG, _p="F"), collected(FETCHED, _p="F")],
    "a line in parts": [collected(FETCHED[:99], logtag="P"), collected(FETCHED[99:], logtag="F")],
    "a line in parts, by a multiline parser": [collected(FETCHED[:99], _p="P"), collected(FETCHED[99:], _p="F")],
    "parts with a tag": [collected(FETCHED[:99], logtag="P:a"), collected(FETCHED[99:], logtag="F:a")],
    "its text in message": [
        collected(FETCHED[:99], logtag="P").replace('"log"', '"message"'),
        collected(FETCHED[99:], logtag="F").replace('"log"', '"message"'),
    ],
    "a long message that no container wrote": [collected(LONG).replace('"log"', '"message"'), collected(FETCHED)],
    "a mark that is no text": [collected(SHORT)[:-2] + f', "logtag": {LARGE}}}\n', collected(FETCHED)],
    "Docker, at the end of a container": [json.dumps({"log": SHORT, "stream": "stdout"}) + "\n", collected(FETCHED)],
}


@pytest.mark.parametrize("case", FLUENT)
def test_a_line_whose_newline_a_collector_has_removed_is_a_whole_line(case: str, log: Path) -> None:
    """Such lines were once taken for parts of one line that never ends, all of them."""
    log.write_text("".join(FLUENT[case]))
    rows = reported(log)
    assert errors(rows) == []
    assert positions(rows) == READ


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600"])
def test_a_text_of_dockers_limit_without_a_newline_is_a_part_however_its_characters_are_stored(
    character: str, log: Path
) -> None:
    """Docker cuts between bytes; both halves of a character that it divides are stored as U+FFFD."""
    body = BODY.replace('"replicaId"', f'"rackId":"{character * 20_000}","replicaId"')
    line = f"[2026-11-28 11:11:39,254] DEBUG Completed request:{body}\n".encode()
    parts = [line[begin : begin + 16_384].decode(errors="replace") for begin in range(0, len(line), 16_384)]
    assert len(parts) > 1
    log.write_text("".join(json.dumps({"log": part, "stream": "stdout"}) + "\n" for part in parts))
    rows = reported(log)
    assert errors(rows) == []
    assert positions(rows) == READ


@pytest.mark.parametrize(
    "written",
    [[collected(FETCHED, logtag="P")] * 2, [f"2026-11-28T11:11:40Z stdout P {FETCHED}\n"] * 2],
    ids=["fluent-bit", "CRI"],
)
def test_a_log_with_beginnings_of_lines_alone_says_so(written: list[str], log: Path) -> None:
    log.write_text("".join(written))
    assert errors(reported(log)) == [
        f"only the beginning of a line has come, {2 * len(FETCHED)} characters, and not its end"
    ]


def test_parts_beyond_a_limit_are_dropped_so_that_their_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_layouts, "LONGEST_JOINED", 1_000)
    log = RequestLog()
    for stream in ("stdout", "stderr"):
        for text in (FETCHED[:200], "x" * 900, "x" * 900):
            log.read(json.dumps({"log": text, "stream": stream, "logtag": "P"}))
    assert {stream: len(part) for stream, part in log.state()["parts"].items()} == {"stdout": 1_000, "stderr": 1_000}
    again = RequestLog.from_state(json.loads(json.dumps(log.state())))
    for one in (log, again):
        with pytest.raises(ValueError, match="not a line of Kafka's request log"):
            one.read(json.dumps({"log": FETCHED[200:], "stream": "stdout", "logtag": "F"}))
        assert {*one.state()["parts"]} == {"stderr"}


def test_a_state_without_parts_of_lines_is_read_as_one_without_any() -> None:
    """A state is kept for long, and most logs never have a line in parts."""
    log = RequestLog()
    log.read(FETCHED)
    state = {name: value for name, value in log.state().items() if name != "parts"}
    assert RequestLog.from_state(state).positions() == log.positions()
