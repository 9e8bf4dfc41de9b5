"""A problem at one snapshot: the columns that each kind of problem has, and the words for its numbers.

The columns are snapshot_id, kind, cluster, group_id, client_id, instance (the process), topic (the cause, NULL while it
is not known), partitions, severity, magnitude (how bad it is compared with others of its kind), summary (one sentence),
evidence (JSON), advice.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from pipeline.tables.columns import INT

_BYTES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_TIMES = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("s", 1_000))


def problem(
    rows: DataFrame,
    *,
    kind: Column,
    severity: Column,
    magnitude: Column,
    summary: Column,
    evidence: dict[str, Column],
    advice: Column,
    group: Column | None = None,
    client: Column | None = None,
    instance: Column | None = None,
    topic: Column | None = None,
    partitions: Column | None = None,
) -> DataFrame:
    """A row for each row of `rows`, which have SNAPSHOT. A column that is not given is NULL."""
    nothing = F.lit(None).cast("string")
    as_json = F.to_json(F.struct(*(value.alias(name) for name, value in evidence.items())))
    return rows.select(
        "snapshot_id",
        kind.alias("kind"),
        "cluster",
        (nothing if group is None else group).alias("group_id"),
        (nothing if client is None else client).alias("client_id"),
        (nothing if instance is None else instance).alias("instance"),
        (nothing if topic is None else topic).alias("topic"),
        (F.lit(None).cast(ArrayType(INT)) if partitions is None else partitions).alias("partitions"),
        severity.alias("severity"),
        magnitude.cast("double").alias("magnitude"),
        summary.alias("summary"),
        as_json.alias("evidence"),
        advice.alias("advice"),
    )


def sentence(*parts: Column | str) -> Column:
    """The parts joined; one that is NULL is left out."""
    return F.concat_ws("", *(F.lit(part) if isinstance(part, str) else part for part in parts))


def number(value: Column) -> Column:
    """A whole number with commas: 1,234."""
    return F.format_number(value, 0)


def counted(value: Column, noun: str) -> Column:
    """A number and what it counts: 1 record, 2 records."""
    return F.concat(number(value), F.when(value == 1, f" {noun}").otherwise(f" {noun}s"))


def size(value: Column) -> Column:
    """Bytes in decimal units: 1.2 MB."""
    return _scaled(value, _BYTES, "B")


def size_within(value: Column, error: Column) -> Column:
    """Bytes with their error, as the report writes them: 1.2 MB ± 100 kB; a bound if the error exceeds the value.

    What is written covers the true value, because the rounding is added to the error. Without an error it is `size`.
    """
    bound = F.concat(F.lit("< "), _scaled(F.try_add(value, error), _BYTES, "B", _up))
    shown = F.lit(0).cast("double") + value
    for _, factor in reversed(_BYTES):
        shown = F.when(value >= factor, F.round(value / factor, 1) * factor).otherwise(shown)
    off = F.ceil(error + F.abs(value - shown))
    within = F.concat(size(value), F.lit(" ± "), _scaled(off, _BYTES, "B", _up))
    return F.when(error > value, bound).when(error > 0, within).otherwise(size(value))


def duration(value: Column) -> Column:
    """Milliseconds in a readable unit: 1.5 hours."""
    return _scaled(value, _TIMES, "ms")


def _scaled(
    value: Column, units: tuple[tuple[str, int], ...], least: str, rounded: Callable[[Column], Column] = F.round
) -> Column:
    found = F.concat(number(value), F.lit(f" {least}"))
    for name, factor in reversed(units):
        # Without ".0", as people write it.
        tenths = rounded(value / factor * 10) / 10
        digits = F.regexp_replace(F.format_number(tenths, 1), r"\.0$", "")
        singular = name.removesuffix("s")
        unit = F.when(digits == "1", singular).otherwise(name) if singular not in ("", name) else F.lit(name)
        found = F.when(value >= factor, F.concat(digits, F.lit(" "), unit)).otherwise(found)
    return found


def _up(value: Column) -> Column:
    """Rounded up, except for what only comes from the division."""
    return F.ceil(value - 1e-9)


def instant(epoch_ms: Column) -> Column:
    """An instant in UTC, to the minute: 2026-01-31 12:05 UTC."""
    return F.concat(in_utc(epoch_ms, "yyyy-MM-dd HH:mm"), F.lit(" UTC"))


def iso(epoch_ms: Column) -> Column:
    """An instant in UTC, for programs: 2026-01-31T12:05:00Z."""
    return in_utc(epoch_ms, "yyyy-MM-dd'T'HH:mm:ss'Z'")


def in_utc(epoch_ms: Column, pattern: str) -> Column:
    """An instant in UTC as text, whatever the session's time zone is."""
    return F.date_format(F.to_utc_timestamp(F.timestamp_millis(epoch_ms), F.current_timezone()), pattern)


def command(words: str, *names: Column) -> Column:
    """A sentence with a command to run; each %s is replaced by a name."""
    return F.format_string(words, *names)


def for_streams(advice: Column, group_type: str = "group_type") -> Column:
    """The advice with the tool that knows the group: a group of type streams has a tool of its own (KIP-1071)."""
    theirs = F.regexp_replace(advice, "kafka-consumer-groups", "kafka-streams-groups")
    return F.when(F.col(group_type).eqNullSafe("streams"), theirs).otherwise(advice)


def in_shell(name: str, instead: str) -> Column:
    """A name as a word of a command; a name that a shell would not take as one word is replaced by `instead`."""
    return F.when(F.col(name).rlike(r"\A[A-Za-z0-9][A-Za-z0-9._-]*\z"), F.col(name)).otherwise(instead)
