"""The gate between what was observed and what readers may see."""

from pipeline.quality.gate import Verdict, judge, quarantine_failing

__all__ = ["Verdict", "judge", "quarantine_failing"]
