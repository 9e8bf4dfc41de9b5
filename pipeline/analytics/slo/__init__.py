"""Service-level objectives: whether groups meet them, and how fast they use their error budgets."""
