"""The settings: what a file may say, what each mistake is answered with, and that no secret is ever shown."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka.net.manager import KafkaConnectionManager

from pipeline.config import Config, lake_at, load_config
from pipeline.config.kafka_client import ClientConfig
from pipeline.config.value_types import any_of, duration_ms
from pipeline.errors import ConfigError, LaglakeError
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
Refuse = Callable[..., str]


@pytest.fixture
def refused(load: Load, tmp_path: Path) -> Refuse:
    """What a wrong config is answered with, every line without the file's name in front."""

    def refused(text: str, **env: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, **env)
        lines = str(caught.value).split("\n")
        assert all(line.startswith(f"{tmp_path}/c.toml: ") for line in lines)
        return "\n".join(line.removeprefix(f"{tmp_path}/c.toml: ") for line in lines)

    return refused


def test_only_the_lake_and_the_bootstrap_servers_are_required(load: Load) -> None:
    config = load(SMALLEST)
    east = config.clusters["east"]
    assert config.lake.root == "/lake"
    assert (config.lake.catalog, config.lake.schema_name) == (None, None)
    snapshot = config.snapshot
    assert (snapshot.schedule_ms, snapshot.max_delay_ms, snapshot.max_duration_ms) == (60_000, 600_000, 1_800_000)
    assert (east.groups.allow, east.groups.deny) == ((".*",), ())
    assert (east.topics.allow, east.topics.deny) == ((".*",), ("^__",))


