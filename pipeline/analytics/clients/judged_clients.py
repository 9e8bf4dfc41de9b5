"""What is known of the clients in one bucket: their rows of `client_divergence`, and their problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from pipeline.analytics.clients.divergence import KNOWN, client_divergence
from pipeline.analytics.clients.instances import observed, with_instance
from pipeline.analytics.clients.known_names import BY_CLIENT, members_clients, with_known_names
from pipeline.analytics.clients.poll_loops import poll_states
from pipeline.analytics.clients.problems import problems
from pipeline.analytics.clients.scala_fetchers import fetcher_states
from pipeline.analytics.keys import READER_AT
from pipeline.common.buckets import Bucket
from pipeline.config.consumers import ConsumerSettings
from pipeline.tables import CLIENT_POSITIONS, LAG
from pipeline.tables.columns import STRING

_ROWS = {
    "positions": CLIENT_POSITIONS.schema,
    "lag": LAG.some(
        (
            *(*READER_AT, "captured_at", "member_id", "client_id", "instance", "host", "leader"),
            *("high_watermark", "last_stable_offset", "consumed_offset", "fetched_offset"),
            *("consumer_lag", "consumer_lag_bytes", "fetcher_lag", "divergence", "buffered_bytes"),
        )
    ),
    "known": KNOWN,
}
CLIENT_PARTS = {name: StructType([*schema]).add(BY_CLIENT[0], STRING) for name, schema in _ROWS.items()}
"""What clients are judged by: rows of `client_positions` and `lag` of successive snapshots, and earlier verdicts."""


def judge_clients(
    bucket: Bucket,
    topics: pa.Table,
    growing: pa.Table,
    snapshot_ids: Sequence[int],
    new_ids: Sequence[int],
    settings: Mapping[str, ConsumerSettings],
) -> dict[str, pa.Table]:
    """The rows of CLIENT_DIVERGENCE (`divergence`) and PROBLEMS (`problems`) in the snapshots `new_ids`.

    `topics` are rows of KNOWN_TOPICS, `growing` those of GROWING. `snapshot_ids` are all snapshots of the bucket, in
    order, which has rows of CLIENT_PARTS whose client is known. Some snapshots before the new ones are needed, because
    the states of clients last.
    """
    positions, readers = (bucket[name].drop_columns([*BY_CLIENT]) for name in ("positions", "lag"))
    reported = with_known_names(observed(positions, snapshot_ids), topics, members_clients(readers))
    lag = with_instance(readers, reported)
    lag = lag.filter(lag["instance"].is_valid())
    divergence = _of_snapshots(client_divergence(reported, lag, bucket["known"], settings), new_ids)
    states = _of_snapshots(fetcher_states(reported, growing, settings), new_ids)
    polls = _of_snapshots(poll_states(lag, reported, settings), new_ids)
    return {"divergence": divergence, "problems": problems(divergence, states, polls, _of_snapshots(lag, new_ids))}


def _of_snapshots(rows: pa.Table, snapshot_ids: Sequence[int]) -> pa.Table:
    return rows.filter(pc.is_in(rows["snapshot_id"], pa.array(snapshot_ids, pa.int64())))
