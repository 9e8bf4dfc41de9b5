"""The problems of clients: slow poll loops, blocked fetchers, buffers. Minutes stand for snapshots."""

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace as Problem
from typing import Any

import pyarrow as pa
import pytest

from pipeline.analytics.clients.instances import observed, with_instance
from pipeline.analytics.clients.poll_loops import poll_states
from pipeline.analytics.clients.problems import problems
from pipeline.analytics.clients.scala_fetchers import GROWING, fetcher_states
from pipeline.common.data_source import arrow_schema
from pipeline.tables import CLIENT_DIVERGENCE, CLIENT_POSITIONS, LAG, Table
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows

MINUTE_MS = 60_000


def table(of: Table, names: str, *rows: Sequence[Any]) -> pa.Table:
    return few_rows(of, names, *rows).collected_table()


def worded(*parts: pa.Table) -> list[Problem]:
    return [Problem(**row) for row in worded_rows(problems(*parts))]


def at(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * MINUTE_MS / 1000, UTC)


def test_a_java_consumer_that_is_slow_with_one_topic_names_it_and_the_one_that_waits() -> None:
    """Its fetched offset is not known. Each minute it asks ten times, both logs grow by 100, and it reads 10 of one."""
    positions, lag = [], []
    for m in (1, 2, 3):
        positions.append((m * MINUTE_MS, at(m), "app", 10 * m, "kafka_client_metrics", "http://app:9404"))
        lag += [
            (m * MINUTE_MS, "g", "app", topic, 0, consumed, 100 * m)
            for topic, consumed in (("costly", 10 * m), ("light", 50))
        ]
    names = "snapshot_id as_of client_id requests_total source endpoint"
    reported = observed(table(CLIENT_POSITIONS, names, *positions))
    names = "snapshot_id group_id client_id topic partition consumed_offset high_watermark"
    readers = with_instance(table(LAG, names, *lag), reported)
    clients = table(CLIENT_DIVERGENCE, "group_id")
    found = worded(clients, fetchers(), poll_states(readers, reported), readers)
    assert [(r.kind, r.snapshot_id, r.topic, r.partitions) for r in found] == [
        ("slow_consumer", 3 * MINUTE_MS, "costly", [0])
    ]
    assert found[0].evidence == '{"culprit_topic":"costly","victim_topics":["light"],"records_waiting":520}'


@pytest.mark.parametrize(("still", "kinds"), [(1, set()), (3, {"slow_consumer"})])
def test_only_a_long_rebalance_is_a_problem(still: int, kinds: set[str]) -> None:
    """From minute 3 on, app-1 neither asks nor gets anything. Then app-2 gets one of its partitions; both continue."""
    positions, lag = [], []
    read = {0: 100, 1: 100}
    for m in range(1, 8):
        is_still = 3 <= m < 3 + still
        owners = {0: "app-1", 1: "app-1" if m < 3 + still else "app-2"}
        for partition, client in owners.items():
            read[partition] += 0 if is_still else 100
            lag.append((m * MINUTE_MS, "g", client, "t", partition, read[partition], 100 * m + 110))
        asked = 200 * (m - still if m >= 3 + still else min(m, 2))
        positions += [
            (m * MINUTE_MS, at(m), client, asked, "kafka_client_metrics", f"http://{client}:9404")
            for client in sorted(set(owners.values()))
        ]
    names = "snapshot_id as_of client_id requests_total source endpoint"
    reported = observed(table(CLIENT_POSITIONS, names, *positions))
    names = "snapshot_id group_id client_id topic partition consumed_offset high_watermark"
    readers = with_instance(table(LAG, names, *lag), reported)
    clients = table(CLIENT_DIVERGENCE, "group_id")
    found = worded(clients, fetchers(), poll_states(readers, reported), readers)
    assert {r.kind for r in found} == kinds
    assert {r.client_id for r in found} <= {"app-1"}


def fetchers(*rows: Sequence[Any]) -> pa.Table:
    """Rows as `fetcher_states` returns them."""
    names = ("client_id", "fetcher", "state", "has_fetched", "culprits", "threads", "victims")
    of_snapshot = {"cluster": "east", "snapshot_id": MINUTE_MS, "instance": "http://app:9404", "since_snapshot_id": 0}
    states = [of_snapshot | dict(zip(names, row, strict=True)) for row in rows]
    empty = observed(table(CLIENT_POSITIONS, "client_id"))
    columns = fetcher_states(empty, arrow_schema(GROWING).empty_table(), {}).schema
    return pa.Table.from_pylist(states, columns)


def test_fetchers_that_are_blocked_for_different_reasons_are_different_problems() -> None:
    states = fetchers(
        ("old", "b1", "blocked", False, ["big"], ["0"], ["small"]),
        ("old", "b2", "blocked", True, ["big"], ["0"], ["small"]),
        ("old", "b3", "fetching", True, ["big"], ["0"], ["small"]),
        ("full", "b1", "blocked", True, [], [], []),
    )
    app = "http://app:9404"
    clients = [(MINUTE_MS, group, client, app, 7) for group, client in (("g", "old"), (None, "full"))]
    divergence = table(CLIENT_DIVERGENCE, "snapshot_id group_id client_id instance max_lag", *clients)
    lag = table(
        LAG,
        "snapshot_id group_id client_id instance topic partition",
        *((MINUTE_MS, "g", "old", app, "big", p) for p in (1, 0)),
    )
    nobody = observed(table(CLIENT_POSITIONS, "client_id"))
    found = worded(divergence, states, poll_states(lag, nobody), lag)
    assert {(r.kind, r.group_id, r.client_id, r.topic, r.severity): r.partitions for r in found} == {
        ("too_large_message", "g", "old", None, "critical"): None,
        ("blocked_connector", "g", "old", "big", "critical"): [0, 1],
        ("blocked_connector", None, "full", None, "warning"): None,
    }


def test_a_client_that_may_buffer_more_than_half_of_its_heap_is_a_problem() -> None:
    rows = [
        (MINUTE_MS, "g", "large", 8_000_000, 0.8),
        (MINUTE_MS, "g", "half", 5_000_000, 0.5),
        (MINUTE_MS, "g", "unknown", 5_000_000, None),
    ]
    names = "snapshot_id group_id client_id buffer_bound_bytes heap_share"
    divergence = table(CLIENT_DIVERGENCE, names, *rows)
    nobody, nothing = observed(table(CLIENT_POSITIONS, "client_id")), table(LAG, "group_id")
    (found,) = worded(divergence, fetchers(), poll_states(nothing, nobody), nothing)
    assert (found.kind, found.client_id, found.severity) == ("buffer_too_large", "large", "warning")
    assert found.summary == "large may buffer 8 MB, 80 % of its heap."
