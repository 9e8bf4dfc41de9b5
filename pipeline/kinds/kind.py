"""What each kind of finding declares, in one class: its name, what it is about, how severe it is, and what is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from pipeline.common.words import spaced
from pipeline.kinds.command_lines import Command, CommandContext
from pipeline.kinds.text import as_json, instant_ms

Clock = Callable[[int], str]
"""Writes an instant, epoch ms, as a time of day."""
RESOLVED_AFTER = 3
"""A finding is resolved after this many snapshots without its problem."""


class SubjectType(Enum):
    """What a finding of a kind is about.

    A finding ends only in snapshots in which its own subject could be judged: see `derive.judged`.
    """

    GROUP = "group"
    MEMBERS = "members"
    """The members of a group, which may be unknown although its lag is known."""
    ASSIGNMENTS = "assignments"
    """The partitions of members, which are only judged if neither have just changed."""
    TOPIC = "topic"
    CLIENT = "client"
    TOPIC_OF_CLIENT = "client and topic"
    CLUSTER = "cluster"
    REPLICAS = "replicas"
    """The replicas of a cluster, which are only known if its metadata could be read."""

    @property
    def is_by_topic(self) -> bool:
        """Whether such problems of several topics are several findings. Else, the topic is at most the cause."""
        return self in (SubjectType.TOPIC, SubjectType.TOPIC_OF_CLIENT)

    @property
    def in_docs(self) -> str:
        """What the page of findings says that it is of."""
        of = {
            SubjectType.MEMBERS: SubjectType.GROUP,
            SubjectType.ASSIGNMENTS: SubjectType.GROUP,
            SubjectType.REPLICAS: SubjectType.CLUSTER,
        }
        return of.get(self, self).value


class Facts(BaseModel):
    """What a finder knows about a problem: the fields of its `facts`. What is not known is None; instants are epoch ms.

    A name that is not a field is an error.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class Words(NamedTuple):
    """What a finding says: one sentence or a few, the observations behind it, and what to do."""

    summary: str
    evidence: Mapping[str, Any]
    advice: str


class Headline(NamedTuple):
    """A finding in few words: `word` is a status such as "stopped", `text` says why and since when."""

    word: str
    text: str


class Finding(Protocol):
    """A finding as the report has it: a row of `findings`, with parsed evidence.

    `newest_evidence` is the newest that is known, `evidence` that of its worst moment, and `now` that of the snapshot
    shown.
    """

    @property
    def kind(self) -> str: ...
    @property
    def cluster(self) -> str: ...
    @property
    def group_id(self) -> str | None: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def instance(self) -> str | None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def summary(self) -> str: ...
    @property
    def first_seen_ms(self) -> int: ...
    @property
    def last_seen_ms(self) -> int: ...
    @property
    def worst_ms(self) -> int | None: ...
    @property
    def resolved_ms(self) -> int | None: ...
    @property
    def evidence(self) -> Mapping[str, Any]: ...
    @property
    def now(self) -> Mapping[str, Any] | None: ...
    @property
    def newest_evidence(self) -> Mapping[str, Any]: ...
    @property
    def place(self) -> tuple[str | None, Sequence[int]]:
        """The topic and the partitions that `newest_evidence` is about; without a topic if there are several."""

    def groups(self) -> list[str]:
        """The groups that have the problem, as far as they are named."""


F = TypeVar("F", bound=Facts)


class Kind(Generic[F]):
    """A kind of finding. Its docstring says what it is, in docs/findings.md.

    Attributes:
        name: as the tables `findings` and `finding_history` and the configuration have it.
        subject: what it is about.
        severity: "critical", "warning" or "info", or when it is which.
        magnitude: what says how bad a problem is, compared with others of its kind.
        keys: what its evidence has, for docs/findings.md; with ReaderFacts, only what `figures` does not have.
        facts: what its finder knows.
        shared_as: the kind of the cause if several groups have this problem at about the same time; it may be the kind
            itself. None if groups never have a cause in common.
        instead_of: the kind that a group has without this cause: what silences that kind silences this one, too.
        begins_in_status: whether the evidence has `since`, which is earlier than when the problem was first seen.
        is_dated: whether it begins when its status began in each partition; else, when it is first seen.
        is_loss, is_loss_ahead: whether records were deleted unread, or will be.
        doubts_gauge: whether the lag gauge of a client is wrong.
        resolved_after: how many snapshots without its problem resolve it.
    """

    name: str = ""
    subject: SubjectType = SubjectType.GROUP
    severity: str = ""
    magnitude: str = ""
    keys: str = ""
    facts: type[F]
    shared_as: str | None = None
    instead_of: str | None = None
    begins_in_status: bool = False
    is_dated: bool = False
    is_loss: bool = False
    is_loss_ahead: bool = False
    doubts_gauge: bool = False
    resolved_after: int = RESOLVED_AFTER

    def words(self, facts: F) -> Words:
        """What a finding of one group, client, topic or cluster says."""
        raise NotImplementedError

    def words_together(self, facts: Any) -> Words:
        """What a finding says that several groups share."""
        raise NotImplementedError

    def texts(self, facts: str) -> tuple[str, str, str]:
        """Summary, evidence as JSON, and advice, from facts as JSON. Raises ValueError if one is missing or unknown."""
        try:
            summary, evidence, advice = self.words(self.facts.model_validate(json.loads(facts)))
        except ValueError as exc:
            raise ValueError(f"{self.name}: {' '.join(str(exc).split())}") from exc
        return summary, as_json(evidence), advice

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        """A finding in few words."""
        return Headline(spaced(finding.kind), finding.summary)

    def commands(self, finding: Finding, around: CommandContext) -> Iterator[Command]:
        """The commands that a card offers: Kafka's own tools, with the names filled in.

        A command that changes something is a dry run, or says what it does.
        """
        yield from ()

    def loss(self, finding: Finding, clock: Clock) -> str | None:
        """What a finding says about records that were deleted unread, or will be."""
        return None

    def places(self, finding: Finding) -> list[str]:
        """The process, member or broker that a finding names."""
        if finding.client_id is None:
            return []
        hosts = ", ".join(str(host).removeprefix("/") for host in finding.newest_evidence.get("hosts") or ())
        where = finding.instance or hosts
        return [f"{finding.client_id} at {where}" if where else finding.client_id]

    def since_ms(self, finding: Finding) -> int:
        """When the problem began: when its status began, if this is known, else when it was first seen."""
        known = (finding.evidence, finding.now or {}) if self.begins_in_status else ()
        began = [instant_ms(facts.get("since")) for facts in known]
        return min([finding.first_seen_ms, *(ms for ms in began if ms is not None)])
