"""The settings about consumers: where they report their positions, and how they are configured."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.config.relative_paths import RELATIVE_TO_FILE
from pipeline.config.toml_file import FilledIn, Int, Section
from pipeline.config.value_types import Count, DurationMs, Secret

Source = Literal["kafka_client_metrics", "librdkafka_statistics", "kafka_request_log"]


_OF_ENDPOINTS = ("endpoints", "user", "password", "ca_file", "timeout_ms", "names")
_OF_LOGS = ("state", "timezone", "topics_file")


class PositionsConfig(Section):
    """One data source of clients' positions: its `endpoints`, or `paths` of files."""

    source: Source
    """The kind of data that is read."""
    endpoints: tuple[str, ...] = ()
    """URLs of agents; from one that ends in `/jolokia`, all beans are requested."""
    paths: Annotated[tuple[str, ...], RELATIVE_TO_FILE] = ()
    """Files or folders, as paths or URIs; files may be gzipped."""
    group_id: str | None = None
    """The group of all these clients, if they are in the same group."""
    user: str | None = None
    """The user for basic authentication at the endpoints."""
    password: Secret | None = None
    """The password for basic authentication at the endpoints, as `${env:NAME}` or `${secret:SCOPE/KEY}`."""
    ca_file: Annotated[str | None, RELATIVE_TO_FILE] = None
    """The CA certificates for the endpoints, if the system does not have them; a file, or a folder for OpenSSL."""
    timeout_ms: DurationMs | None = Field(default=None, alias="timeout")
    """How long one endpoint may take; if unset, 10 s."""
    most_bytes: Count | None = None
    """The maximum to read from one endpoint or file; if unset, 32 MiB, or 2 GiB per snapshot for a request log."""
    state: Annotated[str | None, RELATIVE_TO_FILE] = None
    """A folder that keeps how far a request log was read; all executors must reach it."""
    timezone: str | None = None
    """The time zone of the brokers' request logs; if unset, UTC."""
    topics_file: Annotated[str | None, RELATIVE_TO_FILE] = None
    """A CSV file of topic and topic_id for a request log, for topics whose id `watermarks` does not have (≤ 16 MiB)."""
    names: dict[str, str] = Field(default_factory=dict)
    """Metric and label names of an exporter's own, each with the name that laglake knows."""

    @model_validator(mode="after")
    def _has_locations(self) -> Self:
        if bool(self.endpoints) == bool(self.paths):
            raise ValueError("must have either endpoints or paths")
        if any("," in location for location in (*self.endpoints, *self.paths)):
            raise ValueError("no endpoint and no path may contain a comma")
        # An @ anywhere, because an unescaped password may contain any character before it.
        if any(re.search("@|^(?:[^/]*//)?[^/?#]*%40", endpoint) for endpoint in self.endpoints):
            raise ValueError(
                "no endpoint may have a user or a password in its URL; set user and password (write any other @ as %40)"
            )
        is_log = self.source == "kafka_request_log"
        wrong = _OF_ENDPOINTS if is_log else _OF_LOGS
        named = [name for name in wrong if getattr(self, name)]
        if named:
            raise ValueError(f"{named[0].removesuffix('_ms')} is not a setting of source {self.source}")
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
    """The settings of clients, with Kafka's own names. A setting that is not given is unknown.

    ID is a client id, or a group whose clients all have the same settings. A name with dots may be written with or
    without quotes.
    """

    group_id: str | None = Field(default=None, alias="group.id")
    """The group that a client is in, if the client itself does not report it."""
    isolation_level: Literal["read_committed", "read_uncommitted"] | None = Field(default=None, alias="isolation.level")
    """Whether the client's own gauge counts to the last stable offset or to the high watermark (for `stale_lag`)."""
    queued_max_message_chunks: Int | None = _whole("queued.max.message.chunks")
    """Old consumer: the maximum number of chunks in the queue of one stream."""
    fetch_message_max_bytes: Int | None = _whole("fetch.message.max.bytes")
    """Old consumer: the largest chunk. librdkafka: the largest answer for one partition."""
    auto_commit_interval_ms: Int | None = _whole("auto.commit.interval.ms")
    """The interval of automatic commits: commits may be this late without being a problem."""
    fetch_max_wait_ms: Int | None = Field(default=None, alias="fetch.max.wait.ms", ge=0)
    """Java consumer: how long a broker may hold a fetch until there are records. A long wait means few fetches."""
    fetch_wait_max_ms: Int | None = Field(default=None, alias="fetch.wait.max.ms", ge=0)
    """librdkafka and the old consumer: the same."""
    fetch_max_bytes: Int | None = _whole("fetch.max.bytes")
    """Java consumer: the largest answer of a broker."""
    max_partition_fetch_bytes: Int | None = _whole("max.partition.fetch.bytes")
    """Java consumer: the largest share of one partition in such an answer."""
    queued_max_messages_kbytes: Int | None = _whole("queued.max.messages.kbytes")
    """librdkafka: the size of its buffer."""
    threads: Annotated[Int | None, Field(ge=1)] = None
    """Old consumer: the number of its streams."""
    heap_bytes: Annotated[Int | None, Field(ge=1)] = None
    """The heap size of its JVM, to compute which share of it the buffers may take."""

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, table: Any) -> Any:
        return dict(_dotted(table)) if isinstance(table, Mapping) else table

    @classmethod
    def of_properties(cls, properties: Mapping[str, Any]) -> ConsumerSettings:
        """The settings that laglake uses, from a consumer's own configuration, which has many others."""
        names = {field.alias or name for name, field in cls.model_fields.items()}
        values = {name: properties[name] for name in names & properties.keys()}
        return cls.model_validate({k: FilledIn(v) if isinstance(v, str) else v for k, v in values.items()})


KAFKA_NAMES = {name: field.alias or name for name, field in ConsumerSettings.model_fields.items()}
"""Kafka's name of each setting."""


def _dotted(table: Mapping[str, Any], before: str = "") -> Any:
    """Joins the names of nested tables: TOML reads `fetch.max.bytes = 1` as three of them."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{before}{name}.")
        else:
            yield before + name, value
