"""The limits on what executors do."""

from typing import Annotated

from pydantic import Field

from pipeline.config.toml_file import Int, Section
from pipeline.config.value_types import Count, DurationMs


class LimitsConfig(Section):
    """Bounds on what executors do, so that a broker that hangs cannot hang a run."""

    connect_timeout_ms: DurationMs = Field(default=5_000, alias="connect_timeout")
    """How long a broker may take to accept a connection, TLS and log-in included."""
    request_timeout_ms: DurationMs = Field(default=30_000, alias="request_timeout")
    """How long a broker may take to answer. A request that timed out is not sent to the same broker again."""
    task_timeout_ms: DurationMs = Field(default=300_000, alias="task_timeout")
    """How long one task may take in all. For what it has not read by then, it writes error rows."""
    read_timeout_ms: DurationMs = Field(default=600_000, alias="read_timeout")
    """How long reading may take, positions included. After that the snapshot is `partial`. Less than `max_duration`."""
    retries: Annotated[Int, Field(ge=0, le=100)] = 5
    """How often a request is repeated if a group or partition has moved or its broker is busy."""
    retry_backoff_ms: DurationMs = Field(default=100, alias="retry_backoff")
    """How long to wait before the first repeat; each further wait is twice as long, up to 5 s."""
    groups_per_task: Count = 100
    """The most groups in a task: fewer groups spread the work wider, more groups need fewer requests."""
    partitions_per_task: Count = 5_000
    """The most partitions in a task."""
