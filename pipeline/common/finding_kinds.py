"""The kinds of findings, as the tables `findings` and `finding_history` and the configuration name them."""

KINDS = (
    *(
        "no_progress",
        "falling_behind",
        "hot_partition",
        "rewound",
        "skipped",
        "deleted_unread",
        "data_loss_ahead",
        "commits_expire",
    ),
    *("stopped_together", "open_transaction", "recreated_topic", "truncated_log"),
    *("rebalance_storm", "flapping_member", "uneven_assignment", "idle_member"),
    *("under_replicated", "clock_ahead", "clock_behind", "snapshots_missing", "unreadable"),
    *("blocked_connector", "slow_consumer", "paused_partition", "blind_gauge", "too_large_message", "buffer_too_large"),
    "budget_burn",
)
SHARED = {
    "no_progress": "stopped_together",
    "hot_partition": "hot_partition",
    "falling_behind": "falling_behind",
    "deleted_unread": "deleted_unread",
    "data_loss_ahead": "data_loss_ahead",
}
"""The kinds of problems that several groups may share, each with the kind of the finding of their topic."""
GENERAL = {"stopped_together": "no_progress", "hot_partition": "falling_behind"}
"""Kinds that are another one with a known cause: what silences the other one silences them, too."""
NOT_SHOWN = ("other_groups", "absent_groups")
"""What the evidence has only for programs."""


def is_shared(kind: str | None, group_id: str | None) -> bool:
    """Whether a finding of this kind is one that groups share."""
    return kind in SHARED.values() and group_id is None
