"""Writes `client_divergence`, `finding_history` and `findings` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.clients.divergence import client_divergence
from pipeline.analytics.clients.findings import finding_history, findings
from pipeline.analytics.clients.instances import observed, with_instance
from pipeline.analytics.clients.poll_loops import TURNS, poll_states
from pipeline.analytics.clients.problems import problems
from pipeline.analytics.clients.scala_fetchers import fetcher_states
from pipeline.analytics.keys import CLIENT_AT
from pipeline.config.consumers import ConsumerSettings
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import CLIENT_DIVERGENCE, CLIENT_POSITIONS, FINDING_HISTORY, FINDINGS, LAG, WATERMARKS

LOOK_BACK = TURNS
"""How many snapshots before a batch are needed to compute states: `poll_states` needs the most, TURNS intervals."""
IF_NOT_OLDER = "greatest(s.last_seen, s.resolved_at) >= greatest(t.last_seen, t.resolved_at)"
"""A finding is only updated if another job has not continued it since it was read."""


def keep_clients(
    lake: Lake, cluster: str, batch: Sequence[int], before: Sequence[int], settings: Mapping[str, ConsumerSettings]
) -> None:
    """Writes the tables about clients for a batch whose `lag` is written; `before` are the snapshots before it."""
    ids = [*before[:LOOK_BACK], *batch]
    of_batch = of_snapshots(cluster, batch)
    readers, positions, ends = (lake.read_snapshots(t, cluster, ids) for t in (LAG, CLIENT_POSITIONS, WATERMARKS))
    known = lake.read_snapshots(CLIENT_DIVERGENCE, cluster, before[:LOOK_BACK])
    new = F.col("snapshot_id").isin(list(batch))
    reported = lake.computed(observed(positions, sorted(ids)))
    lag = lake.computed(with_instance(readers, reported).where("instance IS NOT NULL"))
    divergence = lake.computed(client_divergence(reported, lag, known, settings).where(new))
    lake.replace(CLIENT_DIVERGENCE, divergence, of_batch)
    states = fetcher_states(reported, ends, settings).where(new)
    polls = lake.computed(poll_states(lag, reported, settings).where(new))
    found = lake.computed(problems(divergence, states, polls, lag.where(new)))
    reporting = lake.computed(_reporting(lake, cluster, batch, before))
    earlier = lake.computed(_earlier(lake, cluster, batch))
    lake.replace(FINDING_HISTORY, finding_history(found, reporting, earlier), of_batch)
    # A few rows for each client at most. They are collected because a MERGE would compute their source a second time.
    rows = findings(lake.read_snapshots(FINDING_HISTORY, cluster, batch), reporting, earlier).collect()
    if rows:
        lake.merge(FINDINGS, rows, cluster, IF_NOT_OLDER)


def _reporting(lake: Lake, cluster: str, batch: Sequence[int], before: Sequence[int]) -> DataFrame:
    """CLIENT_AT of clients that reported anything, in the batch and in the snapshots before that a finding may span."""
    recent = lake.read_snapshots(CLIENT_DIVERGENCE, cluster, [*before, *batch])
    return recent.select(*CLIENT_AT).distinct()


def _earlier(lake: Lake, cluster: str, batch: Sequence[int]) -> DataFrame:
    """The findings that are open, or that ended after the batch began."""
    ended = F.greatest("last_seen", "resolved_at")  # skips NULL
    is_newer = F.col("resolved_at").isNull() | (ended >= F.timestamp_millis(F.lit(min(batch))))
    return lake.read_cluster(FINDINGS, cluster).where(is_newer)
