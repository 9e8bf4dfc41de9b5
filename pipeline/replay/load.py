"""Loads a recording into the lake: a snapshot for each of its rounds, as if it had been taken at that time."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.client_positions.nothing_found import POSITIONS_MISSING, without_understood
from pipeline.client_positions.position_rows import one_line, row_of
from pipeline.common.columns import date_of
from pipeline.common.errors import ConfigError
from pipeline.common.files import redacted
from pipeline.config import Config
from pipeline.derive import Settings, compute_cluster
from pipeline.lake import Clock, Lake, of_cluster, of_snapshots
from pipeline.lake.ledger import COMPLETE, PARTIAL, Claim, ErrorEntry, Ledger, Summary
from pipeline.replay.recording import Logged, Recording, nearest
from pipeline.tables import CLIENT_POSITIONS, COMMITTED_OFFSETS, GROUP_MEMBERS, READABLE, SNAPSHOTS, WATERMARKS, Table

log = logging.getLogger(__name__)

BATCH = 500
"""How many rounds are landed together."""
MOST_MS = 60_000
"""The brokers' offsets that are used for a round are the nearest ones in time, at most this far from it."""
Rows = Iterator[dict[str, Any]]


def replay(lake: Lake, config: Config, folder: Path, cluster: str, clock: Clock) -> int:
    """Analyses a recording as a cluster with the name `cluster`; returns the number of new snapshots.

    The ids of the snapshots, and all times, are those of the recording. No broker is asked. Snapshots that are already
    in the lake are kept, so a killed replay can be continued. Raises ConfigError if the folder has no recording, or if
    the config or the lake has a cluster with this name, because the two histories would be mixed.
    """
    if cluster in config.clusters:
        raise ConfigError(f"--cluster {cluster}: is a cluster of the config; give the recording a name of its own")
    recording = Recording.of(folder)
    lake.prepare()
    known = _known(lake, cluster)
    due = [i for i in sorted(recording.rounds) if i not in known]
    logged = recording.logged()
    for first in range(0, len(due), BATCH):
        ids = due[first : first + BATCH]
        _land(lake, config, recording, cluster, ids, dict(_until(ids[-1], logged)), clock)
        log.info("%s: %d of %d rounds are in the lake", cluster, len(known) + first + len(ids), len(recording.rounds))
    settings = Settings(clients=dict(config.clients) | dict(recording.settings), status=config.status)
    compute_cluster(lake, cluster, clock, settings, most=BATCH)
    return len(due)


def _known(lake: Lake, cluster: str) -> set[int]:
    """The snapshots of a recording that are already in the lake."""
    # Snapshots of a recording have no requests to brokers, and are never running or failed.
    is_taken = (F.size(F.map_keys("requests")) > 0) | ~F.col("status").isin(*READABLE)
    rows = lake.frame(SNAPSHOTS, of_cluster(cluster)).select("snapshot_id", is_taken.alias("is_taken"))
    found = rows.collect()
    if any(row["is_taken"] for row in found):
        raise ConfigError(
            f"--cluster {cluster}: the lake has snapshots that were taken of that cluster; "
            "give the recording a name of its own"
        )
    return {row["snapshot_id"] for row in found}


def _until(last_ms: int, logged: Iterator[tuple[int, Logged]]) -> Iterator[tuple[int, Logged]]:
    """What the request log has for each round up to `last_ms`; later rounds stay in the iterator."""
    for at_ms, found in logged:
        yield at_ms, found
        if at_ms >= last_ms:
            return


def _land(
    lake: Lake,
    config: Config,
    recording: Recording,
    cluster: str,
    ids: Sequence[int],
    logged: Mapping[int, Logged],
    clock: Clock,
) -> None:
    """Writes all bronze tables for some rounds, one commit per table, and their ledger rows last."""
    started_at, run_id = clock(), uuid.uuid4().hex
    observed = {
        COMMITTED_OFFSETS: _frame(lake, COMMITTED_OFFSETS, _commits(recording, ids)),
        WATERMARKS: _frame(lake, WATERMARKS, _ends(recording, ids)),
        GROUP_MEMBERS: _frame(lake, GROUP_MEMBERS, _members(recording, ids)),
        CLIENT_POSITIONS: _positions(lake, recording, ids, logged),
    }
    rows: dict[str, dict[int, int]] = {}
    for table, frame in observed.items():
        named = frame.withColumns(
            {
                "cluster": F.lit(cluster),
                "snapshot_date": date_of("snapshot_id"),
                "captured_at": F.timestamp_millis("snapshot_id"),
            }
        )
        lake.replace(table, named, of_snapshots(cluster, ids))
        landed = lake.frame(table, of_snapshots(cluster, ids))
        rows[table.name] = dict(landed.groupBy("snapshot_id").count().collect())
    errors = _errors(lake.frame(CLIENT_POSITIONS, of_snapshots(cluster, ids)))
    summaries = []
    for i in ids:
        failed, understood = without_understood(errors.get(i, []))
        warnings = {POSITIONS_MISSING: understood} if understood else {}
        counts = {name: found.get(i, 0) for name, found in rows.items()}
        summary = Summary(PARTIAL if failed else COMPLETE, rows=counts, errors=failed, warnings=warnings)
        summaries.append((Claim(cluster, i, run_id, started_at), summary))
    Ledger(lake, config.snapshot, clock).record(cluster, summaries)


