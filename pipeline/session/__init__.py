"""Spark sessions and their settings: created here, taken from a notebook or Databricks, or of a Connect server."""

from pipeline.session.spark import CONF, has_delta, is_local, log_settings, read_defaults, register, spark_session

__all__ = ["CONF", "has_delta", "is_local", "log_settings", "read_defaults", "register", "spark_session"]
