"""Which snapshots of a cluster are due, and what they are computed from: by the ledger, marks and the log index."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise, takewhile
from typing import Any, NamedTuple

from pipeline.analytics.forecasts.weeks import LATEST_MS, first_of_hours, spans_of
from pipeline.common.buckets import ROWS_A_BUCKET
from pipeline.common.epoch import HOUR_MS, utc_date
from pipeline.derive.log_index import LONGEST_TAIL, Index
from pipeline.lake import Lake, further_back, of_cluster, of_snapshots, one_of
from pipeline.lake.ledger import COMPLETE
from pipeline.tables import (
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    COMPUTED,
    GROUP_MEMBERS,
    READABLE,
    SNAPSHOTS,
    WATERMARKS,
)

JOB = "lag"
PASSED_OVER = "lag passed over"
REMOVED = "lag removed"
"""The `job` in `computed` for snapshots that have lag, whose lag cannot be computed, and whose lag was removed."""
DONE = (JOB, PASSED_OVER, REMOVED)
MAX_LOOKBACK = 10
"""The most snapshots to look back for a complete one: a partial one may lack a group whose values carry over."""
ROWS_TOGETHER = 2_500_000
"""Several snapshots in a batch have fewer bronze rows than this. A killed run loses what it has computed of a batch."""
RULER_AS_ROWS = 10
"""A ruler of the log index has 3 to 20 kB, a row of `lag` with what it is computed from 5 kB."""
RULERS_A_BUCKET = 20_000
"""Rulers that are in memory together: that in the index, and one after each snapshot. One has up to 20 kB."""
FEWEST_APART = 3
"""Between fewer snapshots, log start, which moves by whole segments, shows no speed."""


class Snapshot(NamedTuple):
    """A snapshot that readers may see, as the ledger describes it.

    `commits`, `ends`, `members` and `positions` are the rows in committed_offsets, watermarks, group_members and
    client_positions; `rows` those in all tables. `groups`: how many groups were found. `unread`: what could not be
    read, as in `snapshots.errors`. `schedule_ms`: the interval at which snapshots were due then.
    """

    snapshot_id: int
    run_id: str
    status: str
    commits: int
    ends: int
    members: int
    positions: int
    rows: int
    groups: int
    unread: Sequence[str] = ()
    schedule_ms: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every group and every log was read."""
        return {*self.unread} <= {CLIENT_POSITIONS.name, "lag"}

    @property
    def lists_all_groups(self) -> bool:
        """Whether a group that is not in the snapshot does not exist."""
        return {*self.unread} <= {CLIENT_POSITIONS.name, "lag", WATERMARKS.name}

    @property
    def is_complete(self) -> bool:
        """Whether everything that brokers know was read. What clients report is no part of it.

        A client's endpoint that is always down would otherwise make every snapshot partial, and no group vanish.
        """
        return self.status == COMPLETE or {*self.unread} == {CLIENT_POSITIONS.name}

    def expected(self) -> dict[str, int]:
        """How many rows each table that `lag` is computed from must have, by its name.

        The rows of client_positions are not counted when they land, so it is only certain whether there are any.
        """
        return {
            COMMITTED_OFFSETS.name: self.commits,
            WATERMARKS.name: self.ends,
            GROUP_MEMBERS.name: self.members,
            CLIENT_POSITIONS.name: min(self.positions, 1),
        }


