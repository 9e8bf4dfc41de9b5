"""Sending to receivers that work, refuse, hang or are not there; and that no secret is logged."""

import base64
import logging
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from threading import Thread

import pytest

from pipeline.config import Config
from pipeline.notify import sending
from pipeline.notify.due import plan
from pipeline.notify.http import Failure, post
from pipeline.notify.sending import Sent, send, send_test
from tests.helpers.findings import NOW, Receiver, Row, config_of, finding, notified
from tests.helpers.network import HOST, certificate, free_port, listener, served

Load = Callable[..., Config]
SECRET = "hunter2"


def channel(kind: str, url: str, more: str = "", name: str = "chat") -> str:
    return f'[channels.{name}]\ntype = "{kind}"\nurl = "{url}"\ntimeout = "2s"\n{more}\n'


def sent(config: Config, *findings: Row, known: Iterable[Row] = ()) -> Sent:
    found = send(plan(findings, known, config, NOW), config, NOW)
    return found.get("chat", Sent())


def outcomes(found: Sent) -> list[str | None]:
    return [failure and failure.reason for _, failure in found.tried]


def several(number: int, **values: object) -> list[Row]:
    return [finding(f"f{n:03}", **values) for n in range(number)]


def test_a_webhook_gets_a_message_as_json(load: Load) -> None:
    with Receiver().serving() as receiver:
        found = sent(config_of(load, channel("webhook", f"{receiver.url}/hook?a=b")), finding())
    assert outcomes(found) == [None]
    ((path, headers, content),) = receiver.requests
    assert (path, headers["content-type"], headers["user-agent"]) == ("/hook?a=b", "application/json", "laglake")
    assert content["dedup_key"] == "f1"


