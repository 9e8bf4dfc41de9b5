"""Faults of commits, and a group that is late for its objective, beside those in `faults.py`."""

from __future__ import annotations

from collections.abc import Iterable

from tests.helpers.faults import PREFIX, Broker, Expected, Scenario


class CommitBeyondEnd(Scenario):
    """An administrator commits an offset beyond the end. Later, the log has reached it."""

    name = "beyond"
    begins, ends = 10, 20
    catches_up = 60

    def at(self, minute: int, broker: Broker) -> None:
        end = broker.write(self.topic, 3 + (self.catches_up if minute == self.ends else 0))
        broker.commit(self.well, self.topic, end)
        if minute == self.begins:
            broker.commit(self.group, self.topic, end + 50)
        elif not self.begins <= minute < self.ends:
            broker.commit(self.group, self.topic, end)

    def expected(self) -> Iterable[Expected]:
        evidence = {"groups": [self.group], "worst_partition": 0, "commits_never_within": 1}
        yield Expected("truncated_log", self.begins, self.ends, evidence, topic=self.topic, severity="critical")


class CommitAtTheEnd(CommitBeyondEnd):
    """The same, but the group is set to the end of the log, as the finding advises."""

    name = "undone"
    catches_up = 0


class Rewound(Scenario):
    """Commits go back, and pass their old offset later."""

    name = "rewound"
    begins, ends = 10, 20

    def at(self, minute: int, broker: Broker) -> None:
        end = broker.write(self.topic, 3)
        broker.commit(self.well, self.topic, end)
        slowly = 15 + minute - self.begins
        broker.commit(self.group, self.topic, slowly if self.begins <= minute < self.ends else end)

    def expected(self) -> Iterable[Expected]:
        unread = 3 * self.ends - (15 + self.ends - 1 - self.begins)
        # The second snapshot shows that the commit is still behind.
        of = {"group": self.group, "topic": self.topic, "severity": "warning"}
        yield Expected("rewound", self.begins + 1, self.ends, {"consumer_lag": unread}, **of)


class BudgetBurn(Scenario):
    """A group that is 30 records behind for seven minutes of an hour, when an objective allows for less than 20."""

    name = "budget"
    slo = f'[slo.prompt]\ngroups = "^{PREFIX}budget$"\nobjective = "consumer_lag < 20"\ntarget = 0.99\nwindow = "7d"\n'
    begins, ends = 61, 68

    def at(self, minute: int, broker: Broker) -> None:
        end = broker.write(self.topic, 33 if minute == self.begins else 3)
        broker.commit(self.group, self.topic, end - 30 if self.begins <= minute < self.ends else end)
        broker.commit(self.well, self.topic, end)

    def expected(self) -> Iterable[Expected]:
        # 1 % of seven days are 101 minutes, of which the third missed minute exceeds 2 %. The finding ends when no
        # minute of the last five has missed the objective.
        missed = self.ends - self.begins
        evidence = {"burn_rate_1h": round(missed / 60 / 0.01, 2), "slos": ["prompt"], "partitions_missed": 1}
        of = {"group": self.group, "topic": self.topic, "severity": "critical"}
        # The lag does not shrink. The group had read everything in the minute before, and the age has risen since.
        yield Expected("falling_behind", self.begins + 4, self.ends, group=self.group, topic=self.topic, later=1)
        yield Expected("budget_burn", self.begins + 2, self.ends + 5, evidence, **of)
