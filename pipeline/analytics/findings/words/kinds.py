"""The words of each kind of problem, and rows of problems with their words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa

from pipeline.analytics.findings.words import brokers, clients, commits, groups, members, objectives, topics
from pipeline.analytics.findings.words.parts import Facts, Words, as_json

KINDS: Mapping[str, Callable[[Facts], Words]] = {
    "no_progress": groups.no_progress,
    "falling_behind": groups.falling_behind,
    "deleted_unread": groups.deleted_unread,
    "data_loss_ahead": groups.data_loss_ahead,
    "rewound": commits.rewound,
    "skipped": commits.skipped,
    "commits_expire": commits.commits_expire,
    "open_transaction": topics.open_transaction,
    "recreated_topic": topics.recreated_topic,
    "truncated_log": topics.truncated_log,
    "rebalance_storm": members.rebalance_storm,
    "flapping_member": members.flapping_member,
    "uneven_assignment": members.uneven_assignment,
    "idle_member": members.idle_member,
    "under_replicated": brokers.under_replicated,
    "clock_ahead": brokers.clock_ahead,
    "clock_behind": brokers.clock_behind,
    "snapshots_missing": brokers.snapshots_missing,
    "unreadable": brokers.unreadable,
    "blocked_connector": clients.blocked_connector,
    "slow_consumer": clients.slow_consumer,
    "paused_partition": clients.paused_partition,
    "blind_gauge": clients.blind_gauge,
    "too_large_message": clients.too_large_message,
    "buffer_too_large": clients.buffer_too_large,
    "budget_burn": objectives.budget_burn,
}


def with_words(problems: pa.Table) -> pa.Table:
    """Rows of `problem` with summary, evidence and advice in place of their facts."""
    kinds, facts = (problems[name].to_pylist() for name in ("kind", "facts"))
    found = [_texts(kind, json.loads(text, object_hook=Facts)) for kind, text in zip(kinds, facts, strict=True)]
    rows = problems.drop_columns("facts")
    for place, name in enumerate(Words._fields):
        rows = rows.append_column(name, pa.array([texts[place] for texts in found], pa.string()))
    return rows


def _texts(kind: str, facts: Facts) -> tuple[str, str, str]:
    summary, evidence, advice = KINDS[kind](facts)
    return summary, as_json(evidence), advice
