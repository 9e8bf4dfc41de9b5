"""The data sources of clients' positions, with folders, and with good and bad endpoints."""

import gzip
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession

from laglake.reporters.rotating import RotatingLines
from pipeline.client_positions.consumer_metrics import MOST_TORN, Names
from pipeline.client_positions.endpoints import BEANS, Access, Text, files_in, from_endpoint, from_file, place_of
from pipeline.client_positions.metrics_source import (
    PLACES_PER_TASK,
    THREADS,
    ClientMetricsSource,
    PositionsOptions,
    PositionsReader,
    PositionsSource,
    Reported,
    StatisticsSource,
)
from pipeline.client_positions.position_rows import MOST_ERRORS, POSITIONS, instant
from pipeline.common.epoch import now_ms
from pipeline.common.errors import ConfigError
from pipeline.config import ClusterConfig
from pipeline.config.consumers import PositionsConfig
from pipeline.snapshot.client_positions import read_client_positions
from tests.helpers.network import served
from tests.helpers.recordings import unpacked

SCRAPE = 'kafka_server_fetcherlagmetrics_consumerlag{clientId="c",partition="0",topic="t"} 7.0\n'
SECOND_MS = 1_000


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
    by_place: dict[str, list[Any]] = {}
    for row in rows:
        by_place.setdefault(row.endpoint, []).append(row)
    assert len(by_place) == 6
    assert {len(found) for found in by_place.values()} == {8 + 6 + 1 + 1}
    for place, found in by_place.items():
        instant_ms = int(Path(place).name.split(".")[0])
        assert {round(row.captured_at.timestamp() * 1000) for row in found} == {instant_ms}


@pytest.mark.parametrize("line", ["x", "{", "{}"])
def test_reading_stops_after_the_first_lines_if_none_is_valid(line: str) -> None:
    """Reading 100 MB of such text line by line would take minutes, and delay the snapshot."""
    found = list(ClientMetricsSource.reported(Text("p", 0, f"{line}\n" * 1_000_000, None), {}))
    errors = [error for error in found if isinstance(error, str)]
    assert len(errors) <= MOST_TORN + 1
    assert not any(positions for _, positions in (one for one in found if not isinstance(one, str)))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://exp:9404/probe?target=app1", "http://exp:9404/probe?a6246c7a"),
        ("http://exp:9404/probe?target=app2", "http://exp:9404/probe?3f2d3dc0"),
        ("http://user:secret@exp:9404/probe", "http://exp:9404/probe"),
    ],
)
def test_endpoints_that_differ_only_in_their_query_have_different_names(url: str, place: str) -> None:
    assert place_of(url) == place


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


