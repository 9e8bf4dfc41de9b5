"""What a config says of consumers: where they tell their positions, and how they are set up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from pipeline.config_file import FilledIn, Int, Section
from pipeline.config_values import Count, DurationMs

Source = Literal["kafka_client_metrics", "librdkafka_statistics", "kafka_request_log"]


_OF_ENDPOINTS = ("endpoints", "user", "password", "ca_file", "timeout_ms", "names")
_OF_LOGS = ("state", "timezone", "topics_file")


class PositionsConfig(Section):
    """One data source of clients' positions, a `[[clusters.X.positions]]`: its `endpoints`, or `paths` of files.

    `group_id` is that of all its clients, where they have one in common. User, password, CA and `timeout` are for
    endpoints; `most_bytes` bounds what one place may take. A request log's `state` is a folder where it is kept how far
    was read; `timezone` is that of the brokers, `topics_file` a CSV of topic and topic_id. `names` are what an exporter
    calls metrics and labels by rules of its own, and ours of `pipeline.positions.metrics`.
    """

    source: Source
    endpoints: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    group_id: str | None = None
    user: str | None = None
    password: SecretStr | None = None
    ca_file: str | None = None
    timeout_ms: DurationMs | None = Field(default=None, alias="timeout")
    most_bytes: Count | None = None
    state: str | None = None
    timezone: str | None = None
    topics_file: str | None = None
    names: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_places(self) -> Self:
        if bool(self.endpoints) == bool(self.paths):
            raise ValueError("must have either endpoints or paths")
        if any("," in place for place in (*self.endpoints, *self.paths)):
            raise ValueError("no endpoint and no path may contain a comma")
        is_log = self.source == "kafka_request_log"
        wrong = _OF_ENDPOINTS if is_log else _OF_LOGS
        named = [name for name in wrong if getattr(self, name)]
        if named:
            raise ValueError(f"{self.source} has no {named[0].removesuffix('_ms')}")
        if is_log and not self.state:
            raise ValueError("kafka_request_log needs state, a folder where it is kept how far was read")
        return self

    def options(self, snapshot_id: int) -> dict[str, str]:
        """The options of the data source, for a snapshot. Secrets are revealed: never log them."""
        found = {
            "endpoints": ",".join(self.endpoints),
            "path": ",".join(self.paths),
            "user": self.user,
            "password": self.password.get_secret_value() if self.password else None,
            "ca_file": self.ca_file,
            "timeout_ms": self.timeout_ms and str(self.timeout_ms),
            "most_bytes": self.most_bytes and str(self.most_bytes),
            "state": self.state,
            "batch": self.state and str(snapshot_id),
            "timezone": self.timezone,
            "topics_file": self.topics_file,
            "names": self.names and json.dumps(self.names),
        }
        return {name: value for name, value in found.items() if value}


def _whole(name: str) -> Any:
    return Field(default=None, alias=name, ge=1)


class ConsumerSettings(Section):
    """How a client is set up, by the names of Kafka's own settings; NULL where nothing is said.

    A table `[clients."ID"]`, of the clients with that client id, or of a group whose clients are all alike. Names may
    be in quotes, or in parts as TOML reads them. `threads` are an old consumer's streams, `heap_bytes` is what its JVM
    may use.
    """

    group_id: str | None = Field(default=None, alias="group.id")
    isolation_level: Literal["read_committed", "read_uncommitted"] | None = Field(default=None, alias="isolation.level")
    queued_max_message_chunks: Int | None = _whole("queued.max.message.chunks")
    fetch_message_max_bytes: Int | None = _whole("fetch.message.max.bytes")
    auto_commit_interval_ms: Int | None = _whole("auto.commit.interval.ms")
    fetch_max_bytes: Int | None = _whole("fetch.max.bytes")
    max_partition_fetch_bytes: Int | None = _whole("max.partition.fetch.bytes")
    queued_max_messages_kbytes: Int | None = _whole("queued.max.messages.kbytes")
    threads: Annotated[Int | None, Field(ge=1)] = None
    heap_bytes: Annotated[Int | None, Field(ge=1)] = None

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, table: Any) -> Any:
        return dict(_dotted(table)) if isinstance(table, Mapping) else table

    @classmethod
    def of_properties(cls, properties: Mapping[str, Any]) -> ConsumerSettings:
        """Those settings of a consumer's own configuration that count here; it has many others."""
        names = {field.alias or name for name, field in cls.model_fields.items()}
        values = {name: properties[name] for name in names & properties.keys()}
        return cls.model_validate({k: FilledIn(v) if isinstance(v, str) else v for k, v in values.items()})


KAFKA_NAMES = {name: field.alias or name for name, field in ConsumerSettings.model_fields.items()}
"""Kafka's name of each setting."""


def _dotted(table: Mapping[str, Any], before: str = "") -> Any:
    """Names of nested tables joined: TOML reads `fetch.max.bytes = 1` as three of them."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{before}{name}.")
        else:
            yield before + name, value