@dataclass(frozen=True)
class Backlog:
    """The next batch of snapshots without lag, and what they are computed from.

    `batch` are the oldest snapshots without lag, up to the next one with lag. `before` are the snapshots with lag just
    before them, the newest first, at most MAX_LOOKBACK. `has_more`: whether there are more snapshots without lag.
    `newest` is the newest snapshot with lag: if it is newer than the batch, the batch is late, or is computed again.
    `weeks` are snapshots of earlier weeks, at the ends of the hours that correspond to those after the batch.
    `history` are the snapshots with lag before the batch, at most LONGEST_TAIL, the oldest first.
    """

    batch: list[Snapshot]
    before: list[Snapshot]
    index: Index
    has_more: bool
    newest: int | None = None
    weeks: Sequence[int] = ()
    history: Sequence[int] = ()

    @property
    def reach(self) -> dict[int, int]:
        """For each snapshot of the batch, the newest complete one before it, but at most MAX_LOOKBACK snapshots back.

        A reader that was in no snapshot since then counts as new.
        """
        snapshots = [*self.before[::-1], *self.batch]
        found: dict[int, int] = {}
        complete = None
        for number, (before, snapshot) in enumerate(pairwise(snapshots), 1):
            complete = before.snapshot_id if before.is_complete else complete
            oldest = snapshots[max(number - MAX_LOOKBACK, 0)].snapshot_id
            found[snapshot.snapshot_id] = oldest if complete is None else max(complete, oldest)
        return {s.snapshot_id: found.get(s.snapshot_id, s.snapshot_id) for s in self.batch}

    @property
    def compared_with(self) -> dict[int, int]:
        """For each snapshot of the batch, the one that shows how fast things move: MAX_LOOKBACK before it, or fewer.

        A snapshot with fewer than FEWEST_APART before it is left out.
        """
        ids = [s.snapshot_id for s in (*self.before[::-1], *self.batch)]
        first = len(self.before)
        numbers = {number: max(number - MAX_LOOKBACK, 0) for number in range(first, len(ids))}
        return {ids[number]: ids[then] for number, then in numbers.items() if number - then >= FEWEST_APART}

    @property
    def previous(self) -> dict[int, int]:
        """For each snapshot of the batch, the one just before it; the first snapshot of all is left out."""
        ids = [s.snapshot_id for s in (*self.before[:1], *self.batch)]
        return {after: before for before, after in pairwise(ids)}

    @property
    def up_to_complete(self) -> list[int]:
        """The snapshots in `before`, back to the newest complete one, which has every group."""
        incomplete = list(takewhile(lambda s: not s.is_complete, self.before))
        return [s.snapshot_id for s in self.before[: len(incomplete) + 1]]

    @property
    def size(self) -> int:
        """How many rows the batch counts for in memory."""
        return _size(self.batch)

    @property
    def has_positions(self) -> bool:
        """Whether clients have reported anything in the batch."""
        return any(s.positions for s in self.batch)

    @property
    def buckets(self) -> int:
        """In how many buckets a batch is computed. Rows that are spread alike need not be exchanged again.

        A partition is in one bucket with all of its snapshots, and a reader with the rows from which it continues.
        """
        earlier = self.before[: len(self.up_to_complete)]
        # A group may commit in partitions that none of its members has, and have others without a commit.
        readers = sum(max(s.commits, s.members) for s in (*earlier, *self.batch))
        # A snapshot may lack its watermarks: then the ledger has no number of them.
        partitions = max((s.ends for s in (*self.before, *self.batch)), default=0)
        rows = max(readers, partitions * len(self.index.tail))
        rulers = partitions * (1 + len(self.batch))
        return 1 + max(rows // ROWS_A_BUCKET, rulers // RULERS_A_BUCKET)


_OLDEST_NEEDED = """
    WITH done AS (SELECT DISTINCT cluster, snapshot_id FROM {{computed}} WHERE {is_done}),
    known AS (
        SELECT s.cluster, s.snapshot_id, done.snapshot_id IS NOT NULL AS is_done,
            row_number() OVER (PARTITION BY s.cluster ORDER BY s.snapshot_id) AS number
        FROM (SELECT cluster, snapshot_id FROM {{snapshots}} WHERE {is_readable} AND {of_clusters}) s
        LEFT JOIN done ON s.cluster = done.cluster AND s.snapshot_id = done.snapshot_id
    ), next AS (
        SELECT cluster, coalesce(min(CASE WHEN NOT is_done THEN number END), count(*) + 1) AS first
        FROM known GROUP BY cluster
    )
    SELECT known.cluster, min(snapshot_id) AS oldest FROM known JOIN next ON known.cluster = next.cluster
    WHERE number >= first - {before} GROUP BY known.cluster
"""


def oldest_needed(lake: Lake, clusters: Collection[str]) -> dict[str, int]:
    """For each cluster, the oldest snapshot that is still needed to compute snapshots without lag, or the next one.

    A cluster without a readable snapshot is left out.
    """
    if not clusters:
        return {}
    statement = _OLDEST_NEEDED.format(
        is_done=one_of("job", DONE),
        is_readable=one_of("status", READABLE),
        of_clusters=one_of("cluster", clusters),
        before=LONGEST_TAIL,
    )
    return {row["cluster"]: row["oldest"] for row in lake.query(statement, SNAPSHOTS, COMPUTED)}


def read_backlog(lake: Lake, cluster: str, most: int) -> Backlog:
    """The backlog of a cluster, with at most `most` snapshots in its batch. Several are fewer than ROWS_TOGETHER."""
    through = Index.head(lake, cluster)
    around = _around_the_first_due(lake, cluster, most, through)
    first_due = [row["snapshot_id"] for row in around if row["has_lag"] is None][:most]
    spans = spans_of(first_due[0], first_due[-1]) if first_due else []
    described = _described(lake, cluster, [row["snapshot_id"] for row in around], spans)
    found = [(described[row["snapshot_id"]], row["has_lag"]) for row in around if row["snapshot_id"] in described]
    due = list(dropwhile(lambda pair: pair[1] is not None, found))
    batch = _as_many_as_fit([snapshot for snapshot, _ in takewhile(lambda pair: pair[1] is None, due[:most])])
    # A snapshot that was passed over is not used: neither values that carry over nor the growth of logs come from it.
    before = [snapshot for snapshot, has_lag in found[: len(found) - len(due)] if has_lag]
    earlier = [snapshot.snapshot_id for snapshot in before]
    ids = [snapshot.snapshot_id for snapshot in batch]
    index = Index.of(lake, cluster, earlier, ids, through=through)
    due_in_all, newest = (around[0]["due"], around[0]["newest"]) if around else (0, None)
    weeks = first_of_hours(described.keys() - {*ids}, spans)
    return Backlog(batch, before[::-1][:MAX_LOOKBACK], index, due_in_all > len(batch), newest, weeks, earlier)


def _as_many_as_fit(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """The first snapshots, which count for fewer than ROWS_TOGETHER together; at least one."""
    return [s for number, s in enumerate(snapshots) if number == 0 or _size(snapshots[: number + 1]) < ROWS_TOGETHER]


def _size(snapshots: Sequence[Snapshot]) -> int:
    """The larger of their rows and their rulers: that in the index of each partition, and one after each snapshot."""
    rulers = max((s.ends for s in snapshots), default=0) * (1 + len(snapshots))
    return max(sum(s.rows for s in snapshots), rulers * RULER_AS_ROWS)


_AROUND_THE_FIRST_DUE = """
    WITH marks AS (
        SELECT snapshot_id, bool_or(job = '{job}') AS has_lag FROM {{computed}}
        WHERE {of_cluster} AND {is_done} AND {is_new} GROUP BY snapshot_id
    ), known AS (
        SELECT s.snapshot_id, has_lag, row_number() OVER (ORDER BY s.snapshot_id) AS number
        FROM (SELECT * FROM {{snapshots}} WHERE {of_cluster} AND {is_readable} AND {is_new}) s
        LEFT JOIN marks ON s.snapshot_id = marks.snapshot_id
    ), due AS (
        SELECT min(CASE WHEN has_lag IS NULL THEN number END) AS first, count(*) - count(has_lag) AS due,
               max(CASE WHEN has_lag THEN snapshot_id END) AS newest
        FROM known
    )
    SELECT snapshot_id, has_lag, number, first, due, newest FROM known CROSS JOIN due
    WHERE number BETWEEN first - {before} AND first + {most} ORDER BY snapshot_id
"""
"""The snapshots around the oldest one without lag, from LONGEST_TAIL before it; no rows if all have lag.

`has_lag` is NULL for a snapshot without a mark. `due` is how many have none, `first` the number of the oldest of them,
`newest` the newest snapshot with lag.
It is SQL because the driver may run it without Spark.
"""


def _around_the_first_due(lake: Lake, cluster: str, most: int, through: int | None) -> list[dict[str, Any]]:
    """The rows of _AROUND_THE_FIRST_DUE, of as few snapshots as possible.

    All that a run needs is newer than what the log index was written from, or a little older. The whole history is read
    where there is no index, where too few snapshots are that new, and where none of them is due. It is also read with
    the first snapshot of a day, to find those that somebody has added, or whose marks somebody has removed.
    """
    if through is not None:
        for is_new in further_back(through):
            rows = _asked(lake, cluster, most, is_new)
            if not rows or _is_first_of_day(rows):
                break
            if sum(row["has_lag"] is True for row in rows if row["number"] < row["first"]) >= MAX_LOOKBACK:
                return rows
    return _asked(lake, cluster, most, "true")


def _asked(lake: Lake, cluster: str, most: int, is_new: str) -> list[dict[str, Any]]:
    statement = _AROUND_THE_FIRST_DUE.format(
        of_cluster=of_cluster(cluster),
        is_done=one_of("job", DONE),
        is_readable=one_of("status", READABLE),
        is_new=is_new,
        job=JOB,
        before=LONGEST_TAIL,
        most=most,
    )
    return lake.query(statement, SNAPSHOTS, COMPUTED)


def _is_first_of_day(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the first snapshot that is due is on another day than the one before it."""
    days = [utc_date(row["snapshot_id"]) for row in rows if row["first"] - 1 <= row["number"] <= row["first"]]
    return len(days) == 2 and days[0] != days[1]


def _described(
    lake: Lake, cluster: str, snapshot_ids: Sequence[int], spans: Sequence[tuple[int, int]]
) -> dict[int, Snapshot]:
    """What the ledger says about some snapshots, and those of earlier weeks at full hours in `spans`.

    Those that readers may not see are left out. All are read at once: so earlier weeks cost no query.
    """
    of_spans = " OR ".join(f"(snapshot_id >= {first} AND snapshot_id < {end})" for first, end in spans) or "false"
    of_weeks = f"{of_cluster(cluster)} AND snapshot_id % {HOUR_MS} < {LATEST_MS} AND ({of_spans})"
    where = f"({of_snapshots(cluster, snapshot_ids)}) OR ({of_weeks})"
    rows = lake.query(f"SELECT * FROM {{snapshots}} WHERE {one_of('status', READABLE)} AND ({where})", SNAPSHOTS)
    return {row["snapshot_id"]: _of_the_ledger(row) for row in rows}


def _of_the_ledger(row: Mapping[str, Any]) -> Snapshot:
    # The driver reads a map as a list of pairs.
    rows, expected = (dict(row[name] or {}) for name in ("rows", "expected"))
    return Snapshot(
        snapshot_id=row["snapshot_id"],
        run_id=row["run_id"],
        status=row["status"],
        commits=rows.get(COMMITTED_OFFSETS.name, 0),
        ends=rows.get(WATERMARKS.name, 0),
        members=rows.get(GROUP_MEMBERS.name, 0),
        positions=rows.get(CLIENT_POSITIONS.name, 0),
        rows=sum(rows.values()),
        groups=next((n for n in (expected.get("groups"), row["groups"]) if n is not None), 0),
        unread=[*dict.fromkeys(error["what"] for error in row["errors"] or [])],
        schedule_ms=row["schedule_ms"],
    )
