"""A password that is given to laglake appears nowhere: not in logs, plans, errors, tables or on Spark's web pages."""

import json
import logging
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin

import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.common.errors import ClusterError, ConfigError
from pipeline.config import load_config
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.session import CONF, read_defaults
from pipeline.snapshot import take_snapshots
from pipeline.tables import CLIENT_POSITIONS, LAG, SNAPSHOTS, TABLES
from tests.conftest import KAFKA_USERS, ConnectServer
from tests.helpers import secrets
from tests.helpers.quiet import seed, write_config
from tests.helpers.s3 import BUCKET, S3, s3_server
from tests.helpers.secrets import (
    LOGIN,
    PASSWORD_VARIABLE,
    USER,
    WRONG_PASSWORD,
    leaks,
    say_everything,
    say_locations,
    stored,
)

PREFIX = "secrets"
PASSWORD = KAFKA_USERS[USER]
ENV = {PASSWORD_VARIABLE: PASSWORD}
PAGES = 150
ASSETS = r"\.(css|js|png|svg|ico)|/static/|^https?:"
TIMEOUT_S = 500
pytestmark = pytest.mark.timeout(TIMEOUT_S + 100)


@pytest.fixture(scope="module", autouse=True)
def hiding(spark: SparkSession) -> Iterator[None]:
    """Spark hides passwords in texts, with the pattern that jobs have."""
    name = "spark.sql.redaction.string.regex"
    of_other_tests = spark.conf.get(name)
    spark.conf.unset(name)
    assert spark.conf.get(name) == read_defaults(CONF / "spark-defaults.conf")["spark.redaction.string.regex"]
    yield
    spark.conf.set(name, of_other_tests)


