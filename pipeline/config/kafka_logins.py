"""Settings of logins that kafka-python leaves to a Python object: OAUTHBEARER, and AWS_MSK_IAM.

They reach Spark's tasks as texts, and `pipeline.kafka.logins` makes the objects there.
"""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

from pipeline.config.databricks import service_credential
from pipeline.config.relative_paths import RELATIVE_TO_FILE
from pipeline.config.toml_file import Section
from pipeline.config.value_types import Secret, SecretUrl

_UNITY_CATALOG = "uc:"
_FOR_A_TOKEN = (
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_secret",
)


def _endpoint(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    try:
        parts = urlsplit(text)
        is_right = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError("must be a URL with https") from None
    if not is_right or re.search(r"\s", text):
        raise ValueError("must be a URL with https")
    if parts.username is not None:
        raise ValueError("must have no user: set sasl_oauthbearer_client_id and sasl_oauthbearer_client_secret")
    return value


def _region(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d+", value.get_secret_value()):
        raise ValueError('must be a region such as "eu-west-1"')
    return value


def _credential(value: SecretStr) -> SecretStr:
    if not re.fullmatch(rf"{_UNITY_CATALOG}\S+", value.get_secret_value()):
        raise ValueError('must be "uc:NAME", for the service credential NAME of Unity Catalog')
    return value


def _extensions(value: object) -> object:
    """RFC 7628, section 3.1: names of letters, and printable values. Several are one text, so commas separate them."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError('must be a table of texts, such as { logicalCluster = "lkc-123456" }')
    for name, text in value.items():
        if name == "auth" or not re.fullmatch("[A-Za-z]+", name):
            raise ValueError("must have names of letters only, and none may be auth")
        if not re.fullmatch(r"[\x20-\x2b\x2d-\x7e]*", text):
            raise ValueError("must have values of printable ASCII characters, without commas")
    return ",".join(f"{name}={text}" for name, text in value.items())


class LoginConfig(Section):
    """What kafka-python has no option for. The names of OAUTHBEARER are those of librdkafka."""

    sasl_oauthbearer_token_endpoint_url: Annotated[SecretUrl, AfterValidator(_endpoint)] | None = None
    """For OAUTHBEARER: where tokens are requested, with the grant of client credentials."""
    sasl_oauthbearer_client_id: SecretStr | None = None
    """The id of laglake at the token endpoint."""
    sasl_oauthbearer_client_secret: Secret | None = None
    """The secret of that id, as `${env:NAME}` or `${secret:SCOPE/KEY}`."""
    sasl_oauthbearer_scope: SecretStr | None = None
    """The scope of the token, if the endpoint wants one."""
    sasl_oauthbearer_extensions: Annotated[SecretStr, BeforeValidator(_extensions)] | None = None
    """A table of texts that are sent with the token. Confluent Cloud needs `logicalCluster` and `identityPoolId`."""
    sasl_oauthbearer_ca_file: Annotated[SecretStr | None, RELATIVE_TO_FILE] = None
    """The CA certificates for the token endpoint, if the system does not have them."""
    sasl_aws_region: Annotated[SecretStr, AfterValidator(_region)] | None = None
    """For AWS_MSK_IAM: the region, if it is neither in the broker's name nor in `AWS_REGION`."""
    sasl_aws_credential: Annotated[SecretStr, AfterValidator(_credential)] | None = None
    """`uc:NAME`: the service credential NAME of Unity Catalog, for compute of Databricks that has no role."""
    sasl_aws_access_key_id: SecretStr | None = None
    """A key, where neither a role nor a service credential is possible. Unset, botocore finds credentials."""
    sasl_aws_secret_access_key: Secret | None = None
    """The secret of that key, as `${env:NAME}` or `${secret:SCOPE/KEY}`."""
    sasl_aws_session_token: Secret | None = None
    """The token of that key, if the key is temporary, as `${env:NAME}` or `${secret:SCOPE/KEY}`."""

    def missing_for(self, mechanism: str) -> list[str]:
        """The names of the settings that a mechanism needs and that are not set."""
        needed = _FOR_A_TOKEN if mechanism == "OAUTHBEARER" else ()
        return [name for name in needed if not getattr(self, name)]

    def mistake(self) -> str | None:
        """What is wrong with the settings together; None if nothing is."""
        key = bool(self.sasl_aws_access_key_id)
        if key != bool(self.sasl_aws_secret_access_key) or (self.sasl_aws_session_token and not key):
            return "sasl_aws_access_key_id and sasl_aws_secret_access_key belong together"
        if key and self.sasl_aws_credential:
            return "sasl_aws_credential and sasl_aws_access_key_id exclude each other"
        return None


def with_keys(options: dict[str, str]) -> dict[str, str]:
    """Options with the keys of a service credential, which only the driver gets, in place of the credential's name.

    The keys are valid for about an hour, so call this for each snapshot. Raises ClusterError if there are none.
    """
    named = options.get("sasl_aws_credential")
    if named is None:
        return options
    kept = {name: text for name, text in options.items() if name != "sasl_aws_credential"}
    return kept | service_credential(named.removeprefix(_UNITY_CATALOG))
