"""Judges rows with Great Expectations, which is slow to import: only rows that look suspect are judged."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from typing import Literal

# Great Expectations reads this when it is imported: it must not send usage statistics from a data platform.
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

import great_expectations as gx
import great_expectations.expectations as gxe
import pandas as pd
import pyarrow as pa
from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation import Expectation

from pipeline.common.errors import LakeError
from pipeline.quality.rules import Rule

logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)  # it sets itself to INFO
_ONE_AT_A_TIME = threading.Lock()
"""Great Expectations creates its context in a global variable, so only one may be created at a time."""


def expectation_of(rule: Rule, number: int) -> Expectation:
    """The expectation that says the same as a rule, with a number in `meta` to know it by."""
    meta = {"number": number}
    if rule.is_for_null:
        return gxe.ExpectColumnValuesToNotBeNull(column=rule.column, meta=meta)
    return gxe.ExpectColumnValuesToBeBetween(column=rule.column, min_value=rule.least, max_value=rule.most, meta=meta)


def validate(
    rows: pa.Table, rules: Sequence[Rule], result_format: Literal["BOOLEAN_ONLY", "SUMMARY"]
) -> ExpectationSuiteValidationResult:
    """What Great Expectations says about rows. Raises LakeError if it fails itself."""
    with _ONE_AT_A_TIME:
        context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    batch = (
        context.data_sources.add_pandas("read").add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
    )
    suite = ExpectationSuite(name="gate", expectations=[expectation_of(rule, n) for n, rule in enumerate(rules)])
    judged = rows.select([*dict.fromkeys(rule.column for rule in rules)])
    # As Int64, because pandas would otherwise make floating-point numbers of a column with NULL, and round large ones.
    frame = judged.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}.get)
    result: ExpectationSuiteValidationResult = batch.get_batch({"dataframe": frame}).validate(
        suite, result_format=result_format
    )
    broken = [r for r in result.results if r.exception_info.get("raised_exception")]
    if broken:
        raise LakeError(f"the gate itself failed: {broken[0].exception_info['exception_message']}")
    return result


def judge(rows: pa.Table, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules that at least one row fails. Raises LakeError if Great Expectations itself fails."""
    result = validate(rows, rules, "BOOLEAN_ONLY")
    # By number, not by order, because Great Expectations groups results by column.
    success = {r.expectation_config.meta["number"]: r.success for r in result.results if r.expectation_config}
    return tuple(rule for number, rule in enumerate(rules) if not success[number])
