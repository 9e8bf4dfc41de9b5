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


class _NoLogin:
    """Nothing, for logins with texts alone."""

    def renew(self) -> None:
        pass


class _Bearer(AbstractTokenProvider):  # type: ignore[misc]
    """OAUTHBEARER, with the token of a token endpoint."""

    def __init__(self, options: SourceOptions) -> None:
        self._keeper = keeper_of(TokenRequest.of(options))
        self._extensions = extensions_of(options)

    def renew(self) -> None:
        self._keeper.token()

    def token(self) -> str:
        return self._keeper.token()

    def extensions(self) -> dict[str, str]:
        return self._extensions


class _Signer:
    """AWS_MSK_IAM, with the keys and the region that the options say."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def renew(self) -> None:
        keys_of(self._options)

    def first_message(self, host: str) -> bytes:
        """The signed message that logs in at a broker."""
        message: bytes = AwsMskIamClient(
            host=host, region=region_of(host, self._options), **keys_of(self._options)._asdict()
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
    """The login for the options of a cluster. Raises ClusterError if an option is missing."""
    if not str(options.client.get("security_protocol", "")).startswith("SASL_"):
        return _NoLogin()
    mechanism = options.client.get("sasl_mechanism")
    if mechanism == "OAUTHBEARER":
        return _Bearer(options)
    return _Signer(options) if mechanism == "AWS_MSK_IAM" else _NoLogin()


def kafka_python_options(options: SourceOptions, login: Login) -> Mapping[str, Any]:
    """The client options that kafka-python has, with the object that it hands to each login."""
    own = {name: value for name, value in options.client.items() if name not in LoginConfig.model_fields}
    return own | {"sasl_oauth_token_provider": login}
