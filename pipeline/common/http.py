"""Sends one POST request to a web server. Neither the URL nor its user and password are in an error of this module."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout, make_headers
from urllib3.exceptions import HTTPError

FAILURES = (HTTPError, OSError, ValueError)
"""What `post` raises; `pipeline.common.reasons.why_unreadable` has words for each."""


class Answer(NamedTuple):
    """The status of an answer, and the beginning of its body."""

    status: int
    body: bytes


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float,
    ca_file: str | None = None,
    most_bytes: int = 0,
) -> Answer:
    """Sends a request and returns the answer; raises one of FAILURES. Redirects are not followed.

    Of the body, at most `most_bytes` are read: without them, an answer that is accepted cannot fail any more. The user
    and password of the URL are used for basic authentication, unless the headers have another. The proxy is that of the
    environment (HTTPS_PROXY, NO_PROXY), as for other programs. Connecting, and waiting for any part of the answer, may
    take `timeout_s`, and so may the whole body.
    """
    address, user_info = _without_user(url)
    basic = make_headers(basic_auth=user_info) if user_info else {}
    sent = {"User-Agent": "laglake", **basic, **headers}
    with _pool(address, ca_file) as pool:
        answer = pool.request(
            "POST",
            address,
            body=body,
            headers=sent,
            timeout=Timeout(connect=timeout_s, read=timeout_s),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        try:
            return Answer(answer.status, _read(answer, most_bytes, time.monotonic() + timeout_s))
        finally:
            answer.close()


def _read(answer: BaseHTTPResponse, most_bytes: int, deadline: float) -> bytes:
    """The body. A server that sends a byte now and then would never reach a limit on the time of one byte."""
    body = b""
    while len(body) < most_bytes:
        if time.monotonic() > deadline:
            raise TimeoutError
        more = answer.read1(min(65_536, most_bytes))
        if not more:
            break
        body += more
    return body[:most_bytes]


def _without_user(url: str) -> tuple[str, str]:
    """A URL without its user and password, and these."""
    parts = urlsplit(url)
    user_info, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(user_info)


def _pool(url: str, ca_file: str | None) -> PoolManager:
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    options: dict[str, Any] = {"num_pools": 1, "ca_certs": ca_file} if ca_file else {"num_pools": 1}
    if not proxy or proxy_bypass(parts.hostname or ""):
        return PoolManager(**options)
    address, user_info = _without_user(proxy if "://" in proxy else f"http://{proxy}")
    headers = make_headers(proxy_basic_auth=user_info) if user_info else None
    return ProxyManager(address, proxy_headers=headers, **options)
