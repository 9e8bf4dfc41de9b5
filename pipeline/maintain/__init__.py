"""Keeps a lake small: removes old rows, compacts small files, and deletes files that no table needs."""

from pipeline.maintain.maintain import Done, maintain

__all__ = ["Done", "maintain"]
