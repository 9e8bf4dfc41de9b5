"""The commands of docs/connect.md: ACLs on a real broker, and keystores of Java converted to PEM."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ResourcePatternFilter, ResourceType
from kafka.admin import ACLResourcePatternType as PatternType

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from jobs import doctor
from pipeline.kafka.machine import tls_context
from pipeline.kafka.options import SourceOptions
from tests.conftest import ROOT
from tests.helpers.kafka import commit, delete_groups, login, wait_for
from tests.helpers.tools import tool

PAGE = (ROOT / "docs" / "connect.md").read_text("utf-8")
BLOCKS = [block.replace("\\\n", " ") for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]
ACL_COMMANDS = [shlex.split(line) for line in COMMANDS if line.startswith("kafka-acls.sh")]
(OTHER_PASSWORD_COMMAND,) = [line for line in COMMANDS if "-srckeypass" in line]
STORE_COMMANDS = [line for line in COMMANDS if not line.startswith("kafka-acls.sh") and line != OTHER_PASSWORD_COMMAND]
ACL_TOOL = "org.apache.kafka.tools.AclCommand"
PASSWORDS = {"STORE_PASSWORD": "store-secret", "KEY_PASSWORD": "key-secret", "OLD_KEY_PASSWORD": "old-secret"}


def every_right(user: str) -> ACLFilter:
    """What the user is allowed. Another test of the same broker may have denied it something."""
    anything = ResourcePatternFilter(ResourceType.ANY, None, PatternType.ANY)
    return ACLFilter(f"User:{user}", None, ACLOperation.ANY, ACLPermissionType.ALLOW, anything)


@pytest.fixture
def granted(kafka: EmbeddedKafka) -> Iterator[Any]:
    """An administrator, after the page's commands have been executed for the user of the broker."""
    (user,) = kafka.users
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, {"granted": 1})
        commit(admin, "granted-group", {("granted", 0): 0})
        for _, *arguments in ACL_COMMANDS:
            arguments[arguments.index("--bootstrap-server") + 1] = kafka.bootstrap_servers
            at = arguments.index("--command-config")
            del arguments[at : at + 2]  # the test's own listener asks for no password
            arguments[arguments.index("User:laglake")] = f"User:{user}"
            ran = kafka.run_tool(ACL_TOOL, *arguments)
            assert ran.returncode == 0, ran.stderr
        wait_for(lambda: len(admin.describe_acls(every_right(user))[0]) == 5)
        yield admin
        admin.delete_acls([every_right(user)])
        wait_for(lambda: not admin.describe_acls(every_right(user))[0])
        delete_groups(admin, "granted-")


