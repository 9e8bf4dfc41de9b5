"""Hours of snapshots of a real broker in seconds: what is read at once is kept as if it had been read a minute later.

The broker is asked by the data source of the snapshots, and each of its answers is kept. Only times are changed: the
rows of a snapshot get the times at which they would have been read at its instant. A timestamp of a record moves as far
as those of the first snapshot that shows it, and keeps this value.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from pipeline.common.epoch import MINUTE_MS, to_epoch_ms, utc, utc_date
from pipeline.config import Config
from pipeline.derive import compute_lag
from pipeline.kafka.snapshot import KIND, SnapshotSource
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.ledger import COMPLETE, PARTIAL, Claim, Ledger, Summary
from pipeline.snapshot import take_snapshots
from pipeline.tables import BRONZE, GROUP_MEMBERS
from tests.helpers.kafka import Row, read

T0 = datetime(2026, 1, 31, 12, tzinfo=UTC)
CLUSTER = "c"
READ_AT = ("captured_at", "ends_at")
WRITTEN_MS = ("max_timestamp_ms", "transaction_timestamp_ms")


class Minutes:
    """The history of one cluster, minute by minute. The config has its cluster, with the name CLUSTER."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self.lake = Lake(spark, config.lake)
        self.lake.prepare()
        self.minute = 0
        self._config = config
        self._written: dict[int, int] = {}
        self._new: dict[int, list[Row]] = {}
        self._missed: dict[int, int] = {}

    @property
    def instant(self) -> datetime:
        """That of the snapshot of this minute."""
        return T0 + timedelta(minutes=self.minute)

    def take(self, missed: int = 0) -> list[Row]:
        """Takes the snapshot of this minute, and returns its rows; `compute` writes them.

        `missed` is the number of minutes just before it that had no snapshot.
        """
        late = datetime.now(UTC) - self.instant
        cluster = self._config.clusters[CLUSTER]
        rows = read(SnapshotSource, ",".join(cluster.bootstrap_servers), **cluster.source_options())
        for row in rows:
            row |= {name: row[name] - late for name in READ_AT if row[name] is not None}
            row |= {name: self._moved(row[name], late) for name in WRITTEN_MS if row[name] is not None}
        self._new[to_epoch_ms(self.instant)] = rows
        self._missed[to_epoch_ms(self.instant)] = missed
        return rows

    def fail(self, address: str) -> None:
        """The snapshot of this minute fails, because the brokers are looked for at another address."""
        moved = {CLUSTER: self._config.clusters[CLUSTER].model_copy(update={"bootstrap_servers": (address,)})}
        config = self._config.model_copy(update={"clusters": moved})
        (outcome,) = take_snapshots(self.lake.spark, config, [CLUSTER], self.instant, lambda: self.instant)
        assert outcome.status == "failed"

    def compute(self) -> None:
        """Writes the new snapshots, and computes their lag in one batch, as the job does that was away for a while."""
        snapshots, self._new = self._new, {}
        for table in BRONZE:
            rows = [
                tuple((row | _of_snapshot(i)).get(name) for name in table.schema.names)
                for i, found in snapshots.items()
                for row in found
                if row[KIND] == table.name
            ]
            frame = self.lake.spark.createDataFrame(rows, table.schema)
            self.lake.replace(table, frame, of_snapshots(CLUSTER, [*snapshots]))
        done = [(Claim(CLUSTER, i, "test", utc(i)), _summary(rows, self._missed[i])) for i, rows in snapshots.items()]
        Ledger(self.lake, self._config.snapshot, lambda: self.instant).record(CLUSTER, done)
        assert compute_lag(self.lake.spark, self._config, [CLUSTER], lambda: self.instant) == len(snapshots)

    def _moved(self, written_ms: int, late: timedelta) -> int:
        return self._written.setdefault(written_ms, written_ms - round(late.total_seconds() * 1_000))


def minute_of(at: datetime) -> int:
    """The number of the snapshot with this instant."""
    return (to_epoch_ms(at) - to_epoch_ms(T0)) // MINUTE_MS


def _of_snapshot(snapshot_id: int) -> Row:
    return {"cluster": CLUSTER, "snapshot_id": snapshot_id, "snapshot_date": utc_date(snapshot_id)}


def _summary(rows: list[Row], missed: int) -> Summary:
    """What the ledger says about a snapshot with these rows."""
    counts = Counter(row[KIND] for row in rows)
    errors: Counter[tuple[Any, str]] = Counter((row[KIND], row["error"]) for row in rows if row["error"] is not None)
    groups = {row["group_id"] for row in rows if row[KIND] == GROUP_MEMBERS.name}
    return Summary(
        PARTIAL if errors else COMPLETE,
        groups=len(groups),
        rows={table.name: counts[table.name] for table in BRONZE},
        errors=[(kind, None, error, count) for (kind, error), count in errors.items()],
        warnings={"missed_instants": missed} if missed else {},
    )
