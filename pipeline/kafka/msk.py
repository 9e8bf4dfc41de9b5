"""Logins at Amazon MSK with IAM: the region, and the keys that sign. kafka-python makes the signature.

kafka-python takes the region only from AWS_DEFAULT_REGION and profiles; on EC2, ECS and Databricks there is neither.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from pipeline.common.errors import ClusterError, first_line
from pipeline.kafka.options import SourceOptions

KEPT_S = 60.0
"""How long keys of this machine are used before they are looked for again: files with keys may be rewritten."""
_REGION_IN_NAME = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2,}(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?\.?$")
"""Of brokers such as `b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com`, and of MSK Serverless and China."""


@dataclass(frozen=True)
class Keys:
    """What signs a login. `token` is None for keys that are not temporary."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(repr=False)


def region_of(host: str, options: SourceOptions) -> str:
    """The region of a broker: as set, else as in its name, else as AWS's own tools find it. Raises ClusterError."""
    if configured := options.client.get("sasl_aws_region"):
        return str(configured)
    if found := _REGION_IN_NAME.search(host.lower()):
        return found[1]
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or MACHINE.region()
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
    return MACHINE.keys()


class Machine:
    """What botocore finds on this machine, kept for all connections of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.forget()

    def forget(self) -> None:
        """Looks for everything anew at the next call."""
        self._keys: Keys | None = None
        self._found_at = 0.0
        self._renewed_by_botocore: Any = None
        self._region: str | None = None

    def keys(self) -> Keys:
        """The keys, looked for again after a minute. Raises ClusterError if there are none."""
        with self._lock:
            if self._keys is None or time.monotonic() - self._found_at > KEPT_S:
                self._keys, self._found_at = self._found_keys(), time.monotonic()
            return self._keys

    def region(self) -> str | None:
        """The region of the profile, else of the EC2 machine. None if botocore is not installed, or finds none."""
        try:
            from botocore.session import Session
            from botocore.utils import IMDSRegionProvider
        except ImportError:
            return None
        with self._lock:
            if self._region is None:
                session = Session()
                self._region = session.get_config_variable("region") or IMDSRegionProvider(session).provide()
            return self._region

    def _found_keys(self) -> Keys:
        from botocore.credentials import RefreshableCredentials
        from botocore.session import Session

        try:
            # Temporary credentials, such as of an assumed role, are kept: botocore renews them before they end.
            credentials = self._renewed_by_botocore or Session().get_credentials()
            frozen = credentials.get_frozen_credentials() if credentials else None
        except Exception as error:  # noqa: BLE001 - botocore's own errors, such as of a role that cannot be assumed
            raise ClusterError(f"AWS credentials cannot be used: {first_line(error)}") from None
        if frozen is None:
            raise ClusterError(
                "no AWS credentials are found here: give this machine a role, or set sasl_aws_credential on Databricks"
            )
        if isinstance(credentials, RefreshableCredentials):
            self._renewed_by_botocore = credentials
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)


MACHINE = Machine()
