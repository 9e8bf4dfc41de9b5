"""What is different on Databricks: the platform provides the session, and secrets are in scopes."""

import os

from pipeline.common.errors import first_line


def is_databricks() -> bool:
    """Whether this process is a notebook or job of Databricks, on a cluster or serverless."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def secret(scope: str, key: str) -> str:
    """The value of a Databricks secret. Outside of Databricks, the SDK reads it, if it is installed and logged in.

    Raises:
        ValueError: it cannot be read; the message says why.
    """
    try:
        from databricks.sdk.runtime import dbutils

        value: str = dbutils.secrets.get(scope, key)
    except ModuleNotFoundError:
        raise ValueError(
            "can be read only on Databricks; elsewhere, install databricks-sdk or use ${env:NAME}"
        ) from None
    except Exception as error:
        raise ValueError(f"cannot be read: {first_line(error)}") from error
    return value
