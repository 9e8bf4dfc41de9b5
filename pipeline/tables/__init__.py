"""Every Delta table: its columns, key, partitioning and schema version.

The reader, the writer, the quality gate, the report and the tests share these constants; no schema is written anywhere
else. Columns end with their unit (`_ms` and `_bytes` are bigint), offsets are bigint, instants are UTC timestamps.
"""

from pipeline.tables.bronze import (
    BRONZE,
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    GROUP_MEMBERS,
    LOG_SAMPLES,
    QUARANTINE,
    WATERMARKS,
)
from pipeline.tables.columns import SNAPSHOT_AT, Table
from pipeline.tables.findings import FINDING_HISTORY, FINDINGS, NOTIFICATIONS, SEVERITIES
from pipeline.tables.forecasts import FORECASTS
from pipeline.tables.groups import CHANGES, GROUP_CHANGES, GROUP_STATUS, PARTITION_STATUS, SLO
from pipeline.tables.lag import (
    CLIENT_DIVERGENCE,
    DATA_LOSS,
    LAG,
    LAG_HISTOGRAMS,
    LOG_INDEX,
    OFFSET_STATUSES,
    POINTS,
    UNKNOWN_OFFSET,
)
from pipeline.tables.ledgers import COMPUTED, READABLE, SNAPSHOTS
from pipeline.tables.rollup import LAG_ROLLUP, ROLLED_UP, ROLLED_UP_ENDS

__all__ = (
    "BRONZE",
    "CHANGES",
    "CLIENT_DIVERGENCE",
    "CLIENT_POSITIONS",
    "COMMITTED_OFFSETS",
    "COMPUTED",
    "DATA_LOSS",
    "FINDINGS",
    "FINDING_HISTORY",
    "FORECASTS",
    "GROUP_CHANGES",
    "GROUP_MEMBERS",
    "GROUP_STATUS",
    "LAG",
    "LAG_HISTOGRAMS",
    "LAG_ROLLUP",
    "LOG_INDEX",
    "LOG_SAMPLES",
    "NOTIFICATIONS",
    "OFFSET_STATUSES",
    "OLDEST_VERSION",
    "PARTITION_STATUS",
    "POINTS",
    "QUARANTINE",
    "READABLE",
    "ROLLED_UP",
    "ROLLED_UP_ENDS",
    "SCHEMA_VERSION",
    "SEVERITIES",
    "SLO",
    "SNAPSHOTS",
    "SNAPSHOT_AT",
    "TABLES",
    "UNKNOWN_OFFSET",
    "WATERMARKS",
    "Table",
)

SCHEMA_VERSION = 18
"""Raised whenever a table or a column is added. A newer lake is refused; an older one gets what it lacks."""
OLDEST_VERSION = 18
"""Raised to SCHEMA_VERSION whenever rows that are stored can no longer be read. An older lake is refused."""

TABLES = (
    *BRONZE,
    CLIENT_POSITIONS,
    LOG_SAMPLES,
    QUARANTINE,
    LOG_INDEX,
    LAG,
    PARTITION_STATUS,
    GROUP_STATUS,
    FORECASTS,
    GROUP_CHANGES,
    SLO,
    LAG_HISTOGRAMS,
    LAG_ROLLUP,
    CLIENT_DIVERGENCE,
    FINDINGS,
    FINDING_HISTORY,
    NOTIFICATIONS,
    COMPUTED,
    SNAPSHOTS,
)
"""Every table, in the order of creation: the ledger last, so that a lake with a ledger has all the others."""
