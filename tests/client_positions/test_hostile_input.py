"""Hostile input: each parser rejects it, or makes rows that can be stored in the table."""

import json
import math
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.client_positions.endpoints import Content
from pipeline.client_positions.metrics_source import (
    ClientMetricsSource,
    Locations,
    PositionsOptions,
    PositionsReader,
    PositionsSource,
    StatisticsSource,
)
from pipeline.client_positions.position import Position, refused
from pipeline.client_positions.request_log import RequestLog
from tests.helpers.hostile import changed, torn
from tests.helpers.recordings import unpacked

NOW_MS = 1_795_255_699_058
SCRAPE = (
    "# TYPE kafka_server_fetcherlagmetrics_consumerlag gauge\n"
    'kafka_server_fetcherlagmetrics_consumerlag{clientId="c",partition="0",topic="t"} 7.0\n'
    'kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="d",partition="1",topic="a.b"} 8\n'
    'kafka_server_fetcherstats_requestspersec_count{clientId_c_brokerHost="h"} 9 1795255699058\n'
)
BEAN = "kafka.consumer:client-id=d,partition=1,topic=a_b,type=consumer-fetch-manager-metrics"
JOLOKIA: Any = [{"status": 200, "request": {"mbean": "*"}, "value": {BEAN: {"records-lag": 8, "records-lead": 2}}}]
FETCHED = '[2026-11-21 10:00:00,000] DEBUG Completed request:{"requestApiKeyName":"FETCH","requestHeader":{}}'
REPORTED: Any = {
    "ts": NOW_MS,
    "client_id": "c",
    "group_id": "g",
    "metrics": {"records-lag-max": 3.0},
    "partitions": [{"topic": "t", "partition": 0, "position": 4, "highwater": 7, "paused": False}],
}


def reported(source: type[PositionsSource], text: str) -> list[dict[str, Any]]:
    """The rows of a text; each has a position that a table can store, or only an error."""
    reader = PositionsReader(source.name(), source.reported, PositionsOptions(paths=("x",)))
    rows: list[dict[str, Any]] = reader._batch(Content("x", NOW_MS, text), Locations([], math.inf)).to_pylist()
    for row in rows:
        position = Position(**{name: row[name] for name in Position._fields if name in row})
        assert refused(position) is None if row["error"] is None else set(position) == {None}
        # With this, the reader reports what a parser does not foresee.
        assert not str(row["error"]).startswith("cannot be read")
    return rows


@given(st.one_of(torn(SCRAPE), torn(SCRAPE + "# EOF\n"), st.text()))
def test_any_change_to_a_scrape_is_parsed_or_an_error(text: str) -> None:
    rows = reported(ClientMetricsSource, text)
    assert {row["client_id"] for row in rows if len(text) < 10} <= {None}


@given(changed(JOLOKIA).map(json.dumps), st.data())
def test_any_change_to_an_answer_of_jolokia_is_parsed_or_an_error(text: str, data: st.DataObject) -> None:
    reported(ClientMetricsSource, text)
    reported(ClientMetricsSource, data.draw(torn(text)))


