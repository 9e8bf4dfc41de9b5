"""What findings say about groups, topics and brokers, by facts on each side of each boundary."""

from typing import Any

import pytest

from pipeline.common.epoch import HOUR_MS
from tests.helpers.worded import NOON_MS, words

LARGEST = 2**63 - 1
TO = "--bootstrap-server $BOOTSTRAP"


WAITING = {
    "status": "stopped",
    "since_ms": NOON_MS - HOUR_MS,
    "latest_ms": NOON_MS - HOUR_MS,
    "at_ms": NOON_MS,
    "rows": 2,
    "of_partitions": 2,
    "of_group": "g",
    "topics": ["t"],
    "groups": ["g"],
    "groups_affected": 1,
    "partition_numbers": 2,
    "worst": {"topic": "t", "partition": 1},
}
SINCE = "Nothing has been committed since 2026-01-31 11:00 UTC"


@pytest.mark.parametrize(
    ("facts", "summary"),
    [
        ({}, f"{SINCE}."),
        ({"of_partitions": 3}, f"{SINCE} in 2 of 3 partitions."),
        ({"rows": 0, "of_partitions": 1}, f"{SINCE} in 0 of 1 partition."),
        ({"of_partitions": None}, f"{SINCE}."),
        ({"status": "stalled"}, "Commits are made, but have not moved since 2026-01-31 11:00 UTC."),
        ({"status": "not_progressing"}, "Commits have not moved since 2026-01-31 11:00 UTC."),
        ({"latest_ms": NOON_MS - HOUR_MS + 60_000}, f"{SINCE}."),
        (
            {"latest_ms": NOON_MS - HOUR_MS + 60_001},
            "Nothing has been committed since 2026-01-31 11:01 UTC, in some partitions since 2026-01-31 11:00 UTC.",
        ),
        ({"consumer_lag": 1}, f"{SINCE}; unread: 1 record."),
        ({"consumer_lag": 2, "existing": 2}, f"{SINCE}; unread: 2 records."),
        ({"consumer_lag": 2, "existing": 1}, f"{SINCE}; unread: 2 records, of which 1 still exist."),
        ({"consumer_lag": None, "consumer_age_ms": 5}, f"{SINCE}."),
        (
            {"consumer_lag": 2, "consumer_lag_bytes": 5, "bytes_error": 6, "consumer_age_ms": HOUR_MS},
            f"{SINCE}; unread: 2 records (< 11 B), the oldest 1 h old.",
        ),
        ({"reason": "no_members"}, f"{SINCE}, and the group has no members (none was ever seen)."),
        (
            {"reason": "no_members", "members_seen_ms": NOON_MS},
            f"{SINCE}, and the group has no members (it last had some at 2026-01-31 12:00 UTC).",
        ),
    ],
)
def test_a_group_that_waits(facts: dict[str, Any], summary: str) -> None:
    assert words("no_progress", **WAITING | facts).summary == summary


@pytest.mark.parametrize(
    ("kind", "facts", "shares"),
    [
        ("falling_behind", {"group_lag": 100}, (0.8, None)),
        ("falling_behind", {"group_lag": 101}, (None, None)),
        ("falling_behind", {"group_lag": 100, "of_partitions": 1}, (None, None)),
        ("falling_behind", {"group_lag": 100, "of_partitions": None}, (None, None)),
        ("falling_behind", {"group_lag": 0}, (None, None)),
        ("falling_behind", {}, (None, None)),
        ("falling_behind", {"group_lag": 100, "written_per_s": 10.0}, (0.8, 0.4)),
        ("falling_behind", {"group_lag": 100, "written_per_s": 3.0}, (0.8, 1.0)),
        ("falling_behind", {"group_lag": 100, "written_per_s": 0.0}, (0.8, None)),
        ("no_progress", {"group_lag": 100}, (None, None)),
    ],
)
def test_only_a_group_that_falls_behind_has_a_hot_partition(
    kind: str, facts: dict[str, Any], shares: tuple[float | None, float | None]
) -> None:
    worst = {"topic": "t", "partition": 1, "consumer_lag": 80, "records_per_s": 4.0}
    evidence = words(kind, **WAITING | {"worst": worst} | facts).evidence
    names = ("worst_partition_lag_share", "worst_partition_write_share")
    assert tuple(evidence[name] for name in names) == shares


@pytest.mark.parametrize(
    ("kind", "left", "starts"),
    [
        ("data_loss_ahead", "deleted_in_ms", "Retention may delete unread records"),
        ("commits_expire", "expires_in_ms", "Kafka may remove the group's committed offsets"),
    ],
)
def test_what_will_be_deleted_is_said_with_its_time(kind: str, left: str, starts: str) -> None:
    at_once, soon = (words(kind, **WAITING | {left: ms}).summary for ms in (0, 1))
    assert at_once.startswith(f"{starts} at any moment")
    assert soon.startswith(f"{starts} from 2026-01-31 12:00 UTC on, in 1 ms")


@pytest.mark.parametrize(
    ("names", "of", "named"),
    [(["a"], 1, "1 group (a)"), (["a", "b"], 2, "2 groups (a, b)"), (["a", "b"], 3, "3 groups (a, b, …)")],
)
def test_groups_are_named_and_counted(names: list[str], of: int, named: str) -> None:
    facts = WAITING | {"of_group": None, "of_topic": "t", "groups": names, "groups_affected": of}
    found = words("recreated_topic", **facts)
    assert found.summary == f"The topic was recreated; not committed since: {named}."
    assert (found.evidence["groups"], found.evidence["groups_affected"]) == (names, of)


