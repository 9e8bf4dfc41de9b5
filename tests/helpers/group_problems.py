"""Problems of groups, and the findings that they become: in batches of every size, each of them computed twice.

Small integers stand for minutes.
"""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from pipeline.analytics.findings.findings import finding_history, findings, findings_seen
from pipeline.analytics.findings.known_findings import KnownFindings, as_known
from pipeline.analytics.findings.problem import WORDED
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import MINUTE_MS, to_epoch_ms, utc_text
from tests.helpers.worded import NOON_MS

APART = 10


OF_PROBLEMS = arrow_schema(WORDED)


SEVERITIES = {"falling_behind": "warning"}


Found = dict[tuple[str, str | None, int], int | None]
"""The minute in which each finding is resolved, by kind, group and first minute."""
Grouped = dict[str, str]
"""The groups that share each cause, as one text, by topic and the minutes in which it began and was first grouped."""


def ms(minute: int) -> int:
    return NOON_MS + minute * MINUTE_MS


def problem(
    minute: int, group: str, since: int, kind: str = "no_progress", topics: str = "t", **more: Any
) -> dict[str, Any]:
    """The problem of a group at partition 0 of each topic, with 5 records unread; `at` has other places."""
    at = more.pop("at", None) or [(topic, 0, since) for topic in topics]
    topics = "".join(sorted({topic for topic, *_ in at}))
    places = [{"topic": topic, "partition": number, "since_ms": ms(minute)} for topic, number, minute in at]
    evidence = {
        "status": "stopped",
        "since": utc_text(ms(since)),
        "partitions": len(at),
        "topics": [*topics],
        "worst_topic": topics[0],
        "worst_partition": 0,
        "consumer_lag": 5,
    }
    topic = topics if len(topics) == 1 else None
    return {
        "snapshot_id": ms(minute),
        "kind": kind,
        "cluster": "c",
        "group_id": group,
        "client_id": None,
        "instance": None,
        "topic": topic,
        "partitions": topic and sorted({number for _, number, _ in at}),
        "places": json.dumps(places),
        "severity": SEVERITIES.get(kind, "critical"),
        "magnitude": 5.0,
        "summary": f"of {group}",
        "evidence": json.dumps(evidence | more),
        "advice": "-",
    }


def during(minutes: Iterable[int], groups: str, since: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [problem(minute, group, since, **more) for minute in minutes for group in groups]


def rows_found(
    batches: list[range], problems: list[dict[str, Any]], unjudged: tuple[int, ...] = (), of: str = ""
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """The findings by id, and their history, batch after batch, each of them computed twice.

    In minutes that are `unjudged`, nothing can be judged, or only what is given by `of` cannot.
    """
    known: dict[str, dict[str, Any]] = {}
    history: list[dict[str, Any]] = []
    for batch in batches:
        judged = {
            name: [ms(m) for m in range(batch.stop) if m not in unjudged or of not in ("", name)]
            for name in ("group", "topic")
        }
        rows = pa.Table.from_pylist([row for row in problems if minute_of(row["snapshot_id"]) in batch], OF_PROBLEMS)
        once: list[dict[str, Any]] = []
        for time in range(2):
            open_or_newer = [
                row
                for row in known.values()
                if row["resolved_at"] is None or to_epoch_ms(row["resolution_confirmed_at"]) >= ms(batch.start)
            ]
            past = KnownFindings(as_known(open_or_newer), judged, together_ms=APART * MINUTE_MS)
            new = finding_history(rows, past)
            known |= {row["finding_id"]: row for row in findings(findings_seen(new).to_pylist(), past)}
            if time == 0:
                once = new.to_pylist()
            else:
                assert sorted(once, key=str) == sorted(new.to_pylist(), key=str)
        history += once
    return known, history


def found_in(
    batches: list[range], problems: list[dict[str, Any]], unjudged: tuple[int, ...] = (), of: str = ""
) -> Found:
    known, _ = rows_found(batches, problems, unjudged, of)
    return {
        (row["kind"], row["group_id"] or row["topic"], minute_of(to_epoch_ms(row["first_seen"]))): None
        if row["resolved_at"] is None
        else minute_of(to_epoch_ms(row["resolved_at"]))
        for row in known.values()
    }


def causes_in(
    batches: list[range], problems: list[dict[str, Any]], unjudged: tuple[int, ...] = (), of: str = ""
) -> Grouped:
    """The findings of each cause: `t 0 30` has the groups whose problem began in t in minute 0, first seen in 30."""
    known, _ = rows_found(batches, problems, unjudged, of)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in known.values():
        if row["cause_id"] is not None:
            found.setdefault(row["cause_id"], []).append(row)
    named = {}
    for rows in found.values():
        (topic,), (since,) = {row["cause_topic"] for row in rows}, {row["cause_since"] for row in rows}
        grouped = min(minute_of(to_epoch_ms(row["grouped_at"])) for row in rows)
        name = f"{topic} {minute_of(to_epoch_ms(since))} {grouped}"
        assert name not in named
        named[name] = "".join(sorted(row["group_id"] for row in rows))
    return named


def minute_of(at_ms: int) -> int:
    return (at_ms - NOON_MS) // MINUTE_MS


ONE_BY_ONE = [range(minute, minute + 1) for minute in range(30, 40)]


BATCHES = pytest.mark.parametrize(
    "batches",
    [
        pytest.param([range(30, 60)], id="at once"),
        pytest.param([range(minute, minute + 1) for minute in range(30, 60)], id="minute by minute"),
        pytest.param([range(30, 34), range(34, 41), range(41, 60)], id="three"),
    ],
)
