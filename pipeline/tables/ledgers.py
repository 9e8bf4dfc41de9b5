"""The ledgers: which snapshots there are, and which of them have been computed."""

from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from pipeline.tables.columns import CLUSTER, LONG, SNAPSHOT, STRING, TIMESTAMP, Table, schema

_ERRORS = ArrayType(
    StructType(
        [
            StructField("what", STRING),
            StructField("where", STRING),
            StructField("error", STRING),
            StructField("count", LONG),
        ]
    )
)

SNAPSHOTS = Table(
    "snapshots",
    "The ledger: one row for each snapshot of a cluster, with how it ended, what was read and what was not. Of a "
    "snapshot with another status than `complete` or `partial`, other tables may have only some rows: join them with "
    "this one.",
    schema(
        *SNAPSHOT,
        ("run_id", STRING, "the run that holds or held the claim"),
        ("status", STRING, "running | complete | partial | failed"),
        ("started_at", TIMESTAMP, "when the snapshot was claimed"),
        ("finished_at", TIMESTAMP, "when the status became final"),
        ("schedule_ms", LONG, "the schedule to which snapshot_id was rounded down"),
        ("groups", LONG, "groups read without error"),
        ("partitions", LONG, "partitions read without error"),
        ("rows", MapType(STRING, LONG), "number of rows in each bronze table"),
        ("expected", MapType(STRING, LONG), "numbers of brokers, groups and partitions to read"),
        ("errors", _ERRORS, "what could not be read, where, why, how often"),
        (
            "warnings",
            MapType(STRING, LONG),
            (
                "counts of oddities, such as captured_in_future (a clock is ahead), metadata_missing (commits whose "
                "metadata is not known), groups_unproven (1: it is not proven that no group is missing), "
                "positions_missing (endpoints and files that were understood and hold no consumer's position) and "
                "repeated_tasks (attempts whose requests are not counted), and of missed_instants just before"
            ),
        ),
        ("requests", MapType(STRING, LONG), "requests sent, by broker id"),
        ("capabilities", MapType(STRING, STRING), "highest version of each API, NULL where refused or lacking"),
        (
            "cluster_id",
            STRING,
            (
                "Kafka's own id of the cluster, as its brokers gave it; NULL if the snapshot is running or could not "
                "be taken (a configured cluster_id is only what is expected), or before Kafka 0.10.1"
            ),
        ),
    ),
    key=("cluster", "snapshot_id"),
    partitioned_by=("cluster",),
)

READABLE = ("complete", "partial")
"""The statuses of a snapshot whose rows readers may see."""

COMPUTED = Table(
    "computed",
    "Marks the snapshots whose lag, with all derived tables, was computed, can never be computed, or was removed.",
    schema(
        CLUSTER,
        (
            "job",
            STRING,
            "lag = computed | lag passed over = can never be computed | lag removed = removed by retention",
        ),
        *SNAPSHOT[1:],
        ("run_id", STRING, "the snapshot run that was computed"),
        ("computed_at", TIMESTAMP, "when it was marked"),
    ),
    key=("cluster", "job", "snapshot_id"),
    partitioned_by=("cluster",),
)
