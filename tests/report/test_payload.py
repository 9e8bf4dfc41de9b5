"""The data that the script of the page gets."""

import json

from pipeline.report.model.details import Gauge
from pipeline.report.model.report import Instant, Point
from pipeline.report.page.payload import payload
from tests.helpers.reports import MINUTE, NOON, group, partition, report


def test_a_series_has_a_value_for_each_instant_of_its_cluster_and_none_where_there_is_none() -> None:
    instants = tuple(Instant("east", NOON + i * MINUTE, i // 2, 4) for i in range(4))
    instants += (Instant("west", NOON, 0, 1, captured_ms=NOON + 9_000),)
    points = (
        Point("east", NOON, "g", 10, 0, 1_000, 1, 60_000, log_ends=100, commits=90, consumer_age_ms=70_000),
        Point("east", NOON + MINUTE, "g", None, 2, log_ends=700),
        Point("east", NOON + 3 * MINUTE, "g", 0, 0, 0, 0, 0, log_ends=1_300, commits=1_300),
        Point("west", NOON, "g", 7, 0),
    )
    groups = [group(), group(cluster="west")]
    drawn = payload(report(*groups, instants=instants, points=points), groups)
    assert drawn
    assert drawn["instants"] == {
        "east": [(NOON + i * MINUTE, i // 2, NOON + i * MINUTE) for i in range(4)],
        "west": [(NOON, 0, NOON + 9_000)],
    }
    east, west = drawn["groups"]
    assert (east["records"], east["bytes"], east["ms"]) == (
        [10, None, None, 0],
        [1_000, None, None, 0],
        [60_000, None, None, 0],
    )
    assert east["age"] == [70_000, None, None, None]
    assert east["unknown"] == {"records": {1: 2}, "bytes": {0: 1, 1: 2}, "ms": {1: 2}, "age": {1: 2}}
    # 600 offsets in a minute; no rate across a missing snapshot.
    assert (east["written"], east["committed"]) == ([None, 10.0, None, None], [None, None, None, None])
    assert west["records"] == [7]


def test_without_an_instant_there_is_nothing_to_draw() -> None:
    assert payload(report(group(), instants=()), [group()]) is None


def test_specifications_contain_no_names() -> None:
    drawn = payload(report(group("datum.secret")), [group("datum.secret")])
    assert drawn
    assert [g["name"] for g in drawn["groups"]] == ["datum.secret"]
    assert "secret" not in json.dumps(drawn["charts"])


def test_unknown_values_of_a_partition_are_left_out() -> None:
    of_group = partition("orders", 3, committed_offset=0, high_watermark=5, consumer_lag=5)
    drawn = payload(report(group(partitions=4), partitions=(of_group,)), [group(partitions=4)])
    assert drawn
    (shown,) = drawn["groups"]
    assert shown["left_out"] == 3
    (reported,) = shown["partitions"]
    assert reported == {
        "topic": "orders",
        "partition": 3,
        "offset_status": "ok",
        "committed_offset": 0,
        "high_watermark": 5,
        "consumer_lag": 5,
    }


def test_the_lag_of_a_partition_is_shown_in_other_units_with_its_error() -> None:
    uncertain = {"consumer_lag_bytes": 287_000, "bytes_error": 1_010_000}
    of_group = partition("orders", 3, consumer_lag=5, consumer_lag_ms=90_000, time_error_ms=6_000, **uncertain)
    drawn = payload(report(group(), partitions=(of_group,)), [group()])
    assert drawn
    assert drawn["groups"][0]["partitions"][0]["in_units"] == "< 1.3 MB · 1.5 min ± 0.1 min"


def test_the_client_that_its_gauge_misleads_about_most_often_comes_first() -> None:
    def gauge(client_id: str, minute: int, max_lag: int, lag: int, verdict: str | None) -> Gauge:
        return Gauge("east", NOON + minute * MINUTE, "g", client_id, max_lag, None, lag, None, verdict)

    gauges = (
        gauge("honest", 0, 5, 500, "truthful"),
        gauge("blind once", 0, 0, 9, "blind"),
        gauge("blind once", 1, 9, 9, "truthful"),
        gauge("stale twice", 0, 3, 4, "stale"),
        gauge("stale twice", 1, 3, 5, "stale"),
    )
    drawn = payload(report(group(), gauges=gauges), [group()])
    assert drawn
    assert [c["client"] for c in drawn["clients"]] == ["stale twice", "blind once", "honest"]
    assert drawn["clients"][0]["rows"][1] == (NOON + MINUTE, 3, None, 5, None, "stale")


def test_a_group_has_its_owner_with_the_tier_and_its_channel() -> None:
    groups = [group("a", owner="x\ny", tier="1", channel="pager"), group("b", owner="web"), group("c", channel="chat")]
    drawn = payload(report(*groups), groups)
    assert drawn
    assert [(of["owner"], of["channel"]) for of in drawn["groups"]] == [
        ("x\\ny, tier 1", "pager"),
        ("web", None),
        (None, "chat"),
    ]