def _frame(lake: Lake, table: Table, rows: Rows) -> DataFrame:
    columns = [f.name for f in table.schema]
    found = [tuple(row.get(name) for name in columns) for row in rows]
    lake.expect_rows(len(found))
    return lake.spark.createDataFrame(found, table.schema)


def _commits(recording: Recording, ids: Sequence[int]) -> Rows:
    for i, commits in _of_rounds(recording.commits, ids):
        for (group, topic, partition), offset in commits.items():
            yield {
                "snapshot_id": i,
                "group_id": group,
                "topic": topic,
                "partition": partition,
                "committed_offset": offset,
                "source": "recording",
            }


def _ends(recording: Recording, ids: Sequence[int]) -> Rows:
    for i, ends in _of_rounds(recording.ends, ids):
        for (topic, partition), rungs in ends.items():
            yield {"snapshot_id": i, "topic": topic, "partition": partition, **rungs}


def _members(recording: Recording, ids: Sequence[int]) -> Rows:
    # Members were not listed in each round, so each list is used until the next one.
    times = sorted(recording.members)
    for i in ids if times else ():
        newest = max((t for t in times if t <= i), default=times[0])
        yield from ({"snapshot_id": i, **member._asdict()} for member in recording.members[newest])


def _of_rounds(table: Mapping[int, Any], ids: Sequence[int]) -> Iterator[tuple[int, Any]]:
    times = list(table)
    for i in ids:
        found = nearest(times, i, MOST_MS)
        if found is not None:
            yield i, table[found]


def _positions(lake: Lake, recording: Recording, ids: Sequence[int], logged: Mapping[int, Logged]) -> DataFrame:
    """What clients reported in some rounds, read by the same data sources as in a snapshot."""
    found = [_frame(lake, CLIENT_POSITIONS, _logged(recording, ids, logged))]
    files = {str(file): i for i in ids for file in recording.rounds[i]}
    if any("," in file for file in files):
        raise ConfigError(f"{recording.folder}: the path of a recording must have no comma")
    if files:
        rounds = [(redacted(f), i, str(Path(f).relative_to(recording.folder))) for f, i in files.items()]
        rounds_of = lake.spark.createDataFrame(rounds, "endpoint string, snapshot_id long, file string")
        reported = lake.spark.read.format("kafka_client_metrics").option("path", ",".join(files)).load()
        found.append(
            reported.join(F.broadcast(rounds_of), "endpoint").drop("endpoint").withColumnRenamed("file", "endpoint")
        )
    if recording.statistics and not files:
        reported = lake.spark.read.format("librdkafka_statistics").option("path", str(recording.statistics)).load()
        rounds_of = lake.spark.createDataFrame([(i,) for i in ids], "snapshot_id long")
        timed = reported.withColumn("snapshot_id", F.unix_millis("captured_at")).join(
            F.broadcast(rounds_of), "snapshot_id"
        )
        found.append(timed.withColumn("endpoint", F.lit(recording.statistics.name)))
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), found)


def _logged(recording: Recording, ids: Sequence[int], logged: Mapping[int, Logged]) -> Rows:
    origin = {"source": "kafka_request_log", "endpoint": getattr(recording.request_log, "name", None)}
    for i in ids:
        if i not in logged:
            continue
        for position in logged[i].positions:
            yield {"snapshot_id": i, **row_of(position, i), **origin}
        if error := logged[i].error:
            yield {"snapshot_id": i, "error": one_line(error), **origin}


def _errors(rows: DataFrame) -> dict[int, list[ErrorEntry]]:
    found: dict[int, list[ErrorEntry]] = {}
    counted = rows.where(F.col("error").isNotNull()).groupBy("snapshot_id", "error")
    for r in counted.agg(F.min("endpoint").alias("where"), F.count("error").alias("count")).collect():
        found.setdefault(r["snapshot_id"], []).append((CLIENT_POSITIONS.name, r["where"], r["error"], r["count"]))
    return found
