"""The message for each mistake in a config: a line that names the file and the key."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config import Config
from pipeline.config.lake import lake_at

SMALLEST = '[lake]\nroot = "/lake"\n[clusters.east]\nbootstrap_servers = ["10.0.0.1:9092"]\n'
CLIENT = SMALLEST + "[clusters.east.client]\n"
SECRET = "is secret and must not be written into the file: use ${env:NAME} or ${secret:SCOPE/KEY}"
Load = Callable[..., Config]
Refuse = Callable[..., str]


@pytest.fixture
def refused(load: Load, tmp_path: Path) -> Refuse:
    """The message for an invalid config, without the file's name at the beginning of each line."""

    def refused(text: str, **env: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, **env)
        lines = str(caught.value).split("\n")
        assert all(line.startswith(f"{tmp_path}/c.toml: ") for line in lines)
        return "\n".join(line.removeprefix(f"{tmp_path}/c.toml: ") for line in lines)

    return refused


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
            CLIENT + 'sasl_plain_password = "hunter2"',
            f"clusters.east.client.sasl_plain_password: {SECRET}",
            id="a password in the file",
        ),
        pytest.param(
            CLIENT + 'ssl_password = "hunter2"',
            f"clusters.east.client.ssl_password: {SECRET}",
            id="the password of a key in the file",
        ),
        pytest.param(
            CLIENT + 'proxy_url = "socks5://me:hunter2@h:1"',
            "clusters.east.client.proxy_url: has a user or a password, which must not be written into the file: use "
            "${env:NAME} or ${secret:SCOPE/KEY}",
            id="the password of a proxy in the file",
        ),
        pytest.param(
            SMALLEST + '[[clusters.east.positions]]\nsource = "kafka_client_metrics"\nendpoints = ["http://a"]\n'
            'password = "hunter2"',
            f"clusters.east.positions[0].password: {SECRET}",
            id="the password of endpoints in the file",
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
            CLIENT + 'ssl_crlfile = "x"',
            "clusters.east.client.ssl_crlfile: cannot be set: kafka-python fails to read it",
            id="a client option that does not work",
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
        pytest.param(SMALLEST + f"x = {'9' * 5_000}", "a number has too many digits", id="a long number"),
        pytest.param(SMALLEST + f"x = {'[' * 9_000}", "tables or lists are nested too deeply", id="nested lists"),
    ],
)
def test_a_mistake_is_an_error_of_one_line_with_file_and_key(refused: Refuse, text: str, line: str) -> None:
    assert refused(text, PW="hunter2") == line


@pytest.mark.parametrize(
    "root",
    [
        "s3a://key:hunter2@bucket/lake",
        "S3A://key:hunt@hunter2@bucket/lake",
        "s3a://key:hunt/hunter2@bucket/lake",
        "s3a://key:/hunter2@bucket/lake",
        "s3a://key:hunter2%2F%40@bucket/lake",
        "s3a://:hunter2@bucket/lake",
        "s3a:/key:hunter2@bucket/lake",
        "s3a://key:123,hunter2@bucket/lake",
    ],
)
def test_a_lake_with_a_password_is_refused_without_showing_it(refused: Refuse, root: str) -> None:
    line = "lake.root: must not have a password in its URI; set the keys of the store in Spark's settings"
    assert refused(SMALLEST.replace("/lake", root)) == line
    with pytest.raises(ConfigError) as caught:
        lake_at(root)
    assert str(caught.value) == line.replace("lake.root:", "the location of a lake")


@pytest.mark.parametrize(
    "root",
    [
        "abfss://container@account/a:b@c",
        "hdfs://host:8020/a@b",
        "hdfs://nn1:8020,nn2:8020/lake@v2",
        "hdfs://nn1:8020,nn2,nn3:8020/lake@v2",
        "s3a://bucket/a:b@c",
        "/lake/a:b@c",
        "hdfs://me@host/a",
    ],
)
def test_an_at_sign_without_a_password_is_allowed(load: Load, root: str) -> None:
    assert load(SMALLEST.replace("/lake", root)).lake.root == root


def test_each_mistake_has_its_own_line(refused: Refuse) -> None:
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


@pytest.mark.parametrize("reference", ["${env:}", "${env:A B}", "${env:A", "${env:1A}"])
def test_a_malformed_reference_is_refused(refused: Refuse, reference: str) -> None:
    text = SMALLEST.replace("/lake", f"/x/{reference}")
    assert refused(text, A="a") == "lake.root: a reference is written ${env:NAME}"


def test_a_reference_may_give_a_number_or_a_boolean_but_plain_text_may_not(load: Load, refused: Refuse) -> None:
    client = 'ssl_check_hostname = "${env:CHECK}"\nmetadata_max_age_ms = "${env:AGE}"\nssl_password = "${env:AGE}"'
    options = load(CLIENT + client, CHECK="false", AGE="100").clusters["east"].source_options()
    assert [options[k] for k in ("ssl_check_hostname", "metadata_max_age_ms", "ssl_password")] == [
        "false",
        "100",
        "100",
    ]
    assert refused(CLIENT + 'metadata_max_age_ms = "100"').endswith("must be a whole number")
