"""The options of the Kafka data sources, and the message for each mistake."""

import time

import pytest

from pipeline.common.errors import ConfigError, TooLateError
from pipeline.kafka.options import KNOWN, NameFilter, SourceOptions
from tests.helpers.kafka import parsed

SERVERS = "a:9092"


def test_only_the_servers_are_required() -> None:
    options = parsed("a:9092, b:9093 ,")
    assert options.bootstrap_servers == ("a:9092", "b:9093")
    assert options.client == {}
    assert (options.connect_timeout_ms, options.request_timeout_ms, options.task_timeout_ms) == (5_000, 30_000, 300_000)
    assert (options.retries, options.retry_backoff_ms, options.count_requests) == (5, 100, False)


def test_own_options_become_numbers_and_booleans() -> None:
    options = parsed(SERVERS, retries="0", retry_backoff_ms="0", groups_per_task="1", count_requests="TRUE")
    assert (options.retries, options.retry_backoff_ms, options.groups_per_task) == (0, 0, 1)
    assert options.count_requests is True


def test_client_options_have_the_types_of_kafka_pythons_defaults() -> None:
    client = parsed(
        SERVERS,
        security_protocol="SSL",
        ssl_check_hostname="false",
        reconnect_backoff_ms="7",
        api_version="2.8.1",
        sasl_plain_password="1234",
    ).client
    assert client == {
        "security_protocol": "SSL",
        "ssl_check_hostname": False,
        "reconnect_backoff_ms": 7,
        "api_version": (2, 8, 1),
        "sasl_plain_password": "1234",
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("retires", "5", "unknown option 'retires'; options are .*retries", id="a typing error"),
        pytest.param("path", "x", "unknown option 'path'", id="load() with a path"),
        pytest.param("ssl_context", "x", "unknown option 'ssl_context'", id="an object"),
        pytest.param("ssl_crlfile", "x", "unknown option 'ssl_crlfile'", id="an option that kafka-python fails at"),
        pytest.param("socket_options", "x", "unknown option 'socket_options'", id="a list"),
        pytest.param("retries", "many", "option 'retries' must be a whole number", id="a word"),
        pytest.param("retries", "-1", "option 'retries' must be at least 0", id="negative"),
        pytest.param("groups_per_task", "0", "option 'groups_per_task' must be at least 1", id="an empty chunk"),
        pytest.param("request_timeout_ms", "0", "option 'request_timeout_ms' must be at least 1", id="no time"),
        pytest.param("count_requests", "yes", "option 'count_requests' must be true or false", id="yes"),
        pytest.param("reconnect_backoff_ms", "1s", "option 'reconnect_backoff_ms' must be a whole number", id="unit"),
        pytest.param("ssl_check_hostname", "1", "option 'ssl_check_hostname' must be true or false", id="one"),
        pytest.param("api_version", "new", "option 'api_version' must be a version such as 3.7", id="no version"),
        pytest.param("groups_allow", "(", "bad regular expression '\\('", id="half a group"),
        pytest.param("topics_deny", "*", "bad regular expression '\\*'", id="a glob"),
        pytest.param("bootstrap_servers", " , ", "'bootstrap_servers' is missing", id="no server"),
    ],
)
def test_an_error_names_the_wrong_option(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SourceOptions.parse({"bootstrap_servers": SERVERS} | {name: text})


def test_a_wrong_value_is_not_shown_because_it_may_be_a_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(SERVERS, reconnect_backoff_ms="secret#1")
    assert "secret" not in str(caught.value)


def test_options_of_kafka_python_that_take_objects_are_unknown() -> None:
    assert not {"ssl_context", "metrics", "sasl_oauth_token_provider"} & KNOWN


@pytest.mark.parametrize(
    ("allow", "deny", "passed"),
    [
        pytest.param(None, None, ["__c", "ab", "b", "öb\n"], id="no limit"),
        pytest.param("b", None, ["ab", "b", "öb\n"], id="anywhere in the name"),
        pytest.param("^b$", None, ["b"], id="the whole name"),
        pytest.param(None, "^__", ["ab", "b", "öb\n"], id="all but"),
        pytest.param("b", "^b|\n", ["ab"], id="deny wins"),
        pytest.param("", "", ["__c", "ab", "b", "öb\n"], id="empty is no limit"),
        pytest.param("^$", None, [], id="nothing"),
    ],
)
def test_a_filter_selects_sorted_names(allow: str | None, deny: str | None, passed: list[str]) -> None:
    names = NameFilter(allow, deny)
    assert names.select(["öb\n", "b", "ab", "__c"]) == passed
    assert [name for name in ("__c", "ab", "b", "öb\n") if names.matcher()(name)] == passed


def test_a_long_name_is_filtered_quickly() -> None:
    """A name of 32 KB takes two seconds, and there may be thousands."""
    names = [f"{number:06}" + "a" * 32_000 for number in range(50)]
    before = time.process_time()
    assert NameFilter(r"(\w+\.)*prod", None).select(names) == []
    assert NameFilter(None, "^00000[1-9]").select(names) == [names[0], *names[10:]]
    assert time.process_time() - before < 5


def test_the_representation_holds_no_password() -> None:
    options = parsed(SERVERS, sasl_plain_password="secret#1", ssl_password="secret#2")
    assert repr(options) == str(options) == "SourceOptions(a:9092)"


def test_the_error_of_a_task_that_begins_too_late_names_the_setting() -> None:
    options = parsed(SERVERS, read_timeout_ms="1")
    with pytest.raises(TooLateError) as refused:
        options.until(0)
    assert str(refused.value) == "the cluster was not read in time (limits.read_timeout)"
