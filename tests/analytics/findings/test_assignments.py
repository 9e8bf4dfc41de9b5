"""How the partitions of a group are shared among its members. One query judges all of these groups."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.analytics.findings.assignments import find_assignment_problems
from pipeline.tables import GROUP_CHANGES, GROUP_MEMBERS, GROUP_STATUS, LAG, WATERMARKS
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows

MINUTE_MS = 60_000
NOW_MS = 1_769_860_800_000
TOPICS = {"t": 6} | {f"one-{n}": 1 for n in range(10)}
ONES = [*TOPICS][1:]


class Group:
    """A group with one topic of six partitions. `has` are the partitions of each member, `lag` that of each member."""

    def __init__(self, *has: int, lag: tuple[int, ...] = (), **more: Any) -> None:
        self.has = has
        self.lag = lag or (0,) * len(has)
        self.status = "warning" if lag else "ok"
        self.topics: list[str] | None = ["t"]
        self.of_last: list[str] | None = self.topics
        self.state, self.assignor, self.protocol, self.error = "Stable", "range", "consumer", None
        self.group_type = "classic"
        self.changed: tuple[str, int] | None = None
        self.beyond: int | None = None
        """The member that has a partition with a commit beyond the end."""
        for name, value in more.items():
            assert hasattr(self, name)
            setattr(self, name, value)
        if "topics" in more and "of_last" not in more:
            self.of_last = self.topics

    def members(self) -> Iterator[tuple[Any, ...]]:
        places = iter([(topic, p) for topic in self.topics or ["t"] for p in range(TOPICS.get(topic, 6))])
        for number, count in enumerate(self.has):
            topics = self.of_last if number == len(self.has) - 1 else self.topics
            who = (
                f"m-{number}",
                f"c-{number}",
                "10.0.0.1",
                self.state,
                self.assignor,
                self.protocol,
                self.group_type,
                topics,
            )
            yield from ((*who, *next(places), None) for _ in range(count))
            if not count:
                yield (*who, None, None, self.error)


MANY = {"topics": ONES}
GROUPS = {
    # Fewer partitions than members.
    "idle": Group(1, 1, 1, 1, 1, 1, 0, 0),
    "idle, several topics": Group(*[1] * 10, 0, topics=ONES),
    "as many partitions as members": Group(1, 1, 1, 1, 1, 0),
    "idle, but rebalancing": Group(1, 1, 1, 1, 1, 1, 0, state="PreparingRebalance"),
    "idle, other subscription": Group(1, 1, 1, 1, 1, 1, 0, of_last=["other"]),
    "idle, streams": Group(1, 1, 1, 1, 1, 1, 0, assignor="stream"),
    "idle, unknown subscription": Group(1, 1, 1, 1, 1, 1, 0, of_last=None),
    "idle, topic not read": Group(1, 1, 1, 1, 1, 1, 0, topics=["t", "filtered"]),
    "idle, unknown assignment": Group(1, 1, 1, 1, 1, 1, 0, error="INCONSISTENT_GROUP_PROTOCOL"),
    "connect": Group(0, 0, 0, protocol="connect"),
    "idle, just joined": Group(1, 1, 1, 1, 1, 1, 0, changed=("joined", 29)),
    "idle, joined before": Group(1, 1, 1, 1, 1, 1, 0, changed=("joined", 30)),
    "idle, commits removed": Group(1, 1, 1, 1, 1, 1, 0, changed=("commits_removed", 1)),
    # As many partitions as members, or more.
    "first has all": Group(10, 0, 0, 0, 0, lag=(100, 0, 0, 0, 0), **MANY),
    "first has all, keeps up": Group(10, 0, 0, 0, 0, **MANY),
    "twice the share": Group(4, 1, 1, lag=(51, 49, 0)),
    "twice the share, and a commit beyond the end": Group(4, 1, 1, lag=(51, 49, 0), beyond=0),
    "twice the share, half of the lag": Group(4, 1, 1, lag=(50, 50, 0)),
    "less than twice the share": Group(3, 2, 1, lag=(100, 0, 0)),
    "balanced": Group(2, 2, 2, lag=(100, 0, 0)),
    "streams": Group(4, 1, 1, lag=(100, 0, 0), assignor="stream"),
    "just moved": Group(4, 1, 1, lag=(100, 0, 0), changed=("moved", 5)),
    "sticky": Group(4, 1, 1, lag=(100, 0, 0), assignor="sticky"),
    "by the broker": Group(4, 1, 1, lag=(100, 0, 0), group_type="consumer"),
    "by the broker, uniform": Group(4, 1, 1, lag=(100, 0, 0), group_type="consumer", assignor="uniform"),
}
EXPECTED = {
    **dict.fromkeys(
        ("idle", "idle, several topics", "idle, joined before", "idle, commits removed"),
        "idle_member",
    ),
    **dict.fromkeys(
        (
            "first has all",
            "twice the share",
            "twice the share, and a commit beyond the end",
            "sticky",
            "by the broker",
            "by the broker, uniform",
        ),
        "uneven_assignment",
    ),
}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    members = [(NOW_MS, name, *row) for name, group in GROUPS.items() for row in group.members()]
    columns = "snapshot_id group_id member_id client_id host state assignor protocol group_type subscribed_topics"
    lags = [
        (NOW_MS, name, "t", number, f"m-{number}", lag)
        for name, group in GROUPS.items()
        for number, lag in enumerate(group.lag)
    ]
    lags += [
        (NOW_MS, name, "t", 5, f"m-{group.beyond}", 7 - 2**63)
        for name, group in GROUPS.items()
        if group.beyond is not None
    ]
    groups = [(NOW_MS, name, {group.status: 1, "ok": 3}, sum(group.lag)) for name, group in GROUPS.items()]
    logs = [(NOW_MS, topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
    changes = [
        (NOW_MS - group.changed[1] * MINUTE_MS, name, group.changed[0])
        for name, group in GROUPS.items()
        if group.changed
    ]
    parts = {
        "members": few_rows(GROUP_MEMBERS, f"{columns} topic partition error", *members),
        "groups": few_rows(GROUP_STATUS, "snapshot_id group_id statuses consumer_lag", *groups),
        "lag": few_rows(LAG, "snapshot_id group_id topic partition member_id consumer_lag", *lags),
        "watermarks": few_rows(WATERMARKS, "snapshot_id topic partition", *logs),
        "changes": few_rows(GROUP_CHANGES, "snapshot_id group_id change", *changes),
    }
    rows = worded_rows(find_assignment_problems(parts).collected_table())
    assert len({row["group_id"] for row in rows}) == len(rows)
    return {row["group_id"]: row | {"evidence": json.loads(row["evidence"])} for row in rows}


@pytest.mark.parametrize("group", GROUPS)
def test_an_assignment_is_judged_by_what_the_assignor_must_do(found: dict[str, Any], group: str) -> None:
    assert found.get(group, {}).get("kind") == EXPECTED.get(group)


def test_the_words_for_members_without_a_partition(found: dict[str, Any]) -> None:
    row = found["idle"]
    assert row["summary"] == "2 of 8 members have no partition, because the topics of the group have 6 partitions."
    assert row["advice"].endswith("kafka-topics --bootstrap-server $BOOTSTRAP --alter --topic t --partitions 8")
    assert (row["severity"], row["magnitude"], row["topic"]) == ("info", 2.0, "t")
    assert row["evidence"] == {
        "members": 8,
        "members_without_partition": 2,
        "clients_without_partition": ["c-6 at 10.0.0.1", "c-7 at 10.0.0.1"],
        "partitions": 6,
        "topics": ["t"],
        "assignor": "range",
    }
    assert found["idle, several topics"]["advice"].endswith("--alter --topic TOPIC --partitions NUMBER")


def test_the_words_for_an_uneven_assignment(found: dict[str, Any]) -> None:
    row = found["first has all"]
    assert row["summary"] == (
        "The assignment is uneven: one member (client c-0 at 10.0.0.1) has 10 of 10 partitions, and 4 of 5 members "
        "have none; members with more than 2 have 100 % of the lag."
    )
    assert row["advice"].startswith("The RangeAssignor shares each topic by itself")
    assert (row["severity"], row["magnitude"], row["topic"]) == ("info", 10.0, None)
    assert row["evidence"]["their_lag_share"] == 1.0
    assert found["sticky"]["advice"].startswith("Set partition.assignment.strategy")
    assert found["twice the share"]["summary"] == (
        "The assignment is uneven: one member (client c-0 at 10.0.0.1) has 4 of 6 partitions; members with more than 2 "
        "have 51 % of the lag."
    )


def test_the_advice_names_settings_that_the_members_accept(found: dict[str, Any]) -> None:
    """With KIP-848, consumers refuse partition.assignment.strategy."""
    classic, remote, uniform = (found[name]["advice"] for name in ("sticky", "by the broker", "by the broker, uniform"))
    assert "two rolling restarts" in classic
    assert "Set group.remote.assignor to uniform" in remote
    assert "partition.assignment.strategy" not in remote
    group = "--describe --group 'by the broker, uniform'"
    command = f"kafka-consumer-groups --bootstrap-server $BOOTSTRAP {group} --members --verbose"
    assert uniform == f"See the members: {command}"
