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
    *("under_replicated", "clock_ahead", "snapshots_missing", "unreadable"),
    *("blocked_connector", "slow_consumer", "paused_partition", "blind_gauge", "too_large_message", "buffer_too_large"),
    "budget_burn",
)
