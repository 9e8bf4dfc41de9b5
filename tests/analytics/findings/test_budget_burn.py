"""When a group uses its error budget too fast, and what the finding says."""

import json
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from pipeline.analytics.findings.budget_burn import budget_burn
from pipeline.common.data_source import arrow_schema
from pipeline.tables import SLO
from tests.helpers.worded import worded_rows

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOON = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
BEGUN = datetime(2026, 1, 31, 10, 55, tzinfo=UTC)
"""An hour before the fifth minute before noon."""


def budget(
    missed_1h: float, missed_6h: float, is_met: bool | None = False, minutes_ago: int = 0, **more: Any
) -> dict[str, Any]:
    """A row of `slo` with the minutes missed; the budget is 100.8 minutes: 1 % of a week.

    `minutes_ago`: when it was last missed. It has been met since then if it is met now, or if `more` says so.
    """
    allowed = 0.01 * 7 * 24 * 60
    now = datetime.fromtimestamp((more.get("snapshot_id", NOON)) / 1000, UTC)
    row = {
        "cluster": "east",
        "snapshot_id": NOON,
        "group_id": "g",
        "slo": "checkout",
        "objective": "consumer_age_ms < 60000",
        "target": 0.99,
        "window_ms": 7 * DAY,
        "is_met": is_met,
        "counted_ms": MINUTE,
        "begun_at": now - timedelta(days=3),
        "last_missed_at": now - timedelta(minutes=minutes_ago),
        "last_missed_ms": MINUTE,
        "last_known_is_met": is_met is True,
        "partitions": 3,
        "partitions_missed": 1,
        "worst": 90_000,
        "hour_missed_ms": round(missed_1h * MINUTE),
        "six_hours_missed_ms": round(missed_6h * MINUTE),
        "burn_rate_1h": missed_1h / 60 / (1 - 0.99),
        "burn_rate_6h": missed_6h / 360 / (1 - 0.99),
        "attainment": 0.98,
        "budget_left": 1 - missed_6h / allowed,
    }
    assert more.keys() <= {*SLO.columns}
    return row | more


