"""What a finding says that groups share, which groups it has, and when all of them are well."""

import json

import pytest

from pipeline.analytics.findings.past import Past
from pipeline.common.epoch import to_epoch_ms
from tests.helpers.group_problems import (
    during,
    minute_of,
    ms,
    problem,
    rows_found,
)


@pytest.mark.parametrize(
    ("unread", "ends"),
    [
        ({}, [41, 43]),
        ({"a": (41,)}, [42, 44]),
        ({"a": (41, 44), "b": (42, 45), "c": (43,)}, [42, 45]),
        ({"a": tuple(range(41, 60))}, []),
        ({"else": tuple(range(41, 60))}, [41, 43]),
    ],
)
def test_it_has_ended_when_each_group_was_judged_without_it(
    unread: dict[str, tuple[int, ...]], ends: list[int]
) -> None:
    """The groups a, b and c had it last in minute 40. Some cannot be read in some minutes."""
    others = {f"group {group}": {ms(minute): False for minute in minutes} for group, minutes in unread.items()}
    past = Past(whole={"group": [ms(minute) for minute in range(60)]}, others=others)
    assert past.all_left(["a", "b", "c"], ms(40)) == [ms(minute) for minute in ends]


def test_what_groups_share_is_summed_up() -> None:
    rows = [*during([30], "ab"), problem(30, "c", 5, consumer_lag=7, consumer_age_ms=1_000, worst_partition=3)]
    known, history = rows_found([range(30, 31)], rows)
    ((finding,), (row,)) = known.values(), history
    assert row["summary"] == (
        "3 groups (a, b, c) have stopped at about the same time in 1 partition of topic t: commits have not moved "
        "since 2026-01-31 12:00 UTC; unread by all of them together: 17 records, the oldest 1 s old."
    )
    assert json.loads(row["evidence"]) == {
        "status": "stopped",
        "since": "2026-01-31T12:00:00Z",
        "latest_since": "2026-01-31T12:05:00Z",
        "partitions": 3,
        "topics": ["t"],
        "groups": ["a", "b", "c"],
        "groups_affected": 3,
        "worst_topic": "t",
        "worst_partition": 3,
        "consumer_lag": 17,
        "consumer_age_ms": 1_000,
    }
    assert (row["topic"], row["partitions"], row["severity"], row["magnitude"]) == ("t", [0], "critical", 15.0)
    assert finding["evidence"] == row["evidence"]


@pytest.mark.parametrize("kind", ["no_progress", "deleted_unread"])
def test_of_many_groups_all_take_part_although_not_all_are_named(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("pipeline.analytics.findings.shared_groups.LISTED", 4)
    rows = during(range(30, 60), "abcdefgh", kind=kind)
    others = during(range(50, 60), "z", since=50, kind=kind)
    known, _ = rows_found([range(minute, minute + 1) for minute in range(30, 60)], rows + others)
    (shared,) = (row for row in known.values() if row["group_id"] is None)
    evidence = json.loads(shared["evidence"])
    assert (evidence["groups"], evidence["groups_affected"], len(evidence["other_groups"])) == ([*"abcd"], 8, 4 * 8)
    # What happens to another group much later is not hidden.
    assert [row["group_id"] for row in known.values() if row["group_id"]] == ["z"]


def test_a_finding_names_all_groups_that_took_part() -> None:
    """At its worst, in minute 30, d was not there yet."""
    rows = during(range(30, 35), "abc", kind="data_loss_ahead") + during(range(36, 40), "abcd", kind="data_loss_ahead")
    for row in rows:
        row["magnitude"] = -1.0 if row["snapshot_id"] < ms(35) else -2.0
    (finding,) = rows_found([range(30, 36), range(36, 60)], rows)[0].values()
    assert minute_of(to_epoch_ms(finding["worst_at"])) == 30
    assert json.loads(finding["evidence"])["groups"] == [*"abcd"]
