"""Tables as delta-rs sees them. It reads their logs without Spark, which needs half a second of CPU for each."""

from deltalake import DeltaTable

from pipeline.lake import Lake
from pipeline.tables import Table


def delta(lake: Lake, table: Table) -> DeltaTable:
    """A table of a lake that is a local folder, as it is now."""
    return DeltaTable(f"{lake._config.root}/{table.name}")