def problems(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    found = worded_rows(budget_burn(pa.Table.from_pylist(rows, arrow_schema(SLO.schema))))
    in_order = sorted(found, key=itemgetter("snapshot_id", "group_id"))
    return [row | {"evidence": json.loads(row["evidence"])} for row in in_order]


@pytest.mark.parametrize(
    ("row", "severity"),
    [
        # 2 % of 100.8 minutes are 2.016; 5 % are 5.04.
        (budget(2.016, 2.016), "critical"),
        (budget(2.015, 2.015), None),
        (budget(2.015, 5.04), "warning"),
        (budget(2.015, 5.03), None),
        (budget(2.016, 5.04), "critical"),
        # A snapshot of the last 5 minutes, or of the last 30, must miss it.
        (budget(2, 30, True, 30), "warning"),
        (budget(2, 30, True, 31), None),
        (budget(30, 30, True, 5, burn_rate_6h=None), "critical"),
        (budget(30, 30, True, 6, burn_rate_6h=None), None),
        (budget(30, 30, True, 6), "warning"),
        # Unknown snapshots end nothing, if it was missed before them. If it was met before them, they begin nothing.
        (budget(30, 30, None, 50), "critical"),
        (budget(0, 30, None, 350), "warning"),
        (budget(30, 30, None, 50, last_known_is_met=True), None),
        (budget(30, 30, None, 30, last_known_is_met=True), "warning"),
        # The last one that misses it must not be the only one, whatever the newest one counts for.
        (budget(5, 5, last_missed_ms=5 * MINUTE), None),
        (budget(10, 10, last_missed_ms=5 * MINUTE), "critical"),
        (budget(5, 10, last_missed_ms=5 * MINUTE), "warning"),
        (budget(45, 45, None, 15, last_missed_ms=45 * MINUTE), None),
        (budget(45, 45, True, 1, last_missed_ms=45 * MINUTE), None),
        # The history is shorter than an hour, or than six.
        (budget(30, 30, burn_rate_1h=None, burn_rate_6h=None), None),
        (budget(2, 30, burn_rate_6h=None), None),
        (budget(30, 30, burn_rate_6h=None), "critical"),
        # It was not long enough when the objective was last missed, so nothing has begun.
        (budget(30, 30, None, 5, burn_rate_6h=None, begun_at=BEGUN), "critical"),
        (budget(30, 30, None, 6, burn_rate_6h=None, begun_at=BEGUN), None),
        # Nothing was ever missed.
        (budget(0, 0, True, last_missed_at=None, last_missed_ms=None), None),
        (budget(0, 0, None, last_missed_at=None, last_missed_ms=None, last_known_is_met=None), None),
    ],
)
def test_a_budget_burns_if_too_much_of_it_was_used(row: dict[str, Any], severity: str | None) -> None:
    assert [problem["severity"] for problem in problems(row)] == ([] if severity is None else [severity])


def test_the_share_depends_on_the_objectives_own_window_and_target() -> None:
    """5 % of the budget of 30 days are 21.6 minutes if the target is 99 %, 36 minutes of 5 days if it is 90 %."""
    month = {"window_ms": 30 * DAY}
    assert problems(budget(8.63, 21.59, **month)) == []
    assert [p["severity"] for p in problems(budget(8.64, 21.6, **month))] == ["critical"]
    assert [p["severity"] for p in problems(budget(8.63, 21.6, **month))] == ["warning"]
    ten = {"target": 0.9, "window_ms": 5 * DAY, "burn_rate_1h": 14.39 / 6}
    assert problems(budget(14.39, 35.9, burn_rate_6h=35.9 / 36, **ten)) == []
    assert [p["severity"] for p in problems(budget(14.39, 36, burn_rate_6h=1.0, **ten))] == ["warning"]


def test_the_words_of_a_fast_one() -> None:
    (problem,) = problems(budget(12, 25.2, topic="orders"))
    assert (problem["kind"], problem["group_id"], problem["topic"]) == ("budget_burn", "g", "orders")
    assert problem["magnitude"] == pytest.approx(20)
    # 75.6 minutes are left, and 12 are used in an hour: 6.3 hours.
    assert problem["summary"] == (
        "Objective checkout: consumer_age_ms < 60000 was missed for 12 min of the last hour, and must be met for "
        "99 % of 7 d. 75 % of the error budget is left, and at this rate it lasts for 6.3 h."
    )
    assert problem["evidence"] == {
        "slos": ["checkout"],
        "objective": "consumer_age_ms < 60000",
        "target": 0.99,
        "window_ms": 7 * DAY,
        "worst": 90_000,
        "partitions_missed": 1,
        "partitions": 3,
        "burn_rate_1h": 20.0,
        "burn_rate_6h": 7.0,
        "attainment": 0.98,
        "budget_left": 0.75,
        "used_up_at": "2026-01-31T18:18:00Z",
    }


def test_no_more_of_an_hour_is_missed_than_there_is() -> None:
    """Every 15 minutes, with a gap before: the four snapshots of the hour speak for 45 + 15 + 15 + 15 minutes."""
    (problem,) = problems(budget(90, 90, burn_rate_1h=100.0, budget_left=10.8 / 100.8))
    assert " was missed during all of the last hour, and must be met for " in problem["summary"]
    # 10.8 minutes are left, and 60 are used in an hour: 10.8 minutes.
    assert problem["summary"].endswith(" and at this rate it lasts for 10.8 min.")
    assert problem["evidence"]["used_up_at"] == "2026-01-31T12:10:48Z"


def test_the_words_of_a_slow_one_whose_budget_is_used_up() -> None:
    (problem,) = problems(budget(0, 6, target=0.9995, budget_left=-0.2))
    assert problem["summary"] == (
        "Objective checkout: consumer_age_ms < 60000 was missed for 6 min of the last 6 hours, and must be met for "
        "99.95 % of 7 d. The error budget is used up."
    )
    assert "used_up_at" not in problem["evidence"]


def test_a_group_has_one_problem_of_the_objective_that_burns_fastest() -> None:
    rows = [
        budget(2.5, 6, slo="a"),
        budget(3, 6, slo="b", objective="consumer_lag < 5"),
        budget(0, 300, slo="c"),
        budget(0, 0, slo="d"),
        budget(0, 300, slo="c", group_id="h"),
        budget(3, 6, slo="b", snapshot_id=NOON + MINUTE),
    ]
    found = problems(*rows)
    assert [(p["snapshot_id"] - NOON, p["group_id"], p["severity"]) for p in found] == [
        (0, "g", "critical"),
        (0, "h", "warning"),
        (MINUTE, "g", "critical"),
    ]
    assert found[0]["evidence"]["slos"] == ["a", "b", "c"]
    assert found[0]["evidence"]["objective"] == "consumer_lag < 5"
    assert found[0]["summary"].endswith(" Other objectives whose budget is used too fast: a, c.")
