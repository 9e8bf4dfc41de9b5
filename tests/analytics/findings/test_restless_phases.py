"""Members that restart every seven minutes are found equally soon, whenever their group is deployed.

Each group is deployed once an hour, or twice. Deployments alone are no problem.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.helpers.group_model import Member
from tests.helpers.restless import found, member

BEGINS = 180
"""The minute in which members begin to restart."""
EVERY = 7
IN_TIME = 2
"""How many snapshots later than the first one that shows it a problem may be found."""
PHASES = range(0, 60, 10)
"""Minutes from a deployment to `BEGINS`. So the next deployment of each hour comes 60, 50, 40, 30, 20 or 10 minutes
after it."""
Restless = dict[int, int]
FIRST: Restless = {0: 0}
LAST: Restless = {3: 0}
THREE: Restless = {0: 0, 1: 2, 2: 4}
"""The members that restart, and by how many minutes earlier they do: the first one 7, 14 and 21 minutes after `BEGINS`,
the second one after 5, 12 and 19, the third one after 3, 10 and 17."""


class Group(NamedTuple):
    """A group that is deployed regularly, on fixed hosts or in pods.

    A pod has a new address after each deployment, but not after a restart.
    """

    restless: Restless
    in_pods: bool
    one_by_one: bool
    phase: int
    size: int = 4
    each: int = 60

    def members(self, minute: int) -> Iterator[Member]:
        for number in range(self.size):
            passed = minute - BEGINS + self.phase - (number if self.one_by_one else 0)
            deployments, restarts = passed // self.each + 10, 0
            if number in self.restless:
                restarts = (max(minute - BEGINS, 0) + self.restless[number]) // EVERY
            host = f"/10.{deployments}.0.{number}" if self.in_pods else f"/10.0.0.{number}"
            joined = 10_000 * deployments + 100 * number + restarts
            yield member("app" if self.in_pods else f"app-{number}", joined, host)


# The members that restart, whether in pods, whether deployed one by one → for each of PHASES, the minute after BEGINS
# in which a third short stay of one of them ends. What all members do in a deployment does not count.
SHOWN = [
    (FIRST, False, False, [21, 21, 21, 21, 21, 21]),
    # After 20 minutes, the first member is deployed, and none of the others is yet.
    (FIRST, False, True, [21, 21, 21, 21, 20, 21]),
    (LAST, False, True, [21, 21, 21, 21, 21, 21]),
    # In the last case, the third member's restart after 10 minutes is a part of the deployment.
    (THREE, False, False, [17, 17, 17, 17, 17, 19]),
    # In the last case, the third member is deployed after 12 minutes, and the fourth one is not yet.
    (THREE, False, True, [17, 17, 17, 17, 17, 12]),
    # If a pod is deployed anew, a third stay may end with that, after 20 minutes. Else its new address has three stays:
    # from the deployment after 10 minutes to the restarts after 14, 21 and 28.
    (FIRST, True, False, [21, 21, 21, 21, 20, 28]),
    (FIRST, True, True, [21, 21, 21, 21, 20, 28]),
    (LAST, True, True, [21, 21, 21, 21, 21, 28]),
    (THREE, True, False, [17, 17, 17, 17, 17, 26]),
    (THREE, True, True, [17, 17, 17, 17, 17, 12]),
]
FAULTS = {
    f"{[*restless]}, {in_pods=}, {one_by_one=}, {phase=}": (Group(restless, in_pods, one_by_one, phase), at)
    for restless, in_pods, one_by_one, shown in SHOWN
    for phase, at in zip(PHASES, shown, strict=True)
}
DEPLOYMENTS = {
    f"{in_pods=}, {one_by_one=}, {phase=}, {size=}, {each=}": Group({}, in_pods, one_by_one, phase, size, each)
    for in_pods in (False, True)
    for one_by_one in (False, True)
    for phase, each in ((0, 30), (20, 30), (0, 60), (20, 60), (40, 60))
    for size in (2, 5)
}
READER_FINDERS = range(11, 32)
"""Minutes after BEGINS. In one of the phases, a deployment of the groups without restless members is in each minute."""


@pytest.fixture(scope="module")
def kinds() -> dict[str, dict[int, str]]:
    """The problems of each group, by the minute after BEGINS."""
    groups = {name: group for name, (group, _) in FAULTS.items()} | DEPLOYMENTS
    rows = found(1, {name: group.members for name, group in groups.items()}, [BEGINS + m for m in READER_FINDERS])
    return {name: {minute - BEGINS: row["kind"] for minute, row in of_group.items()} for name, of_group in rows.items()}


@pytest.mark.parametrize("group", FAULTS)
def test_restless_members_are_found_in_time_whenever_their_group_is_deployed(
    kinds: dict[str, dict[int, str]], group: str
) -> None:
    (restless, *_), shown = FAULTS[group]
    minutes = kinds[group]
    assert {*minutes.values()} == {"flapping_member" if len(restless) == 1 else "rebalance_storm"}
    assert shown <= min(minutes) <= shown + IN_TIME
    # Three snapshots without the problem would resolve it.
    settled = range(max(shown, 3 * EVERY) + IN_TIME, READER_FINDERS[-2])
    assert [minute for minute in settled if not {minute, minute + 1, minute + 2} & {*minutes}] == []


def test_deployments_alone_are_no_problem(kinds: dict[str, dict[int, str]]) -> None:
    assert {*kinds} & {*DEPLOYMENTS} == set()