def test_a_whole_cluster_becomes_flat_options_of_the_sources(load: Load) -> None:
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
    ("text", "line"),
    [
        pytest.param(SMALLEST + "x = 1", "clusters.east.x: unknown key", id="unknown key"),
        pytest.param("lakes = 1\n" + SMALLEST, "lakes: unknown key; did you mean lake?", id="unknown table"),
        pytest.param(
            SMALLEST + '[snapshot]\nschedul = "1m"',
            "snapshot.schedul: unknown key; did you mean schedule?",
            id="typo",
        ),
        pytest.param(
            CLIENT + 'sasl_plain_pasword = "hunter2"',
            "clusters.east.client.sasl_plain_pasword: unknown key; did you mean sasl_plain_password?",
            id="typo in a client option",
        ),
        pytest.param("[lake]\nroot = 1\n" + SMALLEST[21:], "lake.root: must be text", id="not text"),
        pytest.param(SMALLEST + "groups = 1", "clusters.east.groups: must be a table", id="not a table"),
        pytest.param(
            SMALLEST + 'groups.allow = "a"', "clusters.east.groups.allow: must be a list", id="text for a list"
        ),
        pytest.param(SMALLEST + "groups.allow = []", "clusters.east.groups.allow: must not be empty", id="empty list"),
        pytest.param(
            SMALLEST + 'groups.deny = ["a", "("]',
            "clusters.east.groups.deny[1]: is not a regular expression: missing ), unterminated subpattern at position "
            "0",
            id="bad regular expression",
        ),
        pytest.param(
            SMALLEST + 'groups.allow = ["(?P<x>a)", "(?P<x>b)"]',
            "clusters.east.groups: the expressions of allow cannot be combined: redefinition of group name 'x' as "
            "group 2; was group 1 at position 20",
            id="expressions that do not combine",
        ),
        pytest.param(
            SMALLEST + "groups.deny = ['(a)\\1']",
            "clusters.east.groups.deny[0]: refers back by number, which changes when expressions are combined; name "
            "the group",
            id="numbered back reference",
        ),
        pytest.param(
            SMALLEST + '[snapshot]\nschedule = "1 minute"',
            'snapshot.schedule: must be a duration such as "500ms", "30s", "5m", "2h" or "1d"',
            id="bad duration",
        ),
        pytest.param(
            SMALLEST + '[clusters.east.limits]\nretries = "5"',
            "clusters.east.limits.retries: must be a whole number",
            id="text for a number",
        ),
        pytest.param(
            SMALLEST + "[clusters.east.limits]\nretries = -1",
            "clusters.east.limits.retries: must be 0 or more",
            id="low",
        ),
        pytest.param(
            SMALLEST + "[clusters.east.limits]\nretries = 101",
            "clusters.east.limits.retries: must be 100 or less",
            id="high",
        ),
        pytest.param(
            CLIENT + 'ssl_check_hostname = "no"',
            "clusters.east.client.ssl_check_hostname: must be true or false",
            id="text for a truth",
        ),
        pytest.param(
            CLIENT + "ssl_password = 1", "clusters.east.client.ssl_password: must be text", id="number for text"
        ),
        pytest.param(
            CLIENT + 'security_protocol = "SASL_SLL"',
            "clusters.east.client.security_protocol: must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
            id="not a choice",
        ),
        pytest.param(
            CLIENT + 'security_protocol = "SASL_SSL"',
            "clusters.east.client: security_protocol with SASL also needs sasl_mechanism",
            id="SASL without a mechanism",
        ),
        pytest.param(
            CLIENT + 'security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_plain_password = ""',
            "clusters.east.client: security_protocol with SASL also needs sasl_plain_username and sasl_plain_password",
            id="SASL without a password",
        ),
        pytest.param(
            CLIENT + 'api_version = "latest"',
            'clusters.east.client.api_version: must be a version such as "3.7"',
            id="not a version",
        ),
        pytest.param(
            CLIENT + "request_timeout_ms = 1",
            "clusters.east.client.request_timeout_ms: set limits.request_timeout of the cluster instead",
            id="a client option that has its own setting",
        ),
        pytest.param(
            CLIENT + 'ssl_context = "x"',
            "clusters.east.client.ssl_context: cannot be set in a file; use ssl_cafile, ssl_certfile and ssl_keyfile",
            id="a client option that is an object",
        ),
        pytest.param(
            SMALLEST.replace("10.0.0.1:9092", "10.0.0.1"),
            'clusters.east.bootstrap_servers[0]: must be one host:port such as "10.0.0.1:9092"',
            id="no port",
        ),
        pytest.param(
            SMALLEST.replace(":9092", ":65536"),
            'clusters.east.bootstrap_servers[0]: must be one host:port such as "10.0.0.1:9092"',
            id="port too high",
        ),
        pytest.param(
            SMALLEST.replace('"10.0.0.1:9092"', ""),
            "clusters.east.bootstrap_servers: must not be empty",
            id="no server",
        ),
        pytest.param('[lake]\nroot = "/l"\n[clusters]', "clusters: must not be empty", id="no cluster"),
        pytest.param('[lake]\nroot = "/l"', "clusters: is required", id="no clusters"),
        pytest.param(SMALLEST[21:], "lake: is required", id="no lake"),
        pytest.param(
            SMALLEST.replace("root", "catalog"), "lake: must have either root, or catalog and schema", id="half a lake"
        ),
        pytest.param(
            SMALLEST.replace("[clusters", 'catalog = "c"\nschema = "s"\n[clusters'),
            "lake: must have either root, or catalog and schema",
            id="both lakes",
        ),
        pytest.param(SMALLEST.replace("/lake", " "), "lake.root: must not be empty", id="empty root"),
        pytest.param(
            SMALLEST.replace("clusters.east", 'clusters."a b"'),
            "clusters.'a b': the name of a cluster is 1 to 64 letters, digits, dots, dashes or underscores",
            id="cluster name",
        ),
        pytest.param("x = \n" + SMALLEST, "is not TOML: Invalid value (at line 1, column 5)", id="not TOML"),
        pytest.param(SMALLEST + "x = ", "is not TOML: Invalid value (at line 5, the last)", id="not TOML at the end"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(refused: Refuse, text: str, line: str) -> None:
    assert refused(text, PW="hunter2") == line


def test_every_mistake_has_its_own_line(refused: Refuse) -> None:
    lines = refused('[lake]\nrot = "x"\n[clusters.east]\nbootstrap_servers = ["a:1", "b"]\n[snapshot]\nschedule = 1')
    assert sorted(line.split(":")[0] for line in lines.split("\n")) == [
        "clusters.east.bootstrap_servers[1]",
        "lake.rot",
        "snapshot.schedule",
    ]


def test_a_missing_variable_names_the_key_and_the_variable(refused: Refuse) -> None:
    text = SMALLEST + 'groups.deny = ["a", "x-${env:NOPE}"]\n[clusters.east.client]\nclient_id = "${env:NOR_THIS}"'
    assert refused(text).split("\n") == [
        "clusters.east.groups.deny[1]: the environment variable NOPE is not set",
        "clusters.east.client.client_id: the environment variable NOR_THIS is not set",
    ]


@pytest.mark.parametrize(
    "reference", ["${secret:}", "${secret:key}", "${secret:a/b", "${secret:a/b/c}", "${secret:a b/c}"]
)
def test_a_malformed_secret_is_refused(refused: Refuse, reference: str) -> None:
    text = SMALLEST.replace("/lake", f"/x/{reference}")
    assert refused(text) == "lake.root: a reference is written ${secret:SCOPE/KEY}"


@pytest.mark.parametrize("reference", ["${secrets:a/b}", "${ENV:A}", "${file:/etc/passwd}"])
def test_a_reference_to_something_else_is_refused(refused: Refuse, reference: str) -> None:
    text = SMALLEST.replace("/lake", f"/x/{reference}")
    assert refused(text, A="a") == "lake.root: a reference is written ${env:NAME} or ${secret:SCOPE/KEY}"


@pytest.mark.parametrize(
    ("place", "lake"),
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
def test_a_place_is_a_catalog_and_schema_or_a_path(place: str, lake: tuple[str | None, ...]) -> None:
    found = lake_at(place)
    assert (found.root, found.catalog, found.schema_name) == lake


@pytest.mark.parametrize("place", ["", " ", "/a`b"])
def test_a_place_that_can_be_no_lake_is_one_line(place: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(SMALLEST)
    with pytest.raises(ConfigError, match=r"^the place of a lake must not (be empty|contain a backtick)$"):
        load_config(tmp_path / "c.toml", {}, place)


def test_a_lake_of_the_command_line_goes_before_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(SMALLEST)
    assert load_config(file, {}, "main.laglake").lake.schema_name == "laglake"
    file.write_text(SMALLEST.split("\n", 2)[2])
    assert load_config(file, {}, "/other").lake.root == "/other"
    with pytest.raises(ConfigError, match="lake: is required"):
        load_config(file, {})


@pytest.mark.parametrize("reference", ["${env:}", "${env:A B}", "${env:A", "${env:1A}"])
def test_a_malformed_reference_is_refused(refused: Refuse, reference: str) -> None:
    text = SMALLEST.replace("/lake", f"/x/{reference}")
    assert refused(text, A="a") == "lake.root: a reference is written ${env:NAME}"


def test_a_reference_may_stand_for_a_number_or_a_truth_but_plain_text_may_not(load: Load, refused: Refuse) -> None:
    client = 'ssl_check_hostname = "${env:CHECK}"\nmetadata_max_age_ms = "${env:AGE}"\nssl_password = "${env:AGE}"'
    options = load(CLIENT + client, CHECK="false", AGE="100").clusters["east"].source_options()
    assert [options[k] for k in ("ssl_check_hostname", "metadata_max_age_ms", "ssl_password")] == [
        "false",
        "100",
        "100",
    ]
    assert refused(CLIENT + 'metadata_max_age_ms = "100"').endswith("must be a whole number")


def test_a_file_that_is_not_there_or_not_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "nope.toml", {})
    assert str(caught.value) == f"{tmp_path}/nope.toml: cannot be read: No such file or directory"
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(tmp_path / "latin.toml", {})


def test_a_relative_root_is_of_the_working_directory_and_a_uri_is_left_alone(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(SMALLEST.replace("/lake", "build/lake")).lake.root == f"{tmp_path}/build/lake"
    assert load(SMALLEST.replace("/lake", "s3a://bucket/lake")).lake.root == "s3a://bucket/lake"
    assert load(SMALLEST.replace("/lake", "dbfs:/lake")).lake.root == "dbfs:/lake"


def test_no_secret_is_shown_by_a_config_or_by_what_is_wrong_with_it(load: Load) -> None:
    secrets = 'sasl_plain_password = "hunter2"\nssl_password = "${env:PW}"\n'
    config = load(CLIENT.replace("/lake", "s3a://k:${env:PW}@lake") + secrets, PW="hunter2")
    east = config.clusters["east"]
    assert config.lake.root == "s3a://k:hunter2@lake"
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
def test_several_expressions_become_one(patterns: list[str], matching: str, other: str) -> None:
    combined = re.compile(any_of(patterns))
    assert combined.search(matching)
    assert not combined.search(other)


def test_every_client_option_of_kafka_python_is_known() -> None:
    assert ClientConfig.model_fields.keys() == KafkaConnectionManager.DEFAULT_CONFIG.keys()


def test_the_configs_that_come_along_are_valid() -> None:
    local = load_config(ROOT / "conf/local.toml", {})
    assert (local.snapshot.schedule_ms, list(local.clusters)) == (1_000, ["local"])
    env = {"EAST_PASSWORD": "x", "WEST_BOOTSTRAP": "kafka.west.example.com:9093", "WEST_KEY_PASSWORD": "x"}
    assert list(load_config(ROOT / "conf/production.example.toml", env).clusters) == ["east", "west"]


def test_what_the_example_shows_as_defaults_are_the_defaults(load: Load) -> None:
    text = (ROOT / "conf/production.example.toml").read_text()
    uncommented = re.sub(
        r"^# (?=(max_|\w+_timeout|retr|\w+_per_task|index_lookups)\w* = )", "", text, flags=re.MULTILINE
    )
    env = {"EAST_PASSWORD": "x", "WEST_BOOTSTRAP": "kafka.west.example.com:9093", "WEST_KEY_PASSWORD": "x"}
    assert uncommented.count("# ") == text.count("# ") - 12
    assert load(uncommented, **env) == load(text, **env)


def test_there_is_one_error_tree() -> None:
    assert (LaglakeError.exit_status, ConfigError.exit_status) == (1, 2)
