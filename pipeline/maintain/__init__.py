"""What keeps a lake in order: old rows and files are removed, small files joined, a cluster is renamed."""

from pipeline.maintain.maintain import Done, maintain
from pipeline.maintain.rename import rename_cluster

__all__ = ["Done", "maintain", "rename_cluster"]
