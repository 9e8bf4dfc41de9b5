"""OAUTHBEARER on a real broker that validates the tokens of a small issuer."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from threading import Timer
from typing import Any, NamedTuple

import pytest
import trustme
from kafka import KafkaAdminClient
from kafka.protocol.metadata import MetadataRequest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.nodes import Listener
from demo.workload.seeding import commit_offsets
from pipeline.common.check import Check
from pipeline.common.errors import ClusterError
from pipeline.config import Config
from pipeline.kafka import oauth
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.doctor import check_cluster
from pipeline.kafka.oauth import TokenRequest
from pipeline.kafka.snapshot import SnapshotSource
from pipeline.snapshot.land import reason_of
from tests.helpers.certificates import authority_file, signed
from tests.helpers.issuer import AUDIENCE, CLIENT_SECRET, NAME, Issuer, reply
from tests.helpers.kafka import parsed, read
from tests.helpers.network import Proxy, Request
from tests.helpers.quiet import seed

PREFIX = "oauth"
API_VERSIONS, OFFSET_FETCH, SASL_AUTHENTICATE, SASL_HANDSHAKE = 18, 9, 36, 17
OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    "oauthbearer.sasl.server.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    ),
    "connections.max.reauth.ms": "3600000",
}
EXTENSIONS = "logicalCluster=lkc-1,identityPoolId=pool-2"
SECRETS = (CLIENT_SECRET, "t0ken-s3cret", "eyJ")  # every JSON web token begins with the last one
CREDENTIALS = "check sasl_oauthbearer_client_id and sasl_oauthbearer_client_secret"


class Secured(NamedTuple):
    """A broker with OAUTHBEARER, and what its clients need."""

    kafka: EmbeddedKafka
    issuer: Issuer
    client: dict[str, str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that checks the signature, the issuer, the audience and the end of each token."""
    folder = tmp_path_factory.mktemp("oauth")
    authority = trustme.CA()
    client = {"sasl_oauthbearer_ca_file": str(authority_file(authority, folder / "ca.pem"))}
    with ExitStack() as stack:
        issuer = stack.enter_context(Issuer().serving(signed(authority, folder / "issuer.pem")))
        keys = issuer.write_keys(folder / "keys.json").as_uri()
        properties = {
            "sasl.oauthbearer.jwks.endpoint.url": keys,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": NAME,
        }
        listeners = {"OAUTH": Listener("SASL_PLAINTEXT", OAUTH)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}")
            kafka = EmbeddedKafka(folder / "kafka", listeners=listeners, properties=properties)
            stack.enter_context(kafka)
        seed(kafka, PREFIX)
        yield Secured(kafka, issuer, client)


@pytest.fixture(autouse=True)
def no_tokens_of_other_tests() -> None:
    oauth.keeper_of.cache_clear()


def login(secured: Secured, **changes: str) -> dict[str, str]:
    secured.issuer.lifetime_s = 300.0
    secured.issuer.audience = AUDIENCE
    return {"security_protocol": "SASL_PLAINTEXT", **secured.client, **secured.issuer.login(**changes)}


