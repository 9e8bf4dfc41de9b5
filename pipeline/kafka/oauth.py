"""Tokens for SASL/OAUTHBEARER: the grant of client credentials (RFC 6749, section 4.4), as KIP-768 has it for Java.

One token is kept for all connections of a process. Brokers ask for the next one when 85 to 95 % of a session has passed
(KIP-368), and a session ends with its token at the latest. By then, `renew` has fetched it: outside of the thread that
serves the connections, because no answer of a broker may wait for a token.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from pipeline.common import http
from pipeline.common.errors import ClusterError, TokenError
from pipeline.common.reasons import why_unreadable
from pipeline.kafka.options import SourceOptions

# At DEBUG, urllib3 logs the path of each request with its query, in which some endpoints want a key.
logging.getLogger("urllib3").setLevel(logging.INFO)

RENEWED_AT = 0.7
"""The share of a token's lifetime after which the next token is fetched. Brokers count whole seconds, so the session of
a token of 10 s may have to be renewed after 7.7 s."""
RETRIED_AFTER = 1 / 3
"""The share of what is left of a token after which an endpoint that has failed is asked again."""
PAUSE_S = 5.0
"""How long an endpoint that has failed is not asked again if there is no token."""
ASSUMED_S = 60.0
"""The lifetime of a token if neither the endpoint nor the token says it."""
LONGEST_S = 86_400.0
MOST_BYTES = 1_000_000
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


@dataclass(frozen=True)
class Token:
    """A bearer token, and when it was fetched and ends, in seconds of the monotonic clock."""

    text: str = field(repr=False)
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
        """The token that is kept, at once, while it is valid; else a new one. Raises TokenError."""
        return self._valid() or self._fetched()

    def renew(self) -> None:
        """Fetches a token if there is none, or if that which is kept ends soon. Raises TokenError if there is none.

        A token that is still valid is used if the endpoint fails. Then the endpoint is asked once, and seldom.
        """
        kept = self._kept
        if kept is None or not kept.is_fresh(time.monotonic()):
            self._fetched()

    def forget(self) -> None:
        """Forgets a token that a broker has rejected."""
        self._kept = None

    def _valid(self) -> str | None:
        kept = self._kept
        return kept.text if kept and time.monotonic() < kept.ends_at else None

    def _fetched(self) -> str:
        with self._lock:
            kept = self._kept  # another thread may forget it meanwhile
            now = time.monotonic()
            if kept and kept.is_fresh(now):  # another thread has fetched it
                return kept.text
            if self._failure and now < self._retry_at:
                return self._last_resort(self._failure)
            is_valid = kept is not None and now < kept.ends_at
            try:
                fetched = fetch_token(self.request, 0 if is_valid else self.request.retries)
            except TokenError as error:
                now = time.monotonic()
                left_s = kept.ends_at - now if kept else 0.0
                self._failure, self._retry_at = error, now + (left_s * RETRIED_AFTER if left_s > 0 else PAUSE_S)
                return self._last_resort(error)
            self._kept, self._failure = fetched, None
            return fetched.text

    def _last_resort(self, failure: TokenError) -> str:
        valid = self._valid()
        if valid is None:
            raise failure
        return valid


@lru_cache(maxsize=64)
def keeper_of(request: TokenRequest) -> TokenKeeper:
    """The one keeper of this process for a request."""
    return TokenKeeper(request)


def extensions_of(options: SourceOptions) -> dict[str, str]:
    """The SASL extensions of RFC 7628, from the text `name=value,name=value`."""
    text = options.client.get("sasl_oauthbearer_extensions", "")
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return {name.strip(): value for name, _, value in pairs}


def fetch_token(request: TokenRequest, retries: int | None = None) -> Token:
    """Asks the endpoint, again if it is busy or cannot be reached; no new try begins after `timeout_s`."""
    most = request.retries if retries is None else retries
    deadline = time.monotonic() + request.timeout_s
    for attempt in range(most + 1):
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
        if not may_pass or attempt == most or time.monotonic() + pause_s >= deadline:
            break
        time.sleep(pause_s)
    raise TokenError(f"no token from {_place(request)}: {why}")


def _ask(request: TokenRequest) -> http.Answer:
    parameters = {"grant_type": "client_credentials"}
    if request.scope:
        parameters["scope"] = request.scope
    # Neither is URL-encoded, as in the clients of Kafka (`sasl.oauthbearer.header.urlencode` is false) and librdkafka.
    login = base64.b64encode(f"{request.client_id}:{request.client_secret}".encode()).decode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
        "Authorization": f"Basic {login}",
    }
    body = urlencode(parameters).encode()
    return http.post(request.endpoint, body, headers, request.timeout_s, request.ca_file, MOST_BYTES)


def _token_in(answer: http.Answer, request: TokenRequest, asked_at: float) -> Token:
    content = _json(answer.body)
    text = content.get("access_token")
    if not isinstance(text, str) or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise TokenError(f"no token from {_place(request)}: answers without an access_token: {_URL}")
    return Token(text, asked_at, asked_at + _lifetime_s(content, text))


def _lifetime_s(content: dict[str, Any], token: str) -> float:
    """How long a token is valid: what the endpoint says, else what the token says, else ASSUMED_S.

    The clock of this machine may differ from that of the endpoint, so the token's own two instants are compared, if it
    has both.
    """
    said = _seconds(content.get("expires_in"))
    if said is None:
        claims = _claims(token)
        ends_at, issued_at = _seconds(claims.get("exp")), _seconds(claims.get("iat"))
        said = None if ends_at is None else ends_at - (time.time() if issued_at is None else issued_at)
    return ASSUMED_S if said is None else min(max(0.0, said), LONGEST_S)


def _claims(token: str) -> dict[str, Any]:
    """What a JSON web token says of itself; empty if it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}


def _seconds(value: object) -> float | None:
    """A number, which may be written as a text; None for anything else."""
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
    return number if number is None or math.isfinite(number) else None


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
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _place(request: TokenRequest) -> str:
    """The endpoint's address without its user, password and query."""
    try:
        parts = urlsplit(request.endpoint)
    except ValueError:  # as its text may be a secret, it is not shown
        return "sasl_oauthbearer_token_endpoint_url"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
