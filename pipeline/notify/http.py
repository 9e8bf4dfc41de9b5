"""Sends JSON to a web server: one try, and an error in words that has neither the URL nor its secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipeline.common import http
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
    """Sends JSON to a URL, as `pipeline.common.http.post` does; returns None if the receiver accepts it."""
    headers = {"Content-Type": "application/json"}
    try:
        answer = http.post(url, json.dumps(content).encode(), headers, timeout_s, ca_file)
    except http.FAILURES as error:
        return Failure(why_unreadable(error))
    if 200 <= answer.status < 300:
        return None
    return Failure(f"HTTP status {answer.status}", is_down=answer.status in OVERLOADED)
