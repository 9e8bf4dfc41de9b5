"""Tokens of a token endpoint that works, refuses, hangs, or is not there; and how long a token is kept."""

import base64
import logging
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import trustme

from pipeline.common.errors import ClusterError, TokenError
from pipeline.kafka import oauth
from pipeline.kafka.oauth import TokenKeeper, TokenRequest, fetch_token
from tests.helpers.certificates import authority_file, signed
from tests.helpers.issuer import CLIENT_SECRET, Issuer, reply
from tests.helpers.kafka import parsed
from tests.helpers.network import HOST, free_port, listener

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
        pytest.param({}, answering(400, {"error": PAGE}), "HTTP status 400", id="an error that is not a code"),
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
    with pytest.raises(TokenError, match=r"^no token from sasl_oauthbearer_token_endpoint_url: "):
        fetch_token(request_of(issuer, sasl_oauthbearer_token_endpoint_url="https://[t0ken-s3cret/token"))
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
