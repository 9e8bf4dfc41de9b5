"""What a problem is one of: the one place that decides it, for the report and for messages."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pipeline.common.words import named


class Subject(NamedTuple):
    """A group, a client, a topic or a whole cluster: `what` it is, its name, and its cluster."""

    what: str
    name: str
    cluster: str

    def __str__(self) -> str:
        """Such as "group payments"."""
        return f"{self.what} {named(self.name)}"

    @property
    def with_cluster(self) -> str:
        """Such as "group payments, cluster east"; a cluster is named once."""
        return str(self) if self.what == "cluster" else f"{self}, cluster {self.cluster}"


class Concerns(Protocol):
    """A problem, which names its cluster, and some of the others."""

    @property
    def cluster(self) -> str:
        """The cluster."""

    @property
    def group_id(self) -> str | None:
        """The group, or None."""

    @property
    def client_id(self) -> str | None:
        """The client, or None."""

    @property
    def topic(self) -> str | None:
        """The topic that is the cause, or None."""


def subject_of(problem: Concerns) -> Subject:
    """What a problem is one of: its group if it has one, else its client, else its topic, else its cluster.

    The problem of a client whose group is known is one of the group, because the group is what falls behind.
    """
    named = (("group", problem.group_id), ("client", problem.client_id), ("topic", problem.topic))
    what, name = next(((what, name) for what, name in named if name is not None), ("cluster", problem.cluster))
    return Subject(what, name, problem.cluster)
