"""Service-level objectives in plain Python, by brute force: what each row of `slo` must say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

HOUR = 3_600_000
SPEAKS_FOR = 3
Key = tuple[str, str]
"""An objective and a group."""


class Taken(NamedTuple):
    """A snapshot. `met`: whether each group meets each objective; None = not known. Absent groups are left out.

    `reach`: the oldest snapshot that its rows may continue.
    """

    snapshot_id: int
    schedule_ms: int
    reach: int
    met: Mapping[Key, bool | None]


@dataclass(frozen=True)
class Figures:
    """Of one time: where it begins, and how much of it was met and missed."""

    begins: int
    met_ms: int
    missed_ms: int


@dataclass(frozen=True)
class Budget:
    """A row of `slo`."""

    begun: int
    counted_ms: int
    total: Figures
    window: Figures
    hour: Figures
    six_hours: Figures
    last_missed: tuple[int, int] | None
    """The newest snapshot that missed the objective, and for how much time it counts."""
    last_known: bool | None


class _Counted(NamedTuple):
    snapshot_id: int
    is_met: bool | None
    counted_ms: int


def model(taken: Sequence[Taken], windows_ms: Mapping[str, int]) -> dict[tuple[int, str, str], Budget]:
    """The row of each snapshot, objective and group. `windows_ms` are the windows of the objectives."""
    chains: dict[Key, list[_Counted]] = {}
    found = {}
    for number, snapshot in enumerate(taken):
        passed = snapshot.snapshot_id - taken[number - 1].snapshot_id if number else 0
        counted = min(passed, SPEAKS_FOR * snapshot.schedule_ms)
        for (slo, group), is_met in snapshot.met.items():
            chain = chains.get((slo, group), [])
            if not chain or chain[-1].snapshot_id < snapshot.reach:
                chain = []
            chain = [*chain, _Counted(snapshot.snapshot_id, is_met, counted if chain else 0)]
            chains[slo, group] = chain
            found[snapshot.snapshot_id, slo, group] = _budget(chain, windows_ms[slo])
    return found


def _budget(chain: Sequence[_Counted], window_ms: int) -> Budget:
    now = chain[-1]
    lengths = (now.snapshot_id, window_ms, HOUR, 6 * HOUR)
    missed = [(row.snapshot_id, row.counted_ms) for row in chain if row.is_met is False]
    known = [row.is_met for row in chain if row.is_met is not None]
    figures = [_figures(chain, length) for length in lengths]
    return Budget(chain[0].snapshot_id, now.counted_ms, *figures, [None, *missed][-1], [None, *known][-1])


def _figures(chain: Sequence[_Counted], length_ms: int) -> Figures:
    old = [row.snapshot_id for row in chain if row.snapshot_id <= chain[-1].snapshot_id - length_ms]
    begins = old[-1] if old else chain[0].snapshot_id
    inside = [row for row in chain if row.snapshot_id > begins]
    met, missed = (sum(row.counted_ms for row in inside if row.is_met is state) for state in (True, False))
    return Figures(begins, met, missed)