@pytest.mark.kafka
def test_the_commands_grant_exactly_what_laglake_needs(
    kafka: EmbeddedKafka,
    granted: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = login(kafka)
    monkeypatch.setenv("PW", client["sasl_plain_password"])
    client |= {"sasl_plain_password": "${env:PW}"}
    settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in client.items())
    (tmp_path / "c.toml").write_text(
        f'[lake]\nroot = "{tmp_path}/lake"\n[clusters.east]\nbootstrap_servers = ["{kafka.sasl_bootstrap_servers}"]\n'
        f'topics = {{ allow = ["^granted$"] }}\ngroups = {{ allow = ["^granted-group$"] }}\n'
        f"[clusters.east.client]\n{settings}"
    )
    assert doctor.main(["--config", str(tmp_path / "c.toml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    rights = [line for line in lines if "DESCRIBE" in line]
    assert len(rights) == 5
    assert all(line.startswith("ok") for line in rights)
    with KafkaAdminClient(bootstrap_servers=kafka.sasl_bootstrap_servers, **login(kafka)) as laglake:
        (topic,) = laglake.describe_topics(["granted"])
        assert allowed(topic) == {"DESCRIBE", "DESCRIBE_CONFIGS"}
        assert allowed(laglake.describe_cluster()) == {"DESCRIBE", "DESCRIBE_CONFIGS"}
        groups = laglake.describe_groups(["granted-group"], include_authorized_operations=True)
        assert allowed(groups["granted-group"]) == {"DESCRIBE"}


def allowed(described: Any) -> set[str]:
    """The operations that the broker says are allowed (KIP-430)."""
    (found,) = [value for key, value in described.items() if key.endswith("authorized_operations")]
    return set(found)


def test_the_policy_has_one_action_for_each_right() -> None:
    (policy,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    actions = {}
    for statement in json.loads(policy)["Statement"]:
        kind = statement["Resource"].split(":")[5].split("/")[0]
        given = statement["Action"]
        actions[kind] = [given] if isinstance(given, str) else given
    assert actions == {
        "cluster": [
            "kafka-cluster:Connect",
            "kafka-cluster:DescribeCluster",
            "kafka-cluster:DescribeClusterDynamicConfiguration",
        ],
        "topic": ["kafka-cluster:DescribeTopic", "kafka-cluster:DescribeTopicDynamicConfiguration"],
        "group": ["kafka-cluster:DescribeGroup"],
    }


def keytool(folder: Path, *arguments: str) -> None:
    command = [tool("keytool"), *arguments, "-noprompt", "-storepass:env", "STORE_PASSWORD"]
    subprocess.run(command, cwd=folder, env=PASSWORDS, check=True, capture_output=True)


def commands_for(password: str) -> list[str]:
    """The page's commands, for a key with the password of the store or with one of its own."""
    if password == "STORE_PASSWORD":
        return STORE_COMMANDS
    other = OTHER_PASSWORD_COMMAND.replace("-srcalias NAME", "-srcalias client")
    return [other if "-importkeystore" in command else command for command in STORE_COMMANDS]


@pytest.mark.tool
@pytest.mark.parametrize(
    ("kind", "password"), [("JKS", "STORE_PASSWORD"), ("PKCS12", "STORE_PASSWORD"), ("JKS", "OLD_KEY_PASSWORD")]
)
def test_keystores_are_converted_to_files_that_the_client_reads(tmp_path: Path, kind: str, password: str) -> None:
    """An authority signs the certificate of a client. Its own certificate is in the truststore, and in the chain."""
    of = {name: ("-keystore", f"{name}.jks", "-storetype", kind) for name in ("authority", "keystore", "truststore")}
    key, own = ("-keyalg", "RSA", "-keypass:env", "STORE_PASSWORD"), ("-keypass:env", password)
    keytool(tmp_path, "-genkeypair", *key, *of["authority"], "-alias", "ca", "-dname", "CN=Authority", "-ext", "bc:c")
    keytool(tmp_path, "-genkeypair", *key[:2], *own, *of["keystore"], "-alias", "client", "-dname", "CN=laglake")
    keytool(tmp_path, "-certreq", *own, *of["keystore"], "-alias", "client", "-file", "client.csr")
    keytool(tmp_path, "-gencert", *of["authority"], "-alias", "ca", "-infile", "client.csr", "-outfile", "client.crt")
    keytool(tmp_path, "-exportcert", *of["authority"], "-alias", "ca", "-file", "ca.crt")
    for store, alias, file in (
        ("truststore", "ca", "ca.crt"),
        ("keystore", "ca", "ca.crt"),
        ("keystore", "client", "client.crt"),
    ):
        password_of = own if alias == "client" else ()
        keytool(tmp_path, "-importcert", *password_of, *of[store], "-alias", alias, "-file", file)
    for command in commands_for(password):  # the keystore also has the authority as an entry of its own
        path = {"PATH": ":".join({str(Path(tool(name)).parent) for name in ("keytool", "openssl")})}
        subprocess.run(["/bin/sh", "-ec", command], cwd=tmp_path, env=PASSWORDS | path, check=True)
    files = {"ssl_cafile": "ca.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
    context = tls_context(
        SourceOptions.parse(
            {
                "bootstrap_servers": "b:1",
                "security_protocol": "SSL",
                "ssl_password": PASSWORDS["KEY_PASSWORD"],
                **{option: str(tmp_path / name) for option, name in files.items()},
            }
        )
    )
    assert context
    assert [dict(names[0] for names in ca["subject"]) for ca in context.get_ca_certs()] == [{"commonName": "Authority"}]
    shown = [tool("openssl"), "x509", "-in", "client.pem", "-noout", "-subject", "-issuer"]
    first = subprocess.run(shown, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.split("\n")
    assert [line.replace(" ", "") for line in first[:2]] == ["subject=CN=laglake", "issuer=CN=Authority"]
    assert "ENCRYPTED PRIVATE KEY" in (tmp_path / "client.key").read_text()
