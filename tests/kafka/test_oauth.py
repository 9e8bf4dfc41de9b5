"""OAUTHBEARER with client credentials: tokens of an issuer, and a real broker that validates them."""

import base64
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
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
from pipeline.common.errors import ClusterError, TokenError
from pipeline.config import Config
from pipeline.kafka import oauth
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.doctor import check_cluster
from pipeline.kafka.oauth import TokenKeeper, TokenRequest, fetch_token
from pipeline.kafka.snapshot import SnapshotSource
from pipeline.snapshot.land import reason_of
from tests.helpers.certificates import authority_file, signed
from tests.helpers.issuer import AUDIENCE, CLIENT_SECRET, NAME, Issuer, reply
from tests.helpers.kafka import parsed, read
from tests.helpers.network import HOST, Proxy, Request, free_port, listener
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
Answer = Callable[[BaseHTTPRequestHandler, dict[str, str]], None]


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer().serving() as issuer:
        yield issuer


def request_of(issuer: Issuer, **changes: str) -> TokenRequest:
    """The request that a client of the issuer makes; a failed one is repeated once, at once."""
    options = {"security_protocol": "SASL_SSL", "connect_timeout_ms": "700", "retries": "1", "retry_backoff_ms": "1"}
    return TokenRequest.of(parsed(f"{HOST}:1", **options, **issuer.login(**changes)))


# --- the token endpoint


def test_a_token_is_requested_with_the_clients_credentials_and_the_scope(issuer: Issuer) -> None:
    fetched = fetch_token(request_of(issuer, sasl_oauthbearer_scope="lag"))
    assert [fetched.text] == issuer.tokens
    assert issuer.requests == [{"grant_type": "client_credentials", "scope": "lag"}]


