"""When a hot partition is found, and when a group only falls behind. Small integers stand for minutes."""

from tests.helpers.group_problems import (
    BATCHES,
    causes_in,
    during,
    found_in,
)

HOT = {"kind": "falling_behind", "is_hot_partition": True}
NOT_HOT = {"kind": "falling_behind"}
OTHER_WORST = NOT_HOT | {"worst_partition": 7}


@BATCHES
def test_a_hot_partition_is_found_instead_of_a_group_that_falls_behind(batches: list[range]) -> None:
    """It is not hot in each snapshot. From minute 50 on, another partition is the worst one."""
    rows = during([*range(30, 35), *range(40, 50)], "a", **HOT) + during(range(35, 40), "a", **NOT_HOT)
    rows += during(range(50, 60), "a", worst_partition=7, **NOT_HOT)
    assert found_in(batches, rows) == {("hot_partition", "a", 30): 50, ("falling_behind", "a", 52): None}


@BATCHES
def test_a_group_that_falls_behind_has_no_hot_partition_as_well(batches: list[range]) -> None:
    rows = during(range(30, 33), "a", **NOT_HOT) + during(range(33, 60), "a", **HOT)
    assert found_in(batches, rows) == {("falling_behind", "a", 30): None}


@BATCHES
def test_groups_with_hot_partitions_fall_behind_with_no_others(batches: list[range]) -> None:
    rows = during(range(30, 60), "ab", **HOT) + during(range(50, 60), "c", **NOT_HOT)
    of_two = {("hot_partition", group, 30): None for group in "ab"}
    assert found_in(batches, rows) == of_two | {("falling_behind", "c", 50): None}


@BATCHES
def test_hot_partitions_of_different_topics_are_not_shared(batches: list[range]) -> None:
    rows = []
    for group, topic in zip("abc", "xyz", strict=True):
        hot = {"worst_topic": topic, "worst_partition": 3, **HOT}
        rows += during(range(30, 60), group, at=[("t", 0, 0), (topic, 3, 0)], **hot)
    assert {kind: group for kind, group, _ in found_in(batches, rows)}.keys() == {"hot_partition"}
    assert {group for _, group, _ in found_in(batches, rows)} == {*"abc"}
    assert causes_in(batches, rows) == {}


@BATCHES
def test_a_hot_partition_of_several_groups_ends_when_another_one_is_the_worst(batches: list[range]) -> None:
    rows = during(range(30, 40), "abc", **HOT) + during(range(40, 60), "abc", at=[("t", 7, 0)], **OTHER_WORST)
    hot = {("hot_partition", group, 30): 40 for group in "abc"}
    assert found_in(batches, rows) == hot | {("falling_behind", group, 42): None for group in "abc"}
    assert causes_in(batches, rows) == {"t 30 30": "abc", "t 42 42": "abc"}


@BATCHES
def test_a_group_with_one_of_the_two_kinds_takes_part_in_no_other_one(batches: list[range]) -> None:
    rows = during(range(30, 60), "a", **HOT) + during(range(35, 60), "bcd", **NOT_HOT)
    behind = {("falling_behind", group, 35): None for group in "bcd"}
    assert found_in(batches, rows) == behind | {("hot_partition", "a", 30): None}
    assert causes_in(batches, rows) == {"t 35 35": "bcd"}


@BATCHES
def test_a_group_that_falls_behind_again_has_no_hot_partition_as_well(batches: list[range]) -> None:
    """It is well for two minutes; in minute 36, its finding continues."""
    rows = during(range(30, 34), "a", **NOT_HOT) + during(range(36, 60), "a", **HOT)
    assert found_in(batches, rows) == {("falling_behind", "a", 30): None}
