"""Recordings that were made elsewhere, stored in a lake as if their snapshots had been taken."""

from pipeline.replay.load import replay

__all__ = ["replay"]
