"""How endpoints and files of clients' positions are read: passwords, limits of size and time, links."""

import gzip
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession

from laglake.reporters.rotating import RotatingLines
from pipeline.client_positions.endpoints import BEANS, Access, endpoint_name, files_in, from_endpoint, from_file
from pipeline.client_positions.metrics_source import (
    ClientMetricsSource,
    PositionsOptions,
    PositionsReader,
)
from pipeline.common.epoch import now_ms
from pipeline.config import ClusterConfig, LakeConfig
from pipeline.config.consumers import PositionsConfig
from pipeline.lake import Lake
from pipeline.snapshot.client_positions import read_client_positions
from tests.helpers.client_metrics import SCRAPE, rows_of
from tests.helpers.network import served

SECOND_MS = 1_000


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("http://exp:9404/probe?target=app1", "http://exp:9404/probe?a6246c7a"),
        ("http://exp:9404/probe?target=app2", "http://exp:9404/probe?3f2d3dc0"),
        ("http://user:secret@exp:9404/probe", "http://exp:9404/probe"),
    ],
)
def test_endpoints_that_differ_only_in_their_query_have_different_names(url: str, location: str) -> None:
    assert endpoint_name(url) == location


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
        locations = ",".join([dead, *(f"{server}/{path}" for path in paths)])
        options = {"endpoints": locations, "timeout_ms": str(SECOND_MS), "most_bytes": "1000000"}
        rows = spark.read.format("kafka_client_metrics").options(**options).load().collect()
    reported = {row.endpoint.split("/")[-1]: row for row in rows if not row.error}
    assert set(reported) == {"metrics", "jolokia"}
    assert (reported["metrics"].client_id, reported["metrics"].reported_lag) == ("c", 7)
    assert (reported["jolokia"].client_id, reported["jolokia"].reported_lag) == ("m", 3)
    errors = {row.endpoint.removeprefix(server): row.error for row in rows if row.error}
    assert errors.pop(dead.replace("user:secret@", "")) == "Connection refused"
    assert errors.pop("/broken") == "HTTP status 500"
    assert errors.pop("/slow") == errors.pop("/drips") == "not read completely within 1000 ms"
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
    location = f"{server}/late" if kind == "endpoints" else str(tmp_path / "a.prom")
    options = PositionsOptions.parse({kind: location, "read_timeout_ms": "1"})
    reader = PositionsReader("kafka_client_metrics", ClientMetricsSource.reported, options)
    (task,) = reader.partitions()
    time.sleep(0.01)
    (batch,) = reader.read(task)
    assert batch["error"].to_pylist() == ["not read: the read timeout of 1 ms was over"]
    assert batch["endpoint"].to_pylist() == [location]
    assert "/late" not in Endpoint.asked


def test_by_default_a_full_file_of_the_reporters_is_read() -> None:
    assert PositionsOptions.parse({"path": "/a"}).access.most_bytes == 32 * 1024**2
    assert signature(RotatingLines).parameters["most_bytes"].default < 32 * 1024**2


def test_endpoints_have_a_default_read_timeout_and_files_have_none() -> None:
    assert PositionsOptions.parse({"endpoints": "http://a"}).read_timeout_ms == 120_000
    assert PositionsOptions.parse({"path": "/a"}).read_timeout_ms is None


@pytest.mark.parametrize("kind", ["endpoints", "path"])
def test_an_unexpected_error_of_reading_affects_only_its_own_location(kind: str, server: str, tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text(SCRAPE)
    locations = [f"{server}/metrics", f"{server}/open"] if kind == "endpoints" else [str(tmp_path / "a.prom"), "/none"]
    options = PositionsOptions.parse({kind: ",".join(locations), "timeout_ms": "9" * 400})  # no float is so large
    reader = PositionsReader("kafka_client_metrics", ClientMetricsSource.reported, options)
    (task,) = reader.partitions()
    first, second = (batch.to_pylist() for batch in reader.read(task))
    assert [(row["endpoint"], row["error"]) for row in first] == [(locations[0], "cannot be read: OverflowError")]
    assert [row["endpoint"] for row in second] == [locations[1]]


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
    for location in (outside / "secret", inside / "link"):
        (row,) = rows_of(ClientMetricsSource, str(location))
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
    lake = Lake(spark, LakeConfig(root=str(tmp_path / "lake")))
    found = read_client_positions(lake, cluster, 0, "positions").collected()
    assert {(Path(row["endpoint"]).name.lstrip("0123456789"), row["error"]) for row in found} == {
        ("new.prom", None),
        (".prom", None),
    }


def test_a_file_is_read_within_the_limits_of_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "a.prom"
    file.write_text(SCRAPE)
    assert from_file(str(file), Access(most_bytes=len(SCRAPE) - 1)).error == f"longer than {len(SCRAPE) - 1} bytes"
    assert from_file(str(file), Access(timeout_ms=0)).error == "not read completely within 0 ms"
    assert from_file(str(file), Access(most_bytes=len(SCRAPE))).text == SCRAPE