@pytest.mark.parametrize(
    ("worst", "producer"),
    [
        ({}, ""),
        ({"transaction_producer_id": 7}, " of the producer with id 7"),
        ({"transaction_producer_id": 7, "transaction_timestamp_ms": -1}, " of the producer with id 7"),
        (
            {"transaction_producer_id": 7, "transaction_timestamp_ms": 0},
            " of the producer with id 7, which last wrote at 1970-01-01 00:00 UTC,",
        ),
        ({"transaction_producer_id": 7, "transaction_timestamp_ms": LARGEST}, " of the producer with id 7"),
    ],
)
def test_an_open_transaction_names_its_producer(worst: dict[str, Any], producer: str) -> None:
    facts = WAITING | {"of_group": None, "of_topic": "t;x", "worst": {"topic": "t;x", "partition": 1} | worst}
    found = words("open_transaction", **facts)
    assert found.summary == (
        f"An open transaction{producer} hides all unread records of 2 partitions from read_committed readers since "
        "2026-01-31 11:00 UTC; waiting: 1 group (g)."
    )
    assert found.advice.endswith(f"kafka-transactions {TO} find-hanging --topic 't;x'")


@pytest.mark.parametrize(
    ("facts", "starts"),
    [
        ({"partitions": 1}, "Lag is not known for 1 partition of 1 group (g): E."),
        ({"partitions": 2}, "Lag is not known for 2 partitions of 1 group (g): E."),
        ({"partitions": 2, "whole_groups": 1}, "Lag is not known for 2 partitions or more of 1 group (g): E."),
        ({"whole_groups": 1}, "Lag is not known for all partitions of 1 group (g): E."),
        (
            {"whole_groups": 1, "groups": [], "groups_affected": 0},
            "Lag is not known for all partitions of groups whose names are not known: E.",
        ),
    ],
)
def test_what_cannot_be_read(facts: dict[str, Any], starts: str) -> None:
    known = {"partitions": 0, "whole_groups": 0, "groups": ["g"], "groups_affected": 1, "topics": [], "errors": ["E"]}
    assert words("unreadable", **known | facts).summary == starts


@pytest.mark.parametrize(
    ("without", "ends"),
    [(0, ""), (1, " 1 partition has no leader."), (2, " 2 partitions have no leader.")],
)
def test_replicas_that_are_not_in_sync(without: int, ends: str) -> None:
    facts = {"partitions": 2, "topics": ["t"], "topics_affected": 1, "brokers": [0], "critical": without}
    found = words("under_replicated", **facts, without_leader=without, worst={"partitions": 1_000, "negative": 0})
    assert (
        found.summary == f"Replicas of 2 partitions of 1 topic are not in sync; broker 0 is missing from 1,000.{ends}"
    )
    assert (found.evidence["broker"], found.evidence["critical_partitions"]) == (0, without or None)


@pytest.mark.parametrize(
    ("failed", "missed", "what"),
    [
        (1, 0, "1 snapshot failed"),
        (0, 2, "2 instants passed without a snapshot"),
        (2, 1, "2 snapshots failed and 1 instant passed without a snapshot"),
    ],
)
def test_snapshots_that_are_missing(failed: int, missed: int, what: str) -> None:
    found = words("snapshots_missing", failed=failed, missed=missed, first_ms=NOON_MS, errors=[])
    assert found.summary == f"The history has a hole: {what}; the first was noticed at 2026-01-31 12:00 UTC."
    assert found.evidence == {"failed": failed, "missed_instants": missed, "errors": []}


SKIPPED: dict[str, Any] = {
    "group_id": "g",
    "since_ms": NOON_MS,
    "rows": 2,
    "of_partitions": 2,
    "topics": ["t", "u"],
    "records": 8,
    "offsets": [
        {"topic": "u", "partition": 0, "from": 3, "to": 8},
        {"topic": "t", "partition": 1, "from": 0, "to": 3},
    ],
}


def test_skipped_records_are_listed_in_the_order_of_their_partitions() -> None:
    found = words("skipped", **SKIPPED)
    assert found.summary == (
        "Commits were moved ahead at 2026-01-31 12:00 UTC while the group had no members, and skip up to 8 records. "
        "This looks like a reset by a tool or an admin client."
    )
    assert found.evidence["offsets"] == [
        {"topic": "t", "partition": 1, "from": 0, "to": 3},
        {"topic": "u", "partition": 0, "from": 3, "to": 8},
    ]
    assert found.advice.endswith(
        f"kafka-consumer-groups {TO} --reset-offsets --group g --topic u:0 --to-offset 3 --dry-run. "
        "The evidence has the old offset of each partition."
    )


def test_one_skipped_partition_needs_no_list_and_kafka_streams_has_no_command() -> None:
    one = SKIPPED | {"rows": 1, "offsets": SKIPPED["offsets"][:1]}
    assert words("skipped", **one).advice.endswith("--to-offset 3 --dry-run")
    assert words("skipped", **one, group_type="streams").advice.endswith("what it has read since.")
