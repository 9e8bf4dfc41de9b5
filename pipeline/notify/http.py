"""Sends JSON to a web server: one try, and an error in words that has neither the URL nor its secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import PoolManager, ProxyManager, Timeout, make_headers
from urllib3.exceptions import HTTPError

from pipeline.common.reasons import why_unreadable

OVERLOADED = (429, 503)
"""The statuses by which a receiver asks for fewer requests."""


class Failure(NamedTuple):
    """Why a message was not sent. If `is_down`, further messages would not be sent either."""

    reason: str
    is_down: bool = True


def post(
    url: str, content: Mapping[str, Any] | Sequence[Any], timeout_s: float, ca_file: str | None = None
) -> Failure | None:
    """Sends JSON to a URL, whose user and password are used for basic authentication. Redirects are not followed.

    The proxy is that of the environment (HTTPS_PROXY, NO_PROXY), as for other programs.
    """
    address, user_info = _without_user(url)
    headers = {"Content-Type": "application/json", "User-Agent": "laglake"}
    if user_info:
        headers |= make_headers(basic_auth=user_info)
    try:
        with _pool(address, ca_file) as pool:
            answer = pool.request(
                "POST",
                address,
                body=json.dumps(content).encode(),
                headers=headers,
                timeout=Timeout(connect=timeout_s, read=timeout_s),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            answer.close()
    except (HTTPError, OSError, ValueError) as error:
        return Failure(why_unreadable(error))
    if 200 <= answer.status < 300:
        return None
    return Failure(f"HTTP status {answer.status}", is_down=answer.status in OVERLOADED)


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
