"""The options of kafka-python's client, as a cluster's `client` table may set them.

Names and types are those of kafka-python's own defaults. All texts are treated as secrets, because some of them are
passwords and tokens.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

from kafka.net.manager import KafkaConnectionManager
from pydantic import AfterValidator, BeforeValidator, SecretStr, create_model, model_validator

from pipeline.config.toml_file import Bool, Int, Section

CLIENT_DEFAULTS: Mapping[str, Any] = KafkaConnectionManager.DEFAULT_CONFIG
"""kafka-python's client options and their default values; the default's type is the option's type."""
_NOT_SETTABLE = {
    "bootstrap_servers": "belongs one table up",
    "request_timeout_ms": "set limits.request_timeout of the cluster instead",
    "socket_connection_setup_timeout_ms": "set limits.connect_timeout of the cluster instead",
    "socket_connection_setup_timeout_max_ms": "set limits.connect_timeout of the cluster instead",
    "max_in_flight_requests_per_connection": "cannot be set: laglake needs many requests in flight",
    "metrics": "cannot be set in a file",
    "sasl_oauth_token_provider": "cannot be set in a file",
    "socket_options": "cannot be set in a file",
    "ssl_crlfile": "cannot be set: kafka-python fails to read it",
    "ssl_context": "cannot be set in a file; use ssl_cafile, ssl_certfile and ssl_keyfile",
}
_CHOICES = {
    "client_dns_lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    # Not OAUTHBEARER: its token provider is a Python object.
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "AWS_MSK_IAM"),
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
}
_NEEDS_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class _Client(Section):
    @model_validator(mode="after")
    def _has_what_sasl_needs(self) -> Self:
        options = self.options()
        if not options.get("security_protocol", "").startswith("SASL_"):
            return self
        needed = ["sasl_mechanism"]
        if options.get("sasl_mechanism") in _NEEDS_PASSWORD:
            needed += ["sasl_plain_username", "sasl_plain_password"]
        missing = [name for name in needed if not options.get(name)]
        if missing:
            raise ValueError(f"security_protocol with SASL also needs {' and '.join(missing)}")
        return self

    def options(self) -> dict[str, str]:
        """The options that are set, as flat strings with secrets revealed; booleans are `true` and `false`."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: _flat(value) for name, value in values.items() if value is not None}


def _flat(value: SecretStr | bool | int) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower()


def _always_refused(why: str) -> BeforeValidator:
    def refuse(_: object) -> object:
        raise ValueError(why)

    return BeforeValidator(refuse)


def _one_of(choices: tuple[str, ...]) -> Callable[[SecretStr], SecretStr]:
    def check(value: SecretStr) -> SecretStr:
        if value.get_secret_value() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return check


def _version(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"\d+(\.\d+){1,3}", value.get_secret_value(), re.ASCII):
        raise ValueError('must be a version such as "3.7"')
    return value


def _field(name: str, default: object) -> Any:
    if name in _NOT_SETTABLE:
        return Annotated[None, _always_refused(_NOT_SETTABLE[name])]
    if isinstance(default, bool):
        return Bool | None
    if isinstance(default, int):
        return Int | None
    if name == "api_version":
        return Annotated[SecretStr, AfterValidator(_version)] | None
    if name in _CHOICES:
        return Annotated[SecretStr, AfterValidator(_one_of(_CHOICES[name]))] | None
    return SecretStr | None


if TYPE_CHECKING:

    class ClientConfig(_Client):
        """Options of kafka-python's client; None = its own default."""

else:
    ClientConfig = create_model(
        "ClientConfig",
        __base__=_Client,
        __doc__="Options of kafka-python's client; None = its own default.",
        **{name: (_field(name, default), None) for name, default in CLIENT_DEFAULTS.items()},
    )
