"""What findings say, from facts alone: the parts of sentences, and the sentences of each kind at their boundaries."""

import json
from typing import Any

import pyarrow as pa
import pytest

from pipeline.analytics.findings.words.kinds import KINDS, with_words
from pipeline.analytics.findings.words.parts import (
    Facts,
    Words,
    counted,
    duration,
    for_streams,
    in_shell,
    instant,
    iso,
    number,
    part,
    percent,
    quotient,
    rounded,
    sentence,
    size,
    size_within,
    tenths,
)
from pipeline.tables.findings import FINDINGS

NOON_MS = 1_769_860_800_000  # 2026-01-31 12:00 UTC
HOUR_MS = 3_600_000
LARGEST = 2**63 - 1
TO = "--bootstrap-server $BOOTSTRAP"


def words(kind: str, **facts: Any) -> Words:
    """The words for facts that went through JSON, as they come from Spark, without those that are None."""
    text = json.dumps({name: value for name, value in facts.items() if value is not None})
    return KINDS[kind](json.loads(text, object_hook=Facts))


def test_each_kind_of_finding_has_words() -> None:
    documented = next(field.metadata["comment"] for field in FINDINGS.schema if field.name == "kind")
    assert set(KINDS) == set(documented.split(" | "))


def test_a_sentence_leaves_out_what_is_not_known() -> None:
    assert sentence("a", None, "b") == "ab"
    assert part(" (", None, ")") is None
    assert part(" (", "1 B", ")") == " (1 B)"


@pytest.mark.parametrize("function", [number, tenths, size, duration, instant, iso])
def test_the_text_of_what_is_not_known_is_not_known(function: Any) -> None:
    assert function(None) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1_234, "1,234 records"), (None, None)],
)
def test_a_noun_has_an_s_unless_it_is_one(value: int | None, text: str | None) -> None:
    assert counted(value, "record") == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (-1_234, "-1,234"), (LARGEST, "9,223,372,036,854,775,807"), (2.5, "2"), (3.5, "4")]
)
def test_numbers_have_commas(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(10.0, "10"), (12.5, "12.5"), (0.04, "0"), (1_234.56, "1,234.6")])
def test_rates_have_at_most_one_digit_after_the_point(value: float, text: str) -> None:
    assert tenths(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1 kB"),
        (1_049, "1 kB"),
        (1_050, "1.1 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1,000 kB"),
        (1_000_000, "1 MB"),
        (2_540_000_000, "2.5 GB"),
        (LARGEST, "9,223,372,036.9 GB"),
    ],
)
def test_bytes_are_in_decimal_units(value: int, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (2_500_000, None, "2.5 MB"),
        (2_500_000, 0, "2.5 MB"),
        (2_500_000, 1, "2.5 MB ± 1 B"),
        (2_540_000, 100_000, "2.5 MB ± 140 kB"),
        (2_500_000, 2_500_000, "2.5 MB ± 2.5 MB"),
        (2_500_000, 2_500_001, "< 5.1 MB"),
        (0, 1, "< 1 B"),
        (999, 1, "999 B ± 1 B"),
        (None, 5, None),
    ],
)
def test_the_error_of_bytes_covers_the_rounding(value: int | None, error: int | None, text: str | None) -> None:
    assert size_within(value, error) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ms"),
        (-5, "-5 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (59_949, "59.9 s"),
        (60_000, "1 minute"),
        (90_000, "1.5 minutes"),
        (HOUR_MS, "1 hour"),
        (HOUR_MS + 179_999, "1 hour"),
        (HOUR_MS + 180_000, "1.1 hours"),
        (24 * HOUR_MS, "1 day"),
        (48 * HOUR_MS, "2 days"),
    ],
)
def test_times_are_in_a_readable_unit(value: int, text: str) -> None:
    assert duration(value) == text


