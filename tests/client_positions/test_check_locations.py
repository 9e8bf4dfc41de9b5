"""What `doctor` reads of endpoints and files: a limited part, and it waits for no pipe."""

import gzip
import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from pipeline.client_positions import check_locations as module
from pipeline.client_positions.check_locations import check_locations
from tests.helpers.network import served

SAMPLE = 'kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="c",partition="0",topic="t"} 8\n'
METRICS = "kafka_client_metrics"


class Endless(BaseHTTPRequestHandler):
    """Serves a megabyte, or without end."""

    sent = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            self.wfile.write(SAMPLE.encode())
            while self.path == "/endless" or type(self).sent < 1_000_000:
                type(self).sent += self.wfile.write((b"#" * 999 + b"\n") * 100)
        except OSError:
            pass

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with served(Endless) as url:
        yield url


def test_an_endpoint_with_an_endless_answer_is_read_up_to_a_limit(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = check_locations(METRICS, {"endpoints": f"{server}/"})
    assert check == (True, f"{server}/: 1 client", None)
    monkeypatch.setattr(module, "TIMEOUT_MS", 60_000)
    (check,) = check_locations(METRICS, {"endpoints": f"{server}/endless"})
    what = f"{server}/endless: answers, but more than {16 * 1024**2} bytes are not read here"
    assert (check.is_right, check.what) == (None, what)
    assert Endless.sent < 50_000_000  # with what the connection holds
    (check,) = check_locations(METRICS, {"endpoints": f"{server}/endless", "most_bytes": "1000"})
    assert (check.is_right, check.what) == (False, f"{server}/endless: longer than 1000 bytes")


def test_a_file_that_unpacks_to_more_than_the_limit_is_not_read_completely(tmp_path: Path) -> None:
    (tmp_path / "a.prom.gz").write_bytes(gzip.compress(b"torn\n" + b"#" * 20_000_000))
    assert [*check_locations(METRICS, {"path": str(tmp_path)})] == [(True, f"{tmp_path}, 1 file: can be read", None)]


@pytest.mark.parametrize("source", [METRICS, "kafka_request_log"])
def test_reading_does_not_wait_for_a_pipe(source: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (check,) = check_locations(source, {"path": str(tmp_path / "pipe")})
    assert (check.is_right, check.what) == (False, f"{tmp_path}/pipe: not a regular file")


@pytest.mark.parametrize("is_folder", [True, False])
def test_the_newest_file_of_a_request_log_is_read(is_folder: bool, log: Path, lines: list[str]) -> None:
    log.with_name("server.log").write_text("[2026-11-21 10:00:00,000] INFO started (kafka.server.KafkaServer)\n")
    log.with_name(f"{log.name}.2026-11-21-09").write_text(lines[0].replace("[2026-11-21 10", "[2026-11-21 09"))
    log.write_text("".join(lines[:2_000]))
    path = str(log.parent if is_folder else log)
    assert [*check_locations("kafka_request_log", {"path": path})] == [(True, f"{path}: 3 clients", None)]
    with log.open("a") as file:
        file.write(next(line for line in lines if '"requestApiKeyName":"FETCH"' in line)[:400] + "\n")
    (check,) = check_locations("kafka_request_log", {"path": path})
    assert check.is_right is None
    assert check.what.startswith(f"{log}: 3 clients, but some of it cannot be read: 1 line refused, the first: ")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("INFO started (kafka.server.KafkaServer)", "no new line has a request: the level of kafka.request.logger"),
        ("DEBUG Completed request:<fetch/>", "1 line refused, the first: line 1: not a line of Kafka's request log: "),
    ],
)
def test_a_request_log_without_a_client_is_told(line: str, why: str, log: Path) -> None:
    log.write_text(f"[2026-11-21 10:00:00,000] {line}\n")
    (check,) = check_locations("kafka_request_log", {"path": str(log)})
    assert (check.is_right, check.todo) == (None, "docs/positions.md says what laglake reads")
    assert check.what.startswith(f"{log}: {why}")


def test_a_request_log_in_another_time_zone_than_the_configured_one_is_told(log: Path, lines: list[str]) -> None:
    ahead = datetime.now(timezone(timedelta(hours=9)))
    fetch = next(line for line in lines if '"requestApiKeyName":"FETCH"' in line)
    log.write_text(f"[{ahead:%Y-%m-%d %H:%M:%S,000}{fetch[24:]}")
    (check,) = check_locations("kafka_request_log", {"path": str(log)})
    assert check.what.endswith(" is in the future: check the option timezone")
    (check,) = check_locations("kafka_request_log", {"path": str(log), "timezone": "Asia/Tokyo"})
    assert check == (True, f"{log}: 1 client", None)