def test_a_message_that_is_accepted_is_sent_even_if_the_rest_of_the_answer_does_not_come(load: Load) -> None:
    """Otherwise it would be sent again with each run."""

    class Cut(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()

    with served(Cut) as url:
        assert outcomes(sent(config_of(load, channel("webhook", url)), finding())) == [None]


def test_user_and_password_in_a_url_are_sent_as_basic_authentication(load: Load) -> None:
    with Receiver().serving() as receiver:
        url = receiver.url.replace("http://", "http://me:${env:PW}@")
        assert outcomes(sent(config_of(load, channel("webhook", url), PW="p%40ss"), finding())) == [None]
    ((_, headers, _),) = receiver.requests
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"me:p@ss"
    assert "@" not in headers["host"]


def test_pagerduty_gets_an_event_for_each_beginning_and_end(load: Load) -> None:
    with Receiver(statuses=(202,)).serving() as receiver:
        config = config_of(load, channel("pagerduty", receiver.url, 'routing_key = "${env:KEY}"'), KEY="key")
        rows = [finding(), finding("f2", resolved_at=NOW)]
        assert outcomes(sent(config, *rows, known=[notified("f2")])) == [None, None]
    assert [(c["event_action"], c["dedup_key"]) for c in receiver.contents] == [("trigger", "f1"), ("resolve", "f2")]


@pytest.mark.parametrize("path", ["", "/", "/prefix", "/prefix/api/v2/alerts", "/prefix/api/v2/alerts/"])
def test_alertmanager_gets_all_open_findings_in_one_request(load: Load, path: str) -> None:
    with Receiver().serving() as receiver:
        config = config_of(load, channel("alertmanager", receiver.url + path))
        rows = [finding(), finding("f2"), finding("f3", resolved_at=NOW), finding("f4", resolved_at=NOW)]
        found = sent(config, *rows, known=[notified("f2"), notified("f3")])
    ((path_, _, alerts),) = receiver.requests
    assert path_ == f"{'/prefix' if 'prefix' in path else ''}/api/v2/alerts"
    assert [alert["labels"]["finding_id"] for alert in alerts] == ["f1", "f3", "f2"]
    assert [[due.finding.finding_id for due in several] for several, _ in found.tried] == [["f1", "f3"]]


def test_alertmanager_gets_open_findings_even_if_nothing_is_new(load: Load) -> None:
    with Receiver().serving() as receiver:
        config = config_of(load, channel("alertmanager", receiver.url))
        found = sent(config, finding(), known=[notified()])
    assert [len(alerts) for alerts in receiver.contents] == [1]
    assert [several for several, _ in found.tried] == [[]]


def test_many_alerts_are_sent_in_several_requests(load: Load) -> None:
    with Receiver().serving() as receiver:
        config = config_of(load, channel("alertmanager", receiver.url))
        found = sent(config, *several(150), finding("standing"), known=[notified("standing")])
    assert [len(alerts) for alerts in receiver.contents] == [100, 51]
    assert [len(due) for due, _ in found.tried] == [100, 50]


@pytest.mark.parametrize("schedule", ["1m", "1h"])
def test_an_alert_lasts_for_some_runs_and_at_least_two_hours(load: Load, schedule: str) -> None:
    with Receiver().serving() as receiver:
        text = f'[snapshot]\nschedule = "{schedule}"\n{channel("alertmanager", receiver.url)}'
        sent(config_of(load, text), finding())
    expected = {"1m": "2026-01-31T14:00:00Z", "1h": "2026-01-31T16:00:00Z"}
    assert receiver.contents[0][0]["endsAt"] == expected[schedule]


def test_people_get_at_most_twenty_messages_and_one_about_the_rest(load: Load) -> None:
    with Receiver().serving() as receiver:
        found = sent(config_of(load, channel("webhook", receiver.url)), *several(100))
    assert [content["event"] for content in receiver.contents] == ["opened"] * 20 + ["summary"]
    assert sum(len(due) for due, _ in found.tried) == 100
    assert found.untried == []


@pytest.mark.parametrize(("status", "tried"), [(300, 3), (302, 3), (400, 3), (404, 3), (500, 3), (429, 1), (503, 1)])
def test_a_status_that_is_no_success_is_one_line(load: Load, status: int, tried: int) -> None:
    with Receiver(statuses=(status,)).serving() as receiver:
        found = sent(config_of(load, channel("webhook", receiver.url)), *several(3))
    assert outcomes(found) == [f"HTTP status {status}"] * tried
    assert len(receiver.requests) == tried
    assert len(found.untried) == 3 - tried
    assert found.why == ("" if tried == 3 else f"HTTP status {status}")


def test_one_message_that_is_refused_does_not_stop_the_others(load: Load) -> None:
    with Receiver(statuses=(400, 200)).serving() as receiver:
        found = sent(config_of(load, channel("webhook", receiver.url)), *several(3))
    assert outcomes(found) == ["HTTP status 400", None, None]


def drip(connection: socket) -> None:
    """Answers, but a byte at a time."""
    connection.recv(65_536)
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def hang(connection: socket) -> None:
    """Takes the request, and never answers."""
    connection.settimeout(10)
    while connection.recv(65_536):
        pass


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (hang, "no answer in time"),
        (drip, "no answer in time"),
        (lambda connection: None, "Connection reset by peer|closes the connection without an answer|Broken pipe"),
        (lambda connection: connection.sendall(b"\x00\xff garbage\r\n\r\n"), "ProtocolError|Connection reset by peer"),
    ],
    ids=["hangs", "drips", "closes", "garbage"],
)
def test_a_receiver_that_is_down_is_tried_once_in_a_run(
    load: Load, serve: Callable[[socket], None], reason: str
) -> None:
    begun = time.monotonic()
    with listener(serve) as address:
        text = channel("webhook", f"http://{address}/{SECRET}").replace('"2s"', '"300ms"')
        found = sent(config_of(load, text), *several(30))
    assert time.monotonic() - begun < 5
    (failed,) = outcomes(found)
    assert failed is not None
    assert any(failed == one for one in reason.split("|"))
    assert found.why == failed
    assert len(found.untried) == 29


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://{closed}/hunter2", "Connection refused"),
        ("http://user:${{env:PW}}@{closed}", "Connection refused"),
        ("http://hunter2.invalid/", "unknown host"),
        ("https://{closed}/", "Connection refused"),
        ("http://a..b/hunter2", "is not a URL with http or https"),
    ],
)
def test_a_receiver_that_is_not_there_is_one_line_without_its_url(load: Load, url: str, reason: str) -> None:
    config = config_of(load, channel("webhook", url.format(closed=f"{HOST}:{free_port()}")), PW="hunter2")
    assert outcomes(sent(config, finding())) == [reason]
    assert send_test("chat", config, NOW) == Failure(reason)


