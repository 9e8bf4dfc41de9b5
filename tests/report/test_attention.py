"""What the report says needs attention: the status of groups, lost and endangered data, snapshots passed over."""

from typing import Any

import pytest

from pipeline.report.attention import needs_attention
from pipeline.report.details_model import PassedOver, RetentionRisk
from pipeline.report.model import Instant, Point
from tests.helpers.reports import MINUTE, NOON, cluster, group, report

BEHIND = "it is behind by 55 offsets."
AT = "2026-03-01 12:00:00 UTC"
SINCE = f"at least {AT}"
STOPPED = f"nothing has been committed since {SINCE}, while records were written"
HIDDEN = "an open transaction hides all unread records from it: a read_committed reader has read all that it can. Its"


@pytest.mark.parametrize(
    ("status", "reason", "level", "sentence"),
    [
        ("stopped", None, "bad", f"{STOPPED}; {BEHIND}"),
        ("stopped", "no_members", "bad", f"{STOPPED}, and the group has no members; {BEHIND}"),
        ("stalled", None, "bad", f"it commits, but has made no progress since {SINCE}; {BEHIND}"),
        ("not_progressing", None, "bad", f"its commits have not moved since {SINCE}; {BEHIND}"),
        ("not_progressing", "open_transaction", "bad", f"{HIDDEN} commits have not moved since {SINCE}; {BEHIND}"),
        ("warning", None, "warn", f"it falls behind, as its oldest unread record keeps getting older; {BEHIND}"),
        ("rewound", None, "warn", f"its commits went back before {AT}, and are still behind where they were; {BEHIND}"),
    ],
)
def test_each_status_that_is_to_be_acted_on_is_a_sentence(
    status: str, reason: str | None, level: str, sentence: str
) -> None:
    judged: dict[str, Any] = {"status": status, "status_since_ms": NOON, "status_reason": reason}
    judged |= {"status_partitions": 1, "consumer_age_ms": None, "age_unknown": 0}
    (item,) = needs_attention(report(group("payments", 55, **judged)))
    assert (item.level, item.subject, item.sentence) == (level, "payments", sentence)
    assert (item.group, item.since_ms) == (("east", "payments"), NOON)
    (some,) = needs_attention(report(group("payments", 55, **judged, partitions=3)))
    assert some.sentence == f"in 1 of its 3 partitions {sentence}"


@pytest.mark.parametrize("status", [None, "ok", "unknown", "not_committed"])
def test_other_statuses_give_no_sentence(status: str | None) -> None:
    assert needs_attention(report(group("payments", 55, status=status, status_since_ms=NOON))) == []


def test_many_groups_are_counted() -> None:
    groups = tuple(group(f"g{number}", 5, status="stopped", status_since_ms=NOON) for number in range(13))
    items = needs_attention(report(*groups))
    assert len(items) == 11
    assert items[-1].sentence == "the same is true of 3 more groups."


@pytest.mark.parametrize(
    ("passed_over", "sentence"),
    [
        pytest.param(
            PassedOver(1, NOON, NOON, "some of the rows in watermarks are gone", False),
            f"the lag of the snapshot of {AT} is missing and can never be computed: some of the rows in watermarks are "
            "gone.",
            id="one",
        ),
        pytest.param(
            PassedOver(1_234, NOON, NOON + 5 * MINUTE, "long overflow", False),
            f"the lag of 1,234 snapshots (the first of {AT}, the last of 2026-03-01 12:05:00 UTC) is missing and can "
            "never be computed: long overflow.",
            id="several",
        ),
        pytest.param(
            PassedOver(2, NOON, NOON + 5 * MINUTE, "long overflow", True),
            f"the lag of 2 snapshots (the first of {AT}, the last of 2026-03-01 12:05:00 UTC) is missing and can never "
            "be computed; the reason for the last: long overflow.",
            id="several reasons",
        ),
    ],
)
def test_snapshots_that_were_passed_over_are_a_sentence(passed_over: PassedOver, sentence: str) -> None:
    clusters = (cluster("west"), cluster("east", passed_over=passed_over))
    (item,) = needs_attention(report(group(), clusters=clusters))
    assert item == ("warn", "east", sentence, "snapshots", False, None, None, None)


@pytest.mark.parametrize(
    ("readable", "left"),
    [
        (3_000, "; 3,000 offsets can still be read"),
        (1, "; 1 offset can still be read"),
        (0, "; 0 offsets can still be read"),
        (None, ""),
    ],
)
def test_a_loss_says_what_can_still_be_read_where_that_is_known(readable: int | None, left: str) -> None:
    lost = group("payments", statuses={"deleted_unread": 2}, unread_offsets=1_500, readable_offsets=readable)
    (item,) = [item for item in needs_attention(report(lost)) if item.subject]
    assert item.sentence == (
        f"records of 2 partitions on cluster east were deleted unread, 1,500 offsets in all{left}."
    )


def test_records_that_are_deleted_soon_are_named_by_partition_and_topic() -> None:
    danger = RetentionRisk("east", "payments", "orders", 3, 900, 3_600_000)
    (item,) = needs_attention(report(group("payments"), dangers=(danger,)))
    assert (item.level, item.subject, item.group) == ("bad", "payments", ("east", "payments"))
    assert item.sentence == (
        "at the present rate, records of partition 3 of topic orders will be deleted unread in about 1 h: the log's "
        "start is 900 offsets away from the first unread record, and moves faster than the group reads."
    )


def test_the_rates_of_a_group_that_falls_behind_are_shown() -> None:
    instants = tuple(Instant("east", NOON + i * MINUTE, 0, 4) for i in range(4))
    points = tuple(
        Point("east", at.snapshot_id, "payments", 30 * i, 0, log_ends=60 * i, commits=30 * i)
        for i, at in enumerate(instants)
    )
    (item,) = needs_attention(report(group("payments", 55, status="warning"), instants=instants, points=points))
    assert item.sentence == (
        "it falls behind, as its oldest unread record keeps getting older (1 offsets/s are written, 0.5 are "
        f"committed); {BEHIND}"
    )
