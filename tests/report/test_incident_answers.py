"""The eight questions of an incident, answered by the page that is made from the rows of a scripted cluster.

At 12:03, the newest snapshot, `payments` falls behind in one of its two partitions, and retention will soon delete what
it has not read. An open transaction holds back `ledger-reader`, and `search` has lost records and stands still.
"""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.page.page import render
from pipeline.report.read.collect import collect
from pipeline.report.read.excerpt import Excerpt
from tests.helpers.reports import MINUTE, NOON, NOW, at, cards_of, lag_row, lake_of, snapshot

NEWEST = 3
AT = {"cluster": "east", "snapshot_id": NOON + NEWEST * MINUTE, "snapshot_date": date(2026, 3, 1)}
TO_BROKER = " --bootstrap-server $BOOTSTRAP"
UNLIMITED = "retention.ms=-1,retention.bytes=-1"
Answers = dict[str, str]


def group_row(group_id: str, status: str, lag: int, **more: Any) -> dict[str, Any]:
    named = {**AT, "group_id": group_id, "since": at(-49)}
    counts = {"partitions": 2, "members": 1, "clients": 1, "client_id": f"{group_id}-1", "min_headroom": 700}
    none = dict.fromkeys(("partitions_unknown", "stable_unknown", "bytes_unknown", "ms_unknown", "age_unknown"), 0)
    lags = {"consumer_lag": lag, "max_consumer_lag": lag, "consumer_lag_stable": lag, "rows_with_error": 0}
    judged = {"status": status, "statuses": {status: 1, "ok": 1}, "offset_statuses": {"ok": 2}}
    return {**named, **counts, **none, **lags, **judged, **more}


def findings() -> dict[str, Any]:
    """Rows of FINDINGS, and of FINDING_HISTORY at the newest snapshot."""
    rows, history = [], []

    def found(
        kind: str, severity: str, first: int, evidence: dict[str, Any], now: dict[str, Any], **about: Any
    ) -> None:
        named = {"cluster": "east", "finding_id": kind + str(len(rows)), "kind": kind, "severity": severity, **about}
        times = {"first_seen": at(first), "last_seen": at(NEWEST), "worst_at": at(NEWEST - 1)}
        words = {"summary": f"{kind} it is.", "advice": f"Advice about {kind}."}
        rows.append({**named, **times, **words, "evidence": json.dumps(evidence)})
        history.append({**named, **AT, "evidence": json.dumps(evidence | now), "partitions": [0, 1]})

    payments = {"group_id": "payments", "topic": "orders", "owner": "team-pay", "tier": "1"}
    part = {"partitions": 1, "partitions_of_group": 2, "worst_topic": "orders", "worst_partition": 1}
    rates = {"written_per_s": 100.5, "committed_per_s": 80.0, "since": "2026-03-01T11:11:00Z"}
    found("falling_behind", "warning", -40, {**part, **rates}, {}, **payments)
    # At its worst, the records would have been deleted at 13:10.
    ahead = {**part, "deleted_at": "2026-03-01T13:10:00Z"}
    found("data_loss_ahead", "critical", 1, ahead, {"deleted_at": "2026-03-01T14:30:00Z"}, **payments)
    gauge = {"verdict": "blind", "max_lag": 10, "max_consumer_lag": 12_000}
    found("blind_gauge", "warning", -30, gauge, {}, group_id="payments", client_id="payments-1")
    held = {"partitions": 2, "groups": ["ledger-reader"], "groups_affected": 1, "since": "2026-03-01T11:50:00Z"}
    held |= {"transaction_producer_id": 77, "transaction_start_offset": 1_234, "worst_topic": "ledger"}
    held |= {"worst_partition": 0, "consumer_lag": 1_858, "consumer_lag_bytes": 554_319, "consumer_age_ms": 780_000}
    found("open_transaction", "warning", 0, held, {}, topic="ledger")
    stopped = {"status": "stopped", "reason": "no_members", "partitions": 2, "partitions_of_group": 2}
    stopped |= {"since": "2026-02-28T19:11:00Z", "members_seen_at": "2026-03-01T11:51:00Z"}
    found("no_progress", "critical", 0, stopped, {}, group_id="search", topic="my topic")
    lost = {"deleted_offsets": 1_966, "readable_offsets": 202, "partitions": 2, "partitions_of_group": 2}
    found("deleted_unread", "critical", 2, lost, {}, group_id="search", topic="my topic")
    return {"findings": rows, "finding_history": history}


