"""What the report says needs attention: findings, lost data, snapshots that were passed over."""

from typing import Any

import pytest

from pipeline.report.cards.attention import FINDINGS_NAMED, AttentionItem, needs_attention
from pipeline.report.model.details import Finding
from pipeline.report.model.ledger import PassedOver
from pipeline.report.model.report import Totals
from tests.helpers.reports import MINUTE, NOON, cluster, finding, group, report

AT = "2026-03-01 12:00:00 UTC"
LATER = "2026-03-01 12:05:00 UTC"


def shown(*findings: Finding, **more: Any) -> list[AttentionItem]:
    is_open = sum(f.is_open for f in findings)
    return needs_attention(report(group("payments", 55), **{"findings": findings, "findings_open": is_open, **more}))


def test_an_open_finding_is_shown_with_its_group_and_what_to_do() -> None:
    assert shown(finding()) == [
        AttentionItem(
            "bad",
            "payments",
            f"So it is. Found in the snapshot of {AT}.",
            "findings",
            group=("east", "payments"),
            since_ms=NOON,
            advice="Do that.",
        )
    ]


@pytest.mark.parametrize(
    ("about", "subject"),
    [
        ({"group_id": None}, "orders"),
        ({"group_id": None, "topic": None}, "east"),
        ({"group_id": None, "client_id": "app"}, "app"),
        ({"client_id": "app"}, "payments"),
    ],
)
def test_a_finding_without_a_group_is_about_its_client_its_topic_or_its_cluster(
    about: dict[str, Any], subject: str
) -> None:
    (item,) = shown(finding(**about))
    assert (item.subject, item.group) == (subject, ("east", "payments") if subject == "payments" else None)


def test_the_times_of_a_finding_are_those_that_differ() -> None:
    times = {"worst_ms": NOON + 2 * MINUTE, "last_seen_ms": NOON + 5 * MINUTE}
    item, *_ = shown(finding(**times), clusters=(cluster(lag_snapshot_id=NOON + 9 * MINUTE),))
    assert item.sentence == (
        f"So it is. Found in the snapshot of {AT}, at its worst in that of 2026-03-01 12:02:00 UTC, last seen in that "
        f"of {LATER}."
    )


def test_data_loss_comes_first_and_also_if_it_is_over() -> None:
    over = finding("deleted_unread", resolved_ms=NOON + 5 * MINUTE)
    items = shown(finding("falling_behind", "warning"), finding(), over, finding("rewound", resolved_ms=NOON))
    assert [(item.level, item.is_loss, item.advice) for item in items] == [
        ("bad", True, None),
        ("bad", False, "Do that."),
        ("warn", False, "Do that."),
    ]
    assert items[0].sentence == f"So it is. Found in the snapshot of {AT}, resolved in that of {LATER}."


def test_information_needs_nobody() -> None:
    assert shown(finding(severity="info")) == []
    assert len(shown(finding(severity="info"), finding())) == 1


def test_many_findings_are_counted() -> None:
    items = shown(*(finding(group_id=f"g{number}") for number in range(FINDINGS_NAMED)), findings_open=33)
    assert len(items) == FINDINGS_NAMED + 1
    assert items[-1].sentence == f"{33 - FINDINGS_NAMED} more findings are open."


def test_losses_that_no_finding_describes_are_counted() -> None:
    totals = {"east": Totals("east", 9, 0, 3)}
    (item,) = shown(totals=totals)
    assert (item.is_loss, item.sentence) == (True, "3 groups lost data: records were deleted unread.")
    more = shown(finding("deleted_unread"), totals=totals)[1]
    assert more.sentence == "2 more groups lost data: records were deleted unread."


@pytest.mark.parametrize(
    ("groups", "sentence"), [(9, None), (1, "1 more group lost data: records were deleted unread.")]
)
def test_of_a_loss_that_groups_share_those_count_that_are_shown(groups: int, sentence: str | None) -> None:
    """Two groups have lost records. If all groups are shown, payments is the only one of the three that is selected."""
    evidence = {"groups": ["payments", "web", "else"], "groups_affected": 3}
    shared = finding("deleted_unread", group_id=None, topic="clicks", evidence=evidence)
    more = [item.sentence for item in shown(shared, totals={"east": Totals("east", groups, 0, 2)})[1:]]
    assert more == ([] if sentence is None else [sentence])


@pytest.mark.parametrize("status", [None, "ok", "stopped", "unknown", "not_committed"])
def test_a_status_alone_is_in_the_table_of_groups(status: str | None) -> None:
    assert needs_attention(report(group("payments", 55, status=status, status_since_ms=NOON))) == []


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
