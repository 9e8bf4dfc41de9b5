"""Groups that the snapshot before had and this one lacks, where Kafka does not let laglake prove that they are gone."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.kafka.named_groups import KNOWN_GROUPS, asking_for_groups
from pipeline.kafka.snapshot import KIND, SnapshotSource
from pipeline.lake import Lake, of_cluster, of_snapshots, one_of
from pipeline.lake.ledger import COMPLETE, PARTIAL, Claim
from pipeline.tables import GROUP_MEMBERS, SNAPSHOTS

DENIED = "GROUP_AUTHORIZATION_FAILED"


def groups_not_gone(lake: Lake, claim: Claim, staged: DataFrame, options: Mapping[str, str]) -> DataFrame | None:
    """Rows like those of the source `kafka_snapshot`, with an error, for groups that are missing and not gone.

    `staged` are the rows of this snapshot. Returns None if there is no snapshot before it. Each Spark action on the
    result asks Kafka again.
    """
    newest = lake.query(
        f"SELECT max(snapshot_id) AS snapshot_id FROM {{snapshots}} WHERE {of_cluster(claim.cluster)} "
        f"AND snapshot_id < {claim.snapshot_id} AND {one_of('status', (COMPLETE, PARTIAL))}",
        SNAPSHOTS,
    )
    before = newest[0]["snapshot_id"]
    if before is None:
        return None
    # A group that is denied now is an error once: as long as it is, Kafka does not say whether it is gone.
    is_denied = F.col("error").eqNullSafe(DENIED)
    known = lake.frame(GROUP_MEMBERS, of_snapshots(claim.cluster, [before]))
    known = known.where(F.col("group_id").isNotNull() & ~is_denied)
    known = known.groupBy("group_id").agg(F.max("group_type").alias("group_type")).select(*KNOWN_GROUPS.names)
    now = staged.where(F.col(KIND) == GROUP_MEMBERS.name).select("group_id")
    missing = known.join(now, "group_id", how="left_anti")
    # One task, so that the brokers get one connection.
    return missing.coalesce(1).mapInArrow(asking_for_groups(options), SnapshotSource(dict(options)).schema())
