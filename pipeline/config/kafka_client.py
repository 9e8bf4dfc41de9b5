"""The options of kafka-python's client, as a cluster's `client` table may set them.

Names, types and order are those of kafka-python's own defaults; a test compares them. What kafka-python has no option
for is in `pipeline.config.kafka_logins`. All texts are treated as secrets, because some are passwords and tokens.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Self, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from pipeline.config.kafka_logins import LoginConfig, with_keys
from pipeline.config.relative_paths import RELATIVE_TO_FILE
from pipeline.config.toml_file import Bool, Int
from pipeline.config.value_types import Secret, SecretUrl

_NEEDS_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*_NEEDS_PASSWORD, "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
"""The values of `sasl_mechanism`."""


def _always_refused(why: str) -> BeforeValidator:
    def refuse(_: object) -> object:
        raise ValueError(why)

    return BeforeValidator(refuse)


def _one_of(*choices: str) -> AfterValidator:
    def check(value: SecretStr) -> SecretStr:
        if value.get_secret_value() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return AfterValidator(check)


def _version(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"\d+(\.\d+){1,3}", value.get_secret_value(), re.ASCII):
        raise ValueError('must be a version such as "3.7"')
    return value


_ONE_TABLE_UP = _always_refused("belongs one table up")
_REQUEST_TIMEOUT = _always_refused("set limits.request_timeout of the cluster instead")
_CONNECT_TIMEOUT = _always_refused("set limits.connect_timeout of the cluster instead")
_MANY_IN_FLIGHT = _always_refused("cannot be set: laglake needs many requests in flight")
_IS_AN_OBJECT = _always_refused("cannot be set in a file")
_SSL_CONTEXT = _always_refused("cannot be set in a file; use ssl_cafile, ssl_certfile and ssl_keyfile")
_CRL = _always_refused("cannot be set: kafka-python fails to read it")
_DNS_LOOKUP = _one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
_PROTOCOL = _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM = _one_of(*MECHANISMS)


class ClientConfig(LoginConfig):
    """Options of kafka-python's client, None = its own default; and those of logins."""

    bootstrap_servers: Annotated[None, _ONE_TABLE_UP] = None
    client_id: SecretStr | None = None
    client_software_name: SecretStr | None = None
    client_software_version: SecretStr | None = None
    receive_message_max_bytes: Int | None = None
    reconnect_backoff_ms: Int | None = None
    reconnect_backoff_max_ms: Int | None = None
    request_timeout_ms: Annotated[None, _REQUEST_TIMEOUT] = None
    socket_connection_setup_timeout_ms: Annotated[None, _CONNECT_TIMEOUT] = None
    socket_connection_setup_timeout_max_ms: Annotated[None, _CONNECT_TIMEOUT] = None
    socket_options: Annotated[None, _IS_AN_OBJECT] = None
    max_in_flight_requests_per_connection: Annotated[None, _MANY_IN_FLIGHT] = None
    connections_max_idle_ms: Int | None = None
    security_protocol: Annotated[SecretStr, _PROTOCOL] | None = None
    ssl_context: Annotated[None, _SSL_CONTEXT] = None
    ssl_check_hostname: Bool | None = None
    ssl_cafile: Annotated[SecretStr | None, RELATIVE_TO_FILE] = None
    ssl_certfile: Annotated[SecretStr | None, RELATIVE_TO_FILE] = None
    ssl_keyfile: Annotated[SecretStr | None, RELATIVE_TO_FILE] = None
    ssl_password: Secret | None = None
    ssl_crlfile: Annotated[None, _CRL] = None
    sasl_mechanism: Annotated[SecretStr, _MECHANISM] | None = None
    sasl_plain_username: SecretStr | None = None
    sasl_plain_password: Secret | None = None
    sasl_kerberos_name: SecretStr | None = None
    sasl_kerberos_service_name: SecretStr | None = None
    sasl_kerberos_domain_name: SecretStr | None = None
    sasl_oauth_token_provider: Annotated[None, _IS_AN_OBJECT] = None
    proxy_url: SecretUrl | None = None
    api_version: Annotated[SecretStr, AfterValidator(_version)] | None = None
    metrics: Annotated[None, _IS_AN_OBJECT] = None
    metric_group_prefix: SecretStr | None = None
    metadata_max_age_ms: Int | None = None
    client_dns_lookup: Annotated[SecretStr, _DNS_LOOKUP] | None = None

    @model_validator(mode="after")
    def _has_what_sasl_needs(self) -> Self:
        if mistake := self.mistake():
            raise ValueError(mistake)
        options = self.options()
        protocol, mechanism = options.get("security_protocol", ""), options.get("sasl_mechanism", "")
        if not protocol.startswith("SASL_"):
            return self
        needed = ["sasl_mechanism"]
        if mechanism in _NEEDS_PASSWORD:
            needed += ["sasl_plain_username", "sasl_plain_password"]
        missing = [name for name in needed if not options.get(name)] + self.missing_for(mechanism)
        if missing:
            raise ValueError(f"security_protocol with SASL also needs {' and '.join(missing)}")
        if mechanism == "AWS_MSK_IAM" and protocol != "SASL_SSL":
            raise ValueError("sasl_mechanism AWS_MSK_IAM needs security_protocol SASL_SSL")
        return self

    def options(self) -> dict[str, str]:
        """The options that are set, as flat strings with secrets revealed; booleans are `true` and `false`."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: _flat(value) for name, value in values.items() if value is not None}

    def source_options(self) -> dict[str, str]:
        """The same, as tasks need them: with keys in place of the name of a service credential."""
        return with_keys(self.options())


def _flat(value: SecretStr | bool | int) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower()


def _types() -> Iterator[tuple[str, type]]:
    for name, field in ClientConfig.model_fields.items():
        if field.annotation is not type(None):
            annotated, _ = get_args(field.annotation)
            kind = get_args(annotated)[0] if get_origin(annotated) is Annotated else annotated
            yield name, str if kind is SecretStr else kind


CLIENT_OPTIONS: Mapping[str, type] = dict(_types())
"""The options that may be set, and their types: str, int or bool."""
