"""The settings of logins with OAUTHBEARER and AWS_MSK_IAM: what tasks get, and each mistake."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config import Config
from pipeline.kafka.oauth import extensions_of
from pipeline.kafka.options import SourceOptions

Load = Callable[..., Config]
CLIENT = """
[lake]
root = "/lake"
[clusters.east]
bootstrap_servers = ["kafka:9098"]
[clusters.east.client]
security_protocol = "SASL_SSL"
"""
OAUTH = f"""{CLIENT}
sasl_mechanism = "OAUTHBEARER"
sasl_oauthbearer_token_endpoint_url = "https://issuer.example/token"
sasl_oauthbearer_client_id = "laglake"
sasl_oauthbearer_client_secret = "${{env:SECRET}}"
"""
IAM = f'{CLIENT}sasl_mechanism = "AWS_MSK_IAM"\n'


def of_tasks(load: Load, text: str) -> SourceOptions:
    return SourceOptions.parse(load(text, SECRET="hunter2").clusters["east"].source_options())


def test_tasks_get_what_a_token_request_needs(load: Load) -> None:
    more = 'sasl_oauthbearer_scope = "lag"\nsasl_oauthbearer_ca_file = "/ca.pem"\n'
    assert of_tasks(load, OAUTH + more).client == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://issuer.example/token",
        "sasl_oauthbearer_client_id": "laglake",
        "sasl_oauthbearer_client_secret": "hunter2",
        "sasl_oauthbearer_scope": "lag",
        "sasl_oauthbearer_ca_file": "/ca.pem",
    }


@pytest.mark.parametrize(
    "text",
    [
        'sasl_oauthbearer_extensions = { logicalCluster = "lkc-1", identityPoolId = "pool-${env:SECRET}=" }',
        '[clusters.east.client.sasl_oauthbearer_extensions]\nlogicalCluster="lkc-1"\nidentityPoolId="pool-${env:SECRET}="',
    ],
)
def test_tasks_get_the_extensions_of_a_table(load: Load, text: str) -> None:
    found = extensions_of(of_tasks(load, OAUTH + text))
    assert found == {"logicalCluster": "lkc-1", "identityPoolId": "pool-hunter2="}


def test_the_ca_file_of_the_endpoint_is_relative_to_the_configuration(load: Load, tmp_path: Path) -> None:
    options = of_tasks(load, OAUTH + 'sasl_oauthbearer_ca_file = "certs/issuer.pem"\n')
    assert options.client["sasl_oauthbearer_ca_file"] == str(tmp_path / "certs" / "issuer.pem")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        pytest.param(
            f'{CLIENT}sasl_mechanism = "OAUTHBEARER"\n',
            ": security_protocol with SASL also needs sasl_oauthbearer_token_endpoint_url and "
            "sasl_oauthbearer_client_id and sasl_oauthbearer_client_secret",
            id="no endpoint",
        ),
        pytest.param(
            OAUTH.replace("${env:SECRET}", "hunter2"),
            ".sasl_oauthbearer_client_secret: is secret and must not be written into the file: use ${env:NAME} or "
            "${secret:SCOPE/KEY}",
            id="a secret in the file",
        ),
        pytest.param(
            OAUTH.replace("https://issuer", "https://me:hunter2@issuer"),
            ".sasl_oauthbearer_token_endpoint_url: has a user or a password, which must not be written into the file: "
            "use ${env:NAME} or ${secret:SCOPE/KEY}",
            id="a password in the URL",
        ),
        pytest.param(
            OAUTH.replace("https://issuer.example/token", "issuer.example/token"),
            ".sasl_oauthbearer_token_endpoint_url: must be a URL with https",
            id="no URL",
        ),
        *(
            pytest.param(
                OAUTH.replace("https://issuer.example/token", url),
                ".sasl_oauthbearer_token_endpoint_url: must be a URL with https",
                id=url,
            )
            for url in ("https://[bad/t", "https://:8080/t", "https://i:port/t", "https://i/t x", "ftp://i/t")
        ),
        pytest.param(
            OAUTH.replace("https://issuer.example/token", "https://${env:SECRET}:x@issuer.example/token"),
            ".sasl_oauthbearer_token_endpoint_url: must have no user: set sasl_oauthbearer_client_id and "
            "sasl_oauthbearer_client_secret",
            id="a user in the URL, from the environment",
        ),
        pytest.param(
            OAUTH + 'sasl_oauthbearer_extensions = "logicalCluster=lkc-1"',
            '.sasl_oauthbearer_extensions: must be a table of texts, such as { logicalCluster = "lkc-123456" }',
            id="extensions as a text",
        ),
        pytest.param(
            OAUTH + 'sasl_oauthbearer_extensions = { "logical.cluster" = "x" }',
            ".sasl_oauthbearer_extensions: must have names of letters only, and none may be auth",
            id="an extension whose name is not of letters",
        ),
        pytest.param(
            OAUTH + 'sasl_oauthbearer_extensions = { auth = "x" }',
            ".sasl_oauthbearer_extensions: must have names of letters only, and none may be auth",
            id="an extension that would replace the token",
        ),
        pytest.param(
            OAUTH + 'sasl_oauthbearer_extensions = { pool = "a,b=c" }',
            ".sasl_oauthbearer_extensions: must have values of printable ASCII characters, without commas",
            id="a value that would be two extensions",
        ),
        pytest.param(
            IAM.replace("SASL_SSL", "SASL_PLAINTEXT"),
            ": sasl_mechanism AWS_MSK_IAM needs security_protocol SASL_SSL",
            id="IAM without TLS",
        ),
        pytest.param(
            IAM + 'sasl_aws_region = "eu west"',
            '.sasl_aws_region: must be a region such as "eu-west-1"',
            id="not a region",
        ),
        pytest.param(
            IAM + 'sasl_aws_credential = "laglake"',
            '.sasl_aws_credential: must be "uc:NAME", for the service credential NAME of Unity Catalog',
            id="a credential of an unknown kind",
        ),
        pytest.param(
            IAM + 'sasl_aws_access_key_id = "A"',
            ": sasl_aws_access_key_id and sasl_aws_secret_access_key belong together",
            id="half a key",
        ),
        pytest.param(
            IAM + 'sasl_aws_session_token = "${env:SECRET}"',
            ": sasl_aws_access_key_id and sasl_aws_secret_access_key belong together",
            id="the token of no key",
        ),
        pytest.param(
            IAM + 'sasl_aws_access_key_id = "A"\nsasl_aws_secret_access_key = "${env:SECRET}"\n'
            'sasl_aws_credential = "uc:a"',
            ": sasl_aws_credential and sasl_aws_access_key_id exclude each other",
            id="two identities",
        ),
    ],
)
def test_each_mistake_is_named(load: Load, tmp_path: Path, text: str, mistake: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, SECRET="hunter2")
    assert str(caught.value) == f"{tmp_path}/c.toml: clusters.east.client{mistake}"
    assert "hunter2" not in repr(caught.value)


@pytest.mark.parametrize(
    ("protocol", "url", "reasons"),
    [
        ("SASL_SSL", "https://issuer", []),
        ("SASL_PLAINTEXT", "https://issuer", ["the token for the brokers is sent in plain text: use SASL_SSL"]),
        ("SASL_SSL", "http://issuer", ["the password for the token endpoint is sent in plain text: use https"]),
    ],
)
def test_tokens_and_secrets_in_plain_text_are_reported(load: Load, protocol: str, url: str, reasons: list[str]) -> None:
    text = OAUTH.replace("SASL_SSL", protocol).replace("https://issuer", url)
    assert load(text, SECRET="hunter2").clusters["east"].passwords_in_plain_text() == reasons
