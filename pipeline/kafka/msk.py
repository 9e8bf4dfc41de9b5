"""Logins at Amazon MSK with IAM: the region, and the keys that sign. kafka-python makes the signature.

kafka-python takes the region only from AWS_DEFAULT_REGION and profiles; on EC2, ECS and Databricks there is neither.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Any, NamedTuple

from pipeline.common.errors import ClusterError, first_line
from pipeline.kafka.options import SourceOptions

_REGION_IN_NAME = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2,}(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?\.?$")
"""Of brokers such as `b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com`, and of MSK Serverless and China."""


class Keys(NamedTuple):
    """What signs a login. `token` is None for keys that are not temporary."""

    access_key: str
    secret_key: str
    token: str | None


def region_of(host: str, options: SourceOptions) -> str:
    """The region of a broker: as set, else as in its name, else as AWS's own tools find it. Raises ClusterError."""
    if configured := options.client.get("sasl_aws_region"):
        return str(configured)
    if found := _REGION_IN_NAME.search(host.lower()):
        return found[1]
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _region_of_machine()
    if not region:
        raise ClusterError(f"the AWS region of {host} is not known: set sasl_aws_region")
    return region


def keys_of(options: SourceOptions) -> Keys:
    """The keys in the options, else those that botocore finds here, such as of the machine's role.

    Raises ClusterError if there are none.
    """
    client = options.client
    if key := client.get("sasl_aws_access_key_id"):
        return Keys(key, client.get("sasl_aws_secret_access_key", ""), client.get("sasl_aws_session_token"))
    if "sasl_aws_credential" in client:
        raise ClusterError("sasl_aws_credential works only in a configuration file: give tasks the keys themselves")
    try:
        credentials = _session().get_credentials()
        frozen = credentials.get_frozen_credentials() if credentials else None
    except Exception as error:  # noqa: BLE001 - botocore's own errors, such as of a role that cannot be assumed
        raise ClusterError(f"AWS credentials cannot be used: {first_line(error)}") from None
    if frozen is None:
        raise ClusterError(
            "no AWS credentials are found here: give this machine a role, or set sasl_aws_credential on Databricks"
        )
    return Keys(frozen.access_key, frozen.secret_key, frozen.token)


@lru_cache(maxsize=1)
def _region_of_machine() -> str | None:
    """The region of the profile, else of the EC2 machine. Empty if botocore is not installed, or finds none."""
    try:
        from botocore.utils import IMDSRegionProvider
    except ImportError:
        return None
    session = _session()
    region: str | None = session.get_config_variable("region") or IMDSRegionProvider(session).provide()
    return region


@lru_cache(maxsize=1)
def _session() -> Any:
    """One session for this process, because it keeps temporary credentials, and renews them in time."""
    from botocore.session import Session

    return Session()
