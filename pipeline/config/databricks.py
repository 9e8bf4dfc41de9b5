"""What is different on Databricks: the platform provides the session, secrets are in scopes, AWS keys in a catalog."""

import os
from typing import Any

from pipeline.common.errors import ClusterError, first_line


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


def service_credential(name: str) -> dict[str, str]:
    """The temporary AWS keys of a service credential of Unity Catalog, as options of the login.

    Raises:
        ClusterError: there are none; the message says why.
    """
    try:
        from databricks.sdk.runtime import dbutils

        credentials: Any = dbutils.credentials  # databricks-sdk has no type for it outside of Databricks
        session = credentials.getServiceCredentialsProvider(name)
        keys = session.get_credentials().get_frozen_credentials()
    except ModuleNotFoundError:
        raise ClusterError("sasl_aws_credential: a service credential can be used only on Databricks") from None
    except Exception as error:
        raise ClusterError(f"sasl_aws_credential: {name} cannot be used: {first_line(error)}") from error
    found = {
        "sasl_aws_access_key_id": keys.access_key,
        "sasl_aws_secret_access_key": keys.secret_key,
        "sasl_aws_session_token": keys.token,
    }
    return {option: text for option, text in found.items() if text}