@pytest.mark.parametrize(
    ("epoch_ms", "shown", "for_programs"),
    [
        (NOON_MS + 59_999, "2026-01-31 12:00 UTC", "2026-01-31T12:00:59Z"),
        (-1, "1969-12-31 23:59 UTC", "1969-12-31T23:59:59Z"),
        (-61_000_000_000_000, "0036-12-26 11:33 UTC", "0036-12-26T11:33:20Z"),
        (253_402_300_799_999, "9999-12-31 23:59 UTC", "9999-12-31T23:59:59Z"),
        (253_402_300_800_000, None, None),
        (LARGEST, None, None),
        (-LARGEST, None, None),
    ],
)
def test_instants_are_in_utc_and_in_the_years_that_have_four_digits(
    epoch_ms: int, shown: str | None, for_programs: str | None
) -> None:
    assert (instant(epoch_ms), iso(epoch_ms)) == (shown, for_programs)


@pytest.mark.parametrize(
    ("value", "digits", "result"),
    [
        (0.125, 2, 0.13),
        (1.15, 1, 1.2),
        (2.5, 0, 3.0),
        (0.4999, 0, 0.0),
        (1e-5, 2, 0.0),
        (1e300, 2, 1e300),
        (None, 2, None),
    ],
)
def test_halves_are_rounded_up(value: float | None, digits: int, result: float | None) -> None:
    assert rounded(value, digits) == result


@pytest.mark.parametrize(
    ("value", "of", "result"), [(1, 2, 0.5), (0, 2, 0.0), (1, 0, None), (1, None, None), (None, 2, None)]
)
def test_nothing_is_a_part_of_nothing(value: float | None, of: float | None, result: float | None) -> None:
    assert quotient(value, of) == result


def test_a_share_is_in_whole_percent() -> None:
    assert [percent(share) for share in (0.0, 0.804, 0.805, 1.0)] == ["0 %", "80 %", "80 %", "100 %"]


@pytest.mark.parametrize("name", ["g", "9", "a.b_c-d", "A1"])
def test_a_name_that_is_one_word_is_in_the_command(name: str) -> None:
    assert in_shell(name, "GROUP") == name


@pytest.mark.parametrize(
    "name", [None, "", "-g", ".g", "a b", "a;b", "g\n", "\ng", "$g", "a'b", "ä", "a/b", "\N{PILE OF POO}"]
)
def test_any_other_name_is_replaced(name: str | None) -> None:
    assert in_shell(name, "GROUP") == "GROUP"


def test_a_group_of_kafka_streams_has_its_own_tool() -> None:
    assert for_streams("kafka-consumer-groups --list", "streams") == "kafka-streams-groups --list"
    for other in ("consumer", "classic", None):
        assert for_streams("kafka-consumer-groups --list", other) == "kafka-consumer-groups --list"


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
            f"{SINCE}; unread: 2 records (< 11 B), the oldest 1 hour old.",
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
    assert found.advice.endswith(f"kafka-transactions {TO} find-hanging --topic TOPIC")


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


