"""Amazon MSK with IAM: which region and which keys sign, and what a stand-in for MSK accepts. No real MSK was tried."""

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import trustme
from botocore.session import Session
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.msk import SaslMechanismAwsMskIam

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.nodes import Listener
from pipeline.common.errors import ClusterError
from pipeline.config import load_config
from pipeline.kafka import msk
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.msk import Keys, keys_of, region_of
from pipeline.kafka.options import SourceOptions
from tests.helpers.certificates import authority_file, signed
from tests.helpers.kafka import parsed, read
from tests.helpers.msk import Authenticator, Front
from tests.helpers.quiet import seed

PREFIX = "msk"
BROKER = "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com"
ACCESS_KEY, SECRET_KEY, TOKEN = "AKIDEXAMPLE", "aws-s3cret/+", "session-t0ken=="
IAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
KEYS = {"sasl_aws_access_key_id": ACCESS_KEY, "sasl_aws_secret_access_key": SECRET_KEY, "sasl_aws_session_token": TOKEN}


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No keys, no profile, no region, and no EC2."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    forget_machine()


def forget_machine() -> None:
    """Forgets what was found out about this machine."""
    msk.MACHINE.forget()


def iam(**options: str) -> SourceOptions:
    return parsed(f"{BROKER}:9098", **IAM, **options)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (BROKER, "eu-west-1"),
        (BROKER.upper(), "eu-west-1"),
        ("b-2-public.orders.abc123.c2.kafka.us-east-2.amazonaws.com", "us-east-2"),
        ("boot-x1y2.c3.kafka-serverless.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("b-1.orders.abc123.c3.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("b-1.orders.abc123.c3.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
    ],
)
def test_the_region_is_in_the_name_of_a_broker(host: str, region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-1")
    assert region_of(host, iam()) == region


def test_a_configured_region_comes_first_and_then_the_order_of_aws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert region_of(BROKER, iam(sasl_aws_region="eu-central-1")) == "eu-central-1"
    own = "kafka.example.com"
    with pytest.raises(ClusterError, match=r"^the AWS region of kafka\.example\.com is not known: set sasl_aws_region"):
        region_of(own, iam())
    (tmp_path / "config").write_text("[default]\nregion = eu-north-1\n")
    forget_machine()
    assert region_of(own, iam()) == "eu-north-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-south-1")
    assert region_of(own, iam()) == "eu-south-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert region_of(own, iam()) == "eu-west-3"


def test_keys_come_from_the_options_else_from_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys_of(iam(**KEYS)) == Keys(ACCESS_KEY, SECRET_KEY, TOKEN)
    with pytest.raises(ClusterError, match=r"^no AWS credentials are found here: give this machine a role"):
        keys_of(iam())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    forget_machine()
    assert keys_of(iam()) == Keys("of-environment", "x", None)


def test_keys_in_a_file_that_is_rewritten_are_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ahead_s = 0.0
    real = time.monotonic
    monkeypatch.setattr(msk.time, "monotonic", lambda: real() + ahead_s)
    for key in ("first", "second"):
        text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = x\n"
        (tmp_path / "credentials").write_text(text)
        assert keys_of(iam()) == Keys(key, "x", None)
        ahead_s += msk.KEPT_S + 1


def test_credentials_that_cannot_be_used_are_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\ncredential_process = /no/such/program\n")
    with pytest.raises(ClusterError, match=r"^AWS credentials cannot be used: .*no/such/program"):
        keys_of(iam())


# --- a service credential of Unity Catalog


def databricks(monkeypatch: pytest.MonkeyPatch, provider: Any) -> None:
    """A stand-in for the module by which Databricks offers `dbutils` on the driver."""
    runtime = ModuleType("databricks.sdk.runtime")
    credentials = SimpleNamespace(getServiceCredentialsProvider=provider)
    runtime.dbutils = SimpleNamespace(credentials=credentials)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", runtime)


def with_service_credential(folder: Path) -> dict[str, str]:
    """The options for tasks, of a config that names a service credential."""
    file = folder / "laglake.toml"
    settings = "".join(f'{name} = "{value}"\n' for name, value in IAM.items())
    file.write_text(
        f'[lake]\nroot = "/lake"\n[clusters.east]\nbootstrap_servers = ["{BROKER}:9098"]\n'
        f'[clusters.east.client]\n{settings}sasl_aws_credential = "uc:laglake"\n'
    )
    return load_config(file, {}).clusters["east"].source_options()


