"""The queries of docs/slo.md, on the same rows in Spark and in DuckDB."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from pipeline.tables import SLO
from tests.helpers.both_engines import Found, ask_both, queries_of, values
from tests.helpers.reports import MINUTE, NOON, at

QUERIES = queries_of("slo.md")
STATES = {
    "slow": [True, False, False, None, False, True],
    "fine": [True] * 6,
    "dark": [None] * 6,
}
BUDGETS = {"slow": (0.6, 0.4, 3, 2), "fine": (1.0, 1.0, 3, 0), "dark": (None, None, 0, 0)}
"""Attainment, the budget that is left, and the minutes of the window that were met and missed; 3 are unknown."""


def rows(cluster: str, day: date, minutes: int, last: int) -> list[dict[str, Any]]:
    """The rows of the first snapshots, up to `last`: one every `minutes`, the first of which counts for nothing."""
    return [
        {
            "cluster": cluster,
            "snapshot_id": NOON + (day - date(2026, 3, 1)).days * 24 * 60 * MINUTE + number * minutes * MINUTE,
            "snapshot_date": day,
            "slo": "prompt",
            "group_id": group,
            "target": 0.99,
            "is_met": states[number],
            "worst": 100 * number,
            "counted_ms": minutes * MINUTE if number else 0,
            "window_unknown_ms": 3 * MINUTE,
            "attainment": BUDGETS[group][0],
            "budget_left": BUDGETS[group][1],
            "window_met_ms": BUDGETS[group][2] * MINUTE,
            "window_missed_ms": BUDGETS[group][3] * MINUTE,
            "burn_rate_6h": 2.5,
        }
        for group, states in STATES.items()
        for number in range(last + 1)
    ]


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> dict[str, list[pd.DataFrame]]:
    """What Spark and DuckDB answer to each query."""
    day = date(2026, 3, 1)
    every = [*rows("east", day, 20, 5), *rows("east", day + timedelta(days=1), 10, 0), *rows("west", day, 5, 2)]
    return ask_both(spark, {"slo": (SLO, every)}, QUERIES)


FOUND: Found = {
    "at_risk": (
        ["cluster", "slo", "group_id", "attainment", "budget_left", "burn_rate_6h", "unknown_minutes"],
        [
            *((cluster, "prompt", "dark", None, None, 2.5, 3) for cluster in ("east", "west")),
            *((cluster, "prompt", "slow", 0.6, 0.4, 2.5, 3) for cluster in ("east", "west")),
        ],
    ),
    "by_day": (
        ["cluster", "snapshot_date", "met_minutes", "missed_minutes", "attainment"],
        [
            # `slow` has met it for 20 minutes, `fine` for 100.
            ("east", datetime(2026, 3, 1, tzinfo=UTC), 120, 60, 120 / 180),
            ("east", datetime(2026, 3, 2, tzinfo=UTC), 0, 0, None),
            ("west", datetime(2026, 3, 1, tzinfo=UTC), 10, 10, 0.5),
        ],
    ),
    "missed": (
        ["cluster", "group_id", "first_missed", "last_missed", "minutes", "worst"],
        [
            ("east", "slow", at(80), at(80), 20, 400),
            ("east", "slow", at(20), at(40), 40, 200),
            ("west", "slow", at(5), at(10), 10, 200),
        ],
    ),
}


def test_each_query_of_the_page_is_tested() -> None:
    assert QUERIES.keys() == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("engine", [0, 1], ids=["spark", "duckdb"])
def test_a_query_finds_what_it_should(answers: dict[str, list[pd.DataFrame]], name: str, engine: int) -> None:
    columns, expected = FOUND[name]
    assert values(answers[name][engine], columns) == sorted(expected, key=str)
