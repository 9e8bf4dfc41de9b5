"""What makes two problems the same finding, and the finding's id."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from pipeline.common.epoch import to_epoch_ms
from pipeline.kinds import KINDS

OF_A_TOPIC = [kind.name for kind in KINDS if kind.subject.is_by_topic]
"""The kinds of problems that may exist for several topics at once. For other kinds, the topic is the cause."""
_ESCAPES = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(char): f"\\{letter}" for char, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)
}


class Key(NamedTuple):
    """What the problems of a finding have in common. `of_topic` is None unless the finding is one of a topic."""

    kind: str
    cluster: str
    group_id: str | None
    client_id: str | None
    instance: str | None
    of_topic: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Key:
        """The key of a problem, or of a finding."""
        of_topic = row["topic"] if row["kind"] in OF_A_TOPIC else None
        return cls(row["kind"], row["cluster"], row["group_id"], row["client_id"], row["instance"], of_topic)


def finding_id(key: Key, first_ms: int) -> str:
    """The id of a finding: a hash of its key and of the instant at which it began, as Spark's to_json writes them."""
    values = ((name, value) for name, value in key._asdict().items() if value is not None)
    text = ",".join(f'"{name}":"{value.translate(_ESCAPES)}"' for name, value in values)
    return sha256(f'{{{text},"first_seen":{first_ms}}}'.encode()).hexdigest()


def cause_id(kind: str, cluster: str, topic: str, since_ms: int, at_ms: int) -> str:
    """The id of a cause: a hash of its kind and topic, of when it began, and of the first snapshot that shows it."""
    text = json.dumps([kind, cluster, topic, since_ms, at_ms])
    return sha256(text.encode()).hexdigest()


def ids_in_cluster(findings: Iterable[Mapping[str, Any]], cluster: str) -> dict[str, str]:
    """The ids that some rows of `findings`, and their causes, have under another cluster name, by the present ids.

    The id of a cause is never made again from what it was made of, so that any other text will do.
    """
    found = {}
    for row in findings:
        key = Key.of({**row, "cluster": cluster})
        found[row["finding_id"]] = finding_id(key, to_epoch_ms(row["first_seen"]))
        if (cause := row["cause_id"]) is not None:
            found[cause] = sha256(json.dumps([cause, cluster]).encode()).hexdigest()
    return found
