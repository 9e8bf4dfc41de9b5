"""The objectives and the changes of a group, as its charts show them."""

from typing import Any

import pytest

from pipeline.report.charts.objectives import targets
from pipeline.report.charts.timeline import counts
from pipeline.report.model.heat import Missed
from pipeline.report.model.report import Instant
from tests.helpers.maps import changed, ids, objective, series
from tests.helpers.reports import MINUTE, NOON, group, report


def shown(text: str, partitions: int = 1, **more: Any) -> dict[str, Any]:
    of = group(partitions=partitions)
    (found,) = targets(report(of, objectives=(objective(text, **more),)), of, [])
    return found


@pytest.mark.parametrize(
    ("text", "unit", "most"),
    [
        ("consumer_age_ms < 60000", "age", 59_999),
        ("consumer_lag_ms <= 60000", "ms", 60_000),
        ("consumer_lag < 1", "records", 0),
        ("consumer_lag_bytes <= 5", "bytes", 5),
        ("consumer_lag_stable < 7", None, 6),
    ],
)
def test_a_limit_has_the_unit_of_the_chart_that_shows_its_column(text: str, unit: str | None, most: int) -> None:
    found = shown(text)
    assert (found["unit"], found["most"], found["limit"]) == (unit, most, int(text.rsplit(maxsplit=1)[-1]))
    assert found["objective"] == text


@pytest.mark.parametrize(
    ("text", "partitions", "is_of_sum"),
    [
        ("consumer_lag < 9", 1, False),
        ("consumer_lag < 9", 2, True),
        ("consumer_lag_bytes < 9", 2, True),
        ("consumer_lag_ms < 9", 2, False),
        ("consumer_age_ms < 9", 2, False),
    ],
)
def test_a_limit_for_each_partition_is_none_for_their_sum(text: str, partitions: int, is_of_sum: bool) -> None:
    assert shown(text, partitions)["is_of_sum"] is is_of_sum


def test_the_topics_of_an_objective_are_named() -> None:
    assert shown("consumer_lag < 9", topics="^orders$")["topics"] == "^orders$"


def test_an_objective_names_the_rows_that_it_concerns() -> None:
    of = group()
    rows = (series(0, (1,), "refunds"), series(0, (1,)), series(1, (1,)), series(0, (1,), "orders.x", group_id="h"))
    some, every = targets(
        report(
            of,
            partition_series=rows,
            objectives=(objective("consumer_lag < 9", topics="^ord"), objective("consumer_lag < 9")),
        ),
        of,
        [],
    )
    assert (some["of_topics"], every["of_topics"]) == (["orders"], None)


def test_missed_snapshots_are_ranges_that_end_at_gaps() -> None:
    """Of eight snapshots, a gap is before the fifth; one that was missed is not drawn."""
    instants = [Instant("east", NOON + n * MINUTE, int(n > 3), 8) for n in range(8)]
    of = group()
    missed = Missed("east", "g", "fresh", ids(0, 2, 3, 4, 5, 99), ids(7))
    (found,) = targets(report(of, objectives=(objective("consumer_lag < 9"),), missed=(missed,)), of, instants)
    assert (found["missed"], found["unknown"]) == ([(0, 0), (2, 3), (4, 5)], [(7, 7)])


def test_the_changes_of_a_snapshot_are_counted() -> None:
    changes = [
        *(changed(5, "joined", 2), changed(5, "moved", 1, 12), changed(5, "assigned", 1, 3)),
        *(changed(1, "left", 1), changed(1, "restarted", 40), changed(3, "state", 1), changed(4, "unassigned", 1, 2)),
    ]
    first, fourth, fifth = ids(1, 4, 5)
    assert counts(changes) == [(first, 0, 1, 40, 0), (fourth, 0, 0, 0, 2), (fifth, 2, 0, 0, 15)]
