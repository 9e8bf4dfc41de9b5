"""Tokens for SASL/OAUTHBEARER: the grant of client credentials (RFC 6749, section 4.4), as KIP-768 has it for Java.

One token is kept for all connections of a process until 30 % of its lifetime are left. Brokers ask for the next one
when 85 to 95 % of a session has passed (KIP-368), and a session ends with its token at the latest. So the token that
`renew` has fetched in time is there when a connection logs in again, and no answer of a broker waits for a token.
"""

from __future__ import annotations

import base64
import json
import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

from urllib3 import make_headers

from pipeline.common import http
from pipeline.common.errors import ClusterError
from pipeline.common.reasons import why_unreadable
from pipeline.kafka.options import SourceOptions

RENEWED_AT = 0.7
"""The share of a token's lifetime after which the next token is fetched. Brokers count whole seconds, so the session of
a token of 10 s may have to be renewed after 7.7 s."""
RETRIED_AFTER_S = 5.0
"""How long a token that is still valid is used before the endpoint is asked again, if it has failed."""
_TRY_AGAIN = (429, 500, 502, 503, 504)
_CLIENT = "check sasl_oauthbearer_client_id and sasl_oauthbearer_client_secret"
_REMEDIES = {
    "invalid_client": _CLIENT,
    "invalid_scope": "check sasl_oauthbearer_scope",
    "unauthorized_client": "allow this client the grant of client credentials",
    "unsupported_grant_type": "the endpoint must offer the grant of client credentials",
}
"""What to do, by the error code of RFC 6749, section 5.2."""
_URL = "check sasl_oauthbearer_token_endpoint_url"


class TokenError(ClusterError):
    """There is no token for a login. The message has neither a secret nor the body of an answer."""


class Token(NamedTuple):
    """A bearer token, and when it was fetched and ends, in seconds of the monotonic clock."""

    text: str
    fetched_at: float
    ends_at: float

    def is_fresh(self, now: float) -> bool:
        """Whether no other token is needed yet."""
        return now < self.fetched_at + RENEWED_AT * (self.ends_at - self.fetched_at)


@dataclass(frozen=True)
class TokenRequest:
    """Where and as whom to ask for a token, and for how long to try."""

    endpoint: str = field(repr=False)
    client_id: str = field(repr=False)
    client_secret: str = field(repr=False)
    scope: str | None
    ca_file: str | None
    timeout_s: float
    retries: int
    backoff_s: float

    @classmethod
    def of(cls, options: SourceOptions) -> Self:
        """The request for the client options of a cluster, of which the first three are there."""
        of_client = {name: options.client.get(f"sasl_oauthbearer_{name}") for name in ("scope", "ca_file")}
        return cls(
            endpoint=_required(options, "sasl_oauthbearer_token_endpoint_url"),
            client_id=_required(options, "sasl_oauthbearer_client_id"),
            client_secret=_required(options, "sasl_oauthbearer_client_secret"),
            timeout_s=options.connect_timeout_ms / 1000,
            retries=options.retries,
            backoff_s=options.retry_backoff_ms / 1000,
            **of_client,
        )


def _required(options: SourceOptions, name: str) -> str:
    text: str = options.client.get(name, "")
    if not text:
        raise ClusterError(f"sasl_mechanism OAUTHBEARER also needs the option {name}")
    return text


class TokenKeeper:
    """The token of one request, shared by all connections of this process."""

    def __init__(self, request: TokenRequest) -> None:
        self.request = request
        self._lock = Lock()
        self._kept: Token | None = None
        self._failure: TokenError | None = None
        self._retry_at = 0.0

    def token(self) -> str:
        """A token that is valid now, fetched if necessary. Raises TokenError.

        After a failure, a token that is still valid is used, and the endpoint is not asked again for some seconds.
        """
        with self._lock:
            now = time.monotonic()
            if self._kept and self._kept.is_fresh(now):
                return self._kept.text
            if self._failure and now < self._retry_at:
                return self._last_resort(self._failure)
            try:
                self._kept, self._failure = fetch_token(self.request), None
            except TokenError as error:
                self._failure, self._retry_at = error, time.monotonic() + RETRIED_AFTER_S
                return self._last_resort(error)
            return self._kept.text

    def _last_resort(self, failure: TokenError) -> str:
        if self._kept and time.monotonic() < self._kept.ends_at:
            return self._kept.text
        raise failure


