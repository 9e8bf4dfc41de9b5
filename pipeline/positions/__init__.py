"""What clients themselves tell of how far they have read: their metrics, statistics, and the brokers' request logs."""
