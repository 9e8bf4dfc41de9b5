"""Gives kafka-python the objects for logins that need more than texts: OAUTHBEARER, and AWS_MSK_IAM.

kafka-python hands the option `sasl_oauth_token_provider` to each login, and has no other option that takes an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.abc import SaslMechanism
from kafka.net.sasl.msk import AwsMskIamClient, SaslMechanismAwsMskIam
from kafka.net.sasl.oauth import AbstractTokenProvider

from pipeline.common.errors import ClusterError
from pipeline.config.kafka_client import MECHANISMS
from pipeline.config.kafka_logins import LoginConfig
from pipeline.kafka.msk import keys_of, region_of
from pipeline.kafka.oauth import TokenRequest, extensions_of, keeper_of
from pipeline.kafka.options import SourceOptions


class Login(Protocol):
    """What a login needs besides texts."""

    def renew(self) -> None:
        """Gets what the next login needs if it is not there. Raises ClusterError.

        Called outside of the thread that serves the connections, because that thread must not wait.
        """

    def forget(self) -> bool:
        """Forgets what a broker has rejected. Returns whether the next try will have something newer."""


class _NoLogin:
    """Nothing, for logins with texts alone."""

    def renew(self) -> None:
        pass

    def forget(self) -> bool:
        return False


class _Bearer(AbstractTokenProvider):  # type: ignore[misc]
    """OAUTHBEARER, with the token of a token endpoint."""

    def __init__(self, options: SourceOptions) -> None:
        self._keeper = keeper_of(TokenRequest.of(options))
        self._extensions = extensions_of(options)
        self._may_be_old = True

    def renew(self) -> None:
        self._keeper.renew()

    def forget(self) -> bool:
        # Signing keys and audiences may have changed since the first token was fetched.
        may_be_old, self._may_be_old = self._may_be_old, False
        self._keeper.forget()
        return may_be_old

    def token(self) -> str:
        return self._keeper.token()

    def extensions(self) -> dict[str, str]:
        return self._extensions


class _Signer:
    """AWS_MSK_IAM, with the keys and the region that the options say."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def renew(self) -> None:
        # The region as well: if no name says it, an EC2 machine is asked for it.
        region_of(self._options.bootstrap_servers[0].rpartition(":")[0], self._options)
        keys_of(self._options)

    def forget(self) -> bool:
        return False

    def first_message(self, host: str) -> bytes:
        """The signed message that logs in at a broker."""
        keys = keys_of(self._options)
        message: bytes = AwsMskIamClient(
            host, keys.access_key, keys.secret_key, region_of(host, self._options), keys.token
        ).first_message()
        return message


class _MskIam(SaslMechanism):  # type: ignore[misc]
    """The mechanism AWS_MSK_IAM: one message each way."""

    def __init__(self, host: str, signer: _Signer) -> None:
        self._host = host
        self._signer = signer
        self._answer: bytes | None = None

    def auth_bytes(self) -> bytes:
        return self._signer.first_message(self._host)

    def receive(self, auth_bytes: bytes) -> None:
        self._answer = auth_bytes

    def is_done(self) -> bool:
        return self._answer is not None

    def is_authenticated(self) -> bool:
        return bool(self._answer)


def _msk_iam(**config: Any) -> SaslMechanism:
    """The mechanism for one login. Other users of kafka-python in this process, such as a notebook, keep its own."""
    signer = config.get("sasl_oauth_token_provider")
    return _MskIam(config["host"], signer) if isinstance(signer, _Signer) else SaslMechanismAwsMskIam(**config)


register_sasl_mechanism("AWS_MSK_IAM", _msk_iam, overwrite=True)


def login_of(options: SourceOptions) -> Login:
    """The login for the options of a cluster. Raises ClusterError if an option is missing.

    A configuration file is checked when it is loaded; the options of a data source in a notebook are checked here.
    """
    protocol, mechanism = options.client.get("security_protocol", ""), options.client.get("sasl_mechanism")
    if not protocol.startswith("SASL_"):
        return _NoLogin()
    if mechanism not in MECHANISMS:
        raise ClusterError(f"security_protocol with SASL also needs sasl_mechanism: one of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        return _Bearer(options)
    if mechanism != "AWS_MSK_IAM":
        return _NoLogin()
    if protocol != "SASL_SSL":
        raise ClusterError("sasl_mechanism AWS_MSK_IAM needs security_protocol SASL_SSL")
    return _Signer(options)


def kafka_python_options(options: SourceOptions, login: Login) -> Mapping[str, Any]:
    """The client options that kafka-python has, with the object that it hands to each login."""
    own = {name: value for name, value in options.client.items() if name not in LoginConfig.model_fields}
    return own | {"sasl_oauth_token_provider": login}
