"""Which groups of `tests/helpers/restless.py` have problems, when, and in which words."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pipeline.analytics.findings.rebalances import find_restless_groups
from pipeline.common.rows import Rows
from pipeline.tables import GROUP_CHANGES, GROUP_MEMBERS
from tests.helpers.group_model import Member
from tests.helpers.restless import (
    FLAPPING,
    GROUPS,
    HEALTHY,
    MINUTE_MS,
    MINUTES,
    READER_FINDERS,
    STORM,
    T0,
    Found,
    found,
    member,
    steady,
)
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows


@pytest.fixture(scope="module")
def each_minute() -> Found:
    return found(1, GROUPS)


@pytest.fixture(scope="module")
def each_quarter() -> Found:
    return found(15, GROUPS)


def kinds(rows: Found, group: str) -> dict[int, str]:
    return {minute: row["kind"] for minute, row in rows.get(group, {}).items()}


@pytest.mark.parametrize("group", HEALTHY)
def test_a_healthy_group_has_no_problem(each_minute: Found, each_quarter: Found, group: str) -> None:
    assert (kinds(each_minute, group), kinds(each_quarter, group)) == ({}, {})


@pytest.mark.parametrize("group", [name for name in FLAPPING if name != "four restarts"])
def test_one_member_that_comes_and_goes_is_a_flapping_member(
    each_minute: Found, each_quarter: Found, group: str
) -> None:
    expected = dict.fromkeys(READER_FINDERS, "flapping_member")
    assert (kinds(each_minute, group), kinds(each_quarter, group)) == (expected, expected)


@pytest.mark.parametrize("group", STORM)
def test_members_that_come_and_go_together_are_a_storm(each_minute: Found, each_quarter: Found, group: str) -> None:
    expected = dict.fromkeys(READER_FINDERS, "rebalance_storm")
    assert (kinds(each_minute, group), kinds(each_quarter, group)) == (expected, expected)


def test_a_job_that_is_never_seen_without_members_looks_like_members_that_restart(
    each_minute: Found, each_quarter: Found
) -> None:
    assert kinds(each_minute, "a job on the same hosts") == {}
    assert {*kinds(each_quarter, "a job on the same hosts").values()} == {"rebalance_storm"}


@pytest.mark.parametrize("every", [35, 39])
def test_a_member_that_restarts_regularly_has_the_problem_all_the_time(each_minute: Found, every: int) -> None:
    """From its fourth restart on."""
    expected = dict.fromkeys([m for m in READER_FINDERS if m >= 4 * every], "flapping_member")
    assert kinds(each_minute, f"every {every} minutes") == expected


def test_a_member_that_restarts_less_than_four_times_in_two_hours_has_no_problem(each_minute: Found) -> None:
    assert kinds(each_minute, "every 45 minutes") == {}


def test_a_problem_begins_with_the_fourth_restart_and_ends_40_minutes_after_the_last(
    each_minute: Found, each_quarter: Found
) -> None:
    """The member restarts at minutes 135, 150, 165 and 180."""
    expected = dict.fromkeys((180, 195, 210), "flapping_member")
    assert kinds(each_minute, "four restarts") == kinds(each_quarter, "four restarts") == expected


def test_a_deployment_does_not_make_an_earlier_problem_a_new_one(each_minute: Found, each_quarter: Found) -> None:
    expected = dict.fromkeys((180, 195, 210), "flapping_member")
    assert kinds(each_minute, "a deployment afterwards") == kinds(each_quarter, "a deployment afterwards") == expected


def test_members_that_begin_together_are_a_storm_from_the_beginning() -> None:
    """Three of four members restart every six minutes, one after the other: as in a real storm."""

    def members(minute: int) -> Iterator[Member]:
        passed = min(max(minute, 140), 200) - 140
        yield from steady(1)
        for n in range(3):
            yield member(f"bad-{n}", (passed + 2 * n) // 6, "/10.0.0.9")

    rows = found(1, {"g": members}, range(140, MINUTES))
    assert {*kinds(rows, "g").values()} == {"rebalance_storm"}
    first, last = min(rows["g"]), max(rows["g"])
    assert (first, last) == (140 + 24 - 4, 239)
    assert len(rows["g"]) == last - first + 1


def test_the_words_name_the_member_and_what_to_do(each_minute: Found) -> None:
    row = each_minute["one of twelve"][240]
    assert row["summary"] == (
        "Client bad at /10.0.9.9 joins and leaves the group again and again: 8 times within 2 hours; the group has 11 "
        "other members."
    )
    assert row["evidence"] == {
        "short_stays": 8,
        "window_ms": 7_200_000,
        "members": 12,
        "flapping_members": 1,
        "clients": ["bad"],
        "client_id": "bad",
        "host": "/10.0.9.9",
        "short_stays_of_client": 8,
    }
    assert (row["severity"], row["magnitude"], row["client_id"], row["topic"]) == ("warning", 8.0, None, None)
    assert row["advice"].endswith(
        "kafka-consumer-groups --bootstrap-server $BOOTSTRAP --describe --group 'one of twelve' --members --verbose"
    )


def test_the_words_for_static_members_say_that_they_restart(each_minute: Found) -> None:
    one, two, leaving = (each_minute[name][240] for name in ("static", "two static", "static, leaving"))
    assert one["summary"] == (
        "Static member pod-0 restarts again and again: 8 times within 2 hours; the group has 1 other member."
    )
    assert two["summary"] == (
        "2 static members restart again and again, most often pod-0: 8 times within 2 hours; the group has 2 other "
        "members."
    )
    assert "the group does not rebalance" in one["advice"]
    assert one["advice"].endswith("--group static --members --verbose")
    assert leaving["summary"].startswith("Static member pod-0 joins and leaves the group again and again: ")


def test_the_words_of_a_storm_name_the_worst_member(each_minute: Found) -> None:
    storm = "The group rebalances again and again: "
    assert each_minute["two of three"][240]["summary"] == (
        f"{storm}15 times within 2 hours, a member left soon after it had joined, most often client bad at /10.0.9.9 "
        "(8 times)."
    )
    assert each_minute["an autoscaler"][240]["summary"] == (
        f"{storm}40 times within 2 hours, a member left soon after it had joined."
    )


def problems_of(changes: Rows, members: Rows, ids: Sequence[int]) -> list[dict[str, Any]]:
    """The problems with their words, in snapshots `ids`."""
    return worded_rows(find_restless_groups({"changes": changes, "members": members}, ids).collected_table())


EPOCHS = [
    # Members, by how much the epoch rises in each quarter of an hour of the last hour, and whether it is a storm: if it
    # rises by two for each member and for the one that came and went, six times or more.
    (3, 12, True),
    (3, 11, False),
    (1, 50, False),
]


@pytest.mark.parametrize(("members", "step", "is_storm"), EPOCHS)
def test_an_epoch_that_rises_shows_rebalances_between_snapshots(members: int, step: int, is_storm: bool) -> None:
    minutes = (195, 210, 225, 240)
    ids = [T0 + m * MINUTE_MS for m in minutes]
    rows = [(i, i - 15 * MINUTE_MS, "g", "epoch", str(n * step), str((n + 1) * step)) for n, i in enumerate(ids)]
    rows += [(ids[0], T0, "g", "joined", None, "other"), (ids[1], ids[0], "g", "left", "other", None)]
    changes = few_rows(GROUP_CHANGES, "snapshot_id earlier_snapshot_id group_id change before after", *rows)
    described = few_rows(
        GROUP_MEMBERS,
        "snapshot_id group_id group_type member_id",
        *((i, "g", "consumer", f"m{n}") for i in ids for n in range(members)),
    )
    problems = {row["snapshot_id"]: row for row in problems_of(changes, described, ids)}
    assert [*problems] == ([ids[-1]] if is_storm else [])
    if is_storm:
        row = problems[ids[-1]]
        assert row["summary"] == "The group rebalances again and again: its epoch rose by 48 within 2 hours."
        assert "consumer.session.timeout.ms" in row["advice"]
        assert "group.protocol" not in row["advice"]
        assert (row["kind"], row["magnitude"]) == ("rebalance_storm", 24.0)


def test_a_group_whose_members_could_not_be_read_is_not_judged() -> None:
    ids = [T0 + m * MINUTE_MS for m in range(1, 9)]
    members = [member("bad", number) for number in range(9)]
    restarts = [
        (i, i - MINUTE_MS, "g", "restarted", members[n].member_id, members[n + 1].member_id, "bad", "/10.0.0.1")
        for n, i in enumerate(ids)
    ]
    columns = "snapshot_id earlier_snapshot_id group_id change before after client_id host"
    changes = few_rows(GROUP_CHANGES, columns, *restarts)
    unread = few_rows(GROUP_MEMBERS, "snapshot_id group_id error", (ids[-1], "g", "NOT_COORDINATOR"))
    assert problems_of(changes, unread, ids) == []
