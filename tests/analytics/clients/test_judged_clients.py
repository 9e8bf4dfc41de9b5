"""Clients are judged alike however many rows there are: on the driver, and in buckets of Spark's workers."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.clients.divergence import KNOWN
from pipeline.analytics.clients.judged_clients import CLIENT_PARTS, judge_clients
from pipeline.analytics.clients.known_names import BY_CLIENT, known_topics, with_client_key
from pipeline.analytics.clients.scala_fetchers import growing_topics
from pipeline.analytics.findings.problem import PROBLEMS
from pipeline.common.buckets import Form, Spread
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, tables_in_buckets
from pipeline.tables import CLIENT_DIVERGENCE, CLIENT_POSITIONS, LAG, WATERMARKS
from tests.helpers.rows import few_rows

MINUTES = range(1, 5)
MINUTE_MS = 60_000
JAVA, OLD = "http://java:9404", "http://old:7071"
FORMS = {"divergence": [Form(CLIENT_DIVERGENCE.schema, Spread())], "problems": [Form(PROBLEMS, Spread())]}
LARGE = {"few rows": (), "many rows": ("positions", "lag", "known"), "few positions, many readers": ("lag",)}
"""Which parts have many rows."""


def at(minute: int) -> dict[str, Any]:
    return {"snapshot_id": minute * MINUTE_MS, "captured_at": datetime.fromtimestamp(minute * 60, UTC)}


def reports() -> list[dict[str, Any]]:
    """A Java consumer `slow.1`, whose agent writes slow_1 and my_logs, hardly asks; an old consumer asks nothing."""
    rows: list[dict[str, Any]] = []
    for m in MINUTES:
        java = at(m) | {"client_id": "slow_1", "source": "kafka_client_metrics", "endpoint": JAVA}
        rows.append(java | {"requests_total": m, "bytes_total": m, "reported_lag": 0})
        rows.append(java | {"topic": "my_logs", "partition": 0, "consumed_offset": 10})
        old = at(m) | {"client_id": "old", "source": "kafka_client_metrics", "endpoint": OLD}
        rows.append(old | {"fetcher": "b:9092", "requests_total": 1, "bytes_total": 1})
        rows.append(old | {"fetcher": "0", "topic": "orders", "queue_chunks": 2})
    return rows


def readers() -> list[dict[str, Any]]:
    """What `lag` has of both; 100 records a minute are written. Other clients report nothing."""
    rows: list[dict[str, Any]] = []
    for m in MINUTES:
        ends = at(m) | {"high_watermark": 100 * m, "partition": 0, "leader": 1}
        slow = {"client_id": "slow.1", "member_id": "m", "topic": "my.logs", "instance": JAVA, "consumed_offset": 10}
        rows.append(ends | slow | {"group_id": "g", "consumer_lag": 100 * m - 10})
        rows.append(ends | {"client_id": "old", "topic": "orders", "group_id": "old", "consumer_lag": 90 * m})
        rows += [ends | {"client_id": f"other-{n}", "topic": "t", "group_id": f"g{n}"} for n in range(5)]
    return rows


def log_ends() -> list[dict[str, Any]]:
    names = ("my.logs", "orders", "t")
    return [at(m) | {"topic": name, "high_watermark": 100 * m} for m in MINUTES for name in names]


def made(spark: SparkSession, large: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """What is known of the clients in the last two minutes, if some parts have many rows."""
    few = {
        "positions": rows_of(CLIENT_POSITIONS, reports()),
        "lag": rows_of(LAG, readers()),
        "known": Rows(arrow_schema(KNOWN).empty_table()),
    }
    parts = {}
    for name, schema in CLIENT_PARTS.items():
        rows = few[name].mapped(with_client_key, schema)
        parts[name] = Rows(rows.chosen(schema).frame(spark, schema).repartition(2)) if name in large else rows
    topics = [
        at(m) | {"topic": name, "high_watermark": 100 * m} for m in MINUTES for name in ("my.logs", "orders", "t")
    ]
    logs = rows_of(WATERMARKS, topics).collected_table()
    ids = [m * MINUTE_MS for m in MINUTES]
    compute = partial(
        judge_clients,
        topics=known_topics(logs),
        growing=growing_topics(logs),
        snapshot_ids=ids,
        new_ids=ids[2:],
        settings={},
    )
    found = tables_in_buckets(parts, CLIENT_PARTS, Spread(BY_CLIENT, 5), compute, FORMS, lambda rows: rows)
    return {name: sorted(rows.collected(), key=str) for name, rows in found.items()}


def rows_of(table: Any, rows: list[dict[str, Any]]) -> Rows:
    names = sorted({name for row in rows for name in row})
    return few_rows(table, " ".join(names), *([row.get(name) for name in names] for row in rows))


@pytest.fixture(scope="module")
def by_driver(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    return made(spark, LARGE["few rows"])


def test_the_problems_of_clients_are_those_of_the_names_that_brokers_know(
    by_driver: dict[str, list[dict[str, Any]]],
) -> None:
    found = {(row["kind"], row["client_id"], row["instance"], row["topic"]) for row in by_driver["problems"]}
    assert found == {
        ("slow_consumer", "slow.1", JAVA, None),
        ("blind_gauge", "slow.1", JAVA, None),
        ("blind_gauge", "old", OLD, None),
        ("blocked_connector", "old", OLD, "orders"),
    }
    assert {row["snapshot_id"] for row in by_driver["problems"]} == {3 * MINUTE_MS, 4 * MINUTE_MS}


@pytest.mark.parametrize("size", [size for size, large in LARGE.items() if large])
def test_many_rows_are_judged_like_few(
    spark: SparkSession, by_driver: dict[str, list[dict[str, Any]]], size: str
) -> None:
    assert made(spark, LARGE[size]) == by_driver