@given(changed(REPORTED).map(json.dumps), st.data())
def test_any_change_to_a_line_of_a_reporter_is_parsed_or_an_error(text: str, data: st.DataObject) -> None:
    good = json.dumps(REPORTED)
    assert [row["client_id"] for row in reported(ClientMetricsSource, f"{text}\n{good}")][-2:] == ["c", "c"]
    reported(ClientMetricsSource, data.draw(torn(text)))


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A real line of statistics, and lines of a real request log, of each kind."""
    folder = tmp_path_factory.mktemp("recordings")
    first = (unpacked("librdkafka", folder) / "statistics.jsonl").read_text().splitlines()[20]
    log = (unpacked("request-log", folder) / "request.log").read_text().splitlines()
    kinds = ("FETCH", "OFFSET_COMMIT", "METADATA")
    return [first, *(next(line for line in log if f'"requestApiKeyName":"{kind}"' in line) for kind in kinds)]


@given(data=st.data())
def test_any_change_to_a_line_of_statistics_is_parsed_or_an_error(lines: list[str], data: st.DataObject) -> None:
    line = json.loads(lines[0])
    rows = reported(StatisticsSource, json.dumps(data.draw(changed(line))) + "\n" + lines[0])
    assert rows[-1]["error"] is None
    reported(StatisticsSource, data.draw(torn(lines[0])))


@given(data=st.data())
def test_any_change_to_a_line_of_a_request_log_is_parsed_or_refused(lines: list[str], data: st.DataObject) -> None:
    log = RequestLog()
    for line in lines[1:]:
        begin, end = line.index("{"), line.rindex("}") + 1
        said = json.dumps(data.draw(changed(json.loads(line[begin:end]))), separators=(",", ":"))
        for text in (line[:begin] + said + line[end:], data.draw(torn(line))):
            with suppress(ValueError):
                log.read(text)
    assert {refused(position) for position in log.positions()} <= {None}
    json.dumps(log.state())


FETCHED_AS_TEXT = (
    "[2026-11-21 10:00:00,000] DEBUG Completed request:RequestHeader(apiKey=FETCH, apiVersion=11, clientId=c, "
    "correlationId=1) -- {replica_id=-1,session_id=0,session_epoch=0,topics=[{topic=t,partitions=[{partition=0,"
    "fetch_offset=5}]}],forgotten_topics_data=[],rack_id=},response:{error_code=0,session_id=7,responses=[{topic=t,"
    "partition_responses=[{record_set=FileRecords(size=460, file=x)}]}]} from connection 1:1-2:2-3;totalTime:1.5,x"
)
WRAPPED = json.dumps({"log": FETCHED_AS_TEXT + "\n", "stream": "stdout", "time": "2026-11-21T10:00:00.1Z"})
IN_A_LAYOUT = json.dumps({"instant": {"epochSecond": 1, "nanoOfSecond": 5}, "message": FETCHED_AS_TEXT[25:]})


@given(torn(FETCHED_AS_TEXT) | torn(WRAPPED) | torn(f"2026-11-21T10:00:00Z stdout F {IN_A_LAYOUT}"))
def test_any_change_to_a_line_in_another_form_is_parsed_or_refused(text: str) -> None:
    log = RequestLog()
    for line in text.split("\n"):
        with suppress(ValueError):
            log.read(line)
    assert {refused(position) for position in log.positions()} <= {None}
    assert RequestLog.from_state(json.loads(json.dumps(log.state()))).positions() == log.positions()


@given(st.text() | st.binary().map(lambda data: data.decode(errors="replace")))
def test_any_text_is_parsed_or_an_error(text: str) -> None:
    for source in (ClientMetricsSource, StatisticsSource):
        reported(source, text)
    for line in (text, FETCHED.replace("{}", text), FETCHED.replace("{}", json.dumps({"clientId": text}))):
        with suppress(ValueError):
            RequestLog().read(line)


HUGE = {
    "a name": "consumerfetchermanager" * 45_000 + " 1\n",
    "names": "consumerfetchermanager_maxlag_clientid_x 1\n" * 22_000,
    "long names": ("consumerfetchermanager" * 2_700 + " 1\n") * 17,
    "a label": 'x{a="' + '\\"' * 500_000 + '"} 1\n',
    "labels": "x{" + ",".join(f'l{i}="v"' for i in range(100_000)) + "} 1\n",
    "clients": "".join(
        f'kafka_server_fetcherstats_requestspersec_count{{clientId_c{i}_brokerHost="h"}} 1\n' for i in range(13_000)
    ),
    "greedy labels": ('x{client="' + ', topic=\\"t, x' * 60 + '"} 1\n') * 1_000,
    "names of MBeans": (
        'kafka_consumer_consumer_fetch_manager_metrics_records_lag{_objectname="a<type=' + ",b" * 450 + '<>c"} 1\n'
    )
    * 1_000,
    "braces": "{" * 1_000_000,
    "nesting": '[{"mbean":' * 100_000,
    "beans without properties": json.dumps(
        [
            {
                "status": 200,
                "request": {"mbean": "x"},
                "value": {"a:" + "b" * 1_900 + str(i): {"v": 1} for i in range(500)},
            }
        ]
    ),
    "flat names": ('x{a="c-ConsumerFetcherThread-g' + "-1-1-host_" * 30 + "-port_1" * 30 + "-1" * 200 + '"} 1\n')
    * 1_000,
    "a bean": json.dumps([{"status": 200, "request": {"mbean": "x"}, "value": {"a:" + "b" * 1_000_000: {"v": 1}}}]),
    "an attribute": json.dumps(
        [{"status": 200, "request": {"mbean": "x"}, "value": {"a:b=c": {"consumerfetchermanager" * 45_000: 1}}}]
    ),
    "queues": json.dumps(
        [
            {
                "status": 200,
                "request": {"mbean": "x"},
                "value": {
                    f'kafka.server:type=FetcherLagMetrics,name="c{i}-ConsumerFetcherThread-g_h-1-2-0-1-host_h-port_9'
                    f'-t{i}-0-ConsumerLag"': {"Value": 1}
                    for i in range(2_000)
                }
                | {
                    f'kafka.consumer:type=ZookeeperConsumerConnector,name="c{i}-g-t{i}-g_h-1-2-0-FetchQueueSize"': {
                        "Value": 1
                    }
                    for i in range(2_000)
                },
            }
        ]
    ),
}


LONG = "c" + "-" * 50_000
AMPLIFIED: dict[str, tuple[type[PositionsSource], str, set[str]]] = {
    "statistics": (
        StatisticsSource,
        json.dumps({"client_id": LONG, "type": "consumer", "rxmsg_bytes": 0, "brokers": {}, "topics": {}}),
        set(),
    ),
    "a reporter": (ClientMetricsSource, json.dumps(REPORTED | {"client_id": LONG}), set()),
    # Its last line has the name without what is between the letters, and would get the name of the first.
    "labels": (ClientMetricsSource, SCRAPE.replace('"c"', f'"{LONG}"'), {"c", "d"}),
}


@pytest.mark.parametrize("case", AMPLIFIED)
def test_a_name_that_is_too_long_is_refused_because_each_row_would_repeat_it(case: str) -> None:
    source, text, clients = AMPLIFIED[case]
    rows = reported(source, text)
    assert {row["client_id"] for row in rows if not row["error"]} == clients
    (error,) = (row["error"] for row in rows if row["error"])
    assert "a name of 50001 characters, more than 1000" in error


def test_long_names_do_not_stay_in_memory() -> None:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for n in range(10):
        metric = f"{'consumerfetchermanager' * 2_500}{n} 1\n"
        reported(ClientMetricsSource, metric + SCRAPE.replace('"0"', f'"{n}{"-" * 50_000}"'))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 400_000


@pytest.mark.timeout(120)  # quadratic code took minutes or hours; now the longest case takes a second or two
@pytest.mark.parametrize("case", HUGE)
def test_a_megabyte_is_parsed_quickly_or_refused(case: str) -> None:
    reported(ClientMetricsSource, HUGE[case])
