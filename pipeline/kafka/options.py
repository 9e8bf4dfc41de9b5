"""The options of the Kafka data sources, parsed from the flat strings that Spark passes on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pipeline.common.data_source import NameFilter, several
from pipeline.common.epoch import now_ms
from pipeline.common.errors import ConfigError, TooLateError
from pipeline.config.kafka_client import CLIENT_OPTIONS
from pipeline.config.limits import LimitsConfig

_MAY_BE_ZERO = {"retries", "retry_backoff_ms"}
_LIMITS = LimitsConfig()
"""The defaults, which are the same as in a config."""


@dataclass(frozen=True)
class SourceOptions:
    """Where to connect, what to read and how long to wait. Times are in ms.

    `request_timeout_ms` limits one request, `task_timeout_ms` one executor task, `read_timeout_ms` all tasks together.
    After a retriable error a request is sent again, up to `retries` times: after `retry_backoff_ms`, then after twice
    that, and so on. Brokers of another cluster than `cluster_id` are refused. `client` has kafka-python's own options;
    it may contain passwords, so `repr` does not show it.
    """

    bootstrap_servers: tuple[str, ...]
    groups: NameFilter
    topics: NameFilter
    client: Mapping[str, Any]
    connect_timeout_ms: int = _LIMITS.connect_timeout_ms
    request_timeout_ms: int = _LIMITS.request_timeout_ms
    task_timeout_ms: int = _LIMITS.task_timeout_ms
    read_timeout_ms: int = _LIMITS.read_timeout_ms
    retries: int = _LIMITS.retries
    retry_backoff_ms: int = _LIMITS.retry_backoff_ms
    groups_per_task: int = _LIMITS.groups_per_task
    partitions_per_task: int = _LIMITS.partitions_per_task
    count_requests: bool = False
    cluster_id: str | None = None

    def __repr__(self) -> str:
        return f"SourceOptions({', '.join(self.bootstrap_servers)})"

    def deadline_ms(self) -> float:
        """Until when all tasks that are planned now may read, epoch ms."""
        return now_ms() + self.read_timeout_ms

    def until(self, deadline_ms: float) -> SourceOptions:
        """The options for a task that begins now. Raises TooLateError if the time is up."""
        left_ms = min(deadline_ms - now_ms(), self.read_timeout_ms)  # clocks differ
        if left_ms <= 0:
            raise TooLateError("the cluster was not read in time (limits.read_timeout)")
        return replace(self, task_timeout_ms=int(min(self.task_timeout_ms, left_ms)))

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Options from strings, by lower-case name. Raises ConfigError naming an option that is unknown or wrong."""
        own: dict[str, Any] = {}
        client: dict[str, Any] = {}
        for name, text in options.items():
            if name in _FILTER_NAMES or name in ("bootstrap_servers", "cluster_id"):
                continue
            if name in _OWN_TYPES:
                own[name] = _in_range(name, _convert(name, text, _OWN_TYPES[name]))
            elif name in KNOWN:
                client[name] = _convert(name, text, CLIENT_OPTIONS[name])
            else:
                raise ConfigError(f"unknown option {name!r}; options are {', '.join(sorted(KNOWN))}")
        servers = several(options.get("bootstrap_servers"))
        if not servers:
            raise ConfigError("option 'bootstrap_servers' is missing: give host:port, or several separated by commas")
        return cls(
            bootstrap_servers=servers,
            groups=NameFilter(options.get("groups_allow"), options.get("groups_deny")),
            topics=NameFilter(options.get("topics_allow"), options.get("topics_deny")),
            client=client,
            cluster_id=options.get("cluster_id"),
            **own,
        )


def _convert(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"option {name!r} must be true or false")
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"option {name!r} must be a whole number") from None
    if name == "api_version":
        if not re.fullmatch(r"\d+(\.\d+){1,3}", text, re.ASCII):
            raise ConfigError("option 'api_version' must be a version such as 3.7")
        return tuple(int(part) for part in text.split("."))
    return text


def _in_range(name: str, value: Any) -> Any:
    least = 0 if name in _MAY_BE_ZERO else 1
    if not isinstance(value, bool) and value < least:
        raise ConfigError(f"option {name!r} must be at least {least}")
    return value


_OWN_TYPES = {f.name: bool if f.type == "bool" else int for f in fields(SourceOptions) if f.type in ("int", "bool")}
_FILTER_NAMES = {"groups_allow", "groups_deny", "topics_allow", "topics_deny"}
KNOWN = {"bootstrap_servers", "cluster_id", *_FILTER_NAMES, *_OWN_TYPES, *CLIENT_OPTIONS}
