"""The configuration: a TOML file, checked whole before anything starts. No module of Spark is imported here."""

from pipeline.config.model import (
    ClusterConfig,
    Config,
    GroupFilter,
    LakeConfig,
    LimitsConfig,
    SnapshotConfig,
    TopicFilter,
    lake_at,
    load_config,
)
from pipeline.config.retention import RetentionConfig

__all__ = [
    "ClusterConfig",
    "Config",
    "GroupFilter",
    "LakeConfig",
    "LimitsConfig",
    "RetentionConfig",
    "SnapshotConfig",
    "TopicFilter",
    "lake_at",
    "load_config",
]
