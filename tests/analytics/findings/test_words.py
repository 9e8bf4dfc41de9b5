"""What findings say about clients, and the words of every kind as columns."""

import json
from typing import Any

import pyarrow as pa
import pytest

from pipeline.analytics.findings.problem import with_words
from pipeline.kinds import KINDS, SHARED
from pipeline.tables.findings import FINDINGS
from tests.helpers.worded import words

LARGEST = 2**63 - 1


def test_each_kind_of_finding_has_words() -> None:
    documented = next(field.metadata["comment"] for field in FINDINGS.schema if field.name == "kind")
    of_causes = {*SHARED.values()} - {*SHARED}
    assert [kind.name for kind in KINDS if kind.name not in of_causes] == documented.split(" | ")


@pytest.mark.parametrize(
    ("kind", "facts", "summary"),
    [
        (
            "slow_consumer",
            {"unread": 1},
            "c hardly asks for records any more and has 1 record unread: its application is slow.",
        ),
        (
            "slow_consumer",
            {"unread": 2, "culprit": "t", "instance": "/10.0.0.1"},
            (
                "c at /10.0.0.1 hardly asks for records any more and has 2 records unread: its application is slow "
                "with t, and others wait."
            ),
        ),
        ("slow_consumer", {}, "c hardly asks for records any more: its application is slow."),
        (
            "paused_partition",
            {"topic": "t", "partitions": [0, 2], "unread": 3},
            "c reads nothing from t, partitions 0, 2, though it reads others: these are paused, with 3 records unread.",
        ),
        (
            "blind_gauge",
            {"verdict": "stale", "queue_records": 5, "max_lag": 1_000, "max_consumer_lag": 2_000},
            "The lag gauge of c reads 1,000 while consumer lag is 2,000: its fetches are no longer answered.",
        ),
        (
            "blind_gauge",
            {"verdict": "blind"},
            "The lag gauge of c reads nothing while consumer lag is unknown: it is updated only when records arrive.",
        ),
        (
            "buffer_too_large",
            {"buffer_bound_bytes": 1_500_000, "heap_share": 0.505},
            "c may buffer 1.5 MB, 51 % of its heap.",
        ),
        (
            "blocked_connector",
            {"culprits": ["a", "b"], "victims": ["v"]},
            "The fetcher of c waits for a, b, whose queue is full; nothing comes for v meanwhile.",
        ),
        (
            "blocked_connector",
            {"culprits": [], "victims": []},
            "The fetcher of c waits for a thread, whose queue is full.",
        ),
    ],
)
def test_clients(kind: str, facts: dict[str, Any], summary: str) -> None:
    assert words(kind, client_id="c", **facts).summary == summary


def test_evidence_is_compact_json_without_what_is_not_known() -> None:
    names = ['quoted "name"', "\N{PILE OF POO}\u2028", "control \x00\x1b\n", "back\\slash"]
    facts = {"partitions": LARGEST, "whole_groups": 0, "groups": names, "groups_affected": 4, "errors": ["E"]}
    rows = pa.table({"kind": ["unreadable"], "facts": [json.dumps(facts, ensure_ascii=False)], "magnitude": [1e-5]})
    found = with_words(rows)
    assert found.column_names == ["kind", "magnitude", "summary", "evidence", "advice"]
    (row,) = found.to_pylist()
    assert row["evidence"].startswith(
        '{"partitions":9223372036854775807,"topics":[],"groups":["quoted \\"name\\"","\N{PILE OF POO}'
    )
    assert json.loads(row["evidence"]) == {
        "partitions": LARGEST,
        "topics": [],
        "groups": names,
        "groups_affected": 4,
        "errors": ["E"],
    }
    assert f"4 groups ({', '.join(names)})" in row["summary"]


def test_no_rows_have_no_words() -> None:
    nothing = pa.table({"kind": pa.array([], pa.string()), "facts": pa.array([], pa.string())})
    assert with_words(nothing).schema.names == ["kind", "summary", "evidence", "advice"]
