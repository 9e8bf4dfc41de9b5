"""What a config says of consumers: where they report their positions, and how they are set up."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from pipeline.config.toml_file import FilledIn, Int, Section
from pipeline.config.value_types import Count, DurationMs

Source = Literal["kafka_client_metrics", "librdkafka_statistics", "kafka_request_log"]


_OF_ENDPOINTS = ("endpoints", "user", "password", "ca_file", "timeout_ms", "names")
_OF_LOGS = ("state", "timezone", "topics_file")


class PositionsConfig(Section):
    """One data source of clients' positions: its `endpoints`, or `paths` of files."""

    source: Source
    """What is read."""
    endpoints: tuple[str, ...] = ()
    """URLs of agents; all beans are asked for where one ends in `/jolokia`."""
    paths: tuple[str, ...] = ()
    """Files or folders, paths or URIs; gzip too."""
    group_id: str | None = None
    """The group of all its clients, where they have one in common."""
    user: str | None = None
    """Of the endpoints, for basic authentication."""
    password: SecretStr | None = None
    """Of the endpoints, for basic authentication."""
    ca_file: str | None = None
    """Who has signed the certificates of endpoints, where the system does not know."""
    timeout_ms: DurationMs | None = Field(default=None, alias="timeout")
    """How long one endpoint may take; unset is 10 s."""
    most_bytes: Count | None = None
    """The most bytes that are read of one place; unset is 100 MiB, of a request log 2 GiB in a snapshot."""
    state: str | None = None
    """A folder that keeps how far a request log was read; all executors must reach it."""
    timezone: str | None = None
    """The time zone of the brokers' request logs; unset is UTC."""
    topics_file: str | None = None
    """A CSV of topic and topic_id for a request log, where the watermarks have none."""
    names: dict[str, str] = Field(default_factory=dict)
    """What an exporter calls metrics and labels by rules of its own, and what they are."""

    @model_validator(mode="after")
    def _has_places(self) -> Self:
        if bool(self.endpoints) == bool(self.paths):
            raise ValueError("must have either endpoints or paths")
        if any("," in place for place in (*self.endpoints, *self.paths)):
            raise ValueError("no endpoint and no path may contain a comma")
        if any(re.match("[^/]*//[^/?#]*@", endpoint) for endpoint in self.endpoints):
            raise ValueError("no endpoint may have a user or a password in its URL; set user and password")
        is_log = self.source == "kafka_request_log"
        wrong = _OF_ENDPOINTS if is_log else _OF_LOGS
        named = [name for name in wrong if getattr(self, name)]
        if named:
            raise ValueError(f"{self.source} has no {named[0].removesuffix('_ms')}")
        if is_log and not self.state:
            raise ValueError("kafka_request_log needs state, a folder that keeps how far the log was read")
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
    be in quotes, or in parts as TOML reads them.
    """

    group_id: str | None = Field(default=None, alias="group.id")
    """The group that a client is in, where nothing else says so."""
    isolation_level: Literal["read_committed", "read_uncommitted"] | None = Field(default=None, alias="isolation.level")
    """Whether its own gauge counts to the last stable offset or to the high watermark, for stale_lag."""
    queued_max_message_chunks: Int | None = _whole("queued.max.message.chunks")
    """Old consumer: chunks in the queue of one stream."""
    fetch_message_max_bytes: Int | None = _whole("fetch.message.max.bytes")
    """Old consumer: the largest chunk. librdkafka: the largest answer for a partition."""
    auto_commit_interval_ms: Int | None = _whole("auto.commit.interval.ms")
    """How late its commits may be without anyone being to blame."""
    fetch_max_wait_ms: Int | None = Field(default=None, alias="fetch.max.wait.ms", ge=0)
    """Java consumer: how long a broker may keep a fetch waiting for records. One that waits long asks rarely."""
    fetch_wait_max_ms: Int | None = Field(default=None, alias="fetch.wait.max.ms", ge=0)
    """The same of librdkafka and of the old consumer."""
    fetch_max_bytes: Int | None = _whole("fetch.max.bytes")
    """Java consumer: the largest answer of a broker."""
    max_partition_fetch_bytes: Int | None = _whole("max.partition.fetch.bytes")
    """Java consumer: the largest part of it of one partition."""
    queued_max_messages_kbytes: Int | None = _whole("queued.max.messages.kbytes")
    """librdkafka: the most that it buffers."""
    threads: Annotated[Int | None, Field(ge=1)] = None
    """Old consumer: how many streams it has."""
    heap_bytes: Annotated[Int | None, Field(ge=1)] = None
    """What its JVM may use, to see which part of it the buffers may take."""

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
