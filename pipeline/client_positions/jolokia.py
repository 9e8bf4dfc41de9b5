"""Parses what Jolokia answers to one or several reads of MBeans: JSON, with a status of its own for each read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.client_positions.consumer_metrics import Metric, Sample, metrics
from pipeline.client_positions.key_properties import LONGEST_BEAN, parsed_bean

READ, NOT_FOUND = 200, 404
"""The status of a read with values, and that of a pattern that no MBean has."""


def is_jolokia(text: str) -> bool:
    """Whether a text in JSON is from Jolokia; a read that failed may have no request in its answer."""
    return '"mbean"' in text or '"error_type"' in text


def of_jolokia(text: str) -> list[Metric]:
    """The consumers' metrics in an answer. Raises ValueError for any other text."""
    found, _ = read_answer(text)
    return found


def read_answer(text: str) -> tuple[list[Metric], list[str]]:
    """The consumers' metrics in an answer, and an error for each status other than 200 that its reads have.

    HTTP's own status is 200 even if all reads have failed. That no MBean is found is an error only if nothing else is
    there: an old Scala consumer has other MBeans than a Java consumer. Raises ValueError for any other text.
    """
    try:
        answers = json.loads(text)
        answers = answers if isinstance(answers, list) else [answers]
        found = metrics([s for answer in answers if answer["status"] == READ for s in _samples(answer)])
        statuses = Counter(answer["status"] for answer in answers)
        return found, [*_errors(statuses, is_nothing=not found)]
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(f"not an answer of Jolokia: {error!r} is missing or wrong") from error


def _errors(statuses: Counter[Any], *, is_nothing: bool) -> Iterator[str]:
    for status, count in statuses.items():
        # A status of another kind is not shown, because an error quotes nothing of what was read.
        code = status if type(status) is int and 0 < status < 1_000 else "of another kind"
        if status == NOT_FOUND and is_nothing:
            yield f"Jolokia finds no MBean for {count} of {statuses.total()} reads (status {code})"
        elif status not in (READ, NOT_FOUND):
            yield f"Jolokia refuses {count} of {statuses.total()} reads (status {code}): see its access policy"


def _samples(answer: Mapping[str, Any]) -> Iterator[Sample]:
    """The numbers in an answer of Jolokia to a read of a pattern, of one MBean, or of one attribute."""
    value, mbean, attribute = answer["value"], answer["request"]["mbean"], answer["request"].get("attribute")
    if not isinstance(value, dict):
        value = {attribute or "Value": value}
    beans = value if all(isinstance(v, dict) for v in value.values()) else {mbean: value}
    for bean, attributes in beans.items():
        if len(bean) > LONGEST_BEAN:
            continue
        kind, properties = parsed_bean(bean)
        for name, number in attributes.items():
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                yield Sample(kind + name, properties, float(number))
