"""What keeps a lake small: old rows are removed, small files joined, files that no table needs deleted."""

from pipeline.maintain.maintain import Done, maintain

__all__ = ["Done", "maintain"]