def forecasts_and_gauges() -> dict[str, Any]:
    forecast = {**AT, "ends_at": at(NEWEST)}
    rates = {"caught_up_in_ms": 42 * MINUTE, "caught_up_in_low_ms": 37 * MINUTE, "caught_up_in_high_ms": 57 * MINUTE}
    rates |= {"deleted_in_ms": 165 * MINUTE, "deleted_in_low_ms": 150 * MINUTE, "deleted_in_high_ms": 180 * MINUTE}
    forecasts = (
        {**forecast, "group_id": "payments", **rates},
        {**forecast, "group_id": "search", "reason": "never_at_this_rate"},
    )
    reported = {**AT, "group_id": "payments", "verdict": "truthful"}
    divergence = (
        {**reported, "client_id": "payments-1", "max_lag": 10, "max_consumer_lag": 12_000, "verdict": "blind"},
        {**reported, "client_id": "payments-2", "max_lag": 345, "max_consumer_lag": 345},
    )
    return {"forecasts": forecasts, "client_divergence": divergence}


def scripted(folder: Path) -> Excerpt:
    behind = {
        "consumer_lag_bytes": 6_170_000,
        "bytes_error": 40_000,
        "consumer_age_ms": 7_200_000,
        "age_error_ms": 60_000,
    }
    lost = {
        "offset_statuses": {"deleted_unread": 2},
        "members": 0,
        "clients": 0,
        "client_id": None,
        "unread_offsets": 1_966,
        "members_seen_at": at(-9),
        "group_state": "Empty",
    }
    payments = {"owner": "team-pay", "tier": "1", "channel": "pager", **behind}
    ledger = {"owner": "team-books", "tier": "2", "consumer_lag_bytes": 554_319, "consumer_age_ms": 780_000}
    groups = (
        group_row("payments", "warning", 12_345, **payments),
        group_row("ledger-reader", "not_progressing", 1_858, **ledger),
        group_row("search", "stopped", 2_168, **lost),
        group_row("healthy", "ok", 0),
    )
    member = {"client_id": "payments-1", "host": "/10.0.0.7"}
    lag = (
        lag_row(NEWEST, "payments", 1, topic="orders", consumer_lag=12_000, committed_offset=5_000, **member),
        lag_row(NEWEST, "payments", 0, topic="orders", consumer_lag=345, client_id="payments-2", host="/10.0.0.8"),
        lag_row(NEWEST, "payments", 2, topic="orders", consumer_lag=0, client_id="payments-3", host="/10.0.0.9"),
    )
    lake = lake_of(
        folder,
        snapshots=[snapshot(minute) for minute in range(NEWEST + 1)],
        lag=lag,
        group_status=groups,
        **forecasts_and_gauges(),
        **findings(),
    )
    return Excerpt(lake)


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    return cards_of(render(collect(scripted(tmp_path_factory.mktemp("scripted")), NOW, "title")))


def test_who_is_behind(cards: dict[str, Answers]) -> None:
    """Lost data comes first, then what is critical."""
    assert [(name, card["of"]) for name, card in cards.items()] == [
        ("search", "group of cluster east"),
        ("payments", "group of cluster east"),
        ("ledger", "topic of cluster east"),
    ]
    assert cards["payments"]["Owner"] == "team-pay, tier 1"
    assert cards["search"]["Owner"] == "none is configured"
    assert cards["ledger"]["Groups"].startswith("1 affected ledger-reader: 1,858 records")
    assert cards["ledger"]["Groups"].endswith("owner team-books, tier 2")


def test_since_when(cards: dict[str, Answers]) -> None:
    """The first of the causes began at this time; the causes have that of each."""
    assert [card["Since"] for card in cards.values()] == [
        "2026-02-28 19:11:00",
        "2026-03-01 11:11:00",
        "2026-03-01 11:50:00",
    ]