@pytest.fixture(scope="module")
def servers(kafka: EmbeddedKafka) -> str:
    seed(kafka, PREFIX)
    return kafka.sasl_bootstrap_servers


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def locations(s3: S3, kafka: EmbeddedKafka, servers: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Lines of a config: where positions and logs are, with a password in each URL."""
    return stored(s3, kafka, PREFIX, tmp_path_factory.mktemp("recordings"))


@pytest.mark.parametrize("text", [PASSWORD, json.dumps(PASSWORD), repr(PASSWORD), "se&quot;cret\\#1", WRONG_PASSWORD])
def test_a_leak_is_found_however_it_is_escaped(text: str) -> None:
    assert leaks(f"sasl_plain_password -> {text}, x -> y")


def test_a_classic_session_shows_no_password(
    spark: SparkSession,
    servers: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = load_config(write_config(tmp_path, PREFIX, {"east": servers}, client=LOGIN), ENV)
    for logger in (None, "kafka", "pipeline"):
        caplog.set_level(logging.DEBUG, logger=logger)
    (outcome,) = take_snapshots(spark, config, ["east"], None, utc_now)
    assert outcome.status == "complete"
    said = say_everything(spark, config.clusters["east"].source_options())
    lake = Lake(spark, config.lake)
    said += [str(lake.frame(table).collect()) for table in TABLES]
    output = capfd.readouterr()
    assert "== Analyzed Logical Plan ==" in output.out
    assert "claimed by run" in caplog.text
    assert leaks("\n".join([output.out, output.err, caplog.text, *said, repr(outcome), repr(config)])) == []


@pytest.mark.thorough
def test_locations_with_passwords_in_their_urls_show_none(
    spark: SparkSession,
    servers: str,
    s3: S3,
    locations: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    file = write_config(tmp_path, PREFIX, {"east": servers}, client=LOGIN)
    file.write_text(file.read_text() + locations)
    config = load_config(file, ENV)
    for logger in ("laglake", "pipeline"):
        caplog.set_level(logging.DEBUG, logger=logger)
    (outcome,) = take_snapshots(spark, config, ["east"], None, utc_now)
    assert outcome.status == "partial"
    compute_lag(spark, config, ["east"], utc_now)
    lake = Lake(spark, config.lake)
    reported = {row["endpoint"].split("?")[0]: row["error"] for row in lake.frame(CLIENT_POSITIONS).collect()}
    assert reported["http://127.0.0.1:1/metrics"] == "Connection refused"
    assert reported[f"s3://{BUCKET}/absent"].startswith("is not a file or folder that can be read")
    # They were read with the password, else this test shows nothing.
    kept = s3.client().list_objects_v2(Bucket=BUCKET, Prefix="state/")["Contents"]
    assert [object_ for object_ in kept if object_["Key"].endswith(".json.gz")]
    assert {row["bytes_method"] for row in lake.frame(LAG).collect()} >= {"exact"}
    said = [str(lake.frame(table).collect()) for table in TABLES] + say_locations(spark, config.clusters["east"])
    output = capfd.readouterr()
    assert leaks("\n".join([output.out, output.err, caplog.text, *said, repr(outcome), repr(config)])) == []


def test_a_wrong_password_is_a_reason_without_the_password(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    file = write_config(tmp_path, PREFIX, {"east": servers}, client=LOGIN)
    config = load_config(file, {PASSWORD_VARIABLE: WRONG_PASSWORD})
    with pytest.raises(ClusterError, match="check sasl_plain_username and sasl_plain_password") as without_lake:
        take_snapshots(spark, config, ["east"], None, utc_now)
    assert leaks(str(without_lake.value)) == []
    Lake(spark, config.lake).prepare()
    (outcome,) = take_snapshots(spark, config, ["east"], None, utc_now)
    assert outcome.status == "failed"
    assert "check sasl_plain_username and sasl_plain_password" in outcome.message
    assert leaks(str(Lake(spark, config.lake).frame(SNAPSHOTS).collect()) + outcome.message) == []


@pytest.fixture(scope="module")
def client(
    connect_server: ConnectServer, servers: str, locations: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """All output of a client process that has taken a snapshot, read and explained each source, and failed."""
    folder = tmp_path_factory.mktemp("client")
    file = write_config(folder, PREFIX, {"east": servers}, client=LOGIN)
    file.write_text(file.read_text() + locations)
    command = [sys.executable, "-P", secrets.__file__, str(file)]
    env = connect_server.client_env() | ENV
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert "exit status 0" in ran.stdout, ran.stderr[-4000:]
    return ran.stdout + ran.stderr


@pytest.mark.thorough
def test_a_connect_client_shows_no_password(client: str) -> None:
    assert "== Analyzed Logical Plan ==" in client
    assert f"DEBUG:pipeline:{secrets.ALL_IS_LOGGED}" in client
    assert leaks(client) == []


@pytest.mark.thorough
def test_the_pages_of_a_connect_server_show_no_password(client: str, connect_server: ConnectServer) -> None:
    pages = crawl(connect_server.ui)
    of_connect = "".join(text for url, text in pages.items() if "/connect" in url)
    assert "sasl_plain_username" in of_connect, "the options must be there, else this test shows nothing"
    assert USER in of_connect
    assert f"{BUCKET}/requests" in of_connect
    assert [url for url in pages if "/SQL/execution" in url]
    assert {url: found for url, text in pages.items() if (found := leaks(text))} == {}


@pytest.mark.thorough
def test_the_rest_api_and_the_event_log_of_a_connect_server_show_no_password(
    client: str, connect_server: ConnectServer
) -> None:
    api = f"{connect_server.ui}/api/v1/applications"
    (application,) = json.loads(fetch(api))
    parts = ("sql?details=true&planDescription=true&length=1000", "jobs", "stages", "environment", "executors")
    answers = [fetch(f"{api}/{application['id']}/{part}") for part in parts]
    assert "kafka_watermarks" in answers[0]
    assert leaks("".join(answers)) == []
    events = "".join(path.read_text() for path in connect_server.event_logs.rglob("*") if path.is_file())
    assert "SparkListenerConnectOperationStarted" in events
    assert leaks(events) == []


@pytest.mark.thorough
def test_the_log_of_a_connect_server_shows_no_password(client: str, connect_server: ConnectServer) -> None:
    log = connect_server.log.read_text()
    assert "SparkConnectServer" in log
    assert leaks(log) == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("no_such_option = 1", id="an unknown key"),
        pytest.param('security_protocol = "NONSENSE"', id="a wrong choice"),
        pytest.param('request_timeout_ms = "soon"', id="a wrong type"),
        pytest.param('sasl_mechanism = "${env:ABSENT}"', id="a missing variable"),
    ],
)
def test_a_config_that_is_refused_shows_no_password(tmp_path: Path, line: str) -> None:
    name = line.partition(" ")[0]
    lines = [other for other in LOGIN.splitlines() if not other.startswith(name)]
    file = write_config(tmp_path, PREFIX, {"east": "127.0.0.1:1"}, client="\n".join([*lines, line]))
    with pytest.raises(ConfigError) as caught:
        load_config(file, ENV)
    assert name in str(caught.value)
    assert leaks(f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {caught.value.__context__!r}") == []


def utc_now() -> datetime:
    return datetime.now(UTC)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode(errors="replace"))


def crawl(start: str) -> dict[str, str]:
    """Every page that the links in a Spark UI lead to, once each, including the newest executions."""
    pages: dict[str, str] = {}
    waiting = [f"{start}/connect/", f"{start}/SQL/", f"{start}/environment/", f"{start}/jobs/", f"{start}/stages/"]
    while waiting and len(pages) < PAGES:
        url = waiting.pop(0)
        if url in pages or not url.startswith(start) or "kill" in url or "threadDump" in url:
            continue
        with suppress(HTTPError):
            pages[url] = fetch(url)
            links = re.findall(r'href="([^"#]+)"', pages[url])
            waiting += [urljoin(url, link.replace("&amp;", "&")) for link in links if not re.search(ASSETS, link)]
    return pages
