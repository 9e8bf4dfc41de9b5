"""What each answer of a card says, and what it says if something is not known."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.common.quantities import clock
from pipeline.report.cards.answers import behind, caught_up_at, gauge, loss, members
from pipeline.report.cards.cards import cause_of
from pipeline.report.model.details import Finding, Forecast, Verdict
from tests.helpers.reports import MINUTE, NOON, finding, group, partition

HOUR = 60 * MINUTE


def at(ms: int) -> str:
    return clock(ms, NOON)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "5 records, bytes not known, age not known"),
        ({"consumer_lag": 1, "consumer_lag_bytes": 0}, "1 record, 0 B, age not known"),
        ({"partitions_unknown": 2}, "5 records, bytes not known, age not known; 2 partitions not known"),
        (
            {"consumer_lag": 3_988, "unread_offsets": 3_774},
            "3,988 records, of which 3,774 were deleted unread, bytes not known, age not known",
        ),
        (
            {"consumer_lag": 2, "consumer_age_ms": 0, "status_reason": "transaction_marker"},
            "no record is unread: only transaction markers are left",
        ),
        ({"consumer_lag": 2, "consumer_age_ms": 0}, "2 records, bytes not known, the oldest 0 ms old"),
        ({"consumer_lag": None, "partitions_unknown": 1}, "not known"),
        ({"consumer_lag": None}, "not known: nothing was committed"),
    ],
)
def test_how_far_a_group_is_behind(more: dict[str, Any], words: str) -> None:
    assert behind(group(**more), ()) == words


def test_a_group_that_is_not_listed_has_the_lag_of_its_finding() -> None:
    assert behind(None, [finding(), finding(evidence={"consumer_lag": 1_234, "consumer_age_ms": 90_000})]) == (
        "1,234 records, the oldest 1.5 min old"
    )
    assert behind(None, [finding(evidence={"records_waiting": 1_567})]) == "1,567 records wait"
    assert behind(None, [finding()]) == "not known"


def test_data_loss_is_known_to_be_none_only_if_every_partition_is_known() -> None:
    assert loss(group(lag=0), (), None, at) == "none so far; nothing is unread; headroom 100 records"
    assert loss(group(partitions_unknown=1), (), None, at) == "not known for 1 partition"
    assert loss(group(statuses={"deleted_unread": 1}), (), None, at) == "yes: records were deleted unread"
    assert loss(None, (), None, at) == "not known"


AGES_NOT = "not known for later: the oldest unread record gets no older now, but traffic may change"


@pytest.mark.parametrize(
    ("more", "reason", "words"),
    [
        ({}, None, "not known for later: there is no forecast; headroom 100 records"),
        (
            {},
            "never_at_this_rate",
            f"{AGES_NOT}; headroom 100 records",
        ),
        ({"min_headroom": None}, "caught_up", "none is forecast, because the group has caught up"),
        ({}, "not_known", "not known for later; headroom 100 records"),
        (
            {"min_headroom": 1},
            "caught_up",
            "none is forecast, because the group has caught up; headroom 1 record",
        ),
        (
            {"min_headroom": 0},
            "never_at_this_rate",
            "what retention deletes next is unread; headroom 0 records",
        ),
    ],
)
def test_that_no_data_will_be_lost_is_only_said_of_a_forecast(
    more: dict[str, Any], reason: str | None, words: str
) -> None:
    made = None if reason is None else Forecast("east", "g", NOON, 0, 0, 0, None, deleted_reason=reason)
    assert loss(group(**more), (), made, at) == f"none so far; {words}"


def test_a_forecast_of_loss_has_a_time_of_day_with_its_band() -> None:
    times = {"deleted_in_ms": 150 * MINUTE, "deleted_in_low_ms": 110 * MINUTE, "deleted_in_high_ms": 13 * HOUR}
    forecast = replace(Forecast("east", "g", NOON, None, None, None, "never_at_this_rate"), **times)
    words = "forecast: retention deletes unread records at 14:30"
    assert loss(group(), (), forecast, at) == f"{words} (13:50 to 2026-03-02 01:00)"
    open_end = replace(forecast, deleted_in_low_ms=None, deleted_in_high_ms=None)
    assert loss(group(), (), open_end, at) == f"{words} (12:00 to never)"
    no_time = replace(forecast, deleted_in_ms=None, deleted_reason="too_uncertain")
    assert loss(group(), (), no_time, at) == (
        "none so far; not known for later: the rate of the group varies too much, but probably not before 13:50; "
        "headroom 100 records"
    )
    lost = finding("deleted_unread", evidence={"deleted_offsets": 7})
    assert loss(group(), [lost], forecast, at) == (
        f"yes: 7 offsets deleted unread, seen since 12:00; {words} (13:50 to 2026-03-02 01:00)"
    )


def test_commits_that_expire_are_a_loss_ahead() -> None:
    expire = finding("commits_expire", "warning", now={"commits_expire_at": "2026-03-01T12:30:00Z"})
    words = "Kafka may remove the commits from 12:30 on"
    assert loss(group(), [expire], None, at) == f"ahead: {words}; the group then starts where auto.offset.reset says"
    assert cause_of(expire, at)[:2] == ("commits expire", words)


def test_a_forecast_of_loss_that_is_not_of_the_newest_snapshot_says_so() -> None:
    ahead = finding("data_loss_ahead", worst_ms=NOON - HOUR, evidence={"deleted_at": "2026-03-02T01:30:00Z"})
    words = "ahead: retention may delete unread records from 2026-03-02 01:30 on"
    assert loss(group(), [ahead], None, at) == f"{words} (forecast of 11:00)"
    assert loss(group(), [replace(ahead, now=ahead.evidence)], None, at) == words
    assert loss(group(), [replace(ahead, now={})], None, at) == "ahead: retention may delete unread records soon"


@pytest.mark.parametrize(
    ("in_ms", "low", "high", "reason", "words"),
    [
        (42 * MINUTE, 37 * MINUTE, 13 * HOUR, None, "at 12:42 (12:37 to 2026-03-02 01:00)"),
        (42 * MINUTE, 0, None, None, "at 12:42 (12:00 to never)"),
        (0, 0, 0, None, "it has caught up"),
        (None, 50 * MINUTE, None, "never_at_this_rate", "never at this rate, but not before 12:50"),
        (None, None, None, "never_at_this_rate", "never at this rate"),
        (None, 0, None, "too_uncertain", "not known: the rate of the group varies too much"),
        (None, None, None, "something new", "not known"),
    ],
)
def test_when_a_group_will_have_caught_up(
    in_ms: int | None, low: int | None, high: int | None, reason: str | None, words: str
) -> None:
    assert caught_up_at(Forecast("east", "g", NOON, in_ms, low, high, reason), at) == words


def test_a_forecast_by_earlier_weeks_says_so() -> None:
    forecast = Forecast("east", "g", NOON, 7 * HOUR, 6 * HOUR, None, None, basis="same_hour")
    words = ", by the traffic of earlier weeks"
    assert caught_up_at(forecast, at) == f"at 19:00 (18:00 to never){words}"
    never = replace(forecast, caught_up_in_ms=None, caught_up_in_low_ms=None, reason="never_at_this_rate")
    assert caught_up_at(never, at) == f"never at this rate{words}"
    assert caught_up_at(replace(never, basis="now"), at) == "never at this rate"


def test_without_a_forecast_it_is_not_known() -> None:
    assert caught_up_at(None, at) == "not known: there is no forecast"
    assert caught_up_at(Forecast("east", "g", None, 1, 1, 1, None), at) == "not known: there is no forecast"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict("east", "g", 1, 0, "app", 5, 5, "truthful"), "right: app reports a lag of 5, its lag is 5"),
        (Verdict("east", "g", 1, 1, "app", None, 5, "stale"), "wrong: app reports no lag, its lag is 5 (stale)"),
        (
            Verdict("east", "g", 3, 2, "app", 0, None, "blind"),
            "wrong: app reports a lag of 0, its lag is not known (blind); 2 of 3 gauges are wrong",
        ),
        (Verdict("east", "g", 1, 0, "app", 5, 5, None), "cannot be judged: app reports a lag of 5, its lag is 5"),
    ],
)
def test_whether_the_gauge_is_right(verdict: Verdict, words: str) -> None:
    assert gauge(verdict, (), at) == words


def test_a_gauge_that_is_not_reported_any_more_was_wrong() -> None:
    was = "wrong when it was last reported, at 12:00"
    assert gauge(None, [finding("blind_gauge", client_id="app")], at) == was
    assert gauge(None, [finding()], at) == "not known: no client of the group reports it"


def test_members_are_those_with_partitions_that_are_behind() -> None:
    owners = [partition("t", n, client_id=f"c{n}", host=f"/10.0.0.{n}", consumer_lag=n) for n in range(6)]
    assert members(group(), (), owners, at) == (
        "c1 at 10.0.0.1 (t 1); c2 at 10.0.0.2 (t 2); c3 at 10.0.0.3 (t 3); 2 more"
    )
    same = [partition("t", n, client_id="c", consumer_lag=None) for n in range(4)]
    assert members(group(), (), same, at) == "c (t 0, t 1, t 2, …)"
    never = "none, and none was ever seen: the group may commit without being a member"
    assert members(group(members=0, group_state="Empty"), (), (), at) == never
    left = group(members=0, group_state="Empty", members_seen_ms=NOON - HOUR)
    assert members(left, (), (), at) == "none: the group has no members; it last had some at 11:00"
    assert members(group(), (), [partition("t", 0, consumer_lag=1)], at) == "not known"
    moving = replace(left, group_state="PreparingRebalance")
    assert members(moving, (), (), at) == (
        "not known: no member has partitions while the state of the group is PreparingRebalance"
    )
    assert members(replace(left, group_state=None), (), (), at) == "not known"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (finding("slow_consumer", client_id="app", instance="10.0.0.1:99"), "app at 10.0.0.1:99"),
        (finding("slow_consumer", client_id="app", evidence={"hosts": ["/10.0.0.1"]}), "app at 10.0.0.1"),
        (finding("flapping_member", evidence={"client_id": "app", "host": "/10.0.0.1"}), "app at 10.0.0.1"),
        (finding("under_replicated", evidence={"brokers": [3, 4]}), "broker 3; broker 4"),
        (finding("slow_consumer", client_id="app", resolved_ms=NOON), "not known"),
    ],
)
def test_a_finding_may_name_the_place(found: Finding, words: str) -> None:
    assert members(group(), [found], (), at) == words
