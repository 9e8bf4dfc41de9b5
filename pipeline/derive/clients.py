"""Writes `client_divergence` for the snapshots that were just computed, and finds the problems of their clients."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from pipeline.analytics.clients.judged_clients import CLIENT_PARTS, judge_clients
from pipeline.analytics.clients.known_names import (
    BY_CLIENT,
    KNOWN_TOPICS,
    known_topics,
    with_client_key,
    written_topic_sql,
)
from pipeline.analytics.clients.poll_loops import TURNS
from pipeline.analytics.clients.scala_fetchers import GROWING, growing_topics
from pipeline.analytics.findings.problem import PROBLEMS
from pipeline.analytics.keys import SNAPSHOT, TOPIC
from pipeline.common.buckets import ROWS_A_BUCKET, Form, Spread
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, tables_in_buckets
from pipeline.derive.backlog import Backlog
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.tables import CLIENT_DIVERGENCE, CLIENT_POSITIONS, LAG, WATERMARKS

LOOK_BACK = TURNS
"""How many snapshots before a batch are needed to compute states: `poll_states` needs the most, TURNS intervals."""


def keep_clients(batch: Batch, _: Readers) -> None:
    """Writes `client_divergence` if clients have reported anything, and finds their problems."""
    if not batch.backlog.has_positions:
        return
    before = [s.snapshot_id for s in batch.backlog.before[:LOOK_BACK]]
    ids = sorted([*before, *batch.snapshot_ids])
    tables = {"positions": (CLIENT_POSITIONS, ids), "lag": (LAG, ids), "known": (CLIENT_DIVERGENCE, before)}
    parts = {}
    for name, (table, read) in tables.items():
        columns = [column for column in CLIENT_PARTS[name].names if column not in BY_CLIENT]
        of_clients = batch.rows(table, read, *columns).where_known("client_id")
        parts[name] = of_clients.mapped(with_client_key, CLIENT_PARTS[name])
    logs = batch.rows(WATERMARKS, ids, *GROWING.names, "high_watermark")
    topics = _known_topics(logs)
    compute = partial(
        judge_clients,
        topics=topics,
        growing=_growing_topics(logs, parts["positions"], topics),
        snapshot_ids=ids,
        new_ids=batch.snapshot_ids,
        settings=batch.settings.clients,
    )
    forms = {"divergence": [Form(CLIENT_DIVERGENCE.schema, Spread())], "problems": [Form(PROBLEMS, Spread())]}
    compute_once = partial(
        batch.lake.computed_or_staged, name=f"clients_{batch.cluster}", snapshot_id=batch.snapshot_ids[0]
    )
    spread = Spread(BY_CLIENT, _bucket_count(batch.backlog))
    found = tables_in_buckets(parts, CLIENT_PARTS, spread, compute, forms, compute_once)
    batch.lake.replace(CLIENT_DIVERGENCE, found["divergence"], batch.where)
    batch.problems.append(found["problems"])


def _bucket_count(backlog: Backlog) -> int:
    """In how many buckets the clients of a batch are judged, together with the snapshots before it."""
    rows = sum(max(s.commits, s.members) + s.positions for s in (*backlog.before[:LOOK_BACK], *backlog.batch))
    return 1 + rows // ROWS_A_BUCKET


def _known_topics(logs: Rows) -> pa.Table:
    """The topics that clients may name differently: far fewer than logs, so they go with the function."""
    key = [*SNAPSHOT, written_topic_sql("topic")]
    return logs.grouped(key, known_topics, KNOWN_TOPICS).collected_table()


def _growing_topics(logs: Rows, positions: Rows, topics: pa.Table) -> pa.Table:
    """The topics of old consumers' queues whose logs have grown. Mostly there are no such consumers."""
    written = positions.where_known("queue_chunks").distinct("topic")
    if not written:
        return arrow_schema(GROWING).empty_table()
    # Agents may write a topic differently. By its written name, its log is not found, and no fetcher is ever blocked.
    queued = written | Rows(topics).where_in("written", [*written]).distinct("known")
    return logs.where_in("topic", [*queued]).grouped(TOPIC, growing_topics, GROWING).collected_table()