def test_by_how_much_in_records_bytes_and_time(cards: dict[str, Answers]) -> None:
    assert [card["Behind by"] for card in cards.values()] == [
        "2,168 records, of which 1,966 were deleted unread, bytes not known, age not known",
        "12,345 records, 6.17 MB ± 40 kB, the oldest 2 h ± 1.2 min old",
        "1,858 records, 554 kB, the oldest 13 min old",
    ]


def test_why(cards: dict[str, Answers]) -> None:
    assert [card["causes"].split(" | ") for card in cards.values()] == [
        [
            "data lost 1,966 offsets deleted unread, seen since 12:02",
            "stopped no members, nothing committed since 2026-02-28 19:11",
        ],
        [
            "loss ahead retention may delete unread records from 14:30 on in 1 of 2 partitions",
            "falling behind 100.5 records/s are written, 80.0 committed, since 11:11 in 1 of 2 partitions",
            "gauge wrong payments-1 reports a lag of 10, its lag is 12,000; seen since 11:30",
        ],
        ["open transaction producer 77 holds back 2 partitions since 11:50"],
    ]


def test_whether_data_is_lost_or_will_be_and_at_what_time(cards: dict[str, Answers]) -> None:
    """The forecast is that of the newest snapshot: 14:30, and not 13:10 as it was at its worst."""
    assert [card["Data loss"] for card in cards.values()] == [
        "yes: 1,966 offsets deleted unread, seen since 12:02, 202 can still be read there",
        (
            "ahead: retention may delete unread records from 14:30 on, first of orders 1; "
            "forecast: retention deletes unread records at 14:48 (14:33 to 15:03)"
        ),
        "no finding of data loss for these groups",
    ]


def test_when_it_will_have_caught_up(cards: dict[str, Answers]) -> None:
    assert cards["payments"]["Caught up"] == "at 12:45 (12:40 to 13:00)"
    assert cards["search"]["Caught up"] == "never at this rate"


def test_whether_the_clients_gauge_is_right(cards: dict[str, Answers]) -> None:
    assert cards["payments"]["Client's gauge"] == (
        "wrong: payments-1 reports a lag of 10, its lag is 12,000 (blind); 1 of 2 gauges are wrong"
    )
    assert cards["search"]["Client's gauge"] == "not known: no client of the group reports it"


def test_which_member_or_host(cards: dict[str, Answers]) -> None:
    """The third member has read everything."""
    assert cards["payments"]["Members"] == "payments-1 at 10.0.0.7 (orders 1); payments-2 at 10.0.0.8 (orders 0)"
    assert cards["search"]["Members"] == "none: the group has no members; it last had some at 11:51"
    assert cards["ledger"]["Where"] == "producer 77"


def test_what_to_do_now(cards: dict[str, Answers]) -> None:
    lines = [line for card in cards.values() for line in card["commands"].splitlines()]
    assert len(lines) == 12
    assert all(TO_BROKER in line for line in lines)
    assert {name: card["commands"].replace(TO_BROKER, "").splitlines() for name, card in cards.items()} == {
        "search": [
            "kafka-configs --describe --all --entity-type topics --entity-name 'my topic'",
            "kafka-configs --alter --entity-type topics --entity-name 'my topic' --add-config " + UNLIMITED,
            "kafka-consumer-groups --reset-offsets --group search --topic 'my topic:0,1' --to-earliest --dry-run",
            "kafka-consumer-groups --describe --group search --state",
            "kafka-consumer-groups --reset-offsets --group search --topic 'my topic:0,1' --to-latest --dry-run",
        ],
        "payments": [
            "kafka-configs --describe --all --entity-type topics --entity-name orders",
            "kafka-configs --alter --entity-type topics --entity-name orders --add-config " + UNLIMITED,
            "kafka-consumer-groups --describe --group payments --members --verbose",
            "kafka-consumer-groups --describe --group payments",
        ],
        "ledger": [
            "kafka-transactions find-hanging --topic ledger",
            "kafka-transactions abort --topic ledger --partition 0 --start-offset 1234",
            "kafka-transactions describe-producers --topic ledger --partition 0",
        ],
    }