def test_a_token_is_kept_until_most_of_its_lifetime_is_over(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    keeper = TokenKeeper(request_of(issuer))
    keeper.renew()
    clock.advance(0.6 * issuer.lifetime_s)
    keeper.renew()
    assert [keeper.token()] == issuer.tokens
    clock.advance(0.2 * issuer.lifetime_s)
    assert [keeper.token()] == issuer.tokens  # a login does not wait for the next one
    keeper.renew()
    assert len(issuer.tokens) == 2
    assert keeper.token() == issuer.tokens[1]
    clock.advance(issuer.lifetime_s)
    assert keeper.token() == issuer.tokens[2]


def test_a_token_is_used_to_its_end_if_the_endpoint_fails_which_is_asked_seldom(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    keeper = TokenKeeper(request_of(issuer))
    first = keeper.token()
    issuer.answer = lambda request, _: reply(request, 503, {})
    clock.advance(0.8 * issuer.lifetime_s)
    for _ in range(3):
        keeper.renew()
    assert len(issuer.requests) == 1 + 1  # without a retry, as there is no hurry
    clock.advance(0.1 * issuer.lifetime_s)
    for _ in range(3):
        keeper.renew()
    assert len(issuer.requests) == 1 + 2
    assert keeper.token() == first
    clock.advance(0.1 * issuer.lifetime_s)
    for _ in range(2):
        with pytest.raises(TokenError, match=r"no token from http://127\.0\.0\.1:\d+/token: HTTP status 503$"):
            keeper.token()
    assert len(issuer.requests) == 1 + 4
    issuer.answer = issuer.issue
    clock.advance(oauth.PAUSE_S)
    assert keeper.token() == issuer.tokens[-1] != first


class Clock:
    """A monotonic clock that runs, and can be set forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_s = 0.0
        self._real = time.monotonic
        monkeypatch.setattr(oauth.time, "monotonic", lambda: self._real() + self._ahead_s)

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds


@pytest.mark.parametrize(
    ("content", "lifetime_s"),
    [
        pytest.param({"expires_in": 600}, 600, id="the endpoint says it"),
        pytest.param({"expires_in": "600"}, 600, id="as a text"),
        pytest.param({}, 300, id="only the token says it"),
        pytest.param({"expires_in": "soon"}, 300, id="the endpoint says nothing that is a number"),
        pytest.param({"access_token": "opaque"}, oauth.ASSUMED_S, id="nobody says it"),
        pytest.param({"access_token": "a.b.c"}, oauth.ASSUMED_S, id="a token that cannot be read"),
        pytest.param({"access_token": f"a.{'W1tb' * 9_000}.c"}, oauth.ASSUMED_S, id="a token that is nested deeply"),
        pytest.param({"expires_in": -1}, 0, id="over before it began"),
        pytest.param({"expires_in": 10**400}, 300, id="a number that is too large"),
        pytest.param({"expires_in": 1e300}, oauth.LONGEST_S, id="longer than a day"),
    ],
)
def test_the_lifetime_is_what_the_endpoint_says_else_what_the_token_says(
    issuer: Issuer, content: dict[str, Any], lifetime_s: float
) -> None:
    issuer.answer = lambda request, _: reply(request, 200, {"access_token": issuer.token()} | content)
    fetched = fetch_token(request_of(issuer))
    assert fetched.ends_at - fetched.fetched_at == pytest.approx(lifetime_s)


def test_a_busy_endpoint_is_asked_again(issuer: Issuer) -> None:
    statuses = iter([503, 200])

    def busy_at_first(request: BaseHTTPRequestHandler, parameters: dict[str, str]) -> None:
        status = next(statuses)
        issuer.issue(request, parameters) if status == 200 else reply(request, status, {})

    issuer.answer = busy_at_first
    assert [fetch_token(request_of(issuer)).text] == issuer.tokens


def test_a_refusal_is_not_repeated(issuer: Issuer) -> None:
    with pytest.raises(TokenError):
        fetch_token(request_of(issuer, sasl_oauthbearer_client_secret="wr0ng-t0ken-s3cret"))
    assert len(issuer.requests) == 1


def test_an_id_and_a_secret_are_sent_in_utf_8(issuer: Issuer) -> None:
    sent: list[str] = []
    issuer.answer = lambda request, _: sent.append(request.headers["Authorization"]) or reply(request, 401, {})
    with pytest.raises(TokenError):
        fetch_token(request_of(issuer, sasl_oauthbearer_client_id="läg", sasl_oauthbearer_client_secret="p€ss:%"))
    assert base64.b64decode(sent[0].removeprefix("Basic ")).decode() == "läg:p€ss:%"


def redirect(request: BaseHTTPRequestHandler, _: dict[str, str]) -> None:
    request.send_response(302)
    request.send_header("Location", "https://elsewhere.example/token")
    request.send_header("Content-Length", "0")
    request.end_headers()


def drip(request: BaseHTTPRequestHandler, _: dict[str, str]) -> None:
    """Sends a byte now and then, for longer than a client should wait."""
    request.send_response(200)
    request.end_headers()
    for _ in range(40):
        request.wfile.write(b" ")
        request.wfile.flush()
        time.sleep(0.1)


CREDENTIALS = "check sasl_oauthbearer_client_id and sasl_oauthbearer_client_secret"
URL = "check sasl_oauthbearer_token_endpoint_url"
PAGE = "<html><body>Sign in with t0ken-s3cret</body></html>"


def answering(status: int, content: object, kind: str = "application/json") -> Answer:
    return lambda request, _: reply(request, status, content, kind)


@pytest.mark.parametrize(
    ("changes", "answer", "why"),
    [
        pytest.param(
            {"sasl_oauthbearer_client_secret": "wr0ng-t0ken-s3cret"},
            None,
            f"HTTP status 401, invalid_client: {CREDENTIALS}",
            id="a wrong secret",
        ),
        pytest.param(
            {"sasl_oauthbearer_scope": "other"},
            None,
            "HTTP status 400, invalid_scope: check sasl_oauthbearer_scope",
            id="a wrong scope",
        ),
        pytest.param({}, answering(401, PAGE, "text/html"), f"HTTP status 401: {CREDENTIALS}", id="401 and HTML"),
        pytest.param({}, answering(404, PAGE, "text/html"), f"HTTP status 404: {URL}", id="a wrong path"),
        pytest.param({}, answering(500, "[1, 2"), "HTTP status 500", id="500 and half of JSON"),
        pytest.param({}, answering(400, {"error": PAGE}), "HTTP status 400", id="an error that is no code"),
        pytest.param(
            {}, answering(200, PAGE, "text/html"), f"answers without an access_token: {URL}", id="a page to sign in"
        ),
        pytest.param({}, answering(200, [PAGE]), f"answers without an access_token: {URL}", id="a list"),
        pytest.param(
            {}, answering(200, {"access_token": "a\x01b"}), f"answers without an access_token: {URL}", id="no token"
        ),
        pytest.param({}, redirect, f"HTTP status 302: it redirects, which is not followed: {URL}", id="a redirect"),
        pytest.param({}, drip, "no answer in time", id="a slow answer"),
    ],
)
def test_the_reason_is_one_line_without_a_secret_and_without_the_body(
    issuer: Issuer, changes: dict[str, str], answer: Answer | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.answer = answer or issuer.answer
    with caplog.at_level(logging.DEBUG), pytest.raises(TokenError) as caught:
        fetch_token(request_of(issuer, **changes))
    assert str(caught.value) == f"no token from {issuer.token_url}: {why}"
    assert not any(secret in f"{caught.value!r} {caplog.text}" for secret in SECRETS)


def test_an_endpoint_that_cannot_be_reached_is_named_without_its_password_and_query(issuer: Issuer) -> None:
    port = free_port()
    url = f"http://me:t0ken-s3cret@{HOST}:{port}/token?key=t0ken-s3cret"
    with pytest.raises(TokenError) as caught:
        fetch_token(request_of(issuer, sasl_oauthbearer_token_endpoint_url=url))
    assert str(caught.value) == f"no token from http://{HOST}:{port}/token: Connection refused"
    with pytest.raises(TokenError, match="unknown host"):
        fetch_token(request_of(issuer, sasl_oauthbearer_token_endpoint_url="http://nowhere.invalid/token"))
    with listener() as silent, pytest.raises(TokenError, match="no answer in time"):
        fetch_token(request_of(issuer, sasl_oauthbearer_token_endpoint_url=f"http://{silent}/token"))


def test_an_endpoint_with_tls_must_be_trusted(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    trusted = authority_file(authority, tmp_path / "ca.pem")
    stranger = authority_file(other, tmp_path / "other.pem")
    with Issuer().serving(signed(authority, tmp_path / "issuer.pem")) as issuer:
        assert [fetch_token(request_of(issuer, sasl_oauthbearer_ca_file=str(trusted))).text] == issuer.tokens
        for changes in ({}, {"sasl_oauthbearer_ca_file": str(stranger)}):
            with pytest.raises(TokenError, match="not trusted: check sasl_oauthbearer_ca_file, and that"):
                fetch_token(request_of(issuer, **changes))


@pytest.mark.parametrize("name", ["token_endpoint_url", "client_id", "client_secret"])
def test_an_option_that_is_missing_in_a_notebook_is_named(issuer: Issuer, name: str) -> None:
    options = {n: v for n, v in issuer.login().items() if n != f"sasl_oauthbearer_{name}"}
    with pytest.raises(ClusterError, match=f"also needs the option sasl_oauthbearer_{name}"):
        TokenRequest.of(parsed(f"{HOST}:1", **options))


# --- a broker that validates tokens


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