def test_a_broker_that_validates_tokens_is_read(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    options = login(secured) | {"groups_allow": f"^{PREFIX}-billing"}
    with caplog.at_level(logging.DEBUG):
        rows = read(CommittedOffsetsSource, secured.kafka.listener("OAUTH"), **options)
    assert [(row["partition"], row["committed_offset"]) for row in rows] == [(0, 2), (1, 5)]
    assert not any(secret in caplog.text for secret in SECRETS)


def test_all_connections_of_a_process_share_a_token(secured: Secured) -> None:
    before = len(secured.issuer.requests)
    for _ in range(2):
        read(SnapshotSource, secured.kafka.listener("OAUTH"), groups_per_task="1", **login(secured))
    assert len(secured.issuer.requests) == before + 1


def test_extensions_are_sent_with_the_token(secured: Secured) -> None:
    options = login(secured, sasl_oauthbearer_extensions=EXTENSIONS)
    with Proxy() as proxy, KafkaClient(parsed(secured.kafka.listener("OAUTH"), proxy_url=proxy.url, **options)):
        pass
    sent = [request.frame for request in proxy.requests if request.api_key == SASL_AUTHENTICATE]
    assert sent
    assert all(b"\x01logicalCluster=lkc-1\x01identityPoolId=pool-2\x01\x01" in frame for frame in sent)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(
            lambda issuer: setattr(issuer, "audience", "another"),
            "rejects the login: check sasl_oauthbearer_scope and sasl_oauthbearer_extensions, and that the brokers "
            "trust the token's issuer and expect its audience",
            id="a token for another audience",
        ),
        pytest.param(lambda issuer: setattr(issuer, "lifetime_s", -60.0), "rejects the login: check ", id="expired"),
    ],
)
def test_a_token_that_the_broker_rejects_is_reported(
    secured: Secured, spoil: Callable[[Issuer], None], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = login(secured)
    spoil(secured.issuer)
    server = secured.kafka.listener("OAUTH")
    with caplog.at_level(logging.DEBUG), pytest.raises(ClusterError) as caught:
        KafkaClient(parsed(server, **options))
    assert str(caught.value).startswith(f"{server} {said}")
    assert not any(secret in f"{caught.value!r} {caplog.text}" for secret in SECRETS)


def test_without_a_token_the_endpoint_is_blamed_and_not_the_broker(secured: Secured) -> None:
    options = login(secured, sasl_oauthbearer_client_secret="wr0ng-t0ken-s3cret")
    with pytest.raises(ClusterError) as caught:
        KafkaClient(parsed(secured.kafka.listener("OAUTH"), **options))
    assert (
        str(caught.value) == f"no token from {secured.issuer.token_url}: HTTP status 401, invalid_client: {CREDENTIALS}"
    )


def test_a_token_that_was_rejected_is_not_sent_again(secured: Secured) -> None:
    options = login(secured)
    server = secured.kafka.listener("OAUTH")
    secured.issuer.audience = "another"
    with pytest.raises(ClusterError, match="rejects the login"):
        KafkaClient(parsed(server, **options))
    secured.issuer.audience = AUDIENCE
    with KafkaClient(parsed(server, **options)) as client:
        assert client.cluster_id()


def test_a_token_that_was_kept_while_the_keys_of_the_issuer_changed_is_replaced_at_once(secured: Secured) -> None:
    options = login(secured)
    keeper = oauth.keeper_of(TokenRequest.of(parsed("-", **options)))
    secured.issuer.audience = "another"
    keeper.renew()
    secured.issuer.audience = AUDIENCE
    with KafkaClient(parsed(secured.kafka.listener("OAUTH"), **options)) as client:
        assert client.cluster_id()


def test_a_throttled_connection_that_logs_in_again_keeps_its_requests_back(secured: Secured) -> None:
    with KafkaClient(parsed(secured.kafka.listener("OAUTH"), **login(secured))) as client:
        client.connect([1])
        connection = client._manager._conns[1]

        async def log_in_again_while_throttled() -> None:
            connection.pause("throttle")
            client._manager.call_soon(connection._reauth._run)

        client._manager.run(log_in_again_while_throttled)
        Timer(0.5, client._manager.call_soon, [lambda: connection.unpause("throttle")]).start()
        answers = client.exchange([(1, MetadataRequest(topics=[])) for _ in range(3)])
        assert [type(answer).__name__ for answer in answers] == ["MetadataResponse"] * 3
        assert client._manager._conns[1] is connection


def test_the_reason_for_no_token_is_one_line_in_doctor_and_in_a_run(
    spark: SparkSession, secured: Secured, load: Callable[..., Config]
) -> None:
    options = login(secured, sasl_oauthbearer_token_endpoint_url="https://nowhere.invalid/token")
    options |= {"connect_timeout_ms": "1000", "retries": "0"}
    why = "no token from https://nowhere.invalid/token: unknown host"
    servers = secured.kafka.listener("OAUTH")
    rows = spark.read.format("kafka_watermarks").options(bootstrap_servers=servers, **options).load()
    with pytest.raises(PySparkException) as caught:
        rows.collect()
    assert reason_of(caught.value) == why
    settings = "".join(f'{name} = "{value}"\n' for name, value in login(secured).items() if "secret" not in name)
    config = load(
        f'[lake]\nroot = "/lake"\n[clusters.east]\nbootstrap_servers = ["{servers}"]\n[clusters.east.client]\n'
        f"{settings.replace(secured.issuer.url, 'https://nowhere.invalid')}"
        'sasl_oauthbearer_client_secret = "${env:SECRET}"\n',
        SECRET=CLIENT_SECRET,
    )
    assert [*check_cluster(config.clusters["east"])] == [Check(False, why, "docs/troubleshooting.md says more")]


MANY = {f"{PREFIX}-many-{number:03}": {(f"{PREFIX}-orders", 0): 1} for number in range(425)}
"""Groups that one task reads in 17 slices, with two requests for commits in each."""


@pytest.fixture
def many(secured: Secured) -> dict[str, str]:
    """The options that read MANY, in one task."""
    with KafkaAdminClient(bootstrap_servers=secured.kafka.bootstrap_servers) as admin:
        for group, offsets in MANY.items():
            commit_offsets(admin, group, offsets)
    return {"groups_allow": f"^{PREFIX}-many-", "topics_allow": f"^{PREFIX}-orders", "groups_per_task": "1000"}


def slow(seconds: float) -> Callable[[Request], bool]:
    """Delays each request for commits: the only request that is on its way then.

    A connection logs in again when at least a twentieth of its session is left, and waits until all is answered.
    """

    def wait(request: Request) -> bool:
        if request.api_key == OFFSET_FETCH:
            time.sleep(seconds)
        return False

    return wait


def commits(rows: list[dict[str, Any]]) -> list[tuple[str, int | None, str | None]]:
    return sorted((r["group_id"], r["committed_offset"], r["error"]) for r in rows if r["kind"] == "committed_offsets")


def test_a_snapshot_that_outlives_its_tokens_misses_nothing(secured: Secured, many: dict[str, str]) -> None:
    options = login(secured) | many
    secured.issuer.lifetime_s = 10.0
    secured.issuer.tokens.clear()
    with Proxy(slow(0.3)) as proxy:
        rows = read(SnapshotSource, secured.kafka.listener("OAUTH"), proxy_url=proxy.url, **options)
    assert commits(rows) == [(group, 1, None) for group in MANY]
    assert len(secured.issuer.tokens) == 2
    # A connection begins with ApiVersions, and logs in again (KIP-368) without it, between two requests.
    keys = proxy.api_keys()
    logins = [number for number, key in enumerate(keys) if key == SASL_HANDSHAKE]
    (again,) = [number for number in logins if keys[number - 1] != API_VERSIONS]
    assert OFFSET_FETCH in keys[:again]
    assert OFFSET_FETCH in keys[again:]


def test_a_snapshot_whose_tokens_end_keeps_what_it_has_read(secured: Secured, many: dict[str, str]) -> None:
    options = login(secured) | many | {"retries": "1"}
    issuer = secured.issuer
    issuer.lifetime_s = 4.0

    def only_one(request: BaseHTTPRequestHandler, parameters: dict[str, str]) -> None:
        issuer.answer = lambda request, _: reply(request, 503, {})
        issuer.issue(request, parameters)

    issuer.answer = only_one
    try:
        with Proxy(slow(0.3)) as proxy:
            rows = commits(read(SnapshotSource, secured.kafka.listener("OAUTH"), proxy_url=proxy.url, **options))
    finally:
        issuer.answer = issuer.issue
    assert [group for group, _, _ in rows] == [*MANY]
    assert rows[0] == ("oauth-many-000", 1, None)
    assert rows[-1] == ("oauth-many-424", None, "NETWORK_EXCEPTION")
