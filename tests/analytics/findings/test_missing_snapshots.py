"""Snapshots that failed or were not taken."""

import json
from typing import Any

import pytest

from pipeline.analytics.findings.missing_snapshots import TAKEN, snapshots_missing
from pipeline.tables import SNAPSHOTS
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows

MINUTE_MS = 60_000
NOON_MS = 1_769_860_800_000
FAILURE = [{"what": "cluster", "where": "east", "error": "TimeoutError", "count": 1}]
Ledger = dict[int, tuple[str, int]]
"""Minute before noon → status, and how many instants were missed just before."""


def problems(ledger: Ledger) -> list[dict[str, Any]]:
    rows = [
        (NOON_MS - minute * MINUTE_MS, status, {"missed_instants": missed} if missed else None, errors)
        for minute, (status, missed) in ledger.items()
        for errors in [FAILURE if status == "failed" else None]
    ]
    known = few_rows(SNAPSHOTS, "snapshot_id status warnings errors", *rows).chosen(TAKEN)
    return worded_rows(snapshots_missing(known.collected_table(), [NOON_MS]))


WELL = ("complete", 0)
CASES: list[tuple[str, Ledger, float | None]] = [
    ("nothing", {0: WELL, 1: ("partial", 0), 2: ("running", 0)}, None),
    ("two failed", {0: WELL, 1: ("failed", 0), 59: ("failed", 0)}, None),
    ("three failed", {0: WELL, 1: ("failed", 0), 2: ("failed", 0), 59: ("failed", 0)}, 3.0),
    ("one of them an hour ago", {0: WELL, 1: ("failed", 0), 2: ("failed", 0), 60: ("failed", 0)}, None),
    ("two missed", {0: ("complete", 2)}, None),
    ("three missed", {0: ("complete", 3)}, 3.0),
    ("both", {0: WELL, 5: ("complete", 2), 6: ("failed", 0)}, 3.0),
    ("later ones", {0: WELL, -1: ("failed", 0), -2: ("failed", 0), -3: ("failed", 7)}, None),
]


@pytest.mark.parametrize(("ledger", "missing"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_three_missing_snapshots_within_an_hour_are_a_problem(ledger: Ledger, missing: float | None) -> None:
    found: list[Any] = [row["magnitude"] for row in problems(ledger)]
    assert found == ([] if missing is None else [missing])


def test_the_words_say_what_is_missing() -> None:
    ledger: Ledger = {0: WELL, 5: ("complete", 40), 6: ("failed", 0)}
    (row,) = problems(ledger)
    assert row["summary"] == (
        "The history has a hole: 1 snapshot failed and 40 instants passed without a snapshot; the first was noticed at "
        "2026-01-31 11:54 UTC."
    )
    assert json.loads(row["evidence"]) == {"failed": 1, "missed_instants": 40, "errors": ["TimeoutError"]}
    assert (row["kind"], row["severity"], row["group_id"], row["topic"]) == ("snapshots_missing", "warning", None, None)
