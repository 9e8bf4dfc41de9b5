"""Writes `client_divergence` for the snapshots that were just computed, and finds the problems of their clients."""

from __future__ import annotations

from pyspark.sql import functions as F

from pipeline.analytics.clients.divergence import client_divergence
from pipeline.analytics.clients.instances import observed, with_instance
from pipeline.analytics.clients.known_names import members_clients, with_known_names
from pipeline.analytics.clients.poll_loops import TURNS, poll_states
from pipeline.analytics.clients.problems import problems
from pipeline.analytics.clients.scala_fetchers import fetcher_states
from pipeline.analytics.keys import TOPIC_AT
from pipeline.common.rows import Rows
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.tables import CLIENT_DIVERGENCE, CLIENT_POSITIONS, LAG, WATERMARKS

LOOK_BACK = TURNS
"""How many snapshots before a batch are needed to compute states: `poll_states` needs the most, TURNS intervals."""


def keep_clients(batch: Batch, _: Readers) -> None:
    """Writes `client_divergence` if clients have reported anything, and finds their problems."""
    if not batch.backlog.has_positions:
        return
    lake, settings = batch.lake, batch.settings.clients
    before = [s.snapshot_id for s in batch.backlog.before[:LOOK_BACK]]
    ids = [*before, *batch.snapshot_ids]
    readers, positions, ends = (
        batch.rows(table, ids).frame(lake.spark, table.schema) for table in (LAG, CLIENT_POSITIONS, WATERMARKS)
    )
    known = batch.rows(CLIENT_DIVERGENCE, before).frame(lake.spark, CLIENT_DIVERGENCE.schema)
    new = F.col("snapshot_id").isin(batch.snapshot_ids)
    observations = observed(positions, sorted(ids))
    reported = lake.computed_frame(with_known_names(observations, ends.select(*TOPIC_AT), members_clients(readers)))
    lag = lake.computed_frame(with_instance(readers, reported).where("instance IS NOT NULL"))
    divergence = lake.computed_frame(client_divergence(reported, lag, known, settings).where(new))
    lake.replace(CLIENT_DIVERGENCE, divergence, batch.where)
    states = fetcher_states(reported, ends, settings).where(new)
    polls = lake.computed_frame(poll_states(lag, reported, settings).where(new))
    batch.problems.append(Rows(problems(divergence, states, polls, lag.where(new))))