SKIPPED = {
    "group_id": "g",
    "since_ms": NOON_MS,
    "rows": 2,
    "of_partitions": 2,
    "topics": ["t", "u"],
    "records": 8,
    "offsets": [
        {"records": 5, "topic": "u", "partition": 0, "from": 3, "to": 8},
        {"records": 3, "topic": "t", "partition": 1, "from": 0, "to": 3},
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
    one = SKIPPED | {"rows": 1, "offsets": SKIPPED["offsets"][:1]}  # type: ignore[index]
    assert words("skipped", **one).advice.endswith("--to-offset 3 --dry-run")
    assert words("skipped", **one, group_type="streams").advice.endswith("what it has read since.")


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
MUST = "and must be met for 99.9 % of 30 days."


@pytest.mark.parametrize(
    ("facts", "summary"),
    [
        ({}, f"{MISSED} during all of the last hour, {MUST} The error budget is used up."),
        ({"budget_left": 0.0}, f"{MISSED} during all of the last hour, {MUST} The error budget is used up."),
        (
            {"budget_left": 0.5},
            (
                f"{MISSED} during all of the last hour, {MUST} 50 % of the error budget is left, and at this rate it "
                "lasts for 21.6 minutes."
            ),
        ),
        (
            {"used_ms": HOUR_MS - 1, "slos": ["a", "b", "c"]},
            (
                f"{MISSED} for 60 minutes of the last hour, {MUST} The error budget is used up. Other objectives whose "
                "budget is used too fast: b, c."
            ),
        ),
        (
            {"is_fast": False, "span_ms": 6 * HOUR_MS},
            f"{MISSED} for 1 hour of the last 6 hours, {MUST} The error budget is used up.",
        ),
    ],
)
def test_budgets_that_burn(facts: dict[str, Any], summary: str) -> None:
    found = words("budget_burn", **BURN | facts)
    assert found.summary == summary
    assert found.evidence["used_up_at"] == ("2026-01-31T12:21:36Z" if facts.get("budget_left") else None)


@pytest.mark.parametrize(
    ("kind", "facts", "summary"),
    [
        (
            "slow_consumer",
            {"unread": 1},
            "c hardly asks for records any more and has 1 record unread: its application is slow.",
        ),
        (
            "slow_consumer",
            {"unread": 2, "culprit": "t", "instance": "/10.0.0.1"},
            (
                "c at /10.0.0.1 hardly asks for records any more and has 2 records unread: its application is slow "
                "with t, and others wait."
            ),
        ),
        ("slow_consumer", {}, "c hardly asks for records any more: its application is slow."),
        (
            "paused_partition",
            {"topic": "t", "partitions": [0, 2], "unread": 3},
            "c reads nothing from t, partitions 0, 2, though it reads others: these are paused, with 3 records unread.",
        ),
        (
            "blind_gauge",
            {"verdict": "stale", "queue_records": 5, "max_lag": 1_000, "max_consumer_lag": 2_000},
            "The lag gauge of c reads 1,000 while consumer lag is 2,000: its fetches are no longer answered.",
        ),
        (
            "blind_gauge",
            {"verdict": "blind"},
            "The lag gauge of c reads nothing while consumer lag is unknown: it is updated only when records arrive.",
        ),
        (
            "buffer_too_large",
            {"buffer_bound_bytes": 1_500_000, "heap_share": 0.505},
            "c may buffer 1.5 MB, 51 % of its heap.",
        ),
        (
            "blocked_connector",
            {"culprits": ["a", "b"], "victims": ["v"]},
            "The fetcher of c waits for a, b, whose queue is full; nothing comes for v meanwhile.",
        ),
        (
            "blocked_connector",
            {"culprits": [], "victims": []},
            "The fetcher of c waits for a thread, whose queue is full.",
        ),
    ],
)
def test_clients(kind: str, facts: dict[str, Any], summary: str) -> None:
    assert words(kind, client_id="c", **facts).summary == summary


def test_evidence_is_compact_json_without_what_is_not_known() -> None:
    names = ['quoted "name"', "\N{PILE OF POO}\u2028", "control \x00\x1b\n", "back\\slash"]
    facts = {"partitions": LARGEST, "whole_groups": 0, "groups": names, "groups_affected": 4, "errors": ["E"]}
    rows = pa.table({"kind": ["unreadable"], "facts": [json.dumps(facts, ensure_ascii=False)], "magnitude": [1e-5]})
    found = with_words(rows)
    assert found.column_names == ["kind", "magnitude", "summary", "evidence", "advice"]
    (row,) = found.to_pylist()
    assert row["evidence"].startswith(
        '{"partitions":9223372036854775807,"groups":["quoted \\"name\\"","\N{PILE OF POO}'
    )
    assert json.loads(row["evidence"]) == {
        "partitions": LARGEST,
        "groups": names,
        "groups_affected": 4,
        "errors": ["E"],
    }
    assert f"4 groups ({', '.join(names)})" in row["summary"]


def test_no_rows_have_no_words() -> None:
    nothing = pa.table({"kind": pa.array([], pa.string()), "facts": pa.array([], pa.string())})
    assert with_words(nothing).schema.names == ["kind", "summary", "evidence", "advice"]
