"""The configuration: a TOML file, checked completely before anything starts. No module of Spark is imported here."""

from pipeline.config.lake import LakeConfig, lake_at
from pipeline.config.limits import LimitsConfig
from pipeline.config.load import load_config
from pipeline.config.model import (
    ClusterConfig,
    Config,
    GroupFilter,
    SnapshotConfig,
    TopicFilter,
)
from pipeline.config.retention import RetentionConfig
from pipeline.config.status import StatusConfig

__all__ = [
    "ClusterConfig",
    "Config",
    "GroupFilter",
    "LakeConfig",
    "LimitsConfig",
    "RetentionConfig",
    "SnapshotConfig",
    "StatusConfig",
    "TopicFilter",
    "lake_at",
    "load_config",
]
