"""What cannot be read in two successive snapshots is one problem of the cluster."""

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pytest

from pipeline.analytics.findings.unreadable import find_unreadable
from pipeline.tables import COMMITTED_OFFSETS, LAG, WATERMARKS
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows

NO_LEADER, NO_COORDINATOR = "LEADER_NOT_AVAILABLE", "NOT_COORDINATOR"


def found(
    lag: list[tuple[Any, ...]],
    groups: Sequence[tuple[Any, ...]] = (),
    logs: Sequence[tuple[Any, ...]] = (),
) -> list[dict[str, Any]]:
    """The problems of snapshots 2 and 3, from (snapshot, group, topic, partition, error, lag) and from whole groups."""
    names, unread = "snapshot_id group_id topic partition error consumer_lag", "snapshot_id group_id error partition"
    parts = {
        "lag": few_rows(LAG, names, *((*row, None)[:6] for row in lag)),
        "commits": few_rows(COMMITTED_OFFSETS, unread, *((*group, None)[:4] for group in groups)),
        "watermarks": few_rows(WATERMARKS, "snapshot_id topic partition leader replicas", *logs),
    }
    problems = worded_rows(find_unreadable(parts, {2: 1, 3: 2}).collected_table())
    rows = sorted(problems, key=itemgetter("snapshot_id"))
    return [row | {"evidence": json.loads(row["evidence"])} for row in rows]


def test_a_single_error_is_no_problem() -> None:
    rows = [(1, "a", "t", 0, None, 5), (2, "a", "t", 0, NO_LEADER, None), (3, "a", "t", 0, None, 5)]
    assert found(rows, [(2, "b", NO_COORDINATOR)]) == []


def test_errors_of_other_readers_do_not_make_it_two() -> None:
    assert found([(1, "a", "t", 0, NO_LEADER, None), (2, "a", "t", 1, NO_LEADER, None)]) == []


def test_a_row_whose_lag_is_known_despite_an_error_does_not_count() -> None:
    assert found([(n, "a", "t", 0, NO_LEADER, 7) for n in (1, 2, 3)]) == []


def test_partitions_are_counted_once_however_many_groups_read_them() -> None:
    rows = [(n, group, "t", p, NO_LEADER, None) for n in (1, 2) for group in ("a", "b") for p in (0, 1)]
    (problem,) = found(rows)
    assert problem["summary"] == f"Lag is not known for 2 partitions of 2 groups (a, b): {NO_LEADER}."
    assert (problem["kind"], problem["group_id"], problem["topic"], problem["snapshot_id"]) == (
        "unreadable",
        None,
        None,
        2,
    )
    assert problem["evidence"] == {
        "partitions": 2,
        "topics": ["t"],
        "groups": ["a", "b"],
        "groups_affected": 2,
        "errors": [NO_LEADER],
    }


@pytest.mark.parametrize(
    ("lag", "what"),
    [([], "all partitions"), ([(n, "b", "t", 0, NO_LEADER, None) for n in (1, 2)], "1 partition or more")],
)
def test_a_group_that_cannot_be_read_at_all_has_no_row_in_lag(lag: list[tuple[Any, ...]], what: str) -> None:
    (problem,) = found(lag, [(n, "a", NO_COORDINATOR) for n in (1, 2)])
    assert problem["summary"].startswith(f"Lag is not known for {what} of ")


@pytest.mark.parametrize(
    ("log", "partitions"),
    [((None, [1, 2]), 1), ((None, []), 2), ((None, None), 2), ((1, [1, 2]), 2)],
)
def test_a_partition_that_is_known_to_have_no_leader_is_left_to_its_own_finding(
    log: tuple[Any, ...], partitions: int
) -> None:
    rows = [(n, "a", "t", p, NO_LEADER, None) for n in (1, 2) for p in (0, 1)]
    (problem,) = found(rows, (), [(2, "t", 0, *log)])
    assert problem["evidence"]["partitions"] == partitions


def test_groups_whose_names_are_not_known_are_said_so() -> None:
    (problem,) = found([], [(n, None, NO_COORDINATOR, 7) for n in (1, 2)])
    assert problem["summary"] == (
        f"Lag is not known for all partitions of groups whose names are not known: {NO_COORDINATOR}."
    )


def test_groups_that_could_not_be_listed_in_two_snapshots_are_the_same_only_in_the_same_partition() -> None:
    assert found([], [(1, None, NO_COORDINATOR, 7), (2, None, NO_COORDINATOR, 8)]) == []
    assert found([], [(n, None, NO_COORDINATOR) for n in (1, 2)]) == []
    (problem,) = found([], [(n, None, NO_COORDINATOR, 7) for n in (1, 2)])
    assert problem["evidence"]["partitions"] == 0
