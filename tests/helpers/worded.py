"""Problems with their words, and the words for some facts."""

import json
from typing import Any

import pyarrow as pa

from pipeline.analytics.findings.problem import with_words
from pipeline.kinds import kind_named
from pipeline.kinds.kind import Words

NOON_MS = 1_769_860_800_000  # 2026-01-31 12:00 UTC


def worded_rows(problems: pa.Table) -> list[dict[str, Any]]:
    """The rows of WORDED from rows of PROBLEMS, as `finding_history` gets them."""
    found: list[dict[str, Any]] = with_words(problems).to_pylist()
    return found


def words(kind: str, **facts: Any) -> Words:
    """The words for facts that went through JSON, as they come from a finder, without those that are None."""
    text = json.dumps({name: value for name, value in facts.items() if value is not None})
    declared = kind_named(kind)
    said: Words = declared.words(declared.facts.model_validate(json.loads(text)))
    return said
