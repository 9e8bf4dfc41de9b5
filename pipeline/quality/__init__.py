"""The quality gate between the rows that were read and the rows that readers may see."""

from pipeline.quality.gate import Verdict, is_suspect, quarantine_failing, with_marks

__all__ = ["Verdict", "is_suspect", "quarantine_failing", "with_marks"]
