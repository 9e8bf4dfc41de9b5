"""Each location that was read and gave no position is a row that says why."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource

from pipeline.client_positions.consumer_metrics import of_prometheus
from pipeline.client_positions.metrics_source import (
    ClientMetricsSource,
    PositionsOptions,
    PositionsReader,
    PositionsSource,
    StatisticsSource,
)
from pipeline.client_positions.nothing_found import UNDERSTOOD, without_understood
from pipeline.client_positions.position_rows import POSITIONS
from pipeline.client_positions.request_log_source import RequestLogSource
from tests.helpers.client_metrics import SCRAPE, rows_of
from tests.helpers.request_logs import errors, reported

REFUSED: dict[str, Any] = {
    "error_type": "java.lang.SecurityException",
    "error": "java.lang.SecurityException : No access from client 10.0.0.9 allowed",
    "status": 403,
}
ABSENT: dict[str, Any] = {
    "error_type": "javax.management.InstanceNotFoundException",
    "error": "javax.management.InstanceNotFoundException : No MBean with pattern kafka.consumer:type=x,* found",
    "status": 404,
}
FOUND = {
    "request": {"type": "read", "mbean": "kafka.consumer:type=consumer-fetch-manager-metrics,*"},
    "value": {"kafka.consumer:client-id=c,type=consumer-fetch-manager-metrics": {"records-lag-max": 7.0}},
    "status": 200,
}
NO_METRIC = "has no consumer's metric under a name that laglake knows: set `names` if the agent gives them others"


def why(source: type[PositionsSource], text: str, folder: Path) -> list[str]:
    (folder / "x").write_text(text)
    rows = rows_of(source, str(folder / "x"))
    assert {row["client_id"] for row in rows} == {None}
    return [row["error"] for row in rows]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([REFUSED] * 5, "Jolokia refuses 5 of 5 reads (status 403): see its access policy"),
        (REFUSED, "Jolokia refuses 1 of 1 reads (status 403): see its access policy"),
        ([ABSENT] * 5, "Jolokia finds no MBean for 5 of 5 reads (status 404)"),
        ([{**FOUND, "value": {}}], NO_METRIC),
        (
            [REFUSED | {"status": "secret"}],
            "Jolokia refuses 1 of 1 reads (status of another kind): see its access policy",
        ),
    ],
    ids=["all refused", "a single answer", "no such MBeans", "no values", "another status"],
)
def test_an_answer_of_jolokia_with_errors_inside_is_an_error(answer: Any, expected: str, tmp_path: Path) -> None:
    """The status of HTTP is 200 all the time."""
    assert why(ClientMetricsSource, json.dumps(answer), tmp_path) == [expected]


def test_a_read_that_jolokia_refuses_is_an_error_beside_the_others_and_missing_mbeans_are_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(json.dumps([FOUND, ABSENT, REFUSED, ABSENT]))
    rows = rows_of(ClientMetricsSource, str(tmp_path / "x"))
    assert [row["reported_lag"] for row in rows if row["client_id"]] == [7]
    assert errors(rows) == ["Jolokia refuses 1 of 4 reads (status 403): see its access policy"]
    (tmp_path / "x").write_text(json.dumps([FOUND, ABSENT]))
    assert errors(rows_of(ClientMetricsSource, str(tmp_path / "x"))) == []


STANDBY = {"ts": 1_795_255_699_058, "client_id": "c", "group_id": "g", "metrics": {}, "partitions": []}


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (ClientMetricsSource, "", "is empty"),
        (StatisticsSource, " \n", "is empty"),
        (ClientMetricsSource, "jvm_threads_current 12.0\n", NO_METRIC),
        (ClientMetricsSource, "# TYPE jvm_threads gauge\njvm_threads 12.0\n# EOF\n", NO_METRIC),
        (ClientMetricsSource, 'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"} 7\n', NO_METRIC),
        (ClientMetricsSource, json.dumps(STANDBY), "has consumers, but none with a partition"),
        (
            StatisticsSource,
            json.dumps({"client_id": "p", "type": "producer"}),
            "has no consumer's statistics: those of producers have no position",
        ),
    ],
)
def test_a_text_without_a_position_says_why(
    source: type[PositionsSource], text: str, expected: str, tmp_path: Path
) -> None:
    assert why(source, text, tmp_path) == [expected]


PRODUCER = json.dumps({"client_id": "p", "type": "producer"})
PRODUCED = (
    "[2026-11-28 11:11:39,254] DEBUG Completed request:RequestHeader(apiKey=PRODUCE, apiVersion=8, clientId=p, "
    "correlationId=14) -- {acks=-1},response:{} (logger)"
)


@pytest.mark.parametrize(
    ("source", "text", "is_understood"),
    [
        (StatisticsSource, PRODUCER, True),
        (ClientMetricsSource, json.dumps(STANDBY), True),
        (RequestLogSource, f"{PRODUCED}\n", True),
        (StatisticsSource, "{}", False),
        (StatisticsSource, f"{PRODUCER}\n{{", False),
        (StatisticsSource, "", False),
        (ClientMetricsSource, f"{json.dumps(STANDBY)}\n{{", False),
        (ClientMetricsSource, json.dumps([REFUSED]), False),
        (ClientMetricsSource, json.dumps({"request": {"type": "version"}, "value": {}, "status": 200}), False),
        (ClientMetricsSource, "jvm_threads_current 12.0\n", False),
        (RequestLogSource, "", False),
        (RequestLogSource, "[2026-11-28 11:11:39,254] INFO started (kafka.server.KafkaServer)\n", False),
        (RequestLogSource, f"{PRODUCED}\n[2026-11-28 11:11:39,254] DEBUG Completed request:apiKey=FETCH\n", False),
    ],
)
def test_what_was_understood_and_holds_no_position_is_no_error_of_a_snapshot(
    source: type[DataSource], text: str, is_understood: bool, log: Path
) -> None:
    """A producer's statistics once made each snapshot of their cluster partial."""
    log.write_text(text)
    reader = source({"path": str(log)}).reader(POSITIONS)
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]  # type: ignore[union-attr, call-arg]
    found = [("client_positions", row["endpoint"], row["error"], 1) for row in rows]
    assert found
    assert None not in {error for _, _, error, _ in found}
    expected: tuple[list[Any], int] = ([], len(found)) if is_understood else (found, 0)
    assert without_understood(found) == expected


