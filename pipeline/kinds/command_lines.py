"""The parts of a command: names as words of a shell, where a finding is, and the brokers of its cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from pipeline.common.kafka_tools import BROKER, tool

MOST_PARTITIONS = 100
"""The most partitions that one command names."""
_COMMAND = re.compile(r"(kafka-[a-z-]+) --bootstrap-server \S+ (\S+)")
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_QUOTED = re.compile("'[^']*'")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Command(NamedTuple):
    """A command, and what it is for."""

    what: str
    line: str


class Placed(Protocol):
    """A finding, as far as it says where it is."""

    @property
    def newest_evidence(self) -> Mapping[str, Any]: ...
    @property
    def place(self) -> tuple[str | None, Sequence[int]]: ...


@dataclass(frozen=True)
class CommandContext:
    """What is known beside a finding.

    `commits` are the committed offsets of its group in the worst partitions, by topic and partition, at the snapshot
    shown. `types` is the type of each group of its cluster that is known, `broker` the variable with the address of a
    broker of the cluster. `is_alone` says that the report is about one cluster.
    """

    commits: Mapping[tuple[str, int], int | None] = field(default_factory=dict)
    types: Mapping[str, str | None] = field(default_factory=dict)
    broker: str = BROKER
    is_alone: bool = True

    def tool(self, name: str, *words: str) -> str:
        """A command of one of Kafka's tools."""
        return tool(name, *words, broker=self.broker)

    def is_plain(self, group_id: object) -> bool:
        """Whether kafka-consumer-groups accepts the group: it refuses groups of type streams and share."""
        return self.types.get(str(group_id)) not in ("streams", "share")

    def is_streams(self, group_id: object) -> bool:
        """Whether the group is one of Kafka Streams' own protocol (KIP-1071)."""
        return self.types.get(str(group_id)) == "streams"


def in_shell(name: object, instead: str) -> str:
    r"""A name as one word of a shell's command; `instead` if it is not known, or cannot be typed.

    >>> in_shell("orders", "TOPIC"), in_shell("it's; rm", "TOPIC"), in_shell("-x", "TOPIC"), in_shell(None, "TOPIC")
    ('orders', '\'it\'"\'"\'s; rm\'', 'TOPIC', 'TOPIC')
    >>> in_shell("", "GROUP")
    "''"
    """
    is_word = isinstance(name, str) and name.isprintable() and not name.startswith("-")
    return shlex.quote(str(name)) if is_word else instead


def place(finding: Placed) -> str | None:
    """TOPIC:0,1 as one word: where the finding is, at the snapshot shown. None if that is several topics or unknown."""
    topic, partitions = finding.place
    if not topic or not 0 < len(partitions) <= MOST_PARTITIONS:
        return None
    return in_shell(f"{topic}:{','.join(map(str, partitions))}", "") or None


def topics(finding: Placed) -> list[str]:
    """The topics of the finding at the snapshot shown, the worst one first; empty if none is known."""
    worst, known = finding.newest_evidence.get("worst_topic"), finding.newest_evidence.get("topics") or ()
    return [str(topic) for topic in dict.fromkeys((worst, finding.place[0], *known)) if topic]


def offsets_file(cluster: str, group_id: str | None, around: CommandContext) -> str:
    """The name of a file for the offsets of a group: its own for each group.

    >>> offsets_file("east", "payments", CommandContext()), offsets_file("east", "a/b", CommandContext())
    ('payments-offsets.csv', 'a_b-c14cddc0-offsets.csv')
    """
    name = group_id or "GROUP"
    full = name if around.is_alone else f"{cluster}-{name}"
    if _FILE_NAME.fullmatch(full):
        return f"{full}-offsets.csv"
    digest = sha256(full.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9._]', '_', full)[:100]}-{digest}-offsets.csv"


def brokers_of(clusters: Iterable[str]) -> dict[str, str]:
    """For each cluster the variable with the address of one of its brokers: a variable of its own if there are several.

    >>> brokers_of(["east"]), brokers_of(["eu-west", "eu.west"])
    ({'east': '$BOOTSTRAP'}, {'eu-west': '$BOOTSTRAP_EU_WEST', 'eu.west': '$BOOTSTRAP_EU_WEST_2'})
    """
    names = sorted(set(clusters))
    if len(names) < 2:
        return dict.fromkeys(names, BROKER)
    found: dict[str, str] = {}
    for name in names:
        variable = f"{BROKER}_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"
        taken, number, first = set(found.values()), 2, variable
        while variable in taken:
            variable, number = f"{first}_{number}", number + 1
        found[name] = variable
    return found


def without_shown(advice: str, lines: Iterable[str], broker: str) -> str:
    """The advice without the sentences whose commands are among the `lines`; the others have this broker.

    >>> shown = ["kafka-topics --bootstrap-server $B --list"]
    >>> without_shown("Do it. See: kafka-topics --bootstrap-server $BOOTSTRAP --list", shown, "$B")
    'Do it.'
    """
    shown = {found for line in lines for found in _COMMAND.findall(line)}

    def is_shown(sentence: str) -> bool:
        commands = _COMMAND.findall(sentence)
        return bool(commands) and shown.issuperset(commands)

    left = " ".join(sentence for sentence in _sentences(advice) if not is_shown(sentence))
    return left.replace(f" {BROKER} ", f" {broker} ")


def _sentences(advice: str) -> list[str]:
    """The sentences of an advice. A name in quotes, as a command has it, is never the end of one.

    >>> _sentences("Do it. See: tool --group 'Team. Orders' --x. Or leave it.")
    ['Do it.', "See: tool --group 'Team. Orders' --x.", 'Or leave it.']
    """
    plain = _QUOTED.sub(lambda quoted: "x" * len(quoted[0]), advice)
    ends = [blank.start() for blank in _SENTENCE.finditer(plain)]
    return [advice[begin:end].strip() for begin, end in pairwise([0, *ends, len(advice)])]
