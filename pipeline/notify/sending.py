"""Sends messages to channels: all channels at the same time, the messages of each in order, and none of them twice."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any

from pipeline.common.epoch import HOUR_MS
from pipeline.config import Config
from pipeline.config.notify import ChannelConfig
from pipeline.notify import payloads
from pipeline.notify.due import OPENED, RESOLVED, Due, Finding, Plan
from pipeline.notify.http import Failure, post
from pipeline.notify.message import Message, messages, test_message

LONGEST_MS = 60_000
"""How long the messages of one channel may take in a run; the others wait for the next run."""
_LASTS_RUNS, _LASTS_MS = 4, 2 * HOUR_MS
"""How many runs may fail before Alertmanager takes an open finding for resolved, and how long it waits at least."""
_NO_ANSWER = "no answer in time"
_LATE = "the receiver is slow"
_TALKATIVE = ("apprise", "urllib3", "requests", "oauthlib", "requests_oauthlib")
"""Loggers that may write URLs with the tokens in them."""

_SHORTEST_SPLIT = 1_000
"""A message that is too long for a service is sent in parts, or cut if the service takes fewer characters than this."""

Send = Callable[[], Failure | None]


@dataclass
class Sent:
    """What became of the messages of one channel: the findings of each message that was tried, with its error."""

    tried: list[tuple[Sequence[Due], Failure | None]] = field(default_factory=list)
    untried: list[Due] = field(default_factory=list)
    why: str = ""
    """Why some were not tried."""


def send(plan: Plan, config: Config, now: datetime) -> dict[str, Sent]:
    """Sends what is due, to each channel in a thread of its own; returns what became of it."""
    outcomes = {name: Sent() for name in {**plan.due, **plan.standing}}
    threads = []
    for name, outcome in outcomes.items():
        arguments = (_outbox(name, plan, config, now), _timeout_s(config.channels[name]), outcome)
        threads.append(Thread(target=_send_all, args=arguments, daemon=True))
    with _no_logs():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return outcomes


def send_test(name: str, config: Config, now: datetime) -> Failure | None:
    """Sends a test message to one channel."""
    channel = config.channels[name]
    message = test_message(name, config.notifications.report_url)
    if channel.type != "alertmanager":
        return send_message(name, config, message)
    with _no_logs():
        return _within(_timeout_s(channel), partial(_send_alerts, channel, [payloads.test_alert(message, now)]))


def send_message(name: str, config: Config, message: Message) -> Failure | None:
    """Sends one message to one channel, which is not an Alertmanager."""
    channel = config.channels[name]
    with _no_logs():
        call = partial(_send_one, channel, message, config.notifications.report_url)
        return _within(_timeout_s(channel), call)


Outbox = Sequence[tuple[Sequence[Due], Send]]
"""The messages of one channel in order: the findings that each is about, and how to send it."""


def _outbox(name: str, plan: Plan, config: Config, now: datetime) -> Outbox:
    channel, report_url = config.channels[name], config.notifications.report_url
    due = plan.due.get(name, [])
    if channel.type == "alertmanager":
        return list(_alerts(channel, due, plan.standing.get(name, []), config, now))
    found = messages(due, report_url, single_ends=channel.type == "pagerduty")
    return [(message.of, partial(_send_one, channel, message, report_url)) for message in found]


def _alerts(
    channel: ChannelConfig, due: Sequence[Due], standing: Sequence[Finding], config: Config, now: datetime
) -> Iterator[tuple[Sequence[Due], Send]]:
    """Requests with MOST_ALERTS alerts each, the new ones first. Alertmanager groups alerts itself."""
    lasts = timedelta(milliseconds=max(_LASTS_RUNS * config.snapshot.schedule_ms, _LASTS_MS))
    found = payloads.alerts(due, standing, config.notifications.report_url, now, now + lasts)
    for start in range(0, len(found), payloads.MOST_ALERTS):
        end = start + payloads.MOST_ALERTS
        yield due[start:end], partial(_send_alerts, channel, found[start:end])


def _send_all(outbox: Outbox, timeout_s: float, outcome: Sent) -> None:
    """Sends the messages of one channel until one of them fails because the receiver is down."""
    ends = time.monotonic() + LONGEST_MS / 1000
    for due, call in outbox:
        if not outcome.why and time.monotonic() > ends:
            outcome.why = _LATE
        if outcome.why:
            outcome.untried += due
            continue
        failure = _within(min(timeout_s, max(ends - time.monotonic(), 1)), call)
        outcome.tried.append((due, failure))
        if failure and failure.is_down:
            outcome.why = failure.reason


def _within(timeout_s: float, call: Send) -> Failure | None:
    """Calls a function, and gives it up after this time.

    A server that sends its answer byte by byte never times out, and neither does the look-up of a name. The thread that
    waits for them does not keep the process from ending.
    """
    answers: list[Failure | None] = []
    thread = Thread(target=lambda: answers.append(_safely(call)), daemon=True)
    thread.start()
    thread.join(timeout_s)
    return answers[0] if answers else Failure(_NO_ANSWER)


def _safely(call: Send) -> Failure | None:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - of a library; its text may contain a URL with a token
        return Failure(f"unexpected {type(error).__name__}", is_down=False)


def _timeout_s(channel: ChannelConfig) -> float:
    return channel.timeout_ms / 1000


def _send_one(channel: ChannelConfig, message: Message, report_url: str | None) -> Failure | None:
    if channel.type == "apprise":
        return _by_apprise(channel.address, message)
    content: Mapping[str, Any]
    if channel.type == "pagerduty":
        key = channel.routing_key.get_secret_value() if channel.routing_key else ""
        content = payloads.pagerduty(message, key, report_url)
    else:
        content = payloads.webhook(message, report_url)
    return post(channel.address, content, _timeout_s(channel), channel.ca_file)


def _send_alerts(channel: ChannelConfig, alerts: Sequence[Any]) -> Failure | None:
    base = channel.address.rstrip("/").removesuffix("/api/v2/alerts")
    return post(f"{base}/api/v2/alerts", alerts, _timeout_s(channel), channel.ca_file)


def _by_apprise(url: str, message: Message) -> Failure | None:
    try:
        apprise: Any = import_module("apprise")  # slow to load, and not always installed
    except ImportError:
        return Failure("needs the Python package apprise: pip install 'apprise>=1.9'")
    services = apprise.Apprise(asset=apprise.AppriseAsset(app_id="laglake", async_mode=False, secure_logging=True))
    if not services.add(url):
        return Failure("its url is not one that apprise understands")
    for service in services:
        service.request_rate_per_sec = 0  # else several targets of one URL take longer than the channel's timeout
        if "overflow=" not in url.lower():
            is_short = service.body_maxlen < _SHORTEST_SPLIT
            service.overflow_mode = apprise.OverflowMode.TRUNCATE if is_short else apprise.OverflowMode.SPLIT
    is_sent = services.notify(
        title=message.title,
        body=message.body,
        body_format=apprise.NotifyFormat.TEXT,
        notify_type=_kind_of(message, apprise.NotifyType),
    )
    return None if is_sent else Failure("apprise could not deliver it", is_down=False)


def _kind_of(message: Message, kinds: Any) -> Any:
    """How urgent a message is, as apprise names it."""
    if message.event == RESOLVED:
        return kinds.SUCCESS
    if message.event == OPENED or message.of:
        return {"critical": kinds.FAILURE, "warning": kinds.WARNING}.get(message.severity, kinds.INFO)
    return kinds.INFO


@contextmanager
def _no_logs() -> Iterator[None]:
    """Keeps libraries from logging, whatever the levels of the root logger are."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
