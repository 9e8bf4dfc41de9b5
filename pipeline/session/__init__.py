"""Spark sessions and their settings: new sessions, those of notebooks and Databricks, and Connect sessions."""

from pipeline.session.spark import (
    CONF,
    has_delta,
    log_settings,
    log_stores,
    read_defaults,
    register,
    spark_session,
)
from pipeline.session.workers import is_local

__all__ = ["CONF", "has_delta", "is_local", "log_settings", "log_stores", "read_defaults", "register", "spark_session"]
