"""The settings by which a cluster's derived tables are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.config import Config
from pipeline.config.consumers import ConsumerSettings
from pipeline.config.owners import NO_OWNERS, Owners
from pipeline.config.slo import SloConfig
from pipeline.config.status import StatusConfig


@dataclass(frozen=True)
class Settings:
    """The settings by which a cluster's derived tables are computed.

    If executors can read the brokers' `log_dirs`, bytes and times are exact. `clients` are the settings of consumers.
    """

    log_dirs: Sequence[str] = ()
    clients: Mapping[str, ConsumerSettings] = field(default_factory=dict)
    status: StatusConfig = field(default_factory=StatusConfig)
    owners: Owners = NO_OWNERS
    slo: Mapping[str, SloConfig] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config, cluster: str) -> Settings:
        """The settings for a cluster, from the configuration."""
        return cls(config.clusters[cluster].log_dirs, config.clients, config.status, config.responsible(), config.slo)
