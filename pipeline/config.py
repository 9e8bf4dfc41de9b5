"""The settings of a run, read from a TOML file and checked before anything starts.

Durations are kept in milliseconds. Groups and topics are chosen by Python regular expressions that
may match anywhere in a name (`re.search`).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from pipeline.client_config import ClientConfig
from pipeline.config_file import Int, Section, problems_of, read_toml
from pipeline.config_values import (
    ClusterName,
    Count,
    DurationMs,
    HostPort,
    Identifier,
    Location,
    NotEmpty,
    Regex,
    any_of,
)
from pipeline.consumer_config import ConsumerSettings, PositionsConfig
from pipeline.errors import ConfigError


class LakeConfig(Section):
    """Where the tables are: at `<root>/<table>`, or `<catalog>.<schema>.<table>`; the other form is None.

    A `root` without a URI scheme is an absolute path.
    """

    root: Location | None = None
    catalog: Identifier | None = None
    schema_name: Identifier | None = Field(default=None, alias="schema")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = tuple(value is not None for value in (self.root, self.catalog, self.schema_name))
        if given not in ((True, False, False), (False, True, True)):
            raise ValueError("must have either root, or catalog and schema")
        return self


class SnapshotConfig(Section):
    """When snapshots are due (`schedule`), how late one may start, and how long its claim holds."""

    schedule_ms: DurationMs = Field(default=60_000, alias="schedule")
    max_delay_ms: DurationMs = Field(default=600_000, alias="max_delay")
    max_duration_ms: DurationMs = Field(default=1_800_000, alias="max_duration")


class GroupFilter(Section):
    """Which names are read: those that one of `allow` matches and none of `deny`."""

    allow: Annotated[tuple[Regex, ...], NotEmpty] = (".*",)
    deny: tuple[Regex, ...] = ()

    @model_validator(mode="after")
    def _combines(self) -> Self:
        for name, patterns in (("allow", self.allow), ("deny", self.deny)):
            try:
                re.compile(any_of(patterns))
            except re.error as error:
                raise ValueError(f"the expressions of {name} cannot be combined: {error}") from None
        return self

    def options(self, prefix: str) -> dict[str, str]:
        """`<prefix>_allow` and `<prefix>_deny`, each one expression; absent where there is none."""
        combined = {f"{prefix}_allow": any_of(self.allow), f"{prefix}_deny": any_of(self.deny)}
        return {name: pattern for name, pattern in combined.items() if pattern}


class TopicFilter(GroupFilter):
    """The same for topics; Kafka's own are left out unless `deny` says otherwise."""

    deny: tuple[Regex, ...] = ("^__",)


class LimitsConfig(Section):
    """Bounds on what one executor task does: its waits, its repetitions, its share of the work."""

    connect_timeout_ms: DurationMs = Field(default=5_000, alias="connect_timeout")
    request_timeout_ms: DurationMs = Field(default=30_000, alias="request_timeout")
    task_timeout_ms: DurationMs = Field(default=300_000, alias="task_timeout")
    retries: Annotated[Int, Field(ge=0, le=100)] = 5
    retry_backoff_ms: DurationMs = Field(default=100, alias="retry_backoff")
    groups_per_task: Count = 100
    partitions_per_task: Count = 5_000


class ClusterConfig(Section):
    """One Kafka cluster: how to reach it, and what of it is read.

    `log_dirs` are its brokers' log directories, paths or URIs, if executors can read them: bytes and times are exact
    then. `index_lookups` bounds the look-ups by time that a snapshot makes at each broker, 0 makes none; in partitions
    with tiered storage there are none unless `index_lookups_tiered`. `positions` are where clients tell their
    own; what was last true longer ago than `positions_max_age` is not taken.
    """

    bootstrap_servers: Annotated[tuple[HostPort, ...], NotEmpty]
    groups: GroupFilter = GroupFilter()
    topics: TopicFilter = TopicFilter()
    client: ClientConfig = ClientConfig()
    limits: LimitsConfig = LimitsConfig()
    log_dirs: tuple[str, ...] = ()
    index_lookups: Annotated[Int, Field(ge=0)] = 2_000
    index_lookups_tiered: bool = False
    positions: tuple[PositionsConfig, ...] = ()
    positions_max_age_ms: DurationMs = Field(default=120_000, alias="positions_max_age")

    def source_options(self) -> dict[str, str]:
        """The options of laglake's Spark data sources for this cluster. Secrets are revealed: never log them."""
        limits = {name: str(value) for name, value in self.limits.model_dump().items()}
        return {
            "bootstrap_servers": ",".join(self.bootstrap_servers),
            **self.groups.options("groups"),
            **self.topics.options("topics"),
            **limits,
            **self.client.options(),
        }


class Config(Section):
    """A whole file."""

    lake: LakeConfig
    snapshot: SnapshotConfig = SnapshotConfig()
    clusters: dict[ClusterName, ClusterConfig] = Field(min_length=1)
    clients: dict[str, ConsumerSettings] = Field(default_factory=dict)


def lake_at(place: str) -> dict[str, str]:
    """The table `[lake]` of a path, a URI, or `catalog.schema`: two names with a dot between, and no slash."""
    named = re.fullmatch(r"([^\s.`/:]+)\.([^\s.`/:]+)", place)
    return {"catalog": named[1], "schema": named[2]} if named else {"root": place}


def load_config(path: Path, env: Mapping[str, str], lake: str | None = None) -> Config:
    """The checked settings of a TOML file, with `${env:NAME}` taken from `env`; `lake` stands for its table `[lake]`.

    Raises:
        ConfigError: one line `FILE: key.path: what is wrong` for each problem; no line shows a value.
    """
    tables = read_toml(path, env)
    if lake is not None:
        tables["lake"] = lake_at(lake)
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        lines = problems_of(error, Config)
    # Outside of the handler: the error pydantic raised holds the values.
    raise ConfigError("\n".join(f"{path}: {line}" for line in lines))
