"""Parses a request as Kafka 2.0 to 2.6 log it: as text. KIP-673 (Kafka 2.7) has replaced it by JSON.

RequestHeader(apiKey=FETCH, …) -- {REQUEST},response:{RESPONSE} from connection ID;totalTime:MS,…

Names and texts have no quotes, and nothing in them is escaped (Kafka's Struct.toString).
"""

from __future__ import annotations

import json
import re
from typing import Any

HEADER = re.compile(r"RequestHeader\(apiKey=(\w+), apiVersion=\d+, clientId=(.*?), correlationId=-?\d+\) -- ")
_MS = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:E-?\d{1,3})?")
_GROUP = re.compile(r"\{group_id=(.*?),(?:generation_id|retention_time|topics)=")
_SESSION = re.compile(r"session_id=(-?\d+),responses=")
_RECORDS = re.compile(r"record_set=(?:\w+Records\(size=(\d+))?")
# In a FETCH request, the only text before rack_id is the name of a topic, which has no other characters than these.
_WORD = re.compile(r"topic=([A-Za-z0-9._-]*)|([a-z_]+)=")
_IN_JSON = {
    "replica_id": "replicaId",
    "session_id": "sessionId",
    "session_epoch": "sessionEpoch",
    "epoch": "sessionEpoch",
    "fetch_offset": "fetchOffset",
    "forgotten_topics_data": "forgottenTopicsData",
}
"""The fields of FETCH that are used, and what Kafka calls them in JSON; `epoch` is from before Kafka 2.2."""


def request_of(text: str) -> dict[str, Any]:
    """A request in the form that it has in JSON since Kafka 2.7: the fields of FETCH and OFFSET_COMMIT that are used.

    Of the response to FETCH, it has the session and the size of all records; without `responses`, the size is unknown.
    Raises ValueError if the text is something else.
    """
    header = HEADER.match(text)
    if not header:
        raise ValueError("no RequestHeader")
    asked, mark, rest = text[header.end() :].partition(",response:")
    answered, _, ended = rest.rpartition(" from connection ")
    connection, _, times = ended.partition(";totalTime:")
    took = _MS.match(times)
    if not mark or not took:
        raise ValueError("no response, connection or totalTime")
    # Topics have no ids before Kafka 2.8, so that nothing of METADATA is used.
    request: Any = {}
    response: dict[str, Any] = {"topics": []}
    if header[1] == "FETCH":
        request, response = _fetch_of(asked), _answer_of(answered)
    elif header[1] == "OFFSET_COMMIT":
        request = _commit_of(asked)
    return {
        # A client without an id.
        "requestHeader": {"requestApiKeyName": header[1], "clientId": "" if header[2] == "null" else header[2]},
        "request": request,
        "response": response,
        "connection": connection,
        "totalTimeMs": float(took[0]),
    }


def _fetch_of(asked: str) -> Any:
    body, is_cut, _ = asked.rpartition(",rack_id=")
    text = f"{body}}}" if is_cut else asked
    return json.loads(_WORD.sub(_quoted, text))


def _quoted(word: re.Match[str]) -> str:
    """A field's name, or a topic, as it is in JSON."""
    return f'"topic":"{word[1]}"' if word[2] is None else f'"{_IN_JSON.get(word[2], word[2])}":'


def _commit_of(asked: str) -> dict[str, str]:
    group = _GROUP.match(asked)
    if not group:
        raise ValueError("no group_id")
    return {"groupId": group[1]}


def _answer_of(answered: str) -> dict[str, Any]:
    session = _SESSION.search(answered)
    found: dict[str, Any] = {"sessionId": int(session[1])} if session else {}
    sizes = _RECORDS.findall(answered)
    if "" not in sizes:
        found["responses"] = [{"partitions": [{"recordsSizeInBytes": int(size)} for size in sizes]}]
    return found
