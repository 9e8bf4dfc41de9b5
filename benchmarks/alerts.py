"""`make accuracy ARGS=alerts`: how many alerts a day gives, by findings, by Burrow's rules, and by a threshold.

The day is generated (`benchmarks.day`). Its snapshots are written to a lake and judged by the same functions as in a
run, in batches. Burrow's rules are those of its caching evaluator, on each reader's ten newest commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import burrow
from benchmarks.day import (
    FAULTS,
    FLAPPING,
    GROUPS,
    MIDNIGHT_MS,
    MINUTES,
    OUTAGE,
    PARTITIONS,
    RESETS,
    STORMS,
    TICK_S,
    WARM_UP,
    Day,
    Fault,
    expected,
    generated,
)
from benchmarks.day_members import member_rows
from benchmarks.day_rows import CLUSTER, id_of, rows_of
from benchmarks.day_shown import shown
from benchmarks.page import write_section
from pipeline.analytics.findings.suspects import find_suspects
from pipeline.analytics.status.partition_status import statuses_of_readers
from pipeline.common.columns import aligned
from pipeline.common.epoch import MINUTE_MS
from pipeline.config import LakeConfig, StatusConfig
from pipeline.derive.backlog import MAX_LOOKBACK, Backlog, Snapshot
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.derive.log_index import Index
from pipeline.derive.settings import Settings
from pipeline.derive.steps import STEPS
from pipeline.kinds.causes import with_causes_merged
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import (
    COMMITTED_OFFSETS,
    FINDINGS,
    GROUP_CHANGES,
    GROUP_MEMBERS,
    GROUP_STATUS,
    LAG,
    PARTITION_STATUS,
    WATERMARKS,
)

HEADING = "## Alerts of a generated day"
BATCH = 60
RESOLVED_WITHIN = 60
"""Minutes after the end of a fault within which a finding still belongs to it: a group first has to catch up."""
Alert = tuple[str, int, int]
"""What was found, of which group, and in which minute."""


@dataclass(frozen=True)
class Score:
    """How a set of alerts compares with the faults."""

    alerts: int
    true: int
    found: int
    faults: int
    minutes: list[tuple[str, Fault, int]]
    """What was found, of which fault, and in which minute."""

    @property
    def precision(self) -> float:
        """The share of alerts that are about a fault that no other alert was about."""
        return self.true / max(self.alerts, 1)

    @property
    def recall(self) -> float:
        """The share of faults that were found."""
        return self.found / self.faults


def scored(alerts: Sequence[Alert], wanted: Sequence[tuple[str, int, Fault]], by_kind: bool = True) -> Score:
    """Compares alerts with the faults. A second alert about the same fault is a false one."""
    left = list(wanted)
    minutes: list[tuple[str, Fault, int]] = []
    for kind, group, minute in sorted(alerts, key=lambda alert: alert[2]):
        for one in left:
            is_it = one[1] == group and (not by_kind or one[0] == kind)
            if is_it and one[2].begins <= minute < one[2].ends + RESOLVED_WITHIN:
                left.remove(one)
                minutes.append((one[0], one[2], minute))
                break
    return Score(len(alerts), len(minutes), len(wanted) - len(left), len(wanted), minutes)


def findings_of(spark: SparkSession, day: Day, folder: Path) -> list[Alert]:
    """The findings that a run of each minute writes, one alert for all of those with the same cause."""
    lake = Lake(spark, LakeConfig(root=str(folder)))
    lake.prepare()
    done: list[Snapshot] = []
    for first in range(0, MINUTES, BATCH):
        batch = [_snapshot(minute) for minute in range(first, first + BATCH)]
        ids = [s.snapshot_id for s in batch]
        where = of_snapshots(CLUSTER, ids)
        bronze = rows_of(day, range(first, first + BATCH))
        members = spark.createDataFrame(member_rows(day, range(first, first + BATCH)), GROUP_MEMBERS.schema)
        lake.replace(GROUP_MEMBERS, members, where)
        for table, rows in bronze.items():
            lake.replace(table, aligned(spark.createDataFrame(rows), table.schema), where)
        backlog = Backlog(batch, done[: -MAX_LOOKBACK - 1 : -1], Index(lake, CLUSTER, (), None), has_more=False)
        readers = _readers(lake, backlog, where)
        of_batch = Batch(lake, CLUSTER, backlog, Settings(), lambda: datetime.now(UTC))
        for step in STEPS:
            if {*step.writes} & {PARTITION_STATUS, GROUP_STATUS, GROUP_CHANGES, FINDINGS}:
                step.run(of_batch, readers)
        done += batch
        print(f"minute {first + BATCH} of {MINUTES}", flush=True)
    found = with_causes_merged(row.asDict() for row in lake.read(FINDINGS).collect())
    return [
        (row["kind"], -1 if row["group_id"] is None else int(row["group_id"][1:]), _minute(row["first_seen"]))
        for row in found
    ]


def _readers(lake: Lake, backlog: Backlog, where: str) -> Readers:
    """The rows of a batch whose `lag` is written, judged again."""
    lag = lake.rows(LAG, where)
    known = lake.rows(PARTITION_STATUS, of_snapshots(CLUSTER, backlog.up_to_complete))
    parts = {"lag": lag, "known": known, "commits": lake.rows(COMMITTED_OFFSETS, where)}
    statuses = statuses_of_readers(parts, StatusConfig(), backlog.reach, backlog.buckets)
    older = sorted({*backlog.compared_with.values()} - {s.snapshot_id for s in backlog.batch})
    judged = {
        "lag": lag,
        "statuses": statuses,
        "watermarks": lake.rows(WATERMARKS, where),
        "earlier": lake.rows(LAG, of_snapshots(CLUSTER, older)),
    }
    return Readers(lag, statuses, find_suspects(judged, backlog.compared_with, StatusConfig(), backlog.buckets))


def _minute(instant: datetime) -> int:
    return (int(instant.astimezone(UTC).timestamp() * 1000) - MIDNIGHT_MS) // MINUTE_MS


def _snapshot(minute: int) -> Snapshot:
    is_out = OUTAGE.begins <= minute < OUTAGE.ends
    readers = GROUPS * PARTITIONS
    unread = ("watermarks",) if is_out else ()
    status = "partial" if is_out else "complete"
    return Snapshot(id_of(minute), "r", status, readers, readers, readers, 0, 3 * readers, GROUPS, unread)


def rising(is_bad: Callable[[int], Iterable[bool]]) -> list[Alert]:
    """An alert each time a group becomes bad, from a function that says for each minute which groups are bad."""
    before = [False] * GROUPS
    found: list[Alert] = []
    for minute in range(MINUTES):
        now = list(is_bad(minute))
        found += [("", group, minute) for group in range(GROUPS) if now[group] and not before[group]]
        before = now
    return found


def _of_day(alerts: Iterable[Alert]) -> list[Alert]:
    return [alert for alert in alerts if alert[2] >= WARM_UP]


def by_threshold(day: Day, records: int) -> list[Alert]:
    """The alerts of a fixed threshold for the lag of a group."""
    lag = day.lag.reshape(MINUTES, GROUPS, PARTITIONS).sum(axis=2)
    return rising(lambda minute: (lag[minute] > records).tolist())


def by_burrow(day: Day) -> list[Alert]:
    """The alerts of Burrow: a group is bad if one of its partitions is not OK."""
    positions = [0] * (GROUPS * PARTITIONS)

    def is_bad(minute: int) -> list[bool]:
        at_s = 60 * minute + 59
        found = [_is_bad(day, reader, at_s, positions) for reader in range(GROUPS * PARTITIONS)]
        return [any(found[group * PARTITIONS : (group + 1) * PARTITIONS]) for group in range(GROUPS)]

    return rising(is_bad)


def _is_bad(day: Day, reader: int, at_s: int, positions: list[int]) -> bool:
    """Burrow's judgement, by the newest commits and the ends that a poll every 10 s has seen."""
    commits = day.commits[reader]
    while positions[reader] + 1 < len(commits) and commits[positions[reader] + 1][0] <= at_s:
        positions[reader] += 1
    window = commits[max(positions[reader] - burrow.COMMITS + 1, 0) : positions[reader] + 1]
    times, offsets = [c[0] for c in window], [c[1] for c in window]
    lags = [max(int(day.ends[max(int(at) // TICK_S, 0), reader]) - offset, 0) for at, offset in window]
    tick = at_s // TICK_S
    polled = day.ends[max(tick - 2 * burrow.COMMITS + 2, 0) : tick + 1 : 2, reader].tolist()
    return burrow.is_bad(times, offsets, lags, polled, at_s)


def main(spark: SparkSession, directory: Path, document: Path) -> int:
    """Measures, prints, and writes the section of the page."""
    day = generated()
    wanted = list(expected())
    groups = [one for one in _by_group(wanted) if one[1] >= 0 and one[2] not in (*STORMS, *FLAPPING, *RESETS)]
    with for_few_rows(spark):
        ours = findings_of(spark, day, directory / f"day-{time.time_ns()}")
    print(*sorted(ours, key=lambda alert: alert[2]), sep="\n")
    found = scored(_of_day(ours), wanted)
    by_rules = scored(_of_day(by_burrow(day)), groups, by_kind=False)
    thresholds = {
        records: scored(_of_day(by_threshold(day, records)), groups, by_kind=False) for records in _THRESHOLDS
    }
    write_section(document, HEADING, _section(day, ours, wanted, found, by_rules, thresholds))
    return 0


_THRESHOLDS = (100, 1_000, 10_000, 100_000, 1_000_000)


def _by_group(wanted: Sequence[tuple[str, int, Fault]]) -> list[tuple[str, int, Fault]]:
    """The faults of groups, once each, whatever kinds of findings they have."""
    of_groups = ((kind, group, fault) for kind, _, fault in reversed(wanted) for group in fault.groups)
    return list({(group, fault.begins): (kind, group, fault) for kind, group, fault in of_groups}.values())


_ABOUT = """
{heading}

`make accuracy ARGS=alerts` writes this section: a day of {groups} groups with {partitions} partitions each,
{minutes:,} snapshots, and {faults} faults. Besides groups that keep up, some commit every five minutes or run once an
hour. Some read idle topics, topics with bursts, or topics on which a transaction leaves a marker. Each group is
deployed every hour, some of them one member after the other, some in pods with new addresses; one is scaled up and down
once. One group of five stores no leader epochs with its commits, and another one stores none when it is stopped. In the
{hours} hours before that day, laglake learns how long each group usually waits; it has {learned} findings then, which
are not counted.

| alerts by | alerts | about a fault | precision | faults found |
|---|---|---|---|---|
{alerts}

Burrow's rules and thresholds are counted by group: each time a group becomes bad. What lag does not show is not counted
for them: the faults of members, and offsets that are reset to the end of a log. A second alert about the same fault
is not about a fault, and neither is one that comes more than an hour after its end. Each kind of finding counts as a
fault of its own. Three groups of one topic stop together: a rule for groups finds this three times, and laglake once.

Someone who knows how the group behaved before could see a fault in the snapshot that first **shows** it
(`benchmarks/day_shown.py` has no rule of laglake). No progress: the commit has been the same for a minute longer than
ever before. Falling behind: the oldest unread record is a minute older than ever before. A flapping member: a client
has restarted three times besides the deployments; a storm: two clients have. laglake counts the restarts of all members
of a group together, so it finds a storm earlier.

| finding | recall | precision | snapshots after it is shown: least, most | minutes after the fault began: least, most |
|---|---|---|---|---|
{kinds}
"""


def _section(
    day: Day,
    ours: Sequence[Alert],
    wanted: Sequence[tuple[str, int, Fault]],
    found: Score,
    by_rules: Score,
    thresholds: dict[int, Score],
) -> str:
    names = {f"a lag of more than {records:,} records": score for records, score in thresholds.items()}
    return _ABOUT.format(
        heading=HEADING,
        groups=GROUPS,
        partitions=PARTITIONS,
        minutes=MINUTES - WARM_UP,
        learned=sum(minute < WARM_UP for *_, minute in ours),
        hours=WARM_UP // 60,
        faults=len(FAULTS),
        alerts="\n".join(_line(*one) for one in ({"findings": found, "Burrow's rules": by_rules} | names).items()),
        kinds="\n".join(_kinds(day, found, [kind for kind, *_ in _of_day(ours)], [kind for kind, *_ in wanted])),
    )


def _kinds(day: Day, found: Score, alerts: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    """A line for each kind of finding: recall, precision, and how long after they were shown and after they began.

    `alerts` and `wanted` have the kind of each finding of the day, and of each one that should be there.
    """
    for kind in sorted({*alerts, *wanted}):
        its = [(fault, minute) for of, fault, minute in found.minutes if of == kind]
        counts = f"{len(its)} of {wanted.count(kind)} | {len(its)} of {alerts.count(kind)}"
        after = [minute - shown(day, kind, fault) for fault, minute in its]
        passed = [minute - fault.begins for fault, minute in its]
        yield f"| `{kind}` | {counts} | {_range(after)} | {_range(passed)} |"


def _range(values: Sequence[int]) -> str:
    return f"{min(values)}, {max(values)}" if values else "–"


def _line(name: str, score: Score) -> str:
    return f"| {name} | {score.alerts:,} | {score.true} | {score.precision:.1%} | {score.found} of {score.faults} |"
