"""The kinds of findings, each declared in one class: what it is, what it says, and what to do.

What finds a kind is in `analytics`. To add one: declare it in a module of this folder, put it into
KINDS, and write its finder.
"""

from typing import Any

from pipeline.kinds.brokers import ClockAhead, ClockBehind, SnapshotsMissing, UnderReplicated, Unreadable
from pipeline.kinds.clients import (
    BlindGauge,
    BlockedConnector,
    BufferTooLarge,
    PausedPartition,
    SlowConsumer,
    TooLargeMessage,
)
from pipeline.kinds.commits import CommitsExpire, NeverCommits, Rewound, Skipped
from pipeline.kinds.groups import (
    DataLossAhead,
    DeletedUnread,
    FallingBehind,
    HotPartition,
    NoProgress,
    StoppedTogether,
)
from pipeline.kinds.kind import Kind, SubjectType
from pipeline.kinds.members import FlappingMember, IdleMember, RebalanceStorm, UnevenAssignment
from pipeline.kinds.objectives import BudgetBurn
from pipeline.kinds.topics import OpenTransaction, RecreatedTopic, TruncatedLog

__all__ = ["FOUND", "KINDS", "SHARED", "Kind", "SubjectType", "kind_named", "rank"]

KINDS: tuple[Kind[Any], ...] = (
    DeletedUnread(),
    DataLossAhead(),
    NoProgress(),
    StoppedTogether(),
    HotPartition(),
    FallingBehind(),
    Rewound(),
    Skipped(),
    CommitsExpire(),
    NeverCommits(),
    BudgetBurn(),
    OpenTransaction(),
    RecreatedTopic(),
    TruncatedLog(),
    RebalanceStorm(),
    FlappingMember(),
    UnevenAssignment(),
    IdleMember(),
    UnderReplicated(),
    ClockAhead(),
    ClockBehind(),
    SnapshotsMissing(),
    Unreadable(),
    BlockedConnector(),
    SlowConsumer(),
    PausedPartition(),
    TooLargeMessage(),
    BlindGauge(),
    BufferTooLarge(),
)
"""All kinds. Their order is their rank on a card, among findings that are as grave: what says most about the cause
comes first."""
_BY_NAME = {kind.name: kind for kind in KINDS}
_RANKS = {kind.name: number for number, kind in enumerate(KINDS)}
SHARED = {kind.name: kind.shared_as for kind in KINDS if kind.shared_as is not None}
"""The kinds of findings whose cause several groups may share, each with the kind of that cause."""
FOUND = [kind.name for kind in KINDS if kind.name in SHARED or kind.name not in SHARED.values()]
"""The kinds that the table `findings` has: all but those that only a cause has, which groups share."""


def kind_named(name: str) -> Kind[Any]:
    """The kind of this name. One that is not known, such as one of a newer laglake, says only its summary."""
    return _BY_NAME.get(name) or Kind()


def rank(name: str) -> int:
    """The place of a kind among KINDS; an unknown one is last."""
    return _RANKS.get(name, len(KINDS))
