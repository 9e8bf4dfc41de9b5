"""The settings of a run, with the checks that need several of them.

Durations are kept in milliseconds. Groups and topics are selected by Python regular expressions that may match anywhere
in a name (`re.search`).
"""

import re
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from pipeline.common.epoch import DAY_MS
from pipeline.config.consumers import ConsumerSettings, PositionsConfig
from pipeline.config.kafka_client import ClientConfig
from pipeline.config.lake import LakeConfig
from pipeline.config.limits import LimitsConfig
from pipeline.config.notify import (
    ChannelConfig,
    ChannelName,
    NotificationsConfig,
    Silence,
    unheard,
    unknown_channel,
)
from pipeline.config.owners import OwnerRule, Owners
from pipeline.config.rare_snapshots import too_rare
from pipeline.config.relative_paths import RELATIVE_TO_FILE
from pipeline.config.retention import RetentionConfig
from pipeline.config.slo import SloConfig, SloName, too_long_a_window
from pipeline.config.status import StatusConfig
from pipeline.config.toml_file import Int, Section
from pipeline.config.value_types import (
    ClusterName,
    DurationMs,
    HostPort,
    NotEmpty,
    Regex,
    any_of,
)


class SnapshotConfig(Section):
    """When snapshots are due, how late one may start, and how long its claim holds."""

    schedule_ms: DurationMs = Field(default=60_000, alias="schedule")
    """How often `run` is called. A snapshot's instant is rounded down to it, so a second call adds nothing."""
    max_delay_ms: DurationMs = Field(default=600_000, alias="max_delay")
    """How far back `--at` may reach. It is short because a snapshot can only be taken of the present."""
    max_duration_ms: DurationMs = Field(default=1_800_000, alias="max_duration")
    """How long a run's claim on a snapshot holds. After that, another run for the same instant may take it over."""


class GroupFilter(Section):
    """Which names are read: those that match one of `allow` and none of `deny`. Nothing is fetched for the others.

    A pattern may match anywhere in the first 1,024 characters of a name.
    """

    allow: Annotated[tuple[Regex, ...], NotEmpty] = (".*",)
    """Names that are read."""
    deny: tuple[Regex, ...] = ()
    """Names that are not read even if `allow` matches."""

    @model_validator(mode="after")
    def _combines(self) -> Self:
        for name, patterns in (("allow", self.allow), ("deny", self.deny)):
            try:
                re.compile(any_of(patterns))
            except re.error as error:
                raise ValueError(f"the expressions of {name} cannot be combined: {error}") from None
        return self

    def options(self, prefix: str) -> dict[str, str]:
        """`<prefix>_allow` and `<prefix>_deny`, one expression each; absent if there is none."""
        combined = {f"{prefix}_allow": any_of(self.allow), f"{prefix}_deny": any_of(self.deny)}
        return {name: pattern for name, pattern in combined.items() if pattern}


class TopicFilter(GroupFilter):
    """The same for topics; Kafka's internal topics are left out unless `deny` says otherwise."""

    deny: tuple[Regex, ...] = ("^__",)
    """Names that are not read even if `allow` matches."""


class ClusterConfig(Section):
    """One Kafka cluster: how to reach it, and what to read from it. Its name, here X, is used in the tables."""

    bootstrap_servers: Annotated[tuple[HostPort, ...], NotEmpty]
    """Any brokers of the cluster; the others are found through them."""
    cluster_id: Annotated[str, NotEmpty] | None = None
    """Kafka's own id; another cluster is not read. If unset, it is the id of the first cluster read as X."""
    groups: GroupFilter = GroupFilter()
    """Which groups are read, see below."""
    topics: TopicFilter = TopicFilter()
    """Which topics are read, see below."""
    client: ClientConfig = ClientConfig()
    """How to connect and log in, see below."""
    limits: LimitsConfig = LimitsConfig()
    """How long things may take, see below."""
    log_dirs: Annotated[tuple[str, ...], RELATIVE_TO_FILE] = ()
    """The brokers' log directories, paths or URIs. If executors can read them, bytes and times are exact."""
    index_lookups: Annotated[Int, Field(ge=0)] = 2_000
    """The maximum number of look-ups by time per broker and snapshot; 0 turns them off."""
    index_lookups_tiered: bool = False
    """Whether to make look-ups also in partitions whose old records are in remote storage."""
    positions: tuple[PositionsConfig, ...] = ()
    """Where clients report their own positions, see below."""
    positions_max_age_ms: DurationMs = Field(default=120_000, alias="positions_max_age")
    """Positions older than this at the time of the snapshot are ignored."""
    positions_timeout_ms: DurationMs = Field(default=120_000, alias="positions_timeout")
    """How long reading all positions may take. The rest is an error; a request log continues in the next snapshot."""

    def passwords_in_plain_text(self) -> list[str]:
        """A sentence for each connection on which a password would cross the network unencrypted."""
        client = self.client.options()
        sent_as_is = {"PLAIN": "password", "OAUTHBEARER": "token"}.get(client.get("sasl_mechanism", ""))
        brokers: list[str] = []
        if sent_as_is and client.get("security_protocol") == "SASL_PLAINTEXT":
            brokers.append(f"the {sent_as_is} for the brokers is sent in plain text: use SASL_SSL")
        if client.get("sasl_oauthbearer_token_endpoint_url", "").startswith("http://"):
            brokers.append("the password for the token endpoint is sent in plain text: use https")
        # Without its query, which may hold a token.
        sent = {e.partition("?")[0] for p in self.positions if p.password for e in p.endpoints}
        asked = [endpoint for endpoint in sorted(sent) if endpoint.lower().startswith("http://")]
        return brokers + [f"the password for {endpoint} is sent in plain text: use https" for endpoint in asked]

    def source_options(self) -> dict[str, str]:
        """The options of laglake's Spark data sources for this cluster. Secrets are revealed: never log them.

        Raises ClusterError if a service credential of Databricks cannot be used.
        """
        limits = {name: str(value) for name, value in self.limits.model_dump().items()}
        return {
            "bootstrap_servers": ",".join(self.bootstrap_servers),
            **self.groups.options("groups"),
            **self.topics.options("topics"),
            **({"cluster_id": self.cluster_id} if self.cluster_id else {}),
            **limits,
            **self.client.source_options(),
        }


