"""What earlier versions have stored of readers, in `partition_status`."""

import numpy as np

from pipeline.analytics.arrow_series import NONE
from pipeline.analytics.status.memory import LAYOUT, STORED_WIDTH, Memory, of_stored

FORMER = [1_769_860_800_000 + number for number in range(12)]
"""seen_ms to set_back_snapshots, as version 13 of the schema has them."""
FLOORS = [1_769_860_200_000] * 4 + [5_000] * 4 + [70] * 4
LATER = list(range(100, 115))
"""moved_ms to skip_error."""


def row(*numbers: int) -> list[int]:
    return [*numbers, *[NONE] * (STORED_WIDTH - len(numbers))]


def test_a_row_of_the_former_layout_keeps_all_but_the_thirds_of_its_window() -> None:
    found = Memory.of_rows(of_stored(np.array([row(*FORMER, *FLOORS, *LATER)])))
    values = {name: int(value[0]) for name, value in vars(found).items()}
    assert values["layout"] == LAYOUT
    names = list(values)
    start, end = names.index("rise_ms"), names.index("moved_ms")
    # The topic is not known, because its hash is another one.
    assert [values[name] for name in names[1:start]] == [FORMER[0], NONE, *FORMER[2:]]
    assert {values[name] for name in names[start:end]} == {NONE}
    later = [values[name] for name in names[end:]]
    assert later == [*LATER, *[NONE] * (len(later) - len(LATER))]


def test_rows_of_both_layouts_and_of_readers_that_were_never_seen_are_read_together() -> None:
    present = list(range(1, Memory.width()))
    rows = np.array([row(LAYOUT, *present), row(*FORMER, *FLOORS), row()])
    found = of_stored(rows)
    assert found[0].tolist() == [LAYOUT, *present]
    assert found[1][:13].tolist() == [LAYOUT, FORMER[0], NONE, *FORMER[2:]]
    assert set(found[1][13:]) == set(found[2]) == {NONE}


def test_a_row_with_the_former_hash_of_the_topic_keeps_all_else() -> None:
    present = list(range(1, Memory.width()))
    found = of_stored(np.array([row(2, *present), row(LAYOUT, *present)]))
    assert found[0].tolist() == [LAYOUT, present[0], NONE, *present[2:]]
    assert found[1].tolist() == [LAYOUT, *present]
