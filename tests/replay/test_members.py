"""Members of groups, from the tables that Kafka's own tool prints for people."""

from pathlib import Path

import pytest

from pipeline.replay.members import Member, members_of
from tests.helpers.recordings import unpacked

HEAD = "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     "
CART = "\U0001f6d2"
C1 = Member("shop", "c1-bad9496d", "c1", "/10.0.0.1")


def row(group: str, client: str, assigned: str, number: int = 1) -> str:
    """A line as the tool formats it: %-15s for each column but the last."""
    cells = (group, f"{client}-bad9496d" if client else "m-bad9496d", "/10.0.0.1", client, str(number))
    return "".join(f"{cell:<15} " for cell in cells) + assigned


def members(*rows: str, head: str = HEAD + "ASSIGNMENT") -> list[Member]:
    return members_of(f"\n{head}\n".splitlines(keepends=True) + [f"{line}\n" for line in rows])


def test_the_members_of_a_real_recording_have_all_their_partitions(tmp_path: Path) -> None:
    """Kafka 4.3.0; the columns are as wide as their longest names."""
    file = unpacked("modern-b", tmp_path) / "consumer_groups_members_1795255730143.txt"
    found = members_of(file.read_text().splitlines(keepends=True))
    assert {(m.group_id, m.client_id, m.topic, m.partition) for m in found} == {
        *(("ledger-committed", "ledger-rc", "ledger", n) for n in (0, 1)),
        *(("ledger-uncommitted", "ledger-ru", "ledger", n) for n in (0, 1)),
        *(("shop-aggregator", "shop-agg-1", "clicks", n) for n in (0, 1)),
        ("shop-aggregator", "shop-agg-1", "mail.outbound", 0),
        *(("shop-aggregator", "shop-agg-1", "orders", n) for n in (0, 1, 2)),
    }
    assert {m.member_id for m in found if m.client_id == "ledger-ru"} == {"mBP3c9_sQmKfnQB0cGp5Bw"}


def test_a_name_may_have_blanks_or_be_empty() -> None:
    names = [("my shop", "c 1"), ("", "c1"), ("shop", "")]
    found = members(*(row(group, client, "orders(0)") for group, client in names))
    assert [(m.group_id, m.client_id, m.topic, m.partition) for m in found] == [(*n, "orders", 0) for n in names]


def test_a_character_that_java_counts_as_two_moves_no_cell() -> None:
    """Java's %-15s pads to 15 UTF-16 units, of which the cart has two."""
    lines = (
        f"{CART} shop         {CART}{CART}-bad9496d   /10.0.0.1       {CART} c1           1               orders(0)",
        f"shop            c1-bad9496d     /10.0.0.1       {CART}{CART}            1               orders(1)",
    )
    assert [(m.group_id, m.member_id, m.client_id, m.topic, m.partition) for m in members(*lines)] == [
        (f"{CART} shop", f"{CART}{CART}-bad9496d", f"{CART} c1", "orders", 0),
        ("shop", "c1-bad9496d", f"{CART}{CART}", "orders", 1),
    ]


def test_assignments_are_read_as_they_are_printed_before_kafka_4_and_since() -> None:
    """Before, topics are separated by a comma and a blank."""
    expected = [C1._replace(topic=t, partition=n) for t, n in (("orders", 1), ("refunds.eu", 0), ("refunds.eu", 12))]
    for assigned in ("orders(1), refunds.eu(0,12)", "orders:1;refunds.eu:0,12"):
        assert members(row("shop", "c1", assigned, 3)) == expected


def test_a_member_without_a_partition_is_a_member() -> None:
    assert members(row("shop", "c1", "-", 0)) == [C1]
    assert members(row("shop", "c1", "", 2), head=HEAD.rstrip()) == [C1]


def test_what_is_printed_outside_of_tables_is_no_member() -> None:
    """A warning of as many words as the table has columns became a member of the group `Warning:`."""
    warning = "Warning: Consumer group 'bank' is rebalancing."
    assert members(row("shop", "c1", "-", 0), "", warning, "", "Consumer group 'x' has no active members.") == [C1]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[2026-11-21 10:00:00,000] WARN a warning within a table (org.apache.kafka)", "does not fit the columns"),
        (row("a group with a very long name", "c1", "-"), "does not fit the columns"),
        (row("shop", "c1", "-").replace("/10.0.0.1", " " * 9), "does not fit the columns"),
        (row("shop", "c1", "-").replace("1               -", "x               -"), "does not fit the columns"),
        (row("shop", "c1", "orders(0"), "its assignment is not a list of topics and partitions"),
        (row("shop", "c1", "orders(0), a b(1)"), "its assignment is not a list of topics and partitions"),
    ],
)
def test_a_line_that_does_not_fit_its_table_is_refused(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"line 3: {why}"):
        members(line)


def test_a_table_without_groups_is_refused() -> None:
    """As --group NAME prints it before Kafka 2.4."""
    with pytest.raises(ValueError, match="line 2: a table of members without the column GROUP"):
        members(head=HEAD.removeprefix("GROUP").lstrip())
