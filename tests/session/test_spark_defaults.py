"""conf/spark-defaults.conf: which values Spark redacts. The expressions there mean the same in Java and in Python."""

import re
from fnmatch import fnmatch
from typing import Any

import pytest
from kafka.net.manager import KafkaConnectionManager
from py4j.java_gateway import JVMView
from py4j.protocol import REFLECTION_COMMAND_NAME
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from pipeline.config.kafka_logins import LoginConfig
from pipeline.session import is_local, read_defaults
from pipeline.session.java_classes import CLASSES, FULL_NAME_ONLY
from tests.conftest import ROOT

DEFAULTS = read_defaults(ROOT / "conf" / "spark-defaults.conf")
SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('options {\n key: "ssl_password"\n value: "hun\\"ter2, hunter2} x"\n}', id="the page of Connect"),
        pytest.param("[a#7], [ssl_password=hunter2, other=vis]", id="the options of a scan"),
        pytest.param("Map(sasl_plain_password -> hunter2, other -> vis)", id="a map of Scala"),
        pytest.param('{"sasl_plain_password": "x hunter2", "other": "vis"}', id="JSON"),
        pytest.param("OPTIONS (sasl_plain_password 'it\\'s hunter2', other 'vis')", id="SQL"),
        pytest.param("OPTIONS (`ssl_password` = 'hunter2', other = 'vis')", id="SQL with quoted names"),
        pytest.param("{'proxy_url': 'http://u:hunter2@proxy', 'other': 'vis'}", id="a mapping of Python"),
        pytest.param("ACCESS.KEY = hunter2", id="capitals"),
        pytest.param("[path=s3://key:hunter2@bucket/vis]", id="a URL"),
        pytest.param("endpoints -> http://user:p@ss@hunter2@app:1/vis,http://:hunter2@b", id="URLs with at signs"),
        pytest.param("[path=s3://key:hun/hunter2@bucket/vis]", id="a URL with a slash in its key"),
        pytest.param("[path=s3://key:/hunter2/x@bucket/vis]", id="a URL with a slash before its key"),
        pytest.param("S3A://KEY:hunter2%2F%40@bucket/vis", id="an escaped URL"),
    ],
)
def test_only_the_secret_in_a_text_is_hidden(text: str) -> None:
    hidden = re.sub(DEFAULTS["spark.redaction.string.regex"], "***", text)
    assert SECRET not in hidden
    assert ("vis" in hidden) == ("vis" in text)


def test_a_session_on_one_machine_listens_only_locally(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.parametrize(("master", "expected"), [("local", True), ("local[*]", True), ("local-cluster[2,1,1]", False)])
def test_only_local_masters_are_on_one_machine(master: str, expected: bool) -> None:
    assert is_local(master) is expected


def test_a_requested_connector_is_kept() -> None:
    excluded = DEFAULTS["spark.jars.excludes"].split(",")
    assert not any(fnmatch("org.apache.hadoop:hadoop-aws", pattern) for pattern in excluded)
    assert any(fnmatch("org.apache.hadoop:hadoop-client-api", pattern) for pattern in excluded)


@pytest.mark.parametrize(
    "text",
    [
        "Password authentication failed for kafka",
        "tokens are counted",
        "no secrets here",
        "abfss://lake@account.dfs.core.windows.net/a:b@c",
        "s3://bucket/a:b@c hdfs://host:8020/x",
        "http://host:9404/a@b,http://host/a:b@c",
    ],
)
def test_ordinary_words_are_not_hidden(text: str) -> None:
    hidden = re.sub(DEFAULTS["spark.redaction.string.regex"], "***", text)
    assert hidden == text


def test_long_text_is_searched_quickly() -> None:
    pattern = re.compile(DEFAULTS["spark.redaction.string.regex"])
    assert pattern.search("password" * 20_000) is None
    assert pattern.search("://a:" * 100_000) is None
    assert pattern.search(f"://a:{'/' * 500_000}") is None
    assert pattern.sub("***", f'password="{"x" * 1_000_000}"') == "***"


def test_every_option_of_the_client_that_holds_a_secret_is_hidden_by_its_name() -> None:
    is_hidden = re.compile(DEFAULTS["spark.redaction.regex"]).search
    hidden = {name for name in KafkaConnectionManager.DEFAULT_CONFIG if is_hidden(name)}
    assert hidden == {"proxy_url", "sasl_oauth_token_provider", "sasl_plain_password", "ssl_password"}
    secret = {name for name, field in LoginConfig.model_fields.items() if "${env:NAME}" in (field.description or "")}
    assert secret == {"sasl_oauthbearer_client_secret", "sasl_aws_secret_access_key", "sasl_aws_session_token"}
    in_text = re.compile(DEFAULTS["spark.redaction.string.regex"])
    for name in secret:
        assert is_hidden(name)
        # As Spark Connect's page shows options.
        assert SECRET not in in_text.sub("***", f'key: "{name}"\n    value: "{SECRET}"')


def test_pyspark_finds_the_classes_that_are_kept(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    asked = JVMView(jvm._gateway_client, "another", id=jvm._id)  # has the same imports, and keeps nothing
    for name in CLASSES:
        assert getattr(jvm, name)._fqn == getattr(asked, name)._fqn == name
        short = name.rpartition(".")[2]
        if short not in FULL_NAME_ONLY:
            assert getattr(jvm, short)._fqn == getattr(asked, short)._fqn == name


def test_a_column_is_created_without_asking_for_classes_and_methods_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def column() -> Column:
        return F.when(F.col("a") > 1, F.greatest("a", "b")).otherwise(F.lit(0))

    column()
    client = type(spark.sparkContext._jvm._gateway_client)
    sent: list[str] = []
    send = client.send_command

    def counted(self: Any, command: str, *args: Any, **options: Any) -> Any:
        sent.append(command)
        return send(self, command, *args, **options)

    monkeypatch.setattr(client, "send_command", counted)
    column()
    assert sent
    assert [command for command in sent if command.startswith(REFLECTION_COMMAND_NAME)] == []
