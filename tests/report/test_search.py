"""What a group is found by."""

import pytest

from pipeline.report.model.details import Names
from pipeline.report.page.search import BYTES, MOST_OF_A_GROUP, searched
from pipeline.report.read import details
from pipeline.report.read.objects import made
from pipeline.tables import LAG
from tests.helpers.reports import group, lag_row, report, table_of


def of(*topics: str, is_cut: bool = False) -> Names:
    return Names("east", "g", topics, ("app",), ("/10.0.0.1",), is_cut=is_cut)


def test_topics_clients_and_hosts_take_turns() -> None:
    assert searched(report(group(), names=(of("a", "b\n", "c"),)))["east", "g"] == (
        "a\napp\n/10.0.0.1\nb\\n\nc",
        False,
    )


@pytest.mark.parametrize(("groups", "most"), [(1, MOST_OF_A_GROUP), (1_000, BYTES // 1_000)])
def test_each_group_has_a_share_of_the_page(groups: int, most: int) -> None:
    whole = of("x" * (most - len("\napp\n/10.0.0.1")))
    cut = of("x" * (most - len("\napp\n/10.0.0.1") + 1))
    for found, is_cut in ((whole, False), (cut, True)):
        text = searched(report(*[group()] * groups, names=(found,)))["east", "g"]
        assert (len(text.text), text.is_cut) == (most, is_cut)


def test_the_share_is_in_bytes_and_no_character_is_cut_in_two() -> None:
    text = searched(report(group(), names=(of("ж" * MOST_OF_A_GROUP),)))["east", "g"].text
    assert text == "ж" * (MOST_OF_A_GROUP // 2)


def test_names_that_the_query_has_left_out_count_as_cut() -> None:
    assert searched(report(group(), names=(of("a", is_cut=True),)))["east", "g"].is_cut


def test_the_names_are_those_of_the_partitions_of_each_group() -> None:
    rows = (
        lag_row(0, "g", 0, topic="b", client_id="app", host="/10.0.0.1"),
        lag_row(0, "g", 1, topic="b", client_id="app", host="/10.0.0.2"),
        lag_row(0, "g", 0, topic="a"),
        lag_row(0, "few", 0, topic="a"),
    )
    lag = table_of(LAG, *rows)
    for limit, hosts in ((2, ("/10.0.0.1", "/10.0.0.2")), (1, ("/10.0.0.1",))):
        assert made(Names, details.names(lag, limit)) == (
            Names("east", "few", ("a",), (), (), is_cut=False),
            Names("east", "g", ("a", "b")[:limit], ("app",), hosts, is_cut=limit == 1),
        )
