"""What findings say about members, assignments and error budgets, by facts on each side of each boundary."""

from typing import Any

import pytest

from pipeline.common.epoch import HOUR_MS
from tests.helpers.worded import NOON_MS, words

TO = "--bootstrap-server $BOOTSTRAP"


MEMBERS = {
    "group_id": "g",
    "all_stays": 4,
    "window_ms": 2 * HOUR_MS,
    "members": 3,
    "restless": 1,
    "quiet": 0,
    "steady": 1,
    "epochs": 0,
    "is_quiet": False,
    "by_epochs": False,
    "worst": {"stays": 1, "who": '{"client_id":"c"}'},
}


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"who": '{"client_id":"c","host":"/10.0.0.1"}'}, "Client c at /10.0.0.1 joins and leaves the group"),
        ({"who": '{"client_id":"c","member_id":"m"}'}, "Client c joins and leaves the group"),
        ({"who": '{"member_id":"m"}'}, "Member m joins and leaves the group"),
        ({"who": '{"instance":"ä \\"1\\"","client_id":"c"}'}, 'Static member ä "1" joins and leaves the group'),
    ],
)
def test_who_flaps_has_a_name(facts: dict[str, Any], name: str) -> None:
    found = words("flapping_member", **MEMBERS | {"worst": {"stays": 1} | facts})
    assert found.summary == f"{name} again and again: 1 time within 2 hours; the group has 1 other member."


@pytest.mark.parametrize(
    ("quiet", "starts"),
    [
        (1, "Static member s restarts again and again: 2 times"),
        (2, "2 static members restart again and again, most often s: 2 times"),
    ],
)
def test_static_members_that_restart(quiet: int, starts: str) -> None:
    worst = {"stays": 2, "who": '{"instance":"s"}'}
    found = words("flapping_member", **MEMBERS | {"is_quiet": True, "quiet": quiet, "worst": worst})
    assert found.summary == f"{starts} within 2 hours; the group has 1 other member."
    assert found.evidence["flapping_members"] == quiet


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({}, "4 times within 2 hours, a member left soon after it had joined, most often client c (1 time)"),
        ({"restless": 0, "worst": None}, "4 times within 2 hours, a member left soon after it had joined"),
        ({"by_epochs": True, "epochs": 1_234}, "its epoch rose by 1,234 within 2 hours"),
    ],
)
def test_a_group_that_rebalances(facts: dict[str, Any], what: str) -> None:
    assert words("rebalance_storm", **MEMBERS | facts).summary == f"The group rebalances again and again: {what}."


ASSIGNMENT = {
    "group_id": "g",
    "members": 4,
    "idle": 1,
    "idle_clients": ["c"],
    "of_partitions": 3,
    "topics": ["t"],
    "topics_affected": 1,
    "most": {"partitions": 3, "lag": 10, "client": "c at /10.0.0.1"},
    "fair": 1,
    "over": 1,
    "lag_share": 0.9,
}


@pytest.mark.parametrize(
    ("facts", "starts", "ends"),
    [
        ({}, "1 of 4 members has no partition", "--topic t --partitions 4"),
        ({"idle": 2}, "2 of 4 members have no partition", "--topic t --partitions 4"),
        ({"topics": ["a;b"]}, "1 of 4 members has no partition", "--topic TOPIC --partitions 4"),
        ({"topics": ["a", "b"], "topics_affected": 2}, "1 of 4", "--topic TOPIC --partitions NUMBER"),
    ],
)
def test_idle_members(facts: dict[str, Any], starts: str, ends: str) -> None:
    found = words("idle_member", **ASSIGNMENT | facts)
    assert found.summary.startswith(starts)
    assert found.advice.endswith(ends)


@pytest.mark.parametrize(
    ("facts", "middle"),
    [
        ({}, "(client c at /10.0.0.1) has 3 of 3 partitions, and 1 of 4 members has none; members"),
        ({"idle": 2}, "has 3 of 3 partitions, and 2 of 4 members have none; members"),
        ({"idle": 0, "idle_clients": []}, "has 3 of 3 partitions; members with more than 1 have 90 % of the lag."),
        ({"most": {"partitions": 3, "lag": 10}}, "uneven: one member has 3 of 3"),
    ],
)
def test_uneven_assignments(facts: dict[str, Any], middle: str) -> None:
    assert middle in words("uneven_assignment", **ASSIGNMENT | facts).summary


@pytest.mark.parametrize(
    ("assignor", "group_type", "starts"),
    [
        ("range", None, "The RangeAssignor shares each topic by itself"),
        ("roundrobin", None, "Set partition.assignment.strategy"),
        ("range", "consumer", "The RangeAssignor"),
        (None, "consumer", "Set group.remote.assignor to uniform"),
        ("uniform", "consumer", "See the members"),
        ("cooperative-sticky", None, "See the members"),
    ],
)
def test_the_advice_on_uneven_assignments(assignor: str | None, group_type: str | None, starts: str) -> None:
    advice = words("uneven_assignment", **ASSIGNMENT, assignor=assignor, group_type=group_type).advice
    assert advice.startswith(starts)
    assert advice.endswith(f"kafka-consumer-groups {TO} --describe --group g --members --verbose")


BURN = {
    "snapshot_id": NOON_MS,
    "slo": "a",
    "slos": ["a"],
    "objective": "consumer_lag <= 10",
    "target": 0.999,
    "window_ms": 30 * 24 * HOUR_MS,
    "is_fast": True,
    "span_ms": HOUR_MS,
    "used_ms": HOUR_MS,
}
MISSED = "Objective a: consumer_lag <= 10 was missed"
MUST = "and must be met for 99.9 % of 30 d."


@pytest.mark.parametrize(
    ("facts", "summary"),
    [
        ({}, f"{MISSED} during all of the last hour, {MUST} The error budget is used up."),
        ({"budget_left": 0.0}, f"{MISSED} during all of the last hour, {MUST} The error budget is used up."),
        (
            {"budget_left": 0.5},
            (
                f"{MISSED} during all of the last hour, {MUST} 50 % of the error budget is left, and at this rate it "
                "lasts for 21.6 min."
            ),
        ),
        (
            {"used_ms": HOUR_MS - 1, "slos": ["a", "b", "c"]},
            (
                f"{MISSED} for 60 min of the last hour, {MUST} The error budget is used up. Other objectives whose "
                "budget is used too fast: b, c."
            ),
        ),
        (
            {"is_fast": False, "span_ms": 6 * HOUR_MS},
            f"{MISSED} for 1 h of the last 6 hours, {MUST} The error budget is used up.",
        ),
    ],
)
def test_budgets_that_burn(facts: dict[str, Any], summary: str) -> None:
    found = words("budget_burn", **BURN | facts)
    assert found.summary == summary
    assert found.evidence["used_up_at"] == ("2026-01-31T12:21:36Z" if facts.get("budget_left") else None)
