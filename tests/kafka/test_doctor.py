"""What `doctor` reports about clusters that answer, refuse or do not exist, and about lakes, writable or not."""

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACLOperation, ResourceType

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from jobs import doctor
from pipeline.client_positions.check_locations import check_locations
from pipeline.common.check import Check
from pipeline.config import ClusterConfig, LakeConfig
from pipeline.config.toml_file import FilledIn
from pipeline.kafka.doctor import _Rights, check_lake
from tests.helpers.full_disk import full_disk
from tests.helpers.kafka import commit, delete_groups, denied, login
from tests.helpers.recordings import unpacked

Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The exit status and the output lines of `doctor` for one cluster."""

    def run(servers: str, more: str = "", **client: str) -> tuple[int, list[str]]:
        if "sasl_plain_password" in client:
            monkeypatch.setenv("PW", client["sasl_plain_password"])
            client["sasl_plain_password"] = "${env:PW}"
        settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in client.items())
        (tmp_path / "c.toml").write_text(
            f'[lake]\nroot = "{tmp_path}/lake"\n[clusters.east]\nbootstrap_servers = ["{servers}"]\n{more}\n'
            f"[clusters.east.limits]\nconnect_timeout = '3s'\n[clusters.east.client]\n{settings}"
        )
        status = doctor.main(["--config", str(tmp_path / "c.toml")])
        return status, capsys.readouterr().out.splitlines()

    return run


@pytest.fixture(scope="module")
def group(kafka: EmbeddedKafka) -> Iterator[str]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, {"doctored": 1})
        commit(admin, "doctored-group", {("doctored", 0): 0})
        yield "doctored-group"
        delete_groups(admin, "doctored-")


ONLY_OURS = 'topics = { allow = ["^doctored$"] }\ngroups = { allow = ["^doctored-group$"] }'


@pytest.mark.kafka
def test_a_cluster_that_grants_all_rights_passes_every_check(kafka: EmbeddedKafka, group: str, run: Run) -> None:
    status, lines = run(kafka.sasl_bootstrap_servers, ONLY_OURS, **login(kafka))
    assert status == 0
    assert lines[-1] == "1 cluster and the lake: nothing is wrong"
    assert [line for line in lines[:-1] if not line.startswith("ok")] == [
        "?     east: the password for the brokers is sent in plain text: use SASL_SSL"
    ]
    assert re.fullmatch(r"ok    east: connected to cluster [\w-]{22}, which has 1 broker", lines[1])
    assert any("1 topic that the config selects can be seen" in line for line in lines)
    assert any("1 group that the config selects can be seen" in line for line in lines)


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("kind", "name", "operation", "mark", "what", "given"),
    [
        (ResourceType.CLUSTER, "kafka-cluster", "DESCRIBE", "?", "on the cluster", "Describe --cluster"),
        (ResourceType.CLUSTER, "kafka-cluster", "DESCRIBE_CONFIGS", "?", "brokers keep", "DescribeConfigs --cluster"),
        (ResourceType.TOPIC, "doctored", "DESCRIBE_CONFIGS", "?", "of 1 topic, such as doctored", "Configs --topic"),
        (ResourceType.GROUP, "doctored-group", "DESCRIBE", "WRONG", "of 1 group, such as doc", "Describe --group"),
    ],
)
def test_a_missing_right_is_named_with_the_command_that_grants_it(
    kafka: EmbeddedKafka,
    group: str,
    run: Run,
    kind: ResourceType,
    name: str,
    operation: str,
    mark: str,
    what: str,
    given: str,
) -> None:
    with denied(kafka, kind, name, ACLOperation[operation]):
        status, lines = run(kafka.sasl_bootstrap_servers, ONLY_OURS, **login(kafka))
    assert status == (mark == "WRONG")
    odd = [(at, line) for at, line in enumerate(lines) if line.startswith(("WRONG", "?"))]
    # Only with the right on the cluster can it find out whether any topic is hidden.
    known = "whether topics are hidden", "plain text", "the first ACL on a resource locks out"
    ((at, line), *others) = [(at, line) for at, line in odd if not any(words in line for words in known)]
    assert line.startswith(mark)
    assert what in line
    # Without DESCRIBE, Kafka does not say which other rights on the cluster are given.
    assert [what for _, line in others for what in ("brokers keep",) if what in line] == ["brokers keep"] * len(others)
    assert len(others) == (operation == "DESCRIBE" and kind == ResourceType.CLUSTER)
    assert given in lines[at + 1]
    warned = [number for number, line in enumerate(lines) if "the first ACL on a resource locks out" in line]
    assert len(warned) == 1
    assert warned[0] < at
    (user,) = kafka.users
    arguments = shlex.split(lines[at + 1])
    assert arguments[arguments.index("--allow-principal") + 1] == f"User:{user}"
    assert "--command-config" in arguments


@pytest.mark.kafka
def test_a_right_that_cannot_be_checked_is_not_reported_as_ok(kafka: EmbeddedKafka, group: str, run: Run) -> None:
    with denied(kafka, ResourceType.TOPIC, "doctored"):
        _, lines = run(kafka.sasl_bootstrap_servers, ONLY_OURS, **login(kafka))
    (line,) = [line for line in lines if "DESCRIBE on topics" in line]
    assert line.startswith("?     east: ")


@pytest.mark.kafka
def test_a_topic_that_is_hidden_from_the_user_is_named(kafka: EmbeddedKafka, group: str, run: Run) -> None:
    """Neither its metadata nor its commits are listed; Kafka leaves it out without an error."""
    with denied(kafka, ResourceType.TOPIC, "doctored"):
        status, lines = run(kafka.sasl_bootstrap_servers, 'topics = { allow = ["^doctored"] }', **login(kafka))
        hidden = [(line, lines[at + 1]) for at, line in enumerate(lines) if "cannot be seen" in line]
        assert status == 1
        ((line, todo),) = hidden
        assert line == "WRONG east: 1 topic that the config selects, such as doctored, cannot be seen"
        assert todo.strip().startswith("kafka-acls.sh")
        assert todo.endswith("--operation Describe --topic doctored")
        with denied(kafka, ResourceType.CLUSTER, "kafka-cluster"):
            _, lines = run(kafka.sasl_bootstrap_servers, 'topics = { allow = ["^doctored"] }', **login(kafka))
        assert not any("is hidden" in line for line in lines)
        assert any(line.startswith("?     east: whether topics are hidden is not known") for line in lines)


@pytest.mark.kafka
def test_a_wrong_password_is_reported(kafka: EmbeddedKafka, run: Run) -> None:
    status, lines = run(kafka.sasl_bootstrap_servers, **login(kafka, sasl_plain_password="no"))
    assert status == 1
    assert "rejects the login" in lines[1]


@pytest.mark.kafka
def test_a_broker_that_is_down_is_named(kafka3: EmbeddedKafka, run: Run) -> None:
    kafka3.kill(3)  # the others do not notice it for 18 s
    try:
        status, lines = run(kafka3.address(1))
    finally:
        kafka3.start(3)
    assert status == 1
    assert any(line.startswith(f"WRONG east: broker 3 does not answer at {kafka3.address(3)}: ") for line in lines)


SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
USER = {"sasl_plain_username": "it's me", "sasl_plain_password": FilledIn("p")}


@pytest.mark.parametrize(
    ("server", "client", "principal"),
    [
        ("b:1", {}, "User:NAME"),
        ("b:1", SASL | USER, "User:it's me"),
        ("b:1", USER | {"security_protocol": "SSL"}, "User:NAME"),
        ("b:1", USER | {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "User:NAME"),
        ("pkc-1.confluent.cloud:9092", SASL | USER, "User:NAME"),
    ],
)
def test_the_command_that_grants_a_right_names_the_user_if_known(
    server: str, client: dict[str, str], principal: str
) -> None:
    cluster = ClusterConfig.model_validate({"bootstrap_servers": (server,), "client": client})
    arguments = shlex.split(_Rights(cluster).give("Describe", "--topic '*'"))
    config = ["--command-config", "admin.properties"] if client else []
    right = ["--allow-principal", principal, "--operation", "Describe", "--topic", "*"]
    assert arguments == ["kafka-acls.sh", "--bootstrap-server", server, *config, "--add", *right]


def test_confluent_cloud_is_not_asked_for_a_right_that_it_cannot_give() -> None:
    client = SASL | USER
    cluster = ClusterConfig.model_validate({"bootstrap_servers": ("pkc-1.confluent.cloud:9092",), "client": client})
    rights = _Rights(cluster)
    assert rights.give("DescribeConfigs", "--cluster") == "nothing to do: Confluent Cloud has no ACL for this right"
    for operation, resource in (("Describe", "--cluster"), ("DescribeConfigs", "--topic '*'")):
        assert rights.give(operation, resource).endswith(f"--operation {operation} {resource}")


@pytest.mark.parametrize(
    ("operation", "resource", "action"),
    [
        ("Describe", "--cluster", "DescribeCluster"),
        ("DescribeConfigs", "--cluster", "DescribeClusterDynamicConfiguration"),
        ("Describe", "--topic '*'", "DescribeTopic"),
        ("Describe", "--topic orders", "DescribeTopic"),
        ("DescribeConfigs", "--topic '*'", "DescribeTopicDynamicConfiguration"),
        ("Describe", "--group '*'", "DescribeGroup"),
    ],
)
def test_with_iam_the_policy_must_allow_the_action(operation: str, resource: str, action: str) -> None:
    client = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
    cluster = ClusterConfig.model_validate({"bootstrap_servers": ("b:1",), "client": client})
    expected = f"the IAM policy must allow kafka-cluster:{action}, see docs/connect.md"
    assert _Rights(cluster).give(operation, resource) == expected


def test_a_lake_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(root: str) -> tuple[bool | None, str]:
        return check_lake(LakeConfig(root=root))[:2]

    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file").touch()
    long = f"{tmp_path}/{'x' * 300}"
    assert check(f"{tmp_path}/file/lake") == (False, f"{tmp_path}/file/lake cannot be written: Not a directory")
    assert check(long) == (False, f"{long} cannot be written: File name too long")
    assert check("s3a://[bad/x") == (False, "s3a://[bad/x cannot be written: it is not a path and not a URI")
    made = f"{tmp_path}/a/lake can be written, and will be created in {tmp_path}"
    assert check(f"{tmp_path}/a/lake") == check(f"file://{tmp_path}/a/lake") == (True, made)
    azure = "abfss://container@account/lake"
    assert check(azure) == (None, f"{azure}: only a run shows whether it can be written")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert check("/lake") == (None, "/lake: only a run shows whether it can be written")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_full_disk_is_reported_for_a_lake_and_for_the_state_of_a_request_log(tmp_path: Path) -> None:
    (tmp_path / "request.log").touch()
    options = {"path": f"{tmp_path}/request.log", "state": f"{tmp_path}/full/state"}
    with full_disk(tmp_path / "full") as refused:
        of_lake = check_lake(LakeConfig(root=f"{tmp_path}/full/lake"))
        of_state = [c for c in check_locations("kafka_request_log", options) if "state" in c.what]
    assert of_lake[:2] == (False, f"{tmp_path}/full/lake cannot be written: {refused}")
    assert of_lake.todo is not None
    assert of_lake.todo.startswith(("free some space, ", "raise the limit on the size of files (ulimit -f), "))
    assert [(c.is_right, refused in c.what) for c in of_state] == [(False, True)]


@pytest.mark.kafka
def test_the_endpoints_files_and_log_directories_are_checked(
    kafka: EmbeddedKafka, group: str, run: Run, tmp_path: Path
) -> None:
    line = {"client_id": "c", "topic": "doctored", "partition": 0, "consumed_offset": 1}
    statistics = (unpacked("librdkafka", tmp_path) / "statistics.jsonl").read_text().splitlines()[0]
    (tmp_path / "stats").mkdir()
    (tmp_path / "stats" / "one.jsonl").write_text(statistics)
    (tmp_path / "nothing").mkdir()
    (tmp_path / "request.log").write_text(json.dumps(line) + "\n")
    (tmp_path / "logs" / "doctored-0").mkdir(parents=True)
    positions = f"""log_dirs = ["{tmp_path}/logs", "{tmp_path}/gone"]
        [[clusters.east.positions]]
        source = "librdkafka_statistics"
        paths = ["{tmp_path}/stats", "{tmp_path}/nothing", "{tmp_path}/absent"]
        [[clusters.east.positions]]
        source = "kafka_client_metrics"
        endpoints = ["http://127.0.0.1:{closed_port()}/metrics"]
        [[clusters.east.positions]]
        source = "kafka_request_log"
        paths = ["{tmp_path}/request.log"]
        state = "{tmp_path}/state"
    """
    status, lines = run(kafka.sasl_bootstrap_servers, ONLY_OURS + "\n" + positions, **login(kafka))
    assert status == 1
    shown = {re.sub(r":\d+/", "/", line.replace(str(tmp_path), "")) for line in lines}
    assert shown >= {
        "ok    east: librdkafka_statistics: /stats, 1 file: 1 client",
        "?     east: librdkafka_statistics: /nothing: has no files yet",
        "WRONG east: librdkafka_statistics: /absent: no such file or folder",
        "WRONG east: kafka_client_metrics: http://127.0.0.1/metrics: Connection refused",
        f"?     east: kafka_request_log: /request.log: {NO_REQUEST}",
        "ok    east: kafka_request_log: /state: can be written",
        "ok    east: log_dirs: /logs: 1 partition",
    }
    assert any(line.startswith("WRONG east: log directory '/gone' cannot be listed") for line in shown)
    assert not (tmp_path / "state").exists()


NO_REQUEST = "no new line has a request: the level of kafka.request.logger must be DEBUG, with an appender to this file"


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_the_output_contains_no_escape_codes_for_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor._show("east", [Check(False, "group a\x1b[31m\u2028b", "give it to \x1b[0m")]) == 1
    assert capsys.readouterr().out == "WRONG east: group a\\x1b[31m\\u2028b\n      give it to \\x1b[0m\n"


def test_a_wrong_config_and_an_unknown_cluster_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--config", str(tmp_path / "no.toml")]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/no.toml: cannot be read: No such file or directory\n"
    (tmp_path / "c.toml").write_text('[lake]\nroot = "/l"\n[clusters.a]\nbootstrap_servers = ["b:1"]\n')
    assert doctor.main(["--config", str(tmp_path / "c.toml"), "--cluster", "x"]) == 2
    assert capsys.readouterr().err == f"--cluster x: not in {tmp_path}/c.toml, which has a\n"


def test_no_spark_is_started(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        f'[lake]\nroot = "{tmp_path}"\n[clusters.a]\nbootstrap_servers = ["127.0.0.1:1"]\n'
    )
    program = (
        "import sys; from jobs import doctor; doctor.main(sys.argv[1:]); "
        "from pyspark import SparkContext; print(SparkContext._gateway)"
    )
    command = [sys.executable, "-c", program, "--config", str(tmp_path / "c.toml")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout.splitlines()[-2:] == ["1 cluster and the lake: 1 is wrong", "None"]
