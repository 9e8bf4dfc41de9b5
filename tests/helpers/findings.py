"""Rows of `findings` and `notifications`, and a receiver of messages about them."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

from pipeline.config import Config
from pipeline.notify.due import Notification
from pipeline.tables import FINDINGS
from tests.helpers.network import served

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
Row = dict[str, Any]


def finding(finding_id: str = "f1", **values: Any) -> Row:
    """A row of `findings`: open since an hour, and critical."""
    row = dict.fromkeys(FINDINGS.columns) | {
        "finding_id": finding_id,
        "kind": "slow_consumer",
        "cluster": "east",
        "group_id": "orders",
        "client_id": "orders-1",
        "instance": "10.0.0.1",
        "topic": "invoices",
        "first_seen": NOW - HOUR,
        "last_seen": NOW,
        "worst_at": NOW,
        "partitions": [0, 1],
        "severity": "critical",
        "magnitude": 1567.0,
        "summary": "Client orders-1 polls slowly.",
        "evidence": '{"records_waiting": 1567, "hosts": ["10.0.0.1"], "victim_topics": [], "x": null}',
        "advice": "Hand records to workers.",
    }
    assert values.keys() <= row.keys()
    return row | values


def notified(finding_id: str = "f1", event: str = "opened", status: str = "sent", **values: Any) -> Row:
    """A row of `notifications`."""
    tried = None if status == "held" else NOW - HOUR
    error = None if status == "sent" else "why"
    row = Notification("east", finding_id, "chat", event, status, int(bool(tried)), tried, tried, error)
    return row._asdict() | values


def config_of(load: Callable[..., Config], text: str = "", **env: str) -> Config:
    """A config of one cluster with a webhook `chat`, to which everything goes, and more lines of TOML."""
    head = '[lake]\nroot = "/lake"\n[clusters.east]\nbootstrap_servers = ["b:1"]\n'
    chat = "" if "[channels.chat]" in text else '[channels.chat]\ntype = "webhook"\nurl = "http://127.0.0.1:9"\n'
    default = "" if "[notifications]" in text else '[notifications]\nchannel = "chat"\n'
    return load(head + chat + default + text, **env)


@dataclass
class Receiver:
    """A web server that answers requests with these statuses in turn, the last of them for ever."""

    statuses: Sequence[int] = (200,)
    delay_s: float = 0
    url: str = ""
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    @property
    def contents(self) -> list[Any]:
        """The JSON of each request."""
        return [content for _, _, content in self.requests]

    @contextmanager
    def serving(self) -> Iterator["Receiver"]:
        """Starts the server."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                number = len(receiver.requests)
                receiver.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, content))
                time.sleep(receiver.delay_s)
                status = receiver.statuses[min(number, len(receiver.statuses) - 1)]
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"{receiver.url}/elsewhere")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        with served(Handler) as self.url:
            yield self