def test_tasks_get_the_keys_of_a_service_credential(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session = Session()
    session.set_credentials(ACCESS_KEY, SECRET_KEY, TOKEN)
    databricks(monkeypatch, {"laglake": session}.__getitem__)
    options = with_service_credential(tmp_path)
    assert keys_of(SourceOptions.parse(options)) == Keys(ACCESS_KEY, SECRET_KEY, TOKEN)
    assert "uc:laglake" not in options.values()


def test_a_service_credential_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    databricks(monkeypatch, {}.__getitem__)
    with pytest.raises(ClusterError, match=r"^sasl_aws_credential: laglake cannot be used: 'laglake'$"):
        with_service_credential(tmp_path)
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", None)
    with pytest.raises(ClusterError, match="a service credential can be used only on Databricks"):
        with_service_credential(tmp_path)


def test_a_notebook_cannot_name_a_service_credential() -> None:
    with pytest.raises(ClusterError, match="works only in a configuration file"):
        keys_of(iam(sasl_aws_credential="uc:laglake"))


# --- the signature


class Msk(NamedTuple):
    """A broker behind a stand-in for MSK's login, under a name as MSK gives it."""

    server: str
    authenticator: Authenticator
    client: dict[str, str]
    plaintext: str


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Msk]:
    folder = tmp_path_factory.mktemp("msk")
    authority = trustme.CA()
    authenticator = Authenticator(ACCESS_KEY, SECRET_KEY, TOKEN, "eu-west-1")
    front = Front(BROKER, signed(authority, folder / "msk.pem", BROKER), authenticator)
    server = f"{BROKER}:{front.port}"
    with ExitStack() as stack:
        listeners = {"MSK": Listener("PLAINTEXT", {}, advertised=server)}
        kafka = stack.enter_context(EmbeddedKafka(folder / "kafka", listeners=listeners))
        front.broker = kafka.listener("MSK")
        stack.enter_context(front.serving())
        seed(kafka, PREFIX)
        client = IAM | {"ssl_cafile": str(authority_file(authority, folder / "ca.pem"))}
        yield Msk(server, authenticator, client, kafka.bootstrap_servers)


@pytest.fixture
def known_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of brokers lead to this machine."""
    resolve = socket.getaddrinfo

    def found(host: Any, *arguments: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host == BROKER else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.usefixtures("known_names")
def test_msk_accepts_the_signature_and_is_read(cluster: Msk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    rows = read(CommittedOffsetsSource, cluster.server, groups_allow=f"^{PREFIX}-billing", **cluster.client, **KEYS)
    assert [(row["partition"], row["committed_offset"]) for row in rows] == [(0, 2), (1, 5)]
    assert {message["host"] for message in cluster.authenticator.messages} == {BROKER}
    assert not any(secret in caplog.text for secret in (SECRET_KEY, TOKEN))


@pytest.mark.usefixtures("known_names")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"sasl_aws_secret_access_key": "wrong"}, id="a wrong secret"),
        pytest.param({"sasl_aws_session_token": "wrong"}, id="a wrong token"),
        pytest.param({"sasl_aws_region": "eu-west-2"}, id="a wrong region"),
    ],
)
def test_msk_rejects_what_is_not_signed_as_aws_documents_it(cluster: Msk, changes: dict[str, str]) -> None:
    with pytest.raises(ClusterError) as caught:
        KafkaClient(parsed(cluster.server, **cluster.client, **KEYS | changes))
    assert str(caught.value) == (
        f"{cluster.server} rejects the login: check the AWS identity and the region, and that its policy allows "
        "kafka-cluster:Connect"
    )


@pytest.mark.usefixtures("known_names")
def test_nothing_signed_is_sent_without_tls(cluster: Msk) -> None:
    with pytest.raises(ClusterError, match="sasl_mechanism AWS_MSK_IAM needs security_protocol SASL_SSL"):
        KafkaClient(parsed(cluster.plaintext, **cluster.client | {"security_protocol": "SASL_PLAINTEXT"}, **KEYS))


@pytest.mark.usefixtures("known_names")
def test_without_keys_no_broker_is_blamed(cluster: Msk) -> None:
    with pytest.raises(ClusterError, match=r"^no AWS credentials are found here"):
        KafkaClient(parsed(cluster.server, **cluster.client))


def test_other_users_of_kafka_python_in_this_process_keep_its_own_login() -> None:
    theirs = get_sasl_mechanism("AWS_MSK_IAM")(host=BROKER, security_protocol="SASL_SSL")
    assert type(theirs) is SaslMechanismAwsMskIam
