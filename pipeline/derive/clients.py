"""Writes `client_divergence` for the snapshots that were just computed, and finds the problems of their clients."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.clients.divergence import client_divergence
from pipeline.analytics.clients.instances import observed, with_instance
from pipeline.analytics.clients.known_names import members_clients, with_known_names
from pipeline.analytics.clients.poll_loops import TURNS, poll_states
from pipeline.analytics.clients.problems import problems
from pipeline.analytics.clients.scala_fetchers import fetcher_states
from pipeline.analytics.keys import TOPIC_AT
from pipeline.config.consumers import ConsumerSettings
from pipeline.derive.backlog import Backlog
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import CLIENT_DIVERGENCE, CLIENT_POSITIONS, LAG, WATERMARKS

LOOK_BACK = TURNS
"""How many snapshots before a batch are needed to compute states: `poll_states` needs the most, TURNS intervals."""


def keep_clients(lake: Lake, cluster: str, backlog: Backlog, settings: Mapping[str, ConsumerSettings]) -> DataFrame:
    """Writes `client_divergence` for a batch whose `lag` is written; returns the problems of its clients."""
    batch, before = ([s.snapshot_id for s in snapshots] for snapshots in (backlog.batch, backlog.before))
    ids = [*before[:LOOK_BACK], *batch]
    readers, positions, ends = (lake.read_snapshots(t, cluster, ids) for t in (LAG, CLIENT_POSITIONS, WATERMARKS))
    known = lake.read_snapshots(CLIENT_DIVERGENCE, cluster, before[:LOOK_BACK])
    new = F.col("snapshot_id").isin(list(batch))
    observations = observed(positions, sorted(ids))
    reported = lake.computed(with_known_names(observations, ends.select(*TOPIC_AT), members_clients(readers)))
    lag = lake.computed(with_instance(readers, reported).where("instance IS NOT NULL"))
    divergence = lake.computed(client_divergence(reported, lag, known, settings).where(new))
    lake.replace(CLIENT_DIVERGENCE, divergence, of_snapshots(cluster, batch))
    states = fetcher_states(reported, ends, settings).where(new)
    polls = lake.computed(poll_states(lag, reported, settings).where(new))
    return problems(divergence, states, polls, lag.where(new))
