"""Batches of which a test runs a single step."""

from datetime import UTC, datetime

import pyarrow as pa

from pipeline.common.rows import Rows
from pipeline.derive import Settings
from pipeline.derive.backlog import Backlog
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.lake import Lake

_NOTHING = Rows(pa.table({}))
NO_READERS = Readers(_NOTHING, _NOTHING, _NOTHING)
"""For steps that read what earlier steps have written, not what was computed of the readers."""


def batch_of(lake: Lake, cluster: str, backlog: Backlog, now: datetime | None = None) -> Batch:
    """The batch of a backlog, with the default settings."""
    return Batch(lake, cluster, backlog, Settings(), lambda: now or datetime.now(UTC))
