"""Groups whose members join and leave again and again, and healthy groups in which much changes.

Each group is a function that says which members it has in a minute. The model of `group_changes` in plain Python finds
what has changed from snapshot to snapshot.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.findings.rebalances import restless_groups
from pipeline.tables import GROUP_CHANGES, GROUP_MEMBERS
from tests.helpers.group_model import Member, member_changes
from tests.helpers.rows import frame

MINUTE_MS = 60_000
T0 = 1_769_860_800_000
MINUTES = 241
Members = Iterable[Member]
Found = dict[str, dict[int, dict[str, Any]]]


def member(client: str, number: int, host: str = "/10.0.0.1", instance: str | None = None) -> Member:
    """The member with this client.id that has joined for the nth time, of the classic protocol."""
    return Member(f"{instance or client}-{UUID(int=number)}", client, host, instance)


def steady(count: int) -> list[Member]:
    return [member(f"s{n}", 0, f"/10.0.1.{n}") for n in range(count)]


def rolling(minute: int, at: int, *, alike: bool = False, pods: int = 50, generation: int = 0) -> Iterator[Member]:
    """Pods that are replaced one by one, from a minute on."""
    for pod in range(pods):
        number = 1_000 * (generation + (minute >= at + pod)) + pod
        yield member("app", number, "/10.0.0.1" if alike else f"/10.0.{number // 250}.{number % 250}")


def hourly(minute: int, *, keeps_host: bool) -> Iterator[Member]:
    """Ten members that are replaced once an hour, at minute 7."""
    hour = (minute + 53) // 60
    for pod in range(10):
        yield member("app", 100 * hour + pod, f"/10.0.{0 if keeps_host else hour}.{pod}")


def scaled_once(minute: int, *, alike: bool) -> Iterator[Member]:
    yield from steady(2)
    for pod in range(10 if 150 <= minute < 180 else 0):
        yield member("app", pod, "/10.0.0.1" if alike else f"/10.0.2.{pod}")


def autoscaler(minute: int) -> Iterator[Member]:
    """For half of each 15 minutes, five more pods."""
    yield from steady(2)
    for pod in range(5 if minute % 15 < 8 else 0):
        yield member("app", 100 * (minute // 15) + pod, f"/10.{minute // 15}.2.{pod}")


def job(minute: int) -> Iterator[Member]:
    """Three consumers that run for ten of each 15 minutes."""
    for pod in range(3 if minute % 15 < 10 else 0):
        yield member(f"job-{pod}", minute // 15)


def flapping(minute: int, every: int = 15, client: str = "bad", since: int = 0, until: int = MINUTES) -> Member:
    return member(client, (min(max(minute, since), until) - since) // every, "/10.0.9.9")


def twice_more(minute: int) -> Iterator[Member]:
    """A member of the group that is deployed each hour, which also restarts at minutes 150 and 200."""
    starts = (minute + 53) // 60 + (minute >= 150) + (minute >= 200)
    yield member("once-more", starts, "/10.0.0.11")


def then_deployed(minute: int) -> Iterator[Member]:
    """A member that restarts four times, and an hour later a deployment of all."""
    for pod in range(3):
        yield member("app", int(minute >= 235), f"/10.0.0.{pod}")
    yield member("bad", (min(max(minute, 120), 180) - 120) // 15 + (minute >= 235), "/10.0.0.9")


def leaving(minute: int, every: int = 30) -> list[Member]:
    """A member of KIP-848 that leaves for half of the time and joins with the same id."""
    return [Member("AAAA", "bad", "/10.0.9.9")] if minute % every < every // 2 else []


def all_flapping(minute: int) -> Iterator[Member]:
    return (flapping(minute + 5 * n, 15, f"bad-{n}") for n in range(3))


def static(minute: int) -> Member:
    number = minute // 15
    return member("app", number, f"/10.3.0.{number}", "pod-0")


HEALTHY: dict[str, Callable[[int], Members]] = {
    "steady": lambda _: steady(3),
    "one deployment": lambda m: rolling(m, 150),
    "one deployment of members that look alike": lambda m: rolling(m, 150, alike=True),
    "two deployments": lambda m: rolling(m, 130) if m < 185 else rolling(m, 185, generation=1),
    "hourly deployments on the same hosts": lambda m: hourly(m, keeps_host=True),
    "hourly deployments on new hosts": lambda m: hourly(m, keeps_host=False),
    "scaled up and down once": lambda m: scaled_once(m, alike=False),
    "scaled up and down once, alike": lambda m: scaled_once(m, alike=True),
    "a job": job,
    "alone": lambda m: [flapping(m)],
    "hourly deployments and two restarts": lambda m: [*hourly(m, keeps_host=True), *twice_more(m)],
    "three restarts": lambda m: [*steady(3), flapping(m, 20, since=130, until=190)],
}
EARLIER = {"a deployment afterwards": then_deployed}
FLAPPING: dict[str, Callable[[int], Members]] = {
    "four restarts": lambda m: [*steady(3), flapping(m, 15, since=120, until=180)],
    "one of twelve": lambda m: [*steady(11), flapping(m)],
    "one of two": lambda m: [*steady(1), *leaving(m)],
    "during a deployment": lambda m: [*rolling(m, 150), flapping(m)],
    "static": lambda m: [*steady(1), static(m)],
}
STORM: dict[str, Callable[[int], Members]] = {
    "two of three": lambda m: [*steady(1), flapping(m), flapping(m + 5, 15, "worse")],
    "an autoscaler": autoscaler,
}
OFTEN: dict[str, Callable[[int], Members]] = {"all of them": all_flapping}
"""A storm that snapshots show only if they are taken often enough."""
GROUPS = HEALTHY | FLAPPING | STORM | OFTEN | EARLIER
JUDGED = range(120, MINUTES, 15)


def found(
    spark: SparkSession, every: int, groups: dict[str, Callable[[int], Members]], judged: Collection[int] = JUDGED
) -> Found:
    """The problems of each group in each of the minutes `judged`, where a snapshot is taken so often."""
    changes, described = [], []
    for group, members_at in groups.items():
        for minute in range(every, MINUTES, every):
            before, after = (dict.fromkeys(members_at(m), ()) for m in (minute - every, minute))
            at = (T0 + minute * MINUTE_MS, T0 + (minute - every) * MINUTE_MS, group)
            changes += [(*at, *row[:6]) for row in member_changes(before, after)]
            if bool(before) != bool(after):
                states = ("Stable", "Empty") if before else ("Empty", "Stable")
                changes.append((*at, "state", *states, None, None, None))
            if minute in judged:
                described += [(at[0], group, *m[:3], m.instance_id) for m in after]
    columns = "snapshot_id earlier_snapshot_id group_id change before after member_id client_id host"
    ids = [T0 + m * MINUTE_MS for m in judged]
    rows = restless_groups(
        frame(spark, GROUP_CHANGES, columns, *changes),
        frame(spark, GROUP_MEMBERS, "snapshot_id group_id member_id client_id host instance_id", *described),
        ids,
    ).collect()
    result: Found = {}
    for row in rows:
        values = row.asDict() | {"evidence": json.loads(row.evidence)}
        of_group = result.setdefault(row.group_id, {})
        assert of_group.setdefault((row.snapshot_id - T0) // MINUTE_MS, values) is values
    return result


@pytest.fixture(scope="module")
def each_minute(spark: SparkSession) -> Found:
    return found(spark, 1, GROUPS)


@pytest.fixture(scope="module")
def each_quarter(spark: SparkSession) -> Found:
    return found(spark, 15, GROUPS)


def kinds(rows: Found, group: str) -> dict[int, str]:
    return {minute: row["kind"] for minute, row in rows.get(group, {}).items()}


@pytest.mark.parametrize("group", HEALTHY)
def test_a_healthy_group_has_no_problem(each_minute: Found, each_quarter: Found, group: str) -> None:
    assert (kinds(each_minute, group), kinds(each_quarter, group)) == ({}, {})


@pytest.mark.parametrize("group", [name for name in FLAPPING if name != "four restarts"])
def test_one_member_that_comes_and_goes_is_a_flapping_member(
    each_minute: Found, each_quarter: Found, group: str
) -> None:
    expected = dict.fromkeys(JUDGED, "flapping_member")
    assert (kinds(each_minute, group), kinds(each_quarter, group)) == (expected, expected)


@pytest.mark.parametrize("group", STORM)
def test_members_that_come_and_go_together_are_a_storm(each_minute: Found, each_quarter: Found, group: str) -> None:
    expected = dict.fromkeys(JUDGED, "rebalance_storm")
    assert (kinds(each_minute, group), kinds(each_quarter, group)) == (expected, expected)


def test_if_no_member_stays_for_two_snapshots_they_may_be_those_of_a_job(
    each_minute: Found, each_quarter: Found
) -> None:
    assert kinds(each_minute, "all of them") == dict.fromkeys(JUDGED, "rebalance_storm")
    assert len(kinds(each_quarter, "all of them")) < len(JUDGED)


def test_a_problem_begins_with_the_fourth_restart_and_ends_40_minutes_after_the_last(
    each_minute: Found, each_quarter: Found
) -> None:
    """The member restarts at minutes 135, 150, 165 and 180."""
    expected = dict.fromkeys((180, 195, 210), "flapping_member")
    assert kinds(each_minute, "four restarts") == kinds(each_quarter, "four restarts") == expected


def test_a_deployment_does_not_make_an_earlier_problem_a_new_one(each_minute: Found, each_quarter: Found) -> None:
    expected = dict.fromkeys((180, 195, 210), "flapping_member")
    assert kinds(each_minute, "a deployment afterwards") == kinds(each_quarter, "a deployment afterwards") == expected


def test_members_that_begin_together_are_a_storm_from_the_beginning(spark: SparkSession) -> None:
    """Three of four members restart every six minutes, one after the other: as in a real storm."""

    def members(minute: int) -> Iterator[Member]:
        passed = min(max(minute, 140), 200) - 140
        yield from steady(1)
        for n in range(3):
            yield member(f"bad-{n}", (passed + 2 * n) // 6, "/10.0.0.9")

    rows = found(spark, 1, {"g": members}, range(140, MINUTES))
    assert {*kinds(rows, "g").values()} == {"rebalance_storm"}
    first, last = min(rows["g"]), max(rows["g"])
    assert (first, last) == (140 + 24 - 4, 239)
    assert len(rows["g"]) == last - first + 1


def test_the_words_name_the_member_and_what_to_do(each_minute: Found) -> None:
    row = each_minute["one of twelve"][240]
    assert row["summary"] == (
        "Client bad at /10.0.9.9 joins and leaves the group again and again: 7 times within 2 hours; the group has 11 "
        "other members."
    )
    assert row["evidence"] == {
        "short_stays": 7,
        "window_ms": 7_200_000,
        "members": 12,
        "flapping_members": 1,
        "clients": ["bad"],
        "client_id": "bad",
        "host": "/10.0.9.9",
        "short_stays_of_client": 7,
    }
    assert (row["severity"], row["magnitude"], row["client_id"], row["topic"]) == ("warning", 7.0, None, None)
    assert row["advice"].endswith("kafka-consumer-groups --describe --members --group GROUP.")
    assert each_minute["static"][240]["summary"].startswith("Static member pod-0 joins")
    assert each_minute["static"][240]["advice"].endswith("--group static.")


def test_the_words_of_a_storm_name_the_worst_member(each_minute: Found) -> None:
    assert each_minute["two of three"][240]["summary"] == (
        "The group rebalances again and again: members that had joined left again 14 times within 2 hours, most often "
        "client worse at /10.0.9.9 (7 times)."
    )
    assert each_minute["an autoscaler"][240]["summary"] == (
        "The group rebalances again and again: members that had joined left again 35 times within 2 hours."
    )


EPOCHS = [
    # Members, by how much the epoch rises in each quarter of an hour of the last hour, and whether it is a storm: if it
    # rises by two for each member, six times or more.
    (3, 9, True),
    (3, 8, False),
    (1, 50, False),
]


@pytest.mark.parametrize(("members", "step", "is_storm"), EPOCHS)
def test_an_epoch_that_rises_shows_rebalances_between_snapshots(
    spark: SparkSession, members: int, step: int, is_storm: bool
) -> None:
    minutes = (195, 210, 225, 240)
    ids = [T0 + m * MINUTE_MS for m in minutes]
    rows = [(i, i - 15 * MINUTE_MS, "g", "epoch", str(n * step), str((n + 1) * step)) for n, i in enumerate(ids)]
    changes = frame(spark, GROUP_CHANGES, "snapshot_id earlier_snapshot_id group_id change before after", *rows)
    described = frame(
        spark,
        GROUP_MEMBERS,
        "snapshot_id group_id member_id",
        *((i, "g", f"m{n}") for i in ids for n in range(members)),
    )
    problems = {row.snapshot_id: row for row in restless_groups(changes, described, ids).collect()}
    assert [*problems] == ([ids[-1]] if is_storm else [])
    if is_storm:
        assert problems[ids[-1]].summary == "The group rebalances again and again: its epoch rose by 36 within 2 hours."
        assert (problems[ids[-1]].kind, problems[ids[-1]].magnitude) == ("rebalance_storm", 18.0)


def test_a_group_whose_members_could_not_be_read_is_not_judged(spark: SparkSession) -> None:
    ids = [T0 + m * MINUTE_MS for m in range(1, 9)]
    members = [member("bad", number) for number in range(9)]
    restarts = [
        (i, i - MINUTE_MS, "g", "restarted", members[n].member_id, members[n + 1].member_id, "bad", "/10.0.0.1")
        for n, i in enumerate(ids)
    ]
    columns = "snapshot_id earlier_snapshot_id group_id change before after client_id host"
    changes = frame(spark, GROUP_CHANGES, columns, *restarts)
    unread = frame(spark, GROUP_MEMBERS, "snapshot_id group_id error", (ids[-1], "g", "NOT_COORDINATOR"))
    assert restless_groups(changes, unread, ids).collect() == []
