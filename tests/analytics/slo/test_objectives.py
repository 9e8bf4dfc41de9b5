"""Whether a group meets an objective: every partition counts, and what is not known is not met."""

from typing import Any

import pytest

from pipeline.analytics.slo.objectives import objectives_met
from pipeline.config.slo import SloConfig
from pipeline.tables import LAG
from tests.helpers.rows import few_rows

NAMES = "snapshot_id group_id topic partition offset_status consumer_age_ms consumer_lag"
Reader = tuple[str, str, int, str | None, int | None]
"""A group, topic and partition, the offset_status and the age."""


def slo(objective: str = "consumer_age_ms < 60000", **more: Any) -> SloConfig:
    return SloConfig.model_validate({"groups": ".", "objective": objective, "target": 0.99} | more)


def met(
    slos: dict[str, SloConfig], *readers: Reader, lags: tuple[int, ...] = (), markers: int = 1
) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows by objective and group. A reader's lag in records is its age in seconds, unless `lags` has it."""
    of = [*lags, *(None if reader[-1] is None else reader[-1] // 1000 for reader in readers[len(lags) :])]
    lag = [(7, *reader, records) for reader, records in zip(readers, of, strict=True)]
    rows = objectives_met(few_rows(LAG, NAMES, *lag).collected_table(), slos, markers).to_pylist()
    found = {(row["slo"], row["group_id"]): row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize(
    ("objective", "value", "expected"),
    [
        ("consumer_age_ms < 60000", 59_999, True),
        ("consumer_age_ms < 60000", 60_000, False),
        ("consumer_age_ms <= 60000", 60_000, True),
        ("consumer_age_ms <= 60000", 60_001, False),
        ("consumer_lag < 60", 59_999, True),
        ("consumer_lag < 60", 60_000, False),
        ("consumer_age_ms < 60000", None, None),
        ("consumer_lag_bytes < 60000", 0, None),
    ],
)
def test_a_limit_has_two_sides(objective: str, value: int | None, expected: bool | None) -> None:
    row = met({"x": slo(objective)}, ("g", "t", 0, "ok", value))["x", "g"]
    assert row["is_met"] is expected


@pytest.mark.parametrize(
    ("ages", "is_met", "counts", "worst"),
    [
        ([1, 2, 59_999], True, (3, 0, 0), 59_999),
        ([1, 60_000, 70_000], False, (3, 2, 0), 70_000),
        ([1, None], None, (2, 0, 1), 1),
        ([60_000, None], False, (2, 1, 1), 60_000),
        ([None, None], None, (2, 0, 2), None),
    ],
)
def test_the_worst_partition_decides(
    ages: list[int | None], is_met: bool | None, counts: tuple[int, ...], worst: int | None
) -> None:
    row = met({"x": slo()}, *(("g", "t", number, "ok", age) for number, age in enumerate(ages)))["x", "g"]
    assert row["is_met"] is is_met
    assert (row["partitions"], row["partitions_missed"], row["partitions_unknown"], row["worst"]) == (*counts, worst)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("ok", True),
        ("deleted_unread", True),
        ("deleted_uncommitted", True),
        ("beyond_end", None),
        ("recreated", None),
        ("truncated", None),
        ("no_watermark", None),
        (None, None),
    ],
)
def test_a_lag_counts_only_if_the_commit_fits_the_log(status: str | None, expected: bool | None) -> None:
    rows = met({"x": slo("consumer_lag < 5")}, ("g", "t", 0, "ok", 0), ("g", "t", 1, status, -2_000))
    assert rows["x", "g"]["is_met"] is expected


def test_a_partition_without_a_commit_does_not_count() -> None:
    found = met({"x": slo()}, ("g", "t", 0, "ok", 5), ("g", "t", 1, "no_commit", None), ("h", "t", 0, "no_commit", 5))
    assert [(key, row["is_met"], row["partitions"]) for key, row in found.items()] == [(("x", "g"), True, 1)]


@pytest.mark.parametrize(
    ("lag", "age", "markers", "expected"),
    [
        (0, 0, 1, True),
        (1, 59_999, 1, True),
        (1, 60_000, 1, None),
        (1, 90_000_000, 1, None),
        (2, 60_000, 1, False),
        (1, 60_000, 0, False),
        (3, 60_000, 3, None),
        (4, 60_000, 3, False),
    ],
)
def test_it_is_not_known_whether_the_last_offsets_are_records_or_transaction_markers(
    lag: int, age: int, markers: int, expected: bool | None
) -> None:
    row = met({"x": slo()}, ("g", "t", 0, "ok", age), lags=(lag,), markers=markers)["x", "g"]
    assert row["is_met"] is expected
    assert (row["partitions_missed"], row["partitions_unknown"]) == (int(expected is False), int(expected is None))
    assert row["worst"] == (None if expected is None else age)


@pytest.mark.parametrize(
    ("lag", "headroom", "unread_markers", "expected"),
    [
        (1, 0, 1, True),
        (3, 0, 3, True),
        (1, 0, 0, False),
        (3, 0, 2, False),
        (1, 0, None, None),
        (1, -1, 1, None),
        (1, None, 1, None),
    ],
)
@pytest.mark.parametrize("objective", ["consumer_age_ms < 60000", "consumer_lag <= 0"])
def test_where_markers_are_counted_an_objective_is_met_exactly_if_only_markers_are_unread(
    objective: str,
    lag: int,
    headroom: int | None,
    unread_markers: int | None,
    expected: bool | None,
) -> None:
    """What was deleted below log start is not known."""
    names = f"{NAMES} headroom unread_markers"
    row = (7, "g", "t", 0, "ok", 60_000, lag, headroom, unread_markers)
    found = objectives_met(few_rows(LAG, names, row).collected_table(), {"x": slo(objective)}, 1).to_pylist()
    assert [each["is_met"] for each in found] == [expected]


def test_what_may_be_a_marker_hides_no_other_partition() -> None:
    old, fine, late = (("g", "t", number, "ok", age) for number, age in enumerate((90_000_000, 5, 60_000)))
    found = met({"x": slo()}, old, fine, late, lags=(1, 1, 2))["x", "g"]
    assert (found["is_met"], found["partitions_missed"], found["worst"]) == (False, 1, 60_000)
    found = met({"x": slo()}, old, fine, lags=(1, 1))["x", "g"]
    assert (found["is_met"], found["partitions_missed"], found["worst"]) == (None, 0, 5)


def test_an_objective_for_records_has_the_same_limit_of_what_is_known() -> None:
    def of(objective: str, lag: int) -> bool | None:
        found = met({"x": slo(objective)}, ("g", "t", 0, "ok", 5), lags=(lag,))["x", "g"]["is_met"]
        assert found is None or isinstance(found, bool)
        return found

    assert [of("consumer_lag <= 0", lag) for lag in (0, 1, 2)] == [True, None, False]
    assert [of("consumer_lag <= 1", lag) for lag in (0, 1, 2)] == [True, True, False]


def test_the_topic_is_named_if_it_is_the_only_one() -> None:
    late, fine = 60_000, 1
    both = [("g", "t", 0, "ok", late), ("g", "t", 1, "ok", late), ("g", "u", 0, "ok", fine)]
    assert met({"x": slo()}, *both)["x", "g"]["topic"] == "t"
    assert met({"x": slo()}, *both, ("g", "v", 0, "ok", late))["x", "g"]["topic"] is None
    assert met({"x": slo()}, both[2])["x", "g"]["topic"] is None


def test_expressions_are_those_of_python() -> None:
    slos = {
        "named": slo(groups="^(?P<word>[a-z]+)-(?P=word)$"),
        "unicode": slo(groups=r"^\w+$"),
        "orders": slo(groups="-", topics="^orders"),
        "long": slo(groups="end"),
    }
    groups = ["pay-pay", "pay-bill", "größe", "x" * 1_100 + "end"]
    found = met(slos, *((g, t, 0, "ok", 5) for g in groups for t in ("orders-1", "old-orders")))
    by_slo = {name: sorted(group for slo, group in found if slo == name) for name in slos}
    assert by_slo == {
        "named": ["pay-pay"],
        "unicode": ["größe", groups[3]],
        "orders": ["pay-bill", "pay-pay"],
        "long": [],
    }
    assert {row["partitions"] for (name, _), row in found.items() if name == "orders"} == {1}
    assert found["unicode", "größe"]["partitions"] == 2