def test_errors_beside_what_was_understood_are_still_errors() -> None:
    understood, failed = (
        ("client_positions", "a and others", UNDERSTOOD[0], 7),
        ("client_positions", "b", "is empty", 2),
    )
    assert without_understood([understood, failed]) == ([failed], 7)
    assert without_understood([]) == ([], 0)


def test_a_file_of_a_folder_that_has_not_changed_for_long_is_not_read_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "1795255699058.prom").write_text(SCRAPE)
    options = PositionsOptions.parse({"path": str(tmp_path), "max_age_ms": "1"})
    reader = PositionsReader("kafka_client_metrics", ClientMetricsSource.reported, options)
    time.sleep(0.01)
    assert [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()] == []


def test_values_that_are_all_too_old_say_so(tmp_path: Path, log: Path, lines: list[str]) -> None:
    """A federated value may be hours old, and the level of the request logger may have been changed hours ago."""
    hours_ago_ms = 1_795_258_585_425
    (tmp_path / "federate").write_text(SCRAPE.replace("7.0", f"7.0 {hours_ago_ms}"))
    options = {"path": str(tmp_path / "federate"), "max_age_ms": "120000"}
    reader = ClientMetricsSource(options).reader(ClientMetricsSource({}).schema())
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    old = "has nothing newer than {}, which is longer ago than positions_max_age"
    assert errors(rows) == [old.format("2026-11-21T10:56:25.425000Z")]
    log.write_text("".join(lines))
    (error,) = errors(reported(log, max_age_ms="120000"))
    assert error.startswith("has nothing newer than 2026-11-21T10:1")
    assert errors(reported(log)) == []


@pytest.mark.parametrize("end", ["", "# EOF\n"], ids=["text", "OpenMetrics"])
@pytest.mark.parametrize("wrong", ["-1", "0", "99999999999999", "9" * 30])
def test_a_value_whose_own_time_is_impossible_is_an_error(wrong: str, end: str, tmp_path: Path) -> None:
    text = SCRAPE.replace("7.0", f"7.0 {wrong}") + end
    assert why(ClientMetricsSource, text, tmp_path) == ["the times of 1 value are before 1970 or in the future"]


def test_a_position_is_as_of_the_oldest_of_its_values(tmp_path: Path) -> None:
    """The times are in milliseconds, and in OpenMetrics in seconds. A value without one is as of the scrape.

    The lines are not grouped by metric, so that the text as a whole is not OpenMetrics, but each of its lines is.
    """
    at_ms, scrape_ms = 1_795_258_585_425, 1_795_258_600_000
    name, labels = "kafka_consumer_fetch_manager_records", 'client_id="c",topic="t",partition='
    for seconds, end in ((1, ""), (1_000, "# EOF\n")):
        text = (
            f'{name}_lag{{{labels}"0"}} 4 {at_ms / seconds:.13g}\n'
            f'{name}_lead{{{labels}"0"}} 9 {(at_ms - 7_000) / seconds:.13g}\n'
            f'{name}_lag{{{labels}"1"}} 5\n{end}'
        )
        (tmp_path / f"{scrape_ms}.prom").write_text(text)
        rows = rows_of(ClientMetricsSource, str(tmp_path))
        found = {row["partition"]: round(row["as_of"].timestamp() * 1_000) for row in rows}
        assert found == {0: at_ms - 7_000, 1: scrape_ms}


OTHER_NAMES = {
    "Micrometer before 1.4": (
        'kafka_consumer_records_lag_records{client_id="c",partition="0",topic="t",} 7.0\n'
        'kafka_consumer_records_lead_records{client_id="c",partition="0",topic="t",} 9.0\n'
        'kafka_consumer_records_lag_max_records{client_id="c",partition="0",topic="t",} 8.0\n'
        'kafka_consumer_records_lag_avg_records{client_id="c",partition="0",topic="t",} 6.0\n'
        'kafka_consumer_fetch_total_requests_total{client_id="c",} 12.0\n'
    ),
    "OpenTelemetry": (
        'kafka_consumer_records_lag{client_id="c",partition="0",topic="t"} 7\n'
        'kafka_consumer_records_lead{client_id="c",partition="0",topic="t"} 9\n'
        'kafka_consumer_fetch_total{client_id="c"} 12\n'
    ),
    "Strimzi's bridge": (
        'strimzi_bridge_kafka_consumer_records_lag{clientId="c",partition="0",topic="t"} 7\n'
        'strimzi_bridge_kafka_consumer_records_lead{clientId="c",partition="0",topic="t"} 9\n'
        'strimzi_bridge_kafka_consumer_fetch_total{clientId="c"} 12\n'
    ),
}


@pytest.mark.parametrize("agent", OTHER_NAMES)
def test_the_shorter_names_of_other_agents_are_known(agent: str) -> None:
    found = {(m.name, m.client_id, m.topic, m.partition): m.value for m in of_prometheus(OTHER_NAMES[agent])}
    assert found == {
        ("records_lag", "c", "t", 0): 7.0,
        ("records_lead", "c", "t", 0): 9.0,
        ("requests_total", "c", None, None): 12.0,
    }