class Config(Section):
    """The whole configuration: one file, or a file and those that it includes."""

    lake: LakeConfig
    """Where the tables are; `--lake` on the command line takes precedence."""
    snapshot: SnapshotConfig = SnapshotConfig()
    """When snapshots are due."""
    retention: RetentionConfig = RetentionConfig()
    """How long the job `maintain` keeps rows."""
    status: StatusConfig = StatusConfig()
    """When a group counts as stopped, stalled or falling behind."""
    include: Annotated[str, NotEmpty] | None = None
    """A folder, relative to this file. Each `*.toml` in it may have tables `[clusters.X]` and `[clients."ID"]`."""
    defaults: dict[str, Any] = Field(default_factory=dict)
    """Keys of `[clusters.X]` for every cluster that does not set them itself. Lists are replaced, not merged."""
    clusters: dict[ClusterName, ClusterConfig] = Field(min_length=1)
    """The clusters, each a table `[clusters.X]`."""
    clients: dict[str, ConsumerSettings] = Field(default_factory=dict)
    """How clients are set up, each a table `[clients."ID"]`."""
    slo: dict[SloName, SloConfig] = Field(default_factory=dict)
    """Service-level objectives, each a table `[slo.X]`."""
    owners: tuple[OwnerRule, ...] = ()
    """Who owns which groups and topics, in order, each a table `[[owners]]`."""
    silences: tuple[Silence, ...] = ()
    """Which findings are not sent, each a table `[[silences]]`."""
    channels: dict[ChannelName, ChannelConfig] = Field(default_factory=dict)
    """Where messages about findings go, each a table `[channels.X]`."""
    notifications: NotificationsConfig = NotificationsConfig()
    """Which findings are sent."""

    def responsible(self) -> Owners:
        """Who owns what, and which channel their messages go to."""
        return Owners(self.owners, self.notifications.channel)

    def warnings(self) -> list[str]:
        """A sentence for each setting that has not its full effect."""
        rare = too_rare(self.snapshot.schedule_ms, self.status.window_ms, self.slo)
        nobody = unheard(self.owners, self.notifications, self.channels)
        return [*rare, *self.responsible().warnings(), *nobody]

    @model_validator(mode="after")
    def _names_channels_that_exist(self) -> Self:
        if key := unknown_channel(self.owners, self.notifications, self.channels):
            known = ", ".join(self.channels) or "none"
            raise ValueError(f"{key} must be the name of a table [channels.X], of which there are: {known}")
        return self

    @model_validator(mode="after")
    def _keeps_what_a_late_snapshot_is_counted_with(self) -> Self:
        late_ms = self.snapshot.max_delay_ms + self.snapshot.max_duration_ms
        for name, kept_ms in self.retention.by_name():
            if kept_ms is not None and kept_ms < late_ms + DAY_MS:
                raise ValueError(
                    f"retention.{name} must be a day more than snapshot.max_delay and snapshot.max_duration together"
                )
        return self

    @model_validator(mode="after")
    def _keeps_the_windows_of_objectives(self) -> Self:
        if name := too_long_a_window(self.slo, self.retention.lag_ms):
            raise ValueError(f"retention.lag must be a day more than slo.{name}.window")
        return self

    @model_validator(mode="after")
    def _reads_while_it_holds_the_claim(self) -> Self:
        for name, cluster in self.clusters.items():
            if cluster.limits.read_timeout_ms >= self.snapshot.max_duration_ms:
                raise ValueError(f"limits.read_timeout of cluster {name} must be less than snapshot.max_duration")
        return self