@lru_cache(maxsize=64)
def keeper_of(request: TokenRequest) -> TokenKeeper:
    """The one keeper of this process for a request."""
    return TokenKeeper(request)


def extensions_of(options: SourceOptions) -> dict[str, str]:
    """The SASL extensions of RFC 7628, from the text `name=value,name=value`."""
    text = options.client.get("sasl_oauthbearer_extensions", "")
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return {name.strip(): value for name, _, value in pairs}


def fetch_token(request: TokenRequest) -> Token:
    """Asks the endpoint, again if it is busy or cannot be reached; no new try begins after `timeout_s`."""
    deadline = time.monotonic() + request.timeout_s
    for attempt in range(request.retries + 1):
        asked_at = time.monotonic()
        why, may_pass = "", True
        try:
            answer = _ask(request)
        except http.FAILURES as error:
            why = why_unreadable(error).replace("ca_file", "sasl_oauthbearer_ca_file")
        else:
            if answer.status == 200:
                return _token_in(answer, request, asked_at)
            why, may_pass = _refusal(answer), answer.status in _TRY_AGAIN
        pause_s = request.backoff_s * 2**attempt
        if not may_pass or attempt == request.retries or time.monotonic() + pause_s >= deadline:
            break
        time.sleep(pause_s)
    raise TokenError(f"no token from {_place(request)}: {why}")


def _ask(request: TokenRequest) -> http.Answer:
    parameters = {"grant_type": "client_credentials"}
    if request.scope:
        parameters["scope"] = request.scope
    # Neither is encoded, as in the clients of Kafka (`sasl.oauthbearer.header.urlencode` is false) and librdkafka.
    login = make_headers(basic_auth=f"{request.client_id}:{request.client_secret}")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", **login}
    return http.post(request.endpoint, urlencode(parameters).encode(), headers, request.timeout_s, request.ca_file)


def _token_in(answer: http.Answer, request: TokenRequest, asked_at: float) -> Token:
    content = _json(answer.body)
    text = content.get("access_token")
    if not isinstance(text, str) or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise TokenError(f"no token from {_place(request)}: answers without an access_token: {_URL}")
    return Token(text, asked_at, asked_at + _lifetime_s(content, text))


def _lifetime_s(content: dict[str, Any], token: str) -> float:
    """How long a token is valid: what the endpoint says, else what the token says, else not at all.

    A token without a lifetime is used for one login. The clock of this machine may differ from that of the endpoint, so
    the two instants in the token are only compared with each other.
    """
    try:
        return max(0.0, float(content["expires_in"]))
    except (KeyError, TypeError, ValueError):
        pass
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return max(0.0, float(claims["exp"]) - float(claims["iat"]))
    except (IndexError, KeyError, TypeError, ValueError):
        return 0.0


def _refusal(answer: http.Answer) -> str:
    """Why an endpoint refuses, by its status and the error code, which is the only text of the answer that is shown."""
    code = _json(answer.body).get("error")
    if not isinstance(code, str) or not re.fullmatch(r"[a-z_]{1,40}", code):
        code = None
    remedy = _REMEDIES.get(code or "") or {401: _CLIENT, 404: _URL}.get(answer.status)
    if 300 <= answer.status < 400:
        remedy = f"it redirects, which is not followed: {_URL}"
    parts = [f"HTTP status {answer.status}", code, remedy]
    return ", ".join(part for part in parts[:2] if part) + (f": {remedy}" if remedy else "")


def _json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _place(request: TokenRequest) -> str:
    """The endpoint's address without its user, password and query."""
    parts = urlsplit(request.endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
