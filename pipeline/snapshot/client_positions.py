"""Reads what a cluster's clients report now, from all configured endpoints and files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructType

from pipeline.analytics.clients.instances import newest_of_clients
from pipeline.client_positions import SOURCES
from pipeline.common.epoch import now_ms
from pipeline.common.rows import Rows
from pipeline.config import ClusterConfig
from pipeline.config.consumers import PositionsConfig
from pipeline.lake import Lake
from pipeline.snapshot.read_sources import read_source
from pipeline.tables import CLIENT_POSITIONS

_SOURCES = {source.name(): source for source in SOURCES}
_READ = StructType([*CLIENT_POSITIONS.observed]).add("default_group", StringType())


def read_client_positions(lake: Lake, cluster: ClusterConfig, snapshot_id: int, staging_area: str) -> Rows:
    """Rows of `client_positions`: the last report of each client, and an error for what could not be read.

    The latter is an endpoint, a file or a line. A client whose last report is older than `positions_max_age` is left
    out, because it may have ended. The options in the plan contain secrets: never log it.
    """
    read_one = partial(_read_positions, lake, cluster, snapshot_id)
    with ThreadPoolExecutor(len(cluster.positions)) as threads:  # all at once, because their time is the same
        read = [*threads.map(read_one, cluster.positions)]
    newest = partial(newest_of_clients, oldest_ms=now_ms() - cluster.positions_max_age_ms)
    # All reports of a client are in one bucket.
    rows = Rows.all_of(read, _READ).grouped(["client_id"], newest, CLIENT_POSITIONS.observed)
    return rows if isinstance(rows.rows, pa.Table) else Rows(lake.staged_once(cast(DataFrame, rows.rows), staging_area))


def _read_positions(lake: Lake, cluster: ClusterConfig, snapshot_id: int, positions: PositionsConfig) -> Rows:
    source = _SOURCES[positions.source](positions_options(cluster, positions, snapshot_id))
    schema = StructType([field for field in _READ if field.name != "default_group"])
    return read_source(lake, source).chosen(schema).with_constants({"default_group": positions.group_id}, _READ)


def positions_options(cluster: ClusterConfig, positions: PositionsConfig, snapshot_id: int) -> dict[str, str]:
    """The options of a data source. What is older than `positions_max_age` is not used, and the source says so.

    At least half of the time that is left for the snapshot remains for Kafka.
    """
    aged = {"max_age_ms": str(cluster.positions_max_age_ms)}
    timeout_ms = max(1, min(cluster.positions_timeout_ms, cluster.limits.read_timeout_ms // 2))
    return positions.options(snapshot_id) | aged | {"read_timeout_ms": str(timeout_ms)}
