"""Groups that the snapshot before had and this one lacks, where Kafka does not let laglake prove that they are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.kafka.named_groups import ask_for_groups
from pipeline.kafka.snapshot import KIND, SnapshotSource
from pipeline.lake import Lake, of_cluster, of_snapshots, one_of
from pipeline.lake.ledger import COMPLETE, PARTIAL, Claim
from pipeline.snapshot.read_sources import ClusterRows, of_batches, with_own_columns
from pipeline.tables import GROUP_MEMBERS, SNAPSHOTS

DENIED = "GROUP_AUTHORIZATION_FAILED"


def groups_not_gone(lake: Lake, claim: Claim, read: ClusterRows, options: Mapping[str, str]) -> ClusterRows:
    """Rows like those of the source `kafka_snapshot`, with an error, for groups that are missing and not gone.

    `read` are the rows of this snapshot. Without a snapshot before it, there are none.
    """
    newest = lake.query(
        f"SELECT max(snapshot_id) AS snapshot_id FROM {{snapshots}} WHERE {of_cluster(claim.cluster)} "
        f"AND snapshot_id < {claim.snapshot_id} AND {one_of('status', (COMPLETE, PARTIAL))}",
        SNAPSHOTS,
    )
    before = newest[0]["snapshot_id"]
    if before is None:
        return ClusterRows({})
    # A group that is denied now is an error once: as long as it is, Kafka does not say whether it is gone.
    known = lake.query(
        "SELECT group_id, max(group_type) AS group_type FROM {group_members} "
        f"WHERE {of_snapshots(claim.cluster, [before])} AND group_id IS NOT NULL AND coalesce(error, '') <> '{DENIED}' "
        "GROUP BY group_id ORDER BY group_id",
        GROUP_MEMBERS,
    )
    now = read.of_table(GROUP_MEMBERS).distinct("group_id")
    missing = {row["group_id"]: row["group_type"] for row in known if row["group_id"] not in now}
    return of_batches([with_own_columns(batch) for batch in _asked(lake, options, missing)])


def _asked(lake: Lake, options: Mapping[str, str], missing: Mapping[str, str | None]) -> list[pa.RecordBatch]:
    """What `ask_for_groups` returns: in this process, or in a task of Spark where only executors may reach the brokers.

    A batch has rows of one kind.
    """
    if lake.is_on_driver or not missing:
        return [*ask_for_groups(options, missing)]

    def ask(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ask_for_groups(options, missing)

    rows = lake.spark.range(1).coalesce(1).mapInArrow(ask, SnapshotSource(dict(options)).schema()).toArrow()
    kinds = pc.unique(rows[KIND]).to_pylist()
    return [batch for kind in kinds for batch in rows.filter(pc.equal(rows[KIND], kind)).to_batches() if batch.num_rows]
