"""The labels and MBeans' names that agents report, as the key properties of the MBean that they come from.

jmx_exporter fills labels with what the groups of a rule's regular expression match: values as JMX writes them, in
quotes if they have special characters, and several properties at once if the expression is greedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

LONGEST_NAME = 1_000
"""Metrics and labels with longer names are not Kafka's. They are skipped, as matching takes more than linear time."""
LONGEST_BEAN = 2 * LONGEST_NAME
"""The same for MBeans."""
_PROPERTY = re.compile(r'(?<![^=,])([^=,]+)=("(?:[^"\\]|\\.)*"|[^,]*)')
# What a greedy rule of jmx_exporter takes for one value: "a value, topic=t, partition=0". Kafka puts values that have
# special characters in quotes, so a comma outside of quotes always begins another property.
_GREEDY = re.compile(
    r'("(?:[^"\\]|\\.)*"|[^,"]*)'
    r"((?:, ?(?:name|type|client-id|clientId|topic|partition|node-id|threadId|brokerHost|brokerPort)="
    r'(?:"(?:[^"\\]|\\.)*"|[^,"]*))+)'
)
_OBJECT_NAME = "_objectname"
"""The label by which jmx_exporter 1.0 and later tell metrics apart to which its rules give one name and equal labels:
the MBean and attribute of each but, in some versions, the first."""


class Sample(NamedTuple):
    """A value as an agent reports it: its name in one string, and its labels or key properties."""

    what: str
    labels: Mapping[str, str]
    value: float
    as_of_ms: int | None = None


def key_properties(labels: Mapping[str, str]) -> Mapping[str, str]:
    """The labels as the key properties of the MBean: without quotes, and each property of a greedy label on its own."""
    changed = {label: value for label, value in labels.items() if '"' in value or "=" in value}
    changed.pop(_OBJECT_NAME, None)
    if not changed:
        return labels
    found: dict[str, str] = {}
    for label, value in changed.items():
        greedy = _GREEDY.fullmatch(value) if len(value) <= LONGEST_BEAN else None
        changed[label] = _unquoted(greedy[1] if greedy else value)
        if greedy:
            found |= _properties(greedy[2])
    return {**found, **labels, **changed}


def _properties(text: str) -> dict[str, str]:
    return {key.strip(): _unquoted(value) for key, value in _PROPERTY.findall(text)}


def parsed_bean(text: str) -> tuple[str, dict[str, str]]:
    """The domain, type and name of an MBean in one string, and its key properties without the type.

    JMX writes `domain:type=…`, jmx_exporter `domain<type=…>`.
    """
    domain, *rest = re.split("[:<]", text, maxsplit=1)
    properties = _properties("".join(rest))
    return f"{domain}{properties.pop('type', '')}{properties.get('name', '')}", properties


def of_own_attributes(
    named: list[tuple[str, Sample]], names_of: Callable[[str], list[str]]
) -> list[tuple[str, Sample]]:
    """The samples without those whose _OBJECT_NAME says that they are other metrics.

    If it says which sample is the metric, samples of the same name and labels that do not say it are others. `names_of`
    gives our names of what an agent calls a metric.
    """
    told: dict[int, bool] = {}
    for number, (name, sample) in enumerate(named):
        if _names_its_attribute(sample):
            told[number] = name in names_of(_attribute(sample))
    if not told:
        return named
    certain = {_series(*named[number]) for number, is_own in told.items() if is_own}
    found = []
    for number, (name, sample) in enumerate(named):
        if told.get(number, _series(name, sample) not in certain):
            found.append((name, sample))
    return found


def _names_its_attribute(sample: Sample) -> bool:
    """Whether a sample has the name of an MBean of Kafka. Of other MBeans it is not known what their names mean."""
    said = sample.labels.get(_OBJECT_NAME, "")
    return said.lstrip('"').startswith("kafka") and len(said) <= LONGEST_NAME


def _attribute(sample: Sample) -> str:
    """The domain, type and name of the MBean of a sample with _OBJECT_NAME, and its attribute, in one string."""
    bean, _, attribute = sample.labels[_OBJECT_NAME].rpartition("<>")
    return parsed_bean(bean)[0] + attribute


def _series(name: str, sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    """What the samples of one series have in common."""
    return name, frozenset((label, value) for label, value in sample.labels.items() if label != _OBJECT_NAME)


def _unquoted(value: str) -> str:
    """A key property's value; in quotes some characters have a backslash before them (javax.management.ObjectName)."""
    is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value[1:-1]) if is_quoted else value