def test_a_certificate_must_be_trusted_or_be_that_of_ca_file(load: Load, tmp_path: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    file = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"https://{HOST}:{server.server_port}"
        untrusted = sent(config_of(load, channel("webhook", url)), finding())
        trusted = sent(config_of(load, channel("webhook", url, f'ca_file = "{file}"')), finding())
        absent = sent(config_of(load, channel("webhook", url, 'ca_file = "/no/such/file"')), finding())
        server.shutdown()
    (reason,) = outcomes(untrusted)
    assert reason is not None
    assert reason.startswith("presents a TLS certificate that is not trusted: check ca_file")
    assert outcomes(trusted) == [None]
    assert outcomes(absent) == ["No such file or directory"]


def test_a_proxy_of_the_environment_is_used(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver().serving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://me:pw@"))
        monkeypatch.setenv("no_proxy", "direct.invalid")
        config = config_of(load, channel("webhook", "http://receiver.invalid/hook"))
        assert outcomes(sent(config, finding())) == [None]
        direct = config_of(load, channel("webhook", "http://direct.invalid/hook"))
        assert outcomes(sent(direct, finding())) == ["unknown host"]
    ((path, headers, _),) = proxy.requests
    assert path == "http://receiver.invalid/hook"
    assert base64.b64decode(headers["proxy-authorization"].removeprefix("Basic ")) == b"me:pw"


def test_channels_are_served_at_the_same_time_and_one_does_not_hold_up_another(load: Load) -> None:
    begun = time.monotonic()
    with listener(hang) as dead, Receiver().serving() as alive:
        names = [f"dead{n}" for n in range(10)]
        text = "".join(channel("webhook", f"http://{dead}", name=name) for name in names)
        rules = "".join(f'[[owners]]\ngroup = "^{name}$"\nowner = "o"\nchannel = "{name}"\n' for name in names)
        config = config_of(load, f"{channel('webhook', alive.url)}{text}{rules}".replace('"2s"', '"500ms"'))
        rows = [*several(3), *(finding(f"d{name}", group_id=name) for name in names)]
        found = send(plan(rows, [], config, NOW), config, NOW)
    assert time.monotonic() - begun < 4
    assert outcomes(found["chat"]) == [None] * 3
    assert all(outcomes(found[name]) == ["no answer in time"] for name in names)


def test_a_slow_receiver_takes_limited_time_in_a_run(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "LONGEST_MS", 250)
    with Receiver(delay_s=0.1).serving() as receiver:
        found = sent(config_of(load, channel("webhook", receiver.url)), *several(20))
    assert 1 <= len(found.tried) < 10
    assert found.why == "the receiver is slow"
    assert len(found.tried) + len(found.untried) == 20


def test_an_error_of_a_library_is_one_line_without_its_text(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(sending, "post", fails)
    assert outcomes(sent(config_of(load), *several(2))) == ["unexpected RuntimeError"] * 2


@pytest.mark.parametrize("kind", ["webhook", "alertmanager", "pagerduty"])
def test_a_test_message_reaches_its_channel(load: Load, kind: str) -> None:
    more = 'routing_key = "${env:KEY}"' if kind == "pagerduty" else ""
    with Receiver().serving() as receiver:
        config = config_of(load, channel(kind, receiver.url, more), KEY="key")
        assert send_test("chat", config, NOW) is None
    (content,) = receiver.contents
    assert "laglake" in str(content)
    assert len(str(content)) < 2_000


def test_no_secret_is_logged_even_if_everything_is(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(statuses=(500,)).serving() as receiver, caplog.at_level(logging.DEBUG):
        logging.getLogger("urllib3").setLevel(logging.NOTSET)
        address = receiver.url.removeprefix("http://")
        text = channel("webhook", f"http://user:${{env:KEY}}@{address}/{SECRET}?token={SECRET}")
        text += channel("pagerduty", f"{receiver.url}/{SECRET}", 'routing_key = "${env:KEY}"', name="pager")
        text += '[[owners]]\ngroup = "paged"\nowner = "o"\nchannel = "pager"\n'
        config = config_of(load, text, KEY=SECRET)
        found = send(plan([finding(), finding("f2", group_id="paged")], [], config, NOW), config, NOW)
        send_test("chat", config, NOW)
    assert len(receiver.requests) == 3
    assert SECRET not in caplog.text
    assert SECRET not in repr(found) + repr(config)
    assert logging.getLogger("urllib3").level == logging.NOTSET


def test_without_apprise_one_line_says_how_to_install_it(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    config = config_of(load, channel("apprise", "json://127.0.0.1/${env:KEY}"), KEY=SECRET)
    found = sent(config, *several(5))
    assert outcomes(found) == ["needs the Python package apprise: pip install 'apprise>=1.9'"]
    assert len(found.untried) == 4


def test_a_post_sends_text_of_any_script() -> None:
    with Receiver().serving() as receiver:
        assert post(receiver.url, {"name": "群组 👍 \ud800"}, 2) is None
    assert receiver.contents == [{"name": "群组 👍 \ud800"}]
