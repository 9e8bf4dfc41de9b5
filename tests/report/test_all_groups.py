"""The lag of all groups of a cluster together, over time."""

import re
from typing import Any

import pytest

from pipeline.report.model.report import ClusterPoint, Instant
from pipeline.report.page.page import render
from pipeline.report.page.payload import payload
from pipeline.report.read.aggregates import all_groups
from pipeline.report.read.objects import made
from pipeline.tables import GROUP_STATUS
from tests.helpers.browser import Browse, with_script
from tests.helpers.reports import MINUTE, NOON, group, report, table_of


def row(minute: int, group_id: str, lag: int | None, **more: Any) -> dict[str, Any]:
    none = dict.fromkeys(("partitions_unknown", "bytes_unknown", "age_unknown"), 0)
    at = {"cluster": "east", "snapshot_id": NOON + minute * MINUTE, "group_id": group_id}
    return {**at, **none, "consumer_lag": lag, **more}


def test_lags_and_bytes_are_sums_and_the_age_is_that_of_the_oldest() -> None:
    rows = (
        row(0, "a", 100, consumer_lag_bytes=1_000, consumer_age_ms=60_000),
        row(0, "b", 23, consumer_lag_bytes=500, consumer_age_ms=90_000, bytes_unknown=1),
        row(0, "c", None, partitions_unknown=2),
        row(1, "a", 2**62),
        row(1, "b", 2**62, age_unknown=1),
        row(1, "a", 5, cluster="west"),
    )
    assert [*made(ClusterPoint, all_groups(table_of(GROUP_STATUS, *rows)))] == [
        ClusterPoint("east", NOON, 3, 1, 123, 1_500, 2, 90_000, 1),
        ClusterPoint("east", NOON + MINUTE, 2, 0, None, None, 0, None, 1),  # a sum that is too large is not known
        ClusterPoint("west", NOON + MINUTE, 1, 0, 5, None, 0, None, 0),
    ]


def shown() -> Any:
    west = Instant("we<b>st", NOON, 0, 1)
    instants = (*(Instant("east", NOON + n * MINUTE, 0, 3) for n in range(3)), west)
    points = (
        ClusterPoint("east", NOON, 3, 1, 123, 1_500, 2, 90_000, 1),
        ClusterPoint("east", NOON + 2 * MINUTE, 1_234, 0, 77, None, 0, None, 0),
        ClusterPoint("we<b>st", NOON, 1, 0, 5, 10, 0, 0, 0),
    )
    return report(group(), instants=instants, cluster_points=points)


def test_a_series_has_a_value_for_each_instant() -> None:
    drawn = payload(shown(), [group()])
    assert drawn
    east, west = drawn["all_groups"]
    assert east == {
        "cluster": "east",
        "groups": [3, None, 1_234],
        "records": [123, None, 77],
        "bytes": [1_500, None, None],
        "age": [90_000, None, None],
        "unknown": {"records": [1, None, 0], "bytes": [2, None, 0], "age": [1, None, 0]},
    }
    assert (west["cluster"], west["records"]) == ("we<b>st", [5])


@pytest.mark.tool
def test_each_cluster_is_a_line_with_its_newest_values(browse: Browse) -> None:
    choose = "const u = document.querySelector('#all-unit'); u.value = 'age'; u.dispatchEvent(new Event('change'));"
    for script in ("", choose):
        document, console = browse(with_script(render(shown()), script))
        assert console == ""
        drawing = document[document.index('<div id="all-drawing"') : document.index('<ul id="all-values"')]
        assert set(re.findall(r"var\(--series-(\d)\)", drawing)) == {"1", "2"}
    values = document[document.index('<ul id="all-values"') :]
    assert re.findall(r"</i>(.*?)</li>", values[: values.index("</ul>")]) == [
        "east: 77 offsets, –, oldest –, in 1,234 groups",
        "we&lt;b&gt;st: 5 offsets, 10 B, oldest 0 ms, in 1 group",
    ]


def test_without_these_rows_the_page_has_no_such_section() -> None:
    assert 'id="all-groups"' not in render(report(group()))
