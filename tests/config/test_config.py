"""The settings: what a file may contain, the message for each mistake, and that no secret is ever shown."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka.net.manager import KafkaConnectionManager

from pipeline.common.errors import ConfigError, LaglakeError
from pipeline.config import Config, lake_at, load_config
from pipeline.config.kafka_client import CLIENT_OPTIONS, ClientConfig
from pipeline.config.kafka_logins import LoginConfig
from pipeline.config.value_types import any_of, duration_ms
from pipeline.kafka.options import SourceOptions
from tests.conftest import ROOT

SMALLEST = '[lake]\nroot = "/lake"\n[clusters.east]\nbootstrap_servers = ["10.0.0.1:9092"]\n'
CLIENT = SMALLEST + "[clusters.east.client]\n"
A_WHOLE_CLUSTER = """
lake = { catalog = "main", schema = "lag" }
[clusters.east]
bootstrap_servers = ["${env:HOST}:9092", "[::1]:9093"]
groups = { allow = ["^a", "(?i)b"], deny = ["^console-"] }
topics = { allow = [".*"], deny = [] }
[clusters.east.limits]
connect_timeout = "1s"
request_timeout = "2s"
task_timeout = "1m"
retries = 0
retry_backoff = "50ms"
groups_per_task = 7
partitions_per_task = "${env:CHUNK}"
[clusters.east.client]
security_protocol = "SASL_SSL"
sasl_mechanism = "PLAIN"
sasl_plain_username = "reader"
sasl_plain_password = "pre-${env:PW}"
ssl_check_hostname = false
metadata_max_age_ms = 1000
api_version = "3.7"
"""
OPTIONS_OF_A_WHOLE_CLUSTER = {
    "bootstrap_servers": "kafka:9092,[::1]:9093",
    "groups_allow": "(?:^a)|(?i:b)",
    "groups_deny": "(?:^console-)",
    "topics_allow": "(?:.*)",
    "connect_timeout_ms": "1000",
    "request_timeout_ms": "2000",
    "task_timeout_ms": "60000",
    "read_timeout_ms": "600000",
    "retries": "0",
    "retry_backoff_ms": "50",
    "groups_per_task": "7",
    "partitions_per_task": "9",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "reader",
    "sasl_plain_password": "pre-hunter2",
    "ssl_check_hostname": "false",
    "metadata_max_age_ms": "1000",
    "api_version": "3.7",
}

Load = Callable[..., Config]


def test_only_the_lake_and_the_bootstrap_servers_are_required(load: Load) -> None:
    config = load(SMALLEST)
    east = config.clusters["east"]
    assert config.lake.root == "/lake"
    assert (config.lake.catalog, config.lake.schema_name) == (None, None)
    snapshot = config.snapshot
    assert (snapshot.schedule_ms, snapshot.max_delay_ms, snapshot.max_duration_ms) == (60_000, 600_000, 1_800_000)
    assert (east.groups.allow, east.groups.deny) == ((".*",), ())
    assert (east.topics.allow, east.topics.deny) == ((".*",), ("^__",))


def test_all_settings_of_a_cluster_become_options_of_the_data_sources(load: Load) -> None:
    config = load(
        A_WHOLE_CLUSTER,
        HOST="kafka",
        PW="hunter2",
        CHUNK="9",
    )
    assert config.lake.schema_name == "lag"
    options = config.clusters["east"].source_options()
    assert options == OPTIONS_OF_A_WHOLE_CLUSTER
    parsed = SourceOptions.parse(options)
    assert parsed.client["ssl_check_hostname"] is False
    assert parsed.client["api_version"] == (3, 7)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("1ms", 1), ("500ms", 500), ("1s", 1_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)
def test_a_duration_is_read_as_milliseconds(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["0s", "1", "s", "1.5s", "-1s", "1S", " 1s", "1s\n", "1w", "367d", "٣s", 60, None, True]
)
def test_any_other_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must be a duration such as"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("location", "lake"),
    [
        ("main.laglake", (None, "main", "laglake")),
        ("my-catalog.dev_me_laglake", (None, "my-catalog", "dev_me_laglake")),
        ("/data/a.b", ("/data/a.b", None, None)),
        ("./a.b", (f"{Path.cwd()}/a.b", None, None)),
        ("lake", (f"{Path.cwd()}/lake", None, None)),
        ("s3a://bucket.name/lake", ("s3a://bucket.name/lake", None, None)),
        ("a.b.c", (f"{Path.cwd()}/a.b.c", None, None)),
    ],
)
def test_the_location_of_a_lake_is_a_catalog_and_schema_or_a_path(location: str, lake: tuple[str | None, ...]) -> None:
    found = lake_at(location)
    assert (found.root, found.catalog, found.schema_name) == lake


@pytest.mark.parametrize("location", ["", " ", "/a`b"])
def test_an_invalid_location_of_a_lake_is_an_error_of_one_line(location: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(SMALLEST)
    with pytest.raises(ConfigError, match=r"^the location of a lake must not (be empty|contain a backtick)$"):
        load_config(tmp_path / "c.toml", {}, location)


def test_the_lake_of_the_command_line_overrides_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(SMALLEST)
    assert load_config(file, {}, "main.laglake").lake.schema_name == "laglake"
    file.write_text(SMALLEST.split("\n", 2)[2])
    assert load_config(file, {}, "/other").lake.root == "/other"
    with pytest.raises(ConfigError, match="lake: is required"):
        load_config(file, {})


def test_a_file_that_is_missing_or_not_text_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "nope.toml", {})
    assert str(caught.value) == f"{tmp_path}/nope.toml: cannot be read: No such file or directory"
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(tmp_path / "latin.toml", {})


def test_no_secret_is_shown_by_a_config_or_its_errors(load: Load) -> None:
    secrets = 'sasl_plain_password = "${env:PW}"\nssl_password = "${env:PW}"\n'
    config = load(CLIENT.replace("/lake", "/lake/${env:PW}") + secrets, PW="hunter2")
    east = config.clusters["east"]
    assert config.lake.root == "/lake/hunter2"
    shown = [f"{thing!r} {thing}" for thing in (config, config.lake, east, east.client, vars(east.client))]
    for mistake in ('sasl_mechanism = "hunter2"', 'hunter = "hunter2"', "ssl_cafile = 1", 'retry = "${env:NOPE}"'):
        with pytest.raises(ConfigError) as caught:
            load(CLIENT + secrets + mistake, PW="hunter2")
        shown += [str(caught.value), repr(caught.value.__context__), repr(caught.value.__cause__)]
    assert "hunter2" not in " ".join(shown)


def test_a_loaded_config_cannot_be_changed(load: Load) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(SMALLEST).lake.root = "/other"


@pytest.mark.parametrize(
    ("patterns", "matching", "other"),
    [
        pytest.param(["a|b", "c"], "xbx", "d", id="alternatives"),
        pytest.param(["^a$", "^b$"], "b", "ab", id="anchors"),
        pytest.param(["(?i)abc", "d"], "ABC", "D", id="flags stay with their own"),
        pytest.param(["x", "(?x)a b # comment", "y"], "ab", "a b", id="verbose with a comment at the end"),
        pytest.param([r"\\1", "y"], r"\1", "1", id="an escaped backslash is no reference"),
    ],
)
def test_several_expressions_are_combined_into_one(patterns: list[str], matching: str, other: str) -> None:
    combined = re.compile(any_of(patterns))
    assert combined.search(matching)
    assert not combined.search(other)


def test_every_client_option_of_kafka_python_is_known() -> None:
    of_kafka_python = [name for name in ClientConfig.model_fields if name not in LoginConfig.model_fields]
    assert of_kafka_python == [*KafkaConnectionManager.DEFAULT_CONFIG]


def test_client_options_have_the_types_of_kafka_pythons_defaults() -> None:
    # Options whose default is None are texts.
    types = {
        name: str if value is None else type(value) for name, value in KafkaConnectionManager.DEFAULT_CONFIG.items()
    }
    assert CLIENT_OPTIONS.items() <= (types | dict.fromkeys(LoginConfig.model_fields, str)).items()


def test_the_configs_in_the_repository_are_valid() -> None:
    local = load_config(ROOT / "conf/local.toml", {})
    assert (local.snapshot.schedule_ms, list(local.clusters)) == (1_000, ["local"])
    env = {"EAST_PASSWORD": "x", "WEST_BOOTSTRAP": "kafka.west.example.com:9093", "WEST_KEY_PASSWORD": "x"}
    assert list(load_config(ROOT / "conf/production.example.toml", env).clusters) == ["east", "west"]


def test_the_defaults_in_the_example_are_the_defaults(load: Load) -> None:
    text = (ROOT / "conf/production.example.toml").read_text()
    uncommented = re.sub(
        r"^# (?=(max_|\w+_timeout|retr|\w+_per_task|index_lookups)\w* = )", "", text, flags=re.MULTILINE
    )
    env = {"EAST_PASSWORD": "x", "WEST_BOOTSTRAP": "kafka.west.example.com:9093", "WEST_KEY_PASSWORD": "x"}
    assert uncommented.count("# ") == text.count("# ") - 12
    assert load(uncommented, **env) == load(text, **env)


def test_each_error_has_its_exit_status() -> None:
    assert (LaglakeError.exit_status, ConfigError.exit_status) == (1, 2)


@pytest.mark.parametrize(
    ("client", "endpoint", "receivers"),
    [
        ("SASL_PLAINTEXT", "http://a:1/metrics", ["the brokers", "http://a:1/metrics"]),
        ("SASL_SSL", "https://a:1/metrics", []),
        ("SASL_SSL", "http://a:1/metrics?token=hunter2", ["http://a:1/metrics"]),
    ],
)
def test_a_password_that_is_sent_in_plain_text_is_reported(
    load: Callable[..., Config], client: str, endpoint: str, receivers: list[str]
) -> None:
    config = load(
        '[lake]\nroot = "/l"\n[clusters.east]\nbootstrap_servers = ["b:1"]\n[clusters.east.client]\n'
        f'security_protocol = "{client}"\nsasl_mechanism = "PLAIN"\nsasl_plain_username = "u"\n'
        'sasl_plain_password = "${env:PW}"\n[[clusters.east.positions]]\nsource = "kafka_client_metrics"\n'
        f'endpoints = ["{endpoint}"]\nuser = "u"\npassword = "${{env:PW}}"\n',
        PW="hunter2",
    )
    found = config.clusters["east"].passwords_in_plain_text()
    assert [re.search("the password for (.*) is sent in plain text", reason)[1] for reason in found] == receivers  # type: ignore[index]
