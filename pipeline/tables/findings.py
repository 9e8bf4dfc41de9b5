"""What is wrong, and to whom it was sent."""

from pyspark.sql.types import ArrayType, DoubleType

from pipeline.kinds import FOUND
from pipeline.tables.columns import CLUSTER, INT, SNAPSHOT, STRING, TIMESTAMP, Column, Table, schema

SEVERITIES = ("info", "warning", "critical")
"""The severities of findings, the least first."""

_FINDING_ID: Column = ("finding_id", STRING, "hash of kind, identity and first_seen")

_KIND: Column = ("kind", STRING, " | ".join(FOUND))

_CONCERNED: Column = ("group_id", STRING, "consumer group; NULL = the cause is a topic, or the whole cluster")

_CLIENT: Column = ("client_id", STRING, "client.id; NULL = not the problem of a client")

_INSTANCE: Column = ("instance", STRING, "process with that client.id: its endpoint, file or address")

_CAUSE: Column = ("topic", STRING, "the topic that is the cause; NULL = not a single topic, or not known")

_SHARED_CAUSE: tuple[Column, ...] = (
    (
        "cause_id",
        STRING,
        "what the group has in common with others: see the view causes in findings.md; for ever; NULL = nothing",
    ),
    ("cause_topic", STRING, "the topic in which all groups with this cause_id have the problem"),
    ("cause_since", TIMESTAMP, "when the problem began there in the first of those that were grouped first"),
    ("grouped_at", TIMESTAMP, "the first snapshot that shows that the finding has this cause"),
)

_PROBLEM: tuple[Column, ...] = (
    ("partitions", ArrayType(INT), "affected partitions of the topic"),
    ("severity", STRING, "critical | warning | info"),
    (
        "magnitude",
        DoubleType(),
        "how bad it is compared with others of its kind, see findings.md; for most kinds unread records",
    ),
    ("summary", STRING, "one sentence"),
    ("evidence", STRING, "the observations behind it, as JSON"),
    ("advice", STRING, "what to do"),
)

FINDINGS = Table(
    "findings",
    "What is wrong: one row for each problem, from its beginning to its end. It describes the problem at its "
    "worst moment, `worst_at`; `finding_history` has a row for every snapshot.",
    schema(
        _FINDING_ID,
        _KIND,
        CLUSTER,
        _CONCERNED,
        _CLIENT,
        _INSTANCE,
        _CAUSE,
        *_SHARED_CAUSE,
        ("owner", STRING, "who should know, by [[owners]]; NULL if no rule matches"),
        ("tier", STRING, "how important it is, by the same rule; NULL = no rule matches, or the rule has no tier"),
        (
            "channel",
            STRING,
            (
                "the [channels.X] that messages about it go to, as configured when the row was last written: those of "
                "the same rule, else those of [notifications]; several are separated by commas; NULL = none are sent"
            ),
        ),
        ("first_seen", TIMESTAMP, "the first snapshot with the problem"),
        ("last_seen", TIMESTAMP, "the newest snapshot with the problem"),
        ("resolved_at", TIMESTAMP, "the first snapshot without the problem; NULL = still open"),
        (
            "resolution_confirmed_at",
            TIMESTAMP,
            "the third snapshot without the problem (slow_consumer: the fifth), which confirms resolved_at",
        ),
        ("worst_at", TIMESTAMP, "the snapshot in which it was worst, which the following columns describe"),
        *_PROBLEM,
    ),
    key=("cluster", "finding_id"),
    partitioned_by=("cluster",),
)

FINDING_HISTORY = Table(
    "finding_history",
    "Each finding at each snapshot with the problem, as it was then.",
    schema(*SNAPSHOT, _FINDING_ID, _KIND, _CONCERNED, _CLIENT, _INSTANCE, _CAUSE, *_SHARED_CAUSE, *_PROBLEM),
    key=("cluster", "snapshot_id", "finding_id"),
    partitioned_by=("cluster", "snapshot_date"),
)

NOTIFICATIONS = Table(
    "notifications",
    "Which findings were sent to which channels. A finding that a channel has never seen has no row here.",
    schema(
        CLUSTER,
        ("finding_id", STRING, "the finding; of findings with a cause_id, which are sent together, the cause_id"),
        ("channel", STRING, "name of the channel in the configuration"),
        ("event", STRING, "opened | resolved"),
        (
            "status",
            STRING,
            "sent | failed = later runs try again | held = silenced, or not severe enough for the channel",
        ),
        ("attempts", INT, "how often it was sent, or tried"),
        ("first_tried_at", TIMESTAMP, "when it was first tried; NULL = not yet"),
        ("last_tried_at", TIMESTAMP, "when it was last tried; NULL = not yet"),
        ("error", STRING, "why it was not sent; NULL = it was sent"),
    ),
    key=("cluster", "finding_id", "channel", "event"),
    partitioned_by=("cluster",),
)
