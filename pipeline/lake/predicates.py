"""Predicates in SQL that both Spark and DataFusion (delta-rs) understand."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from datetime import date
from functools import partial
from typing import TypeVar

from pipeline.common.epoch import DAY_MS, HOUR_MS, utc, utc_date

K = TypeVar("K", bound=Hashable)
_LITERAL = re.compile(r"(?P<type>TIMESTAMP)?'(?P<text>(?:[^'\\]|\\.)*)'", re.DOTALL)
"""A text or an instant in Spark SQL."""
MOST_NAMED = 1_000
"""So many names may be in a predicate."""


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def instant_literal(epoch_ms: int) -> str:
    """An instant as an SQL literal."""
    return f"TIMESTAMP'{utc(epoch_ms).isoformat()}'"


def for_datafusion(predicate: str) -> str:
    """A predicate of Spark SQL for DataFusion.

    DataFusion knows no backslash escapes in a text, and compares a timestamp literal with a column only if it is cast.
    """
    return _LITERAL.sub(_literal_for_datafusion, predicate)


def _literal_for_datafusion(found: re.Match[str]) -> str:
    text = re.sub(r"\\(.)", r"\1", found["text"], flags=re.DOTALL).replace("'", "''")
    return f"""arrow_cast('{text}', 'Timestamp(Microsecond, Some("UTC"))')""" if found["type"] else f"'{text}'"


def one_of(column: str, values: Iterable[str | int]) -> str:
    """The predicate for rows that have one of the values in a column. `values` must not be empty."""
    return f"{column} IN ({_listed(quoted(v) if isinstance(v, str) else str(v) for v in values)})"


def among(column: str, names: Collection[str]) -> str:
    """The predicate for rows that have one of some names in a column, or perhaps others if there are many names.

    So the rows must be chosen once more after they were read (`Rows.where_in`). DataFusion ends the process at 22,000
    values in one predicate. Names are written as hashes, because anyone who may commit can give a group a name that no
    two engines quote alike.
    """
    if not names:
        return "false"
    if len(names) > MOST_NAMED:
        return f"{column} IS NOT NULL"
    hashes = (hashlib.md5(name.encode(), usedforsecurity=False).hexdigest() for name in sorted(names))
    return one_of(f"md5({column})", hashes)


def of_cluster(cluster: str) -> str:
    """The predicate for the rows of one cluster."""
    return f"cluster = '{cluster}'"


def of_dates(cluster: str, dates: Iterable[date]) -> str:
    """The predicate for some days of one cluster. It includes the partitions, so that other files are not read."""
    days = {*dates}
    return f"{of_cluster(cluster)} AND {_dates(days)}" if days else "false"


def of_snapshots(cluster: str, snapshot_ids: Collection[int]) -> str:
    """The predicate for some snapshots of one cluster. It includes the partitions, so that other files are not read."""
    return f"{of_cluster(cluster)} AND {_snapshots(snapshot_ids)}" if snapshot_ids else "false"


def of_windows(cluster: str, starts_ms: Iterable[int], window_ms: int) -> str:
    """The predicate for some windows of one cluster. It includes the partitions, so that other files are not read."""
    starts = list(starts_ms)
    return f"{of_cluster(cluster)} AND {_windows(starts, window_ms)}" if starts else "false"


def of_windows_within(cluster: str, starts_ms: Collection[int], window_ms: int, from_ms: int) -> str:
    """The predicate for the windows of `from_ms` in longer ones: of `window_ms`, which divides a day, at `starts_ms`.

    It compares instants with literals, so that Delta reads only files whose smallest and greatest instants fit.
    """

    def lies_within(start_ms: int) -> str:
        return f"window_start >= {instant_literal(start_ms)} AND window_start < {instant_literal(start_ms + window_ms)}"

    within = _either(lies_within(start_ms) for start_ms in starts_ms)
    days = _dates(map(utc_date, starts_ms))
    return f"{of_cluster(cluster)} AND {days} AND window_ms = {from_ms} AND ({within})" if starts_ms else "false"


LOOKED_BACK_MS = (12 * HOUR_MS, 30 * DAY_MS)
"""How far back to look for the newest snapshots before the whole history is read."""


def further_back(until_ms: int) -> list[str]:
    """Predicates for newer snapshots, each for more of them.

    What is looked for is nearly always found with the first, whose literal keeps files of older snapshots unread.
    """
    return [f"snapshot_id >= {until_ms - span_ms}" for span_ms in LOOKED_BACK_MS]


def of_each(wanted: Mapping[str, Collection[int]], *, windows: bool = False) -> str:
    """The predicate for some snapshots of each cluster; in a table of windows, for the windows of single snapshots.

    Most clusters have the same snapshots; these are combined, because planning thousands of alternatives takes seconds.
    """
    of = partial(_windows, window_ms=0) if windows else _snapshots
    together = _clusters_by({cluster: tuple(sorted(ids)) for cluster, ids in wanted.items() if ids})
    return _either(f"{one_of('cluster', names)} AND {of(ids)}" for ids, names in together.items())


def before_day(cluster: str, day: date) -> str:
    """The predicate for the rows of one cluster before a day."""
    return f"{of_cluster(cluster)} AND snapshot_date < DATE'{day}'"


def since_days(first_days: Mapping[str, date], day: str) -> str:
    """The predicate for the rows of each cluster since its first day. `day` is the expression for the day of a row.

    Clusters with the same first day are combined. In a table of snapshots, the predicate has their ids, too, because
    Delta keeps the smallest and the greatest id of each file.
    """

    def is_since(first: date) -> str:
        ids = f" AND snapshot_id >= {(first - date(1970, 1, 1)).days * DAY_MS}" if day == "snapshot_date" else ""
        return f"{day} >= DATE'{first}'{ids}"

    together = _clusters_by(first_days)
    return _either(f"{one_of('cluster', names)} AND {is_since(first)}" for first, names in together.items())


def _clusters_by(wanted: Mapping[str, K]) -> Mapping[K, list[str]]:
    """The clusters that want the same."""
    together: defaultdict[K, list[str]] = defaultdict(list)
    for cluster, key in wanted.items():
        together[key].append(cluster)
    return together


def _either(predicates: Iterable[str]) -> str:
    return " OR ".join(f"({predicate})" for predicate in predicates) or "false"


def _dates(dates: Iterable[date]) -> str:
    days = _listed(f"DATE'{day}'" for day in sorted({*dates}))
    return f"snapshot_date IN ({days})"


def _snapshots(snapshot_ids: Collection[int]) -> str:
    return f"{_dates(map(utc_date, snapshot_ids))} AND {one_of('snapshot_id', snapshot_ids)}"


def _windows(starts_ms: Collection[int], window_ms: int) -> str:
    instants = _listed(map(instant_literal, starts_ms))
    return f"{_dates(map(utc_date, starts_ms))} AND window_ms = {window_ms} AND window_start IN ({instants})"


def _listed(literals: Iterable[str]) -> str:
    return ", ".join(literals)
