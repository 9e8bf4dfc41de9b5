"""The tables `finding_history` and `findings`: a problem that lasts is one finding, which is resolved when it ends.

`finding_history` keeps each finding as each snapshot saw it, and never changes; `findings` is computed from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from pipeline.analytics.findings.spans import Span, assigned
from pipeline.analytics.keys import FINDING, SNAPSHOT
from pipeline.common.columns import columns_of, date_of
from pipeline.tables import FINDING_HISTORY, FINDINGS, SEVERITIES
from pipeline.tables.columns import LONG

OF_A_TOPIC = ("paused_partition", "open_transaction", "recreated_topic", "truncated_log", "clock_ahead")
"""The kinds of problems that may exist for several topics at once. For other kinds, the topic is the cause."""
OF_MEMBERS = ("rebalance_storm", "flapping_member")
"""The kinds of problems of groups that follow from their members, which may be unknown although their lag is known."""
OF_ASSIGNMENTS = ("idle_member", "uneven_assignment")
"""The kinds of problems of groups that are only judged if their members and assignments have not just changed."""
RESOLVED_AFTER = 3
SLOW_RESOLVED_AFTER = 5
"""A finding is resolved after this many snapshots without its problem. Slow poll loops need more, because they still
poll from time to time."""
_KEY = ["kind", "cluster", "group_id", "client_id", "instance", "of_topic"]
_OF_SNAPSHOT = ["snapshot_id", "topic", "partitions", "severity", "magnitude", "summary", "evidence", "advice"]
_AT_WORST = ["worst_at", *_OF_SNAPSHOT[2:]]
_NONE: Mapping[str, Collection[int]] = MappingProxyType({})


Judged = Mapping[str, Collection[int]]
"""The snapshots in which every group, every topic, or the cluster could be judged, by "group", "topic", "cluster"."""


def subjects(rows: DataFrame, of: str, name: str, is_judged: Column | None = None) -> DataFrame:
    """The subjects in a column of some snapshots, once each: SNAPSHOT, subject, is_judged.

    A subject is what a finding is about (`of`): a client, else the members or the assignments of a group, else a group,
    else a topic, else the "replicas" of the cluster, or the whole "cluster".
    """
    judged = F.lit(True) if is_judged is None else is_judged
    return rows.select(
        *SNAPSHOT, F.concat(F.lit(f"{of} "), name).alias("subject"), judged.alias("is_judged")
    ).distinct()


def finding_history(problems: DataFrame, reported: DataFrame, before: DataFrame, judged: Judged = _NONE) -> DataFrame:
    """The rows of `finding_history` for some snapshots.

    `problems` are the problems in these snapshots. `reported` has rows (`subjects`) of these snapshots, and of some
    just before: clients that reported anything, and groups, their members and assignments for which `judged` is not
    true. `judged` are the snapshots in which all groups or topics were read. `before` are the rows of `findings` that
    are open, or were last seen after the first of the snapshots.

    A problem in a snapshot older than last_seen of a finding belongs to that finding if the finding had begun by then,
    and never begins a new one. A problem that comes back after its finding was resolved is a new finding. So is a
    problem of a client whose cause is another topic.
    """
    rows = _with_first_seen(_by_key(problems, before), reported, judged)
    named: DataFrame = rows.withColumns({"finding_id": _finding_id(), "snapshot_date": date_of("snapshot_id")})
    return named.select(*columns_of(FINDING_HISTORY.schema))


def _finding_id() -> Column:
    """The finding_id of rows that have _KEY and first_seen (epoch ms)."""
    return F.sha2(F.to_json(F.struct(*_KEY, "first_seen")), 256)


def ids_in_cluster(findings: DataFrame, cluster: str) -> DataFrame:
    """The finding_id of rows of `findings`, and new_id: the id that they would have under another cluster name."""
    named = {"cluster": F.lit(cluster), "of_topic": _of_topic(), "first_seen": F.unix_millis("first_seen")}
    return findings.withColumns(named).select("finding_id", _finding_id().alias("new_id"))


def _of_topic() -> Column:
    return F.when(F.col("kind").isin(*OF_A_TOPIC), F.col("topic"))


def _by_key(problems: DataFrame, before: DataFrame) -> DataFrame:
    """Groups the problems that may be one finding: _KEY, seen (the problems by snapshot), known (their findings)."""
    key: list[Column | str] = [*_KEY[:-1], _of_topic().alias("of_topic")]
    times = (F.unix_millis(name).alias(name) for name in ("first_seen", "last_seen", "resolved_at"))
    known = before.select(*key, F.struct(*times, "topic").alias("known"))
    seen = problems.select(*key, F.struct(*_OF_SNAPSHOT).alias("seen"))
    # groupBy treats NULL as a value, which a join would not; a client's group may be NULL.
    return (
        known.unionByName(seen, allowMissingColumns=True)
        .groupBy(*_KEY)
        .agg(F.sort_array(F.collect_list("seen")).alias("seen"), F.collect_list("known").alias("known"))
        .where(F.size("seen") > 0)
    )


def _with_first_seen(by_key: DataFrame, reported: DataFrame, judged: Judged) -> DataFrame:
    """A row for each problem: _KEY, first_seen (when its finding began, epoch ms), _OF_SNAPSHOT."""
    # A lambda, because PySpark would take a function with type hints for a pandas or Arrow UDF.
    first_seen = F.udf(lambda *values: _first_seen(*values), ArrayType(LONG)).asNondeterministic()  # noqa: PLW0108
    topics = F.when(F.col("client_id").isNotNull(), F.col("seen.topic"))
    begun = first_seen("seen.snapshot_id", topics, "known", "reported_at", _patience())
    return (
        _with_reported_at(by_key, reported, judged)
        .withColumn("first_seen", begun)
        .select(*_KEY, F.inline(F.arrays_zip("seen", "first_seen")))
        .where(F.col("first_seen").isNotNull())
        .select(*_KEY, "first_seen", "seen.*")
    )


def _first_seen(
    seen: Sequence[int],
    topics: Sequence[str | None] | None,
    known: Sequence[Row],
    reported_at: Sequence[int] | None,
    patience: int,
) -> list[int | None]:
    """When the finding of each problem began. `topics` are None if another topic is not another finding."""
    named = list(zip(seen, topics or [None] * len(seen), strict=True))
    spans = assigned(named, [_span(row, of_topic=topics is not None) for row in known], reported_at or (), patience)
    return [None if span is None else span.first_ms for span in spans]


def _span(row: Row, *, of_topic: bool) -> Span:
    return Span(row["first_seen"], row["last_seen"], row["topic"] if of_topic else None, row["resolved_at"])


def findings(history: DataFrame, reported: DataFrame, before: DataFrame, judged: Judged = _NONE) -> DataFrame:
    """The rows of `findings` that some snapshots add or change.

    `history` are the rows of `finding_history` for the snapshots; the other arguments are as for `finding_history`. A
    finding is resolved after RESOLVED_AFTER snapshots in which its subject could be judged and did not have the
    problem; resolved_at is the first of them. While a client reports nothing, or a group cannot be read, it stays open.
    """
    rows = _with_reported_at(_merged(history, before).withColumn("of_topic", _of_topic()), reported, judged)
    return _with_end(rows).select("*", "worst.*").select(*columns_of(FINDINGS.schema))


def _merged(history: DataFrame, before: DataFrame) -> DataFrame:
    """A row for each finding, old or new, with is_seen (seen in one of the snapshots) and the columns of `_so_far`."""
    at = F.timestamp_millis("snapshot_id")
    worst_at = F.coalesce("worst_at", "last_seen")  # before schema version 5 the newest state was kept, not the worst
    known = before.withColumns({"worst_at": worst_at, "is_new": F.lit(False)})
    seen = history.withColumns({"first_seen": at, "last_seen": at, "worst_at": at, "is_new": F.lit(True)})
    same = ("kind", "group_id", "client_id", "instance", "owner", "resolved_at", "resolution_confirmed_at")
    return (
        known.unionByName(seen, allowMissingColumns=True)
        .groupBy(*FINDING)
        .agg(*(F.max(name).alias(name) for name in same), *_so_far(), F.some("is_new").alias("is_seen"))
    )


def _with_end(rows: DataFrame) -> DataFrame:
    """Sets resolved_at and resolution_confirmed_at of findings that end; leaves out findings that do not change."""
    absent = F.filter(F.transform("reported_at", F.timestamp_millis), lambda instant: instant > F.col("last_seen"))
    ends = F.col("resolved_at").isNull() & (F.size("absent") >= _patience())
    nth = {"resolved_at": F.lit(0), "resolution_confirmed_at": _patience() - 1}
    return (
        rows.withColumn("absent", absent)
        .where(F.col("is_seen") | ends)
        .withColumns({name: F.when(ends, F.get("absent", n)).otherwise(F.col(name)) for name, n in nth.items()})
    )


def findings_as_known(findings: DataFrame, history: DataFrame, at_ms: int) -> DataFrame:
    """The rows of `findings` as they were known at an instant, without anything that later snapshots added.

    `history` are the rows of `finding_history` up to then. If a finding is older than that table, what was known about
    it then was not kept: these columns are NULL, the summary says so, and last_seen is the instant itself, because the
    finding lasted at that time.
    """
    at = F.timestamp_millis(F.lit(at_ms))
    seen = F.timestamp_millis("snapshot_id")
    then = (
        history.where(F.col("snapshot_id") <= at_ms)
        .withColumns({"first_seen": seen, "last_seen": seen, "worst_at": seen})
        .groupBy(*FINDING)
        .agg(*_so_far())
        .select(*FINDING, F.struct("last_seen", "topic", "worst.*").alias("then"))
    )
    is_current = F.col("last_seen") <= at
    is_resolved = is_current & (F.coalesce("resolution_confirmed_at", "resolved_at") <= at)
    about = F.coalesce("client_id", "group_id", "topic", "cluster")
    unknown = F.format_string("%s of %s: nothing was kept from that time.", "kind", about)
    instead = {"last_seen": at, "summary": unknown}
    values = {
        name: F.when(is_current, F.col(name)).otherwise(F.coalesce(F.col("then")[name], instead.get(name, F.lit(None))))
        for name in ("last_seen", "topic", *_AT_WORST)
    }
    ends = {name: F.when(is_resolved, F.col(name)) for name in ("resolved_at", "resolution_confirmed_at")}
    known = findings.where(F.col("first_seen") <= at).join(then, FINDING, how="left")
    return known.withColumns(values | ends).select(*FINDINGS.columns)


def _so_far() -> list[Column]:
    """Aggregates over snapshots: first_seen, last_seen, topic, worst (_AT_WORST).

    The worst snapshot has the highest severity, then (of a client) known partitions, then the greatest magnitude, then
    the earliest time.
    """
    gravity = F.array_position(F.array(*map(F.lit, SEVERITIES)), F.col("severity"))
    is_client = F.col("client_id").isNotNull()
    names_partitions = is_client & F.col("partitions").isNotNull()
    badness = F.struct(gravity, names_partitions, "magnitude", -F.unix_millis("worst_at"))
    newest = F.max_by("topic", F.when(F.col("topic").isNotNull(), F.col("last_seen")))
    return [
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        # Of a client, its newest known cause. A group may have several topics at its worst, and then names none.
        F.when(F.some(is_client), newest).otherwise(F.max_by("topic", badness)).alias("topic"),
        F.max_by(F.struct(*_AT_WORST), badness).alias("worst"),
    ]


def _with_reported_at(rows: DataFrame, reported: DataFrame, judged: Judged) -> DataFrame:
    """Adds `reported_at`, the snapshots in order in which the subject of each row could be judged. Rows have _KEY."""

    def these(of: str) -> Column:
        return F.array(*map(F.lit, sorted(judged.get(of, ())))).cast(ArrayType(LONG))

    by_subject = reported.groupBy("cluster", "subject").agg(
        F.collect_set(F.when(F.col("is_judged"), F.col("snapshot_id"))).alias("in_these"),
        F.collect_set(F.when(~F.col("is_judged"), F.col("snapshot_id"))).alias("not_in_these"),
    )
    none = F.array().cast(ArrayType(LONG))
    is_client, is_group, is_topic = (F.col(name).isNotNull() for name in ("client_id", "group_id", "of_topic"))
    subject = (
        F.when(is_client, F.concat(F.lit("client "), "client_id"))
        .when(is_group & F.col("kind").isin(*OF_MEMBERS), F.concat(F.lit("members "), "group_id"))
        .when(is_group & F.col("kind").isin(*OF_ASSIGNMENTS), F.concat(F.lit("assignments "), "group_id"))
        .when(is_group, F.concat(F.lit("group "), "group_id"))
        .when(is_topic, F.concat(F.lit("topic "), "of_topic"))
        .when(F.col("kind") == "under_replicated", F.concat(F.lit("replicas "), "cluster"))
        .otherwise("cluster")
    )
    whole = F.when(is_client, none).when(is_group, these("group")).when(is_topic, these("topic"))
    every = F.array_union(F.coalesce("in_these", none), whole.otherwise(these("cluster")))
    return (
        rows.withColumn("subject", subject)
        .join(by_subject, ["cluster", "subject"], how="left")
        .withColumn("reported_at", F.sort_array(F.array_except(every, F.coalesce("not_in_these", none))))
    )


def _patience() -> Column:
    return F.when(F.col("kind") == "slow_consumer", SLOW_RESOLVED_AFTER).otherwise(RESOLVED_AFTER)
