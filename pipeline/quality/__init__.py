"""The gate: rules for bronze rows; those that fail one go to `quarantine`."""

from pipeline.quality.gate import Verdict, fails_sql, judge_rows, quarantine_rows

__all__ = ["Verdict", "fails_sql", "judge_rows", "quarantine_rows"]
