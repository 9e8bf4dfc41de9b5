"""Keeps a lake in order: removes old rows and files, compacts small files, and renames clusters."""

from pipeline.maintain.files import Done
from pipeline.maintain.maintain import maintain
from pipeline.maintain.rename import rename_cluster

__all__ = ["Done", "maintain", "rename_cluster"]