class Endpoint(BaseHTTPRequestHandler):
    """Serves what the requested path names."""

    asked: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        self.asked[self.path] = self.headers.get("Authorization")
        if self.path == "/drips":
            self._go_on(bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\nX-Drip: " + b"x" * 600)
            return
        self.send_response({"/broken": 500, "/elsewhere": 302}.get(self.path, 200))
        self.send_header("Location", "/metrics")
        self.end_headers()
        if self.path in ("/slow", "/elsewhere"):
            self._go_on(b"#\n" for _ in range(600))
        elif self.path == "/long":
            self.wfile.write(b"#" * 2_000_000)
        else:
            self.wfile.write(b"<html>" if self.path == "/html" else SCRAPE.encode())

    def _go_on(self, parts: Iterable[bytes]) -> None:
        """Sends one part after the other, for a minute or until the client closes the connection."""
        with suppress(OSError):
            for part in parts:
                self.wfile.write(part)
                time.sleep(0.1)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked[self.path] = [one["mbean"] for one in asked]
        bean = "kafka.consumer:clientId=m,name=MaxLag,type=ConsumerFetcherManager"
        value = [{"status": 200, "request": {"mbean": "x"}, "value": {bean: {"Value": 3}}}]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with served(Endpoint) as url:
        yield url


def test_the_query_of_a_folders_uri_follows_the_name_of_each_file(tmp_path: Path) -> None:
    """A store that is not Amazon's is named there, as endpoint_override."""
    (tmp_path / "sub").mkdir()
    for name in ("sub/c", "a b"):
        (tmp_path / name).write_text(name)
    found = files_in(f"file://{tmp_path}/?x=y/z")
    assert found == [f"file://{tmp_path}/a%20b?x=y/z", f"file://{tmp_path}/sub/c?x=y/z"]
    assert [from_file(file, Access()).text for file in found] == ["a b", "sub/c"]


def test_one_bad_endpoint_does_not_affect_the_others(spark: SparkSession, server: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"http://user:secret@127.0.0.1:{unused.getsockname()[1]}/metrics"
        paths = ("metrics", "jolokia", "broken", "html", "slow", "long", "drips", "elsewhere")
        places = ",".join([dead, *(f"{server}/{path}" for path in paths)])
        options = {"endpoints": places, "timeout_ms": str(SECOND_MS), "most_bytes": "1000000"}
        rows = spark.read.format("kafka_client_metrics").options(**options).load().collect()
    reported = {row.endpoint.split("/")[-1]: row for row in rows if not row.error}
    assert set(reported) == {"metrics", "jolokia"}
    assert (reported["metrics"].client_id, reported["metrics"].reported_lag) == ("c", 7)
    assert (reported["jolokia"].client_id, reported["jolokia"].reported_lag) == ("m", 3)
    errors = {row.endpoint.removeprefix(server): row.error for row in rows if row.error}
    assert errors.pop(dead.replace("user:secret@", "")) == "Connection refused"
    assert errors.pop("/broken") == "HTTP status 500"
    assert errors.pop("/slow") == errors.pop("/drips") == "not read whole within 1000 ms"
    assert errors.pop("/elsewhere") == "HTTP status 302"
    assert errors.pop("/long") == "longer than 1000000 bytes"
    assert list(errors) == ["/html"]
    assert "secret" not in str(rows)


def test_jolokia_gets_one_request_for_all_beans_and_other_endpoints_get_the_password(server: str) -> None:
    access = Access("me", "secret")
    assert from_endpoint(f"{server}/jolokia/", access).error is None
    assert Endpoint.asked["/jolokia/"] == list(BEANS)
    assert from_endpoint(f"{server}/metrics", access).text == SCRAPE
    assert Endpoint.asked["/metrics"] == "Basic bWU6c2VjcmV0"
    assert "secret" not in repr(access)
    assert from_endpoint(server.replace("//", "//you:secret@") + "/named", Access()).error is None
    assert Endpoint.asked["/named"] == "Basic eW91OnNlY3JldA=="


def test_only_the_password_that_is_configured_is_sent(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert from_endpoint(f"{server}/open", Access()).error is None
    assert Endpoint.asked["/open"] is None


@pytest.mark.parametrize("kind", ["endpoints", "path"])
def test_after_the_read_timeout_nothing_more_is_read(server: str, tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.prom").write_text(SCRAPE)
    place = f"{server}/late" if kind == "endpoints" else str(tmp_path / "a.prom")
    options = PositionsOptions.parse({kind: place, "read_timeout_ms": "1"})
    reader = PositionsReader("kafka_client_metrics", ClientMetricsSource.reported, options)
    (task,) = reader.partitions()
    time.sleep(0.01)
    (batch,) = reader.read(task)
    assert batch["error"].to_pylist() == ["not read: 1 ms had passed"]
    assert batch["endpoint"].to_pylist() == [place]
    assert "/late" not in Endpoint.asked


def test_after_the_read_timeout_nothing_more_is_parsed(folder: Path, tmp_path: Path) -> None:
    statistics = (unpacked("librdkafka", folder) / "statistics.jsonl").read_text().splitlines(keepends=True)
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("".join(statistics[20:30]))
    parsed: list[str] = []

    def until_one_is_parsed(text: Text, names: Names) -> Iterator[Reported | str]:
        for one in StatisticsSource.reported(text, names):
            parsed.append(text.place)
            yield one
            task.until_ms = 0

    options = PositionsOptions.parse({"path": str(tmp_path), "read_timeout_ms": "600000"})
    reader = PositionsReader("librdkafka_statistics", until_one_is_parsed, options)
    (task,) = reader.partitions()
    first, second = (batch["error"].to_pylist() for batch in reader.read(task))
    assert (set(first[:-1]), first[-1]) == ({None}, "not read: 600000 ms had passed")
    assert second == ["not read: 600000 ms had passed"]
    assert parsed == [str(tmp_path / "a.jsonl")] * 2


def test_few_texts_are_in_memory_at_once(tmp_path: Path) -> None:
    for number in range(PLACES_PER_TASK):
        (tmp_path / f"{number:02}.prom").write_text(SCRAPE)

    def slowly(text: Text, names: Names) -> Iterator[Reported | str]:
        time.sleep(0.2)  # enough to read all of them
        for file in tmp_path.iterdir():
            file.unlink()
        yield from ClientMetricsSource.reported(text, names)

    reader = PositionsReader("kafka_client_metrics", slowly, PositionsOptions.parse({"path": str(tmp_path)}))
    (task,) = reader.partitions()
    errors = [batch["error"].to_pylist() for batch in reader.read(task)]
    assert len(errors) == PLACES_PER_TASK
    assert errors[THREADS:] == [["no such file or folder"]] * (PLACES_PER_TASK - THREADS)


def test_by_default_a_full_file_of_the_reporters_is_read() -> None:
    assert PositionsOptions.parse({"path": "/a"}).access.most_bytes == 32 * 1024**2
    assert signature(RotatingLines).parameters["most_bytes"].default < 32 * 1024**2


def test_endpoints_have_a_default_read_timeout_and_files_have_none() -> None:
    assert PositionsOptions.parse({"endpoints": "http://a"}).read_timeout_ms == 120_000
    assert PositionsOptions.parse({"path": "/a"}).read_timeout_ms is None


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
    begun = instant(1_000 * made_s)
    assert (row["captured_at"] - begun, row["as_of"] - begun) == (
        timedelta(milliseconds=late_ms),
        timedelta(milliseconds=as_of_ms),
    )


def test_an_unexpected_error_of_a_parser_affects_only_its_own_file(tmp_path: Path) -> None:
    for name in ("a.prom", "b.prom"):
        (tmp_path / name).write_text(SCRAPE)

    def of_b_alone(text: Text, names: Names) -> Iterator[Reported | str]:
        if text.place.endswith("a.prom"):
            raise KeyError("secret")
        yield from ClientMetricsSource.reported(text, names)

    reader = PositionsReader("kafka_client_metrics", of_b_alone, PositionsOptions.parse({"path": str(tmp_path)}))
    (task,) = reader.partitions()
    assert [batch["error"].to_pylist() for batch in reader.read(task)] == [["cannot be read: KeyError"], [None]]


@pytest.mark.parametrize("kind", ["endpoints", "path"])
def test_an_unexpected_error_of_reading_affects_only_its_own_location(kind: str, server: str, tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text(SCRAPE)
    places = [f"{server}/metrics", f"{server}/open"] if kind == "endpoints" else [str(tmp_path / "a.prom"), "/none"]
    options = PositionsOptions.parse({kind: ",".join(places), "timeout_ms": "9" * 400})  # no float is so large
    reader = PositionsReader("kafka_client_metrics", ClientMetricsSource.reported, options)
    (task,) = reader.partitions()
    first, second = (batch.to_pylist() for batch in reader.read(task))
    assert [(row["endpoint"], row["error"]) for row in first] == [(places[0], "cannot be read: OverflowError")]
    assert [row["endpoint"] for row in second] == [places[1]]


def test_a_report_from_the_future_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "9795255699058.prom").write_text(SCRAPE)
    (row,) = rows_of(ClientMetricsSource, str(tmp_path))
    assert row["error"] == "is of 2280-05-26T00:21:39.058000+00:00, which is in the future"
    assert row["client_id"] is None


def test_links_in_a_folder_are_not_followed_and_errors_do_not_quote_a_files_content(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside, inside / "deeper"):
        folder.mkdir()
    (outside / "secret").write_text("root:secret:1:2\n")
    (inside / "link").symlink_to(outside / "secret")
    (inside / "linked").symlink_to(outside)
    (inside / "round").symlink_to(inside)
    (inside / "round and round").symlink_to(inside)
    (inside / "deeper" / "linked").symlink_to(outside)
    (inside / "deeper" / "a.prom").write_text(SCRAPE)
    rows = rows_of(ClientMetricsSource, str(inside))
    assert [(row["endpoint"], row["error"]) for row in rows] == [(str(inside / "deeper" / "a.prom"), None)]
    # A file that the configuration itself names may be a link.
    for place in (outside / "secret", inside / "link"):
        (row,) = rows_of(ClientMetricsSource, str(place))
        assert "secret" not in row["error"]


def test_a_file_that_has_become_a_link_or_a_pipe_since_it_was_listed_is_not_read(tmp_path: Path) -> None:
    for name in ("a.prom", "b.prom"):
        (tmp_path / name).write_text(SCRAPE)
    reader = PositionsReader(
        "kafka_client_metrics", ClientMetricsSource.reported, PositionsOptions.parse({"path": str(tmp_path)})
    )
    (task,) = reader.partitions()
    for name in ("a.prom", "b.prom"):
        (tmp_path / name).unlink()
    (tmp_path / "a.prom").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "b.prom")
    assert [batch["error"].to_pylist() for batch in reader.read(task)] == [
        ["not a regular file"],
        ["not a regular file"],
    ]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_that_has_become_a_link_since_it_was_listed_is_not_read(scheme: str, tmp_path: Path) -> None:
    for name in ("a/b", "c"):
        (tmp_path / "inside" / name).mkdir(parents=True)
        (tmp_path / "inside" / name / "d.prom").write_text(SCRAPE)
    (tmp_path / "configured").symlink_to(tmp_path / "inside")
    options = PositionsOptions.parse({"path": f"{scheme}{tmp_path}/configured"})
    reader = PositionsReader("kafka_client_metrics", ClientMetricsSource.reported, options)
    (task,) = reader.partitions()
    (tmp_path / "inside" / "a").rename(tmp_path / "outside")
    (tmp_path / "inside" / "a").symlink_to(tmp_path / "outside")
    first, second = (batch.to_pylist() for batch in reader.read(task))
    assert [row["error"] for row in first] == ["Not a directory"]
    assert {row["error"] for row in second} == {None}


@pytest.mark.parametrize("location", ["{}", "file://{}", "file://{}/?x=y/z", "file://{}?x=y"])
def test_links_and_old_files_in_a_folder_are_not_read_whether_it_is_a_path_or_a_uri(
    location: str, tmp_path: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    for name in ("link.prom", "old.prom"):
        (inside / name).write_text(SCRAPE)
    options = PositionsOptions.parse({"path": location.format(inside), "max_age_ms": "60000"})
    reader = PositionsReader("kafka_client_metrics", ClientMetricsSource.reported, options)
    (task,) = reader.partitions()
    os.utime(inside / "old.prom", (0, 0))
    (inside / "link.prom").rename(tmp_path / "outside")
    (inside / "link.prom").symlink_to(tmp_path / "outside")
    link, old = (batch.to_pylist() for batch in reader.read(task))
    assert [row["error"] for row in link] == ["not a regular file"]
    assert old == []


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_file_names_with_special_characters_lead_only_to_their_own_files(scheme: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.prom").write_text(SCRAPE.replace('"c"', '"secret"'))
    names = ["a b.prom", "a%zz.prom", "..%2Fsecret.prom", "a#b.prom", "a?b.prom", "ä.prom"]
    for name in names:
        (inside / name).write_text(SCRAPE)
    (inside / os.fsdecode(b"\xff.prom")).write_text(SCRAPE)
    rows = rows_of(ClientMetricsSource, f"{scheme}{inside}")
    reported = [row for row in rows if row["error"] is None]
    assert len(rows) == len(names) + 1
    assert {row["client_id"] for row in reported} == {"c"}
    assert len(reported) >= len(names)


def test_only_the_first_errors_of_a_file_have_rows_and_the_rest_are_counted(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("x\n" * 5_000)
    rows = rows_of(StatisticsSource, str(tmp_path / "s.jsonl"))
    assert len(rows) == MOST_TORN
    assert rows[0]["error"].startswith("line 1: ")
    assert rows[-1]["error"].startswith("none of the first 100 lines can be read, and the others are not: line 100: ")
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


def rows_of(source: type[PositionsSource], path: str) -> list[dict[str, Any]]:
    """What a source reads from a place, as on an executor."""
    reader = PositionsReader(source.name(), source.reported, PositionsOptions.parse({"path": path}))
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def test_a_missing_file_and_a_torn_archive_are_errors(tmp_path: Path) -> None:
    assert from_file(str(tmp_path / "none.prom"), Access()).error
    (tmp_path / "torn.prom.gz").write_bytes(gzip.compress(b"#" * 10_000)[:20])
    assert from_file(str(tmp_path / "torn.prom.gz"), Access()).error


def test_a_file_that_has_not_changed_for_long_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Files that a reporter has rotated stay in its folder, and would be read at each snapshot."""
    for name, text in {"new.prom": SCRAPE, "old.prom": "torn", "old.json": "[", f"{now_ms()}.prom": SCRAPE}.items():
        (tmp_path / name).write_text(text)
        if name != "new.prom":
            os.utime(tmp_path / name, (0, 0))
    positions = PositionsConfig(source="kafka_client_metrics", paths=(str(tmp_path),))
    cluster = ClusterConfig(bootstrap_servers=("nowhere:1",), positions=(positions,))
    found = read_client_positions(spark, cluster, 0)
    assert found
    assert {(Path(row.endpoint).name.lstrip("0123456789"), row.error) for row in found.collect()} == {
        ("new.prom", None),
        (".prom", None),
    }


def test_a_file_is_read_within_the_limits_of_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "a.prom"
    file.write_text(SCRAPE)
    assert from_file(str(file), Access(most_bytes=len(SCRAPE) - 1)).error == f"longer than {len(SCRAPE) - 1} bytes"
    assert from_file(str(file), Access(timeout_ms=0)).error == "not read whole within 0 ms"
    assert from_file(str(file), Access(most_bytes=len(SCRAPE))).text == SCRAPE


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
