"""The part of a lake that a report shows: clusters, a time, groups and topics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.common.quantities import at
from pipeline.common.words import named

FINDING_ID = re.compile("[0-9a-f]{6,64}")
"""The first digits of a finding_id, by which a finding is found."""


NAMED = 10
"""How many groups the words name."""


@dataclass(frozen=True)
class Selection:
    """The part of the tables that is asked for; None means all.

    `from_ms` and `to_ms` are epoch ms, both inclusive. `group_ids` are the names of some groups; `group` and `topic`
    are regular expressions that may match anywhere in the first MOST_SEARCHED characters of the name. `finding_id` is
    the finding that the report is about; others are shown, too. `is_incident` says that the report is about an
    incident, for which no finding stands.
    """

    clusters: Sequence[str] | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    group: str | None = None
    topic: str | None = None
    group_ids: tuple[str, ...] | None = None
    finding_id: str | None = None
    is_incident: bool = False

    def __str__(self) -> str:
        """The selection in words; empty if it is everything. Clusters are left out, because a report names them."""
        names = self.group_ids or ()
        words = [f"{'group' if len(names) == 1 else 'groups'} {', '.join(map(named, names[:NAMED]))}"] if names else []
        words += [f"{len(names) - NAMED:,} more groups"] if len(names) > NAMED else []
        words += [f"groups with {self.group}"] if self.group is not None else []
        words += [f"topics with {self.topic}"] if self.topic is not None else []
        words += [f"from {at(self.from_ms)}"] if self.from_ms is not None else []
        words += [f"to {at(self.to_ms)}"] if self.to_ms is not None else []
        return ", ".join(words)
