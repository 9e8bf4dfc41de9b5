"""Sends messages about the findings of a lake, and keeps in `notifications` what was sent."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from pipeline.common.words import counted
from pipeline.config import Config
from pipeline.lake import Clock, Lake, one_of
from pipeline.notify.due import FAILED, SENT, Notification, plan
from pipeline.notify.sending import Sent, send
from pipeline.tables import FINDINGS, NOTIFICATIONS

log = logging.getLogger(__name__)

LOOKED_BACK = timedelta(days=7)
"""Findings that ended longer ago than this are not read, so that the cost does not grow with the history."""
_BEING_SENT = "being sent"
"""The error in a row while its message is being sent. It stays if the job is killed."""
UNLESS_SENT = "t.status <> 'sent' OR s.attempts > t.attempts"
"""Another job may have sent the same message at the same time; it stays sent. What is sent again has more attempts."""


def announce(lake: Lake, config: Config, clusters: Collection[str], clock: Clock) -> int:
    """Sends what is due for some clusters; returns the number of findings that were sent.

    If a channel does not accept its messages, that is a warning, and later runs try again. If the job is killed
    between sending and the second commit to `notifications`, a later run sends the same once more.
    """
    if not config.channels or not clusters:
        return 0
    now = clock()
    found = plan(*_read(lake, clusters, now), config, now)
    # If this fails, nothing is sent: no row could say later what was.
    _write(lake, (due.outcome(now, _BEING_SENT) for several in found.due.values() for due in several))
    outcomes = send(found, config, now)
    rows = [*found.held, *(row for sent in outcomes.values() for row in _rows(sent, now))]
    _write(lake, rows)
    for channel, sent in sorted(outcomes.items()):
        _warn(channel, sent)
    return sum(row.status == SENT for row in rows)


def _read(lake: Lake, clusters: Collection[str], now: datetime) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The findings that are open or have ended lately, and their rows of `notifications`."""
    ended = "coalesce(resolution_confirmed_at, resolved_at)"
    recent = f"(resolved_at IS NULL OR {ended} >= TIMESTAMP'{(now - LOOKED_BACK).isoformat()}')"
    of_clusters = one_of("cluster", sorted(clusters))
    where = f"{of_clusters} AND {recent}"
    # With all that have the cause of one of them: what is said of the cause must not change when some have ended.
    # DISTINCT, because DataFusion's time for equal values grows with the square of their number: 4 s for 20,000.
    of_causes = f"{of_clusters} AND cause_id IN (SELECT DISTINCT cause_id FROM {{findings}} WHERE {where})"
    findings = lake.query(f"SELECT * FROM {{findings}} WHERE ({where}) OR ({of_causes})", FINDINGS)
    if not findings:
        return [], []
    wanted = (
        f"finding_id IN (SELECT finding_id FROM {{findings}} WHERE {where} UNION "
        f"SELECT cause_id FROM {{findings}} WHERE {where} AND cause_id IS NOT NULL)"
    )
    statement = f"SELECT * FROM {{notifications}} WHERE {of_clusters} AND {wanted}"
    known = lake.query(statement, NOTIFICATIONS, FINDINGS)
    return findings, known


def _rows(sent: Sent, now: datetime) -> Iterator[Notification]:
    for several, failure in sent.tried:
        for due in several:
            yield due.outcome(now, failure.reason if failure else None)
    for due in sent.untried:
        yield due.untried(FAILED, f"not tried: {sent.why}")


def _write(lake: Lake, rows: Iterable[Notification]) -> None:
    by_cluster: dict[str, list[Notification]] = {}
    for row in rows:
        by_cluster.setdefault(row.cluster, []).append(row)
    for cluster, several in sorted(by_cluster.items()):
        lake.merge(NOTIFICATIONS, several, cluster, UNLESS_SENT)


def _warn(channel: str, sent: Sent) -> None:
    failures = [failure for _, failure in sent.tried if failure]
    if failures:
        what, why = counted(len(failures), "message"), failures[0].reason
    elif sent.untried:
        what, why = f"messages about {counted(len(sent.untried), 'finding')}", sent.why
    else:
        return
    log.warning("channel %s: %s not sent, later runs try again: %s", channel, what, why)
