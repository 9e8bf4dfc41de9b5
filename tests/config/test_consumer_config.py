"""The settings about consumers: where they report their positions, and how they are configured."""

from collections.abc import Callable

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config import Config
from pipeline.config.consumers import ConsumerSettings

SMALLEST = '[lake]\nroot = "/lake"\n[clusters.east]\nbootstrap_servers = ["10.0.0.1:9092"]\n'
SOURCE = SMALLEST + "[[clusters.east.positions]]\n"

Load = Callable[..., Config]


def test_a_table_of_positions_becomes_options_of_its_data_source(load: Load) -> None:
    text = f"""{SOURCE}source = "kafka_client_metrics"
endpoints = ["http://app-1:9404/metrics", "https://app-2:8778/jolokia"]
user = "u"
password = "${{env:APP}}"
timeout = "5s"
group_id = "g"
names = {{ app_lag = "records_lag" }}
"""
    (found,) = load(text, APP="s3cret").clusters["east"].positions
    assert found.group_id == "g"
    assert found.options(7) == {
        "endpoints": "http://app-1:9404/metrics,https://app-2:8778/jolokia",
        "user": "u",
        "password": "s3cret",
        "timeout_ms": "5000",
        "names": '{"app_lag": "records_lag"}',
    }
    assert "s3cret" not in repr(found)


def test_each_snapshot_is_a_batch_of_a_request_log(load: Load) -> None:
    text = f'{SOURCE}source = "kafka_request_log"\npaths = ["/logs/1", "/logs/2"]\nstate = "/state"\n'
    (found,) = load(text).clusters["east"].positions
    assert found.options(7) == {"path": "/logs/1,/logs/2", "state": "/state", "batch": "7"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('source = "kafka_client_metrics"', "clusters.east.positions[0]: must have either endpoints or paths"),
        ('source = "jmx"\npaths = ["/a"]', "clusters.east.positions[0].source: must be 'kafka_client_metrics',"),
        ('source = "librdkafka_statistics"\npaths = ["/a,b"]', "no endpoint and no path may contain a comma"),
        (
            'source = "kafka_client_metrics"\nendpoints = ["http://me:secret@app:9404/metrics"]',
            "no endpoint may have a user or a password in its URL; set user and password",
        ),
        ('source = "kafka_request_log"\npaths = ["/a"]', "kafka_request_log needs state"),
        (
            'source = "kafka_request_log"\npaths = ["/a"]\nstate = "/s"\nuser = "u"',
            "user is not a setting of source kafka_request_log",
        ),
        (
            'source = "kafka_client_metrics"\npaths = ["/a"]\nstate = "/s"',
            "state is not a setting of source kafka_client_metrics",
        ),
        ('source = "kafka_client_metrics"\npath = ["/a"]', "positions[0].path: unknown key; did you mean paths?"),
    ],
)
def test_a_mistake_in_a_table_of_positions_is_reported_with_its_key(load: Load, table: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"{SOURCE}{table}\n")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:p4ss@host/metrics",
        "http://user:p@p4ss@host",
        "http://user:p/p4ss@host/metrics",
        "http://user:p?#p4ss@host/metrics",
        "http://user:p4ss%40@host/metrics",
        "http://user%3Ap4ss%40host/metrics",
        "HTTPS://p4ss@host/metrics",
        "http:/user:p4ss@host/metrics",
        "user:p4ss@host/metrics",
        "user%3Ap4ss%40host/metrics",
    ],
)
def test_an_endpoint_with_a_password_is_refused_without_showing_it(load: Load, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f'{SOURCE}source = "kafka_client_metrics"\nendpoints = ["http://app/metrics", "{url}"]\n')
    (line,) = str(caught.value).splitlines()
    assert "clusters.east.positions[0]: no endpoint may have a user or a password in its URL" in line
    assert "p4ss" not in f"{line} {caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"


def test_an_at_sign_in_a_path_may_be_escaped(load: Load) -> None:
    url = "http://app:9404/a%40b"
    (found,) = load(f'{SOURCE}source = "kafka_client_metrics"\nendpoints = ["{url}"]\n').clusters["east"].positions
    assert found.endpoints == (url,)


def test_settings_of_clients_have_kafkas_names_with_or_without_quotes(load: Load) -> None:
    text = f"""{SMALLEST}[clients."mgroup"]
queued.max.message.chunks = 1
"fetch.message.max.bytes" = 2048
isolation.level = "read_committed"
threads = 3
"""
    found = load(text).clients["mgroup"]
    assert (found.queued_max_message_chunks, found.fetch_message_max_bytes, found.threads) == (1, 2048, 3)
    assert found.isolation_level == "read_committed"
    assert found.heap_bytes is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("queued.max.message.chunks = 0", "clients.mgroup.'queued.max.message.chunks': must be 1 or more"),
        ("queued.max.message.chunk = 1", "did you mean queued.max.message.chunks?"),
        ('isolation.level = "dirty"', "must be 'read_committed' or 'read_uncommitted'"),
    ],
)
def test_a_mistake_in_a_setting_of_a_client_is_reported(load: Load, line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"{SMALLEST}[clients.mgroup]\n{line}\n")
    assert message in str(caught.value)


def test_the_settings_that_laglake_uses_are_taken_from_a_consumers_properties() -> None:
    found = ConsumerSettings.of_properties(
        {"group.id": "g", "fetch.message.max.bytes": "10", "zookeeper.connect": "z", "auto.commit.interval.ms": "5000"}
    )
    assert (found.group_id, found.fetch_message_max_bytes, found.auto_commit_interval_ms) == ("g", 10, 5000)
