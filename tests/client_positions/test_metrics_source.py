"""The data sources of clients' positions: rows and errors of scrapes, answers of Jolokia, and lines of statistics."""

import gzip
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.client_positions.consumer_metrics import MOST_TORN, Names
from pipeline.client_positions.endpoints import Content
from pipeline.client_positions.metrics_source import (
    LOCATIONS_PER_TASK,
    THREADS,
    ClientMetricsSource,
    PositionsOptions,
    PositionsReader,
    Reported,
    StatisticsSource,
)
from pipeline.client_positions.position_rows import MOST_ERRORS, POSITIONS
from pipeline.common.epoch import utc
from pipeline.common.errors import ConfigError
from tests.helpers.client_metrics import SCRAPE, rows_of
from tests.helpers.recordings import unpacked


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


def test_a_folder_of_scrapes_and_answers_of_jolokia_is_read(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    recording = unpacked("legacy-a2-blocked", folder)
    (tmp_path / "jolokia").mkdir()
    for file in sorted((recording / "jolokia").iterdir())[20:23]:
        (tmp_path / "jolokia" / file.name).write_bytes(file.read_bytes())
    for file in sorted((recording / "prom").iterdir())[20:23]:
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    rows = spark.read.format("kafka_client_metrics").load(str(tmp_path)).collect()
    assert rows[0].asDict().keys() == set(POSITIONS.names)
    assert [row for row in rows if row.error] == []
    assert {row.source for row in rows} == {"kafka_client_metrics"}
    by_file: dict[str, list[Any]] = {}
    for row in rows:
        by_file.setdefault(row.endpoint, []).append(row)
    assert len(by_file) == 6
    assert {len(found) for found in by_file.values()} == {8 + 6 + 1 + 1}
    for file, found in by_file.items():
        instant_ms = int(Path(file).name.split(".")[0])
        assert {round(row.captured_at.timestamp() * 1000) for row in found} == {instant_ms}


@pytest.mark.parametrize("line", ["x", "{", "{}"])
def test_reading_stops_after_the_first_lines_if_none_is_valid(line: str) -> None:
    """Reading 100 MB of such text line by line would take minutes, and delay the snapshot."""
    found = list(ClientMetricsSource.reported(Content("p", 0, f"{line}\n" * 1_000_000, None), {}))
    errors = [error for error in found if isinstance(error, str)]
    assert len(errors) <= MOST_TORN + 1
    assert not any(positions for _, positions in (one for one in found if not isinstance(one, str)))


def test_a_torn_line_does_not_affect_the_other_lines(spark: SparkSession, tmp_path: Path) -> None:
    another = SCRAPE.replace('partition="0"', 'partition="1"')
    (tmp_path / "torn.prom").write_text(SCRAPE + 'kafka_x{client_id="c} 1\n' + another + "kafka_y{")
    rows = spark.read.format("kafka_client_metrics").load(str(tmp_path)).collect()
    (error,) = [row.error for row in rows if row.error]
    assert error == "2 lines are torn, the first is line 2"
    assert sorted((row.partition, row.reported_lag) for row in rows if not row.error) == [(0, 7), (1, 7)]


def test_lines_of_statistics_are_read(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    lines = (unpacked("librdkafka", folder) / "statistics.jsonl").read_text().splitlines()
    wrapped, torn, raw = lines[20], lines[21][:500], json.dumps(json.loads(lines[22])["statistics"])
    (tmp_path / "statistics.jsonl").write_text("\n".join([wrapped, "", torn, raw]))
    rows = spark.read.format("librdkafka_statistics").load(str(tmp_path / "statistics.jsonl")).collect()
    (error,) = [row.error for row in rows if row.error]
    assert error.startswith("line 2: ")
    slow = {row.captured_at.timestamp(): row for row in rows if row.topic == "shop.slow" and row.partition == 0}
    assert sorted(slow) == [json.loads(wrapped)["ts"] / 1000, json.loads(raw)["time"]]
    assert all(row.consumed_offset <= row.fetched_offset for row in slow.values())
    assert {row.as_of for row in slow.values()} == {row.captured_at for row in slow.values()}


def test_a_line_with_an_invalid_time_does_not_affect_the_other_lines(spark: SparkSession, tmp_path: Path) -> None:
    said: list[dict[str, Any]] = [{"ts": None}, {"ts": 10**30}, {"ts": "x"}, {"ts": 1_795_258_585_425}]
    producer = {"client_id": "p", "type": "producer"}
    lines = [json.dumps(one | {"statistics": producer}) for one in said] + [json.dumps(producer | {"time": 10**20})]
    (tmp_path / "statistics.jsonl").write_text("\n".join(lines))
    rows = spark.read.format("librdkafka_statistics").load(str(tmp_path / "statistics.jsonl")).collect()
    assert [row.error.split(":")[0] for row in rows] == ["line 1", "line 2", "line 3", "line 5"]


def test_after_the_read_timeout_nothing_more_is_parsed(folder: Path, tmp_path: Path) -> None:
    statistics = (unpacked("librdkafka", folder) / "statistics.jsonl").read_text().splitlines(keepends=True)
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("".join(statistics[20:30]))
    parsed: list[str] = []

    def until_one_is_parsed(text: Content, names: Names) -> Iterator[Reported | str]:
        for one in StatisticsSource.reported(text, names):
            parsed.append(text.location)
            yield one
            task.until_ms = 0

    options = PositionsOptions.parse({"path": str(tmp_path), "read_timeout_ms": "600000"})
    reader = PositionsReader("librdkafka_statistics", until_one_is_parsed, options)
    (task,) = reader.partitions()
    first, second = (batch["error"].to_pylist() for batch in reader.read(task))
    assert (set(first[:-1]), first[-1]) == ({None}, "not read: the read timeout of 600000 ms was over")
    assert second == ["not read: the read timeout of 600000 ms was over"]
    assert parsed == [str(tmp_path / "a.jsonl")] * 2


def test_few_texts_are_in_memory_at_once(tmp_path: Path) -> None:
    for number in range(LOCATIONS_PER_TASK):
        (tmp_path / f"{number:02}.prom").write_text(SCRAPE)

    def slowly(text: Content, names: Names) -> Iterator[Reported | str]:
        time.sleep(0.2)  # enough to read all of them
        for file in tmp_path.iterdir():
            file.unlink()
        yield from ClientMetricsSource.reported(text, names)

    reader = PositionsReader("kafka_client_metrics", slowly, PositionsOptions.parse({"path": str(tmp_path)}))
    (task,) = reader.partitions()
    errors = [batch["error"].to_pylist() for batch in reader.read(task)]
    assert len(errors) == LOCATIONS_PER_TASK
    assert errors[THREADS:] == [["no such file or folder"]] * (LOCATIONS_PER_TASK - THREADS)


# --- input that must not be trusted


def another(lag: str) -> str:
    return SCRAPE.replace('"0"', '"1"').replace("7.0", lag)


ODD: dict[str, tuple[str, str, str]] = {
    # Case → file, text that also has a valid value, the error.
    "a number that is too large": (
        "a.prom",
        SCRAPE + SCRAPE.replace('"0"', '"1"').replace("7.0", "1e300"),
        "too large",
    ),
    "about 2^63": ("a.prom", SCRAPE + another("9.3e18"), "too large"),
    "near it": ("a.prom", SCRAPE + another("-9e18"), "too large"),
    "half of a surrogate pair": (
        "a.json",
        json.dumps(
            {
                "status": 200,
                "request": {"mbean": "x"},
                "value": {
                    f"kafka.consumer:clientId={c},name=MaxLag,type=ConsumerFetcherManager": {"Value": 7}
                    for c in ("c", "c\ud800")
                },
            }
        ),
        "client_id: str instead of a text",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_an_invalid_value_does_not_affect_the_other_values(case: str, tmp_path: Path) -> None:
    name, text, reason = ODD[case]
    (tmp_path / name).write_text(text)
    rows = rows_of(ClientMetricsSource, str(tmp_path / name))
    assert [(row["client_id"], row["reported_lag"]) for row in rows if not row["error"]] == [("c", 7)]
    (error,) = [row["error"] for row in rows if row["error"]]
    assert reason in error


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({"time": 1.5}, "its time: float instead of a whole number"),
        ({"brokers": {"1": {"nodeid": 1, "nodename": 5, "req": {"Fetch": 1}}}}, "int instead of a text"),
        ({"rxmsg_bytes": 2**62}, "a number that is too large"),
        ({"client_id": ["secret"]}, "list instead of a text"),
    ],
)
def test_an_invalid_value_in_statistics_makes_its_line_an_error(
    odd: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    good: dict[str, Any] = {"client_id": "c", "type": "consumer", "topics": {}, "brokers": {}, "rxmsg_bytes": 1}
    (tmp_path / "s.jsonl").write_text("\n".join(json.dumps(one) for one in (good | odd, good)))
    wrong, right = rows_of(StatisticsSource, str(tmp_path / "s.jsonl"))
    assert wrong["error"].startswith("line 1: ")
    assert reason in wrong["error"]
    assert "secret" not in wrong["error"]
    assert (right["client_id"], right["error"]) == ("c", None)


@pytest.mark.parametrize(("late_ms", "as_of_ms"), [(1_999, 1_999), (2_001, 0)])
def test_statistics_of_a_late_poll_are_as_of_their_own_time(late_ms: int, as_of_ms: int, tmp_path: Path) -> None:
    made_s = 1_795_258_585
    good: dict[str, Any] = {"client_id": "c", "type": "consumer", "topics": {}, "brokers": {}, "rxmsg_bytes": 1}
    line = {"ts": 1_000 * made_s + late_ms, "statistics": good | {"time": made_s}}
    (tmp_path / "s.jsonl").write_text(json.dumps(line))
    (row,) = rows_of(StatisticsSource, str(tmp_path / "s.jsonl"))
    begun = utc(1_000 * made_s)
    assert (row["captured_at"] - begun, row["as_of"] - begun) == (
        timedelta(milliseconds=late_ms),
        timedelta(milliseconds=as_of_ms),
    )


def test_an_unexpected_error_of_a_parser_affects_only_its_own_file(tmp_path: Path) -> None:
    for name in ("a.prom", "b.prom"):
        (tmp_path / name).write_text(SCRAPE)

    def of_b_alone(text: Content, names: Names) -> Iterator[Reported | str]:
        if text.location.endswith("a.prom"):
            raise KeyError("secret")
        yield from ClientMetricsSource.reported(text, names)

    reader = PositionsReader("kafka_client_metrics", of_b_alone, PositionsOptions.parse({"path": str(tmp_path)}))
    (task,) = reader.partitions()
    assert [batch["error"].to_pylist() for batch in reader.read(task)] == [["cannot be read: KeyError"], [None]]


def test_a_report_from_the_future_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "9795255699058.prom").write_text(SCRAPE)
    (row,) = rows_of(ClientMetricsSource, str(tmp_path))
    assert row["error"] == "its time, 2280-05-26T00:21:39.058000+00:00, is in the future"
    assert row["client_id"] is None


def test_only_the_first_errors_of_a_file_have_rows_and_the_rest_are_counted(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("x\n" * 5_000)
    rows = rows_of(StatisticsSource, str(tmp_path / "s.jsonl"))
    assert len(rows) == MOST_TORN
    assert rows[0]["error"].startswith("line 1: ")
    assert rows[-1]["error"].startswith("none of the first 100 lines can be read, so the rest is skipped: line 100: ")
    statistics = (unpacked("librdkafka", folder) / "statistics.jsonl").read_text().splitlines()[20]
    (tmp_path / "s.jsonl").write_text(f"{statistics}\n" + "x\n" * 5_000)
    rows = rows_of(StatisticsSource, str(tmp_path / "s.jsonl"))
    errors = [row["error"] for row in rows if row["error"]]
    assert len(errors) == MOST_ERRORS + 1
    assert errors[-1] == "and 4900 more"


def test_a_scrape_counts_if_each_of_its_lines_is_valid(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text(SCRAPE + "\n# EOF\n")  # OpenMetrics has no empty lines
    (row,) = rows_of(ClientMetricsSource, str(tmp_path))
    assert (row["client_id"], row["reported_lag"], row["error"]) == ("c", 7, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of the options 'endpoints' and 'path'"),
        ({"endpoints": "http://a", "path": "/b"}, "one of the options 'endpoints' and 'path'"),
        ({"path": "/b", "pasword": "x"}, "unknown option 'pasword'"),
        ({"path": "/b", "names": "x"}, "option 'names' must be a JSON object"),
        ({"path": "/b", "names": '{"a": "lag"}'}, "'lag' must be one of records_lag, records_lead"),
        ({"path": "/b", "timeout_ms": "0"}, "option 'timeout_ms' must be a whole number above 0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PositionsOptions.parse(options)
