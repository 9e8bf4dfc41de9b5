"""The sums of `slo` are those of a model that adds up each window, however snapshots are computed together."""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.findings.budget_burn import budget_burn
from pipeline.analytics.findings.problem import PROBLEMS
from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.analytics.slo.budgets import SLO_PARTS, Timeline, budgets, slo_of_groups
from pipeline.analytics.slo.objectives import OBJECTIVE_LAG
from pipeline.common.arrow_sql import arrow_queries
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS, to_epoch_ms, utc_date
from pipeline.common.rows import Rows as DataRows
from pipeline.common.rows import bucketed
from pipeline.config.slo import SloConfig
from pipeline.derive.backlog import Backlog, Snapshot
from pipeline.derive.slo import continued_rows, timeline_of
from pipeline.tables import LAG, SLO
from tests.helpers.rows import few_rows
from tests.helpers.slo_model import Budget, Figures, Taken, model

FIRST_MS = 1_769_860_800_000
SCHEDULE = 20 * MINUTE_MS
KEYS = [("fresh", "a"), ("fresh", "b"), ("small", "a"), ("small", "c")]
Rows = list[dict[str, Any]]


def objective(window: str = "7d", **more: Any) -> SloConfig:
    given = {"groups": ".", "objective": "consumer_age_ms < 60000", "target": 0.99, "window": window}
    return SloConfig.model_validate(given | more)


SLOS = {"fresh": objective("5d"), "small": objective("6d", objective="consumer_lag <= 9", target=0.9)}


def a_history(seed: int, length: int) -> list[tuple[Snapshot, dict[tuple[str, str], bool | None]]]:
    """Snapshots of two weeks, with gaps. Groups meet or miss objectives, are unknown, or absent: mostly as before."""
    chance = random.Random(seed)
    history, at, last = [], FIRST_MS, dict.fromkeys(KEYS, True)
    states: list[Any] = [True, False, None, "absent"]
    for _ in range(length):
        gap = chance.choices([SCHEDULE, 2 * SCHEDULE, 5 * SCHEDULE, 9 * HOUR_MS, 30 * HOUR_MS], [90, 6, 4, 4, 2])[0]
        at += gap
        status = "complete" if chance.random() < 0.9 else "partial"
        changed = {key: chance.choices(states, [10, 10, 5, 0 if key == KEYS[0] else 1])[0] for key in KEYS}
        last = {key: changed[key] if chance.random() < 0.2 else state for key, state in last.items()}
        met = {key: state for key, state in last.items() if state != "absent"}
        history.append((Snapshot(at, "r", status, 0, 0, 0, 0, 0, 3, (), SCHEDULE), met))
    return history


def states_of(some: Sequence[tuple[Snapshot, dict[tuple[str, str], bool | None]]]) -> pa.Table:
    """The rows of `objectives_met`."""
    names = ["cluster", "snapshot_id", "group_id", "snapshot_date", "slo", "partitions", "partitions_missed"]
    names += ["partitions_unknown", "worst", "topic", "is_met"]
    rows = [
        ("east", s.snapshot_id, group, utc_date(s.snapshot_id), slo, 1, 0, 0, 5, None, is_met)
        for s, met in some
        for (slo, group), is_met in met.items()
    ]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], arrow_schema(SLO.some(names)))


def table_of(*rows: dict[str, Any]) -> pa.Table:
    """The rows of SLO; columns that a row does not name are NULL."""
    return pa.Table.from_pylist(rows, arrow_schema(SLO.schema))


def selected(rows: pa.Table, where: str) -> pa.Table:
    with arrow_queries({"slo": rows}) as queries:
        return queries.rows(f"SELECT * FROM slo WHERE {where}")


def computed(
    history: Sequence[tuple[Snapshot, Any]], sizes: Iterator[int], slos: dict[str, SloConfig]
) -> tuple[Rows, list[Taken]]:
    """The rows of all snapshots, in batches of these sizes, each of which reads only what `continued_rows` selects."""
    stored: Rows = []
    taken: list[Taken] = []
    snapshots, done = [s for s, _ in history], 0
    while done < len(history):
        size = next(sizes)
        batch, before = snapshots[done : done + size], snapshots[:done][::-1][:10]
        backlog = Backlog(batch, before, cast(Any, None), has_more=False)
        known = selected(table_of(*stored), continued_rows("east", backlog, slos))
        rows = budgets(states_of(history[done : done + size]), known, slos, timeline_of(backlog))
        stored += rows.to_pylist()
        reach = backlog.reach
        taken += [Taken(s.snapshot_id, SCHEDULE, reach[s.snapshot_id], met) for s, met in history[done : done + size]]
        done += size
    return stored, taken


def figures(row: dict[str, Any], prefix: str) -> Figures:
    return Figures(ms(row[f"{prefix}_from"]), row[f"{prefix}_met_ms"], row[f"{prefix}_missed_ms"])


def ms(instant: Any) -> int:
    return to_epoch_ms(instant.astimezone())


def budget(row: dict[str, Any]) -> Budget:
    begun = ms(row["begun_at"])
    total = Figures(begun, row["met_ms"], row["missed_ms"])
    missed = None if row["last_missed_at"] is None else (ms(row["last_missed_at"]), row["last_missed_ms"])
    spans = [figures(row, prefix) for prefix in ("window", "hour", "six_hours")]
    return Budget(begun, row["counted_ms"], total, *spans, missed, row["last_known_is_met"])


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_every_row_has_the_sums_of_the_model(seed: int) -> None:
    history = a_history(seed, 420)
    chance = random.Random(seed)
    sizes = iter(lambda: chance.choice([1, 5, 60, 60]), None)
    rows, taken = computed(history, sizes, SLOS)
    expected = model(taken, {name: slo.window_ms for name, slo in SLOS.items()})
    found = {(row["snapshot_id"], row["slo"], row["group_id"]): budget(row) for row in rows}
    assert len(found) == len(rows)
    assert found == expected
    # The history has all that can happen: windows that begin in the chain, chains that begin again, and all states.
    assert sum(b.window.begins > b.begun for b in expected.values()) > 100
    assert len({(slo, group, b.begun) for (_, slo, group), b in expected.items()}) > len(KEYS)
    assert {met for _, of in history for met in of.values()} == {True, False, None}
    check_shares(rows)


def check_shares(rows: Rows) -> None:
    """The shares and rates of rows whose sums are right."""
    for row in rows:
        slo, at = SLOS[row["slo"]], row["snapshot_id"]
        met, missed = row["window_met_ms"], row["window_missed_ms"]
        allowed = (1 - slo.target) * slo.window_ms
        passed = min(at - ms(row["window_from"]), slo.window_ms)
        assert row["window_unknown_ms"] == max(0, passed - met - missed)
        assert row["attainment"] == (pytest.approx(met / (met + missed)) if met + missed else None)
        left = pytest.approx(1 - min(missed, slo.window_ms) / allowed)
        assert row["budget_left"] == (left if met + missed else None)
        for rate, prefix, length in (("burn_rate_1h", "hour", HOUR_MS), ("burn_rate_6h", "six_hours", 6 * HOUR_MS)):
            used = min(row[f"{prefix}_missed_ms"], length) / length / (1 - slo.target)
            is_known = at - ms(row["begun_at"]) >= length
            assert row[rate] == (pytest.approx(used) if is_known else None)


def test_hand_made_figures() -> None:
    """Six snapshots, 20 minutes apart. It is not known how long the state of the first one has lasted."""
    states = [True, True, False, None, False, False]
    history = [
        (Snapshot(FIRST_MS + n * SCHEDULE, "r", "complete", 0, 0, 0, 0, 0, 1, (), SCHEDULE), {("fresh", "a"): is_met})
        for n, is_met in enumerate(states)
    ]
    rows, _ = computed(history, iter([6]), {"fresh": SLOS["fresh"]})
    last = max(rows, key=lambda row: row["snapshot_id"])
    minutes = {name: value / MINUTE_MS for name, value in last.items() if name.endswith("_ms")}
    assert (minutes["met_ms"], minutes["missed_ms"], minutes["window_unknown_ms"]) == (20, 60, 20)
    assert (minutes["hour_met_ms"], minutes["hour_missed_ms"], minutes["six_hours_missed_ms"]) == (0, 40, 60)
    assert last["attainment"] == 0.25
    assert last["budget_left"] == pytest.approx(1 - 60 / 72)  # 1 % of 5 days are 72 minutes
    assert (last["burn_rate_1h"], last["burn_rate_6h"]) == (pytest.approx(200 / 3), None)
    assert (last["objective"], last["topics"], last["target"]) == ("consumer_age_ms < 60000", None, 0.99)
    assert (last["counted_ms"], last["earlier_snapshot_id"]) == (SCHEDULE, FIRST_MS + 4 * SCHEDULE)


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        ({}, True),
        ({"target": 0.5}, True),
        ({"groups": "^a"}, True),
        ({"objective": "consumer_age_ms < 60001"}, False),
        ({"objective": "consumer_age_ms <= 60000"}, False),
        ({"topics": "."}, False),
        ({"window": "8d"}, False),
    ],
)
def test_sums_begin_again_if_they_would_mean_something_else(change: dict[str, Any], goes_on: bool) -> None:
    ids = [FIRST_MS + n * SCHEDULE for n in range(3)]
    snapshots = [Snapshot(i, "r", "complete", 0, 0, 0, 0, 0, 1, (), SCHEDULE) for i in ids]
    history = [(s, {("x", "a"): False}) for s in snapshots]
    stored, _ = computed(history[:2], iter([2]), {"x": objective()})
    backlog = Backlog(snapshots[2:], snapshots[1::-1], cast(Any, None), has_more=False)
    slos = {"x": objective(**change)}
    known = selected(table_of(*stored), continued_rows("east", backlog, slos))
    (row,) = budgets(states_of(history[2:]), known, slos, timeline_of(backlog)).to_pylist()
    assert (row["missed_ms"], ms(row["begun_at"])) == ((2 * SCHEDULE, ids[0]) if goes_on else (0, ids[2]))
    assert row["target"] == change.get("target", 0.99)


def test_nothing_is_left_or_attained_if_nothing_is_known() -> None:
    snapshots = [Snapshot(FIRST_MS + n * SCHEDULE, "r", "complete", 0, 0, 0, 0, 0, 1, (), SCHEDULE) for n in range(3)]
    history: list[Any] = [(s, {("x", "a"): None, ("x", "b"): None}) for s in snapshots[:2]]
    history.append((snapshots[2], {("x", "a"): None, ("x", "b"): True}))
    rows, _ = computed(history, iter([1, 2]), {"x": objective()})
    found = {(row["group_id"], row["snapshot_id"]): row for row in rows}
    names = ("window_unknown_ms", "attainment", "budget_left", "burn_rate_1h", "last_missed_at", "last_known_is_met")
    dark, known = (tuple(found[group, snapshots[2].snapshot_id][name] for name in names) for group in ("a", "b"))
    assert dark == (2 * SCHEDULE, None, None, None, None, None)
    assert known == (SCHEDULE, 1, 1, None, None, True)


def test_a_late_snapshot_adds_nothing() -> None:
    ids = [FIRST_MS + n * SCHEDULE for n in range(3)]
    snapshots = [Snapshot(i, "r", "complete", 0, 0, 0, 0, 0, 1, (), SCHEDULE) for i in ids]
    stored, _ = computed([(s, {("x", "a"): False}) for s in snapshots[:2]], iter([2]), {"x": objective()})
    backlog = Backlog(snapshots[2:], snapshots[1::-1], cast(Any, None), has_more=False)
    timeline = timeline_of(backlog, late={ids[2]})
    met = states_of([(snapshots[2], {("x", "a"): False})])
    (row,) = budgets(met, table_of(*stored), {"x": objective()}, timeline).to_pylist()
    assert (row["missed_ms"], row["counted_ms"], row["is_met"]) == (SCHEDULE, 0, False)


def test_a_snapshot_without_a_schedule_speaks_for_no_time() -> None:
    snapshots = [Snapshot(FIRST_MS + n, "r", "complete", 0, 0, 0, 0, 0, 1) for n in range(2)]
    assert timeline_of(Backlog(snapshots, [], cast(Any, None), has_more=False)).counted_ms == {
        FIRST_MS: 0,
        FIRST_MS + 1: 0,
    }


def test_what_is_read_does_not_depend_on_the_length_of_the_history_or_window() -> None:
    """For one new snapshot: the one before it, and one for each window."""
    every = [FIRST_MS + n * 5 * MINUTE_MS for n in range(9 * 288)]
    snapshots = [Snapshot(i, "r", "complete", 0, 0, 0, 0, 0, 1, (), 5 * MINUTE_MS) for i in every[-11:]]
    backlog = Backlog(snapshots[-1:], snapshots[-2::-1], cast(Any, None), has_more=False)
    rows = table_of(*({"cluster": "east", "snapshot_id": i, "snapshot_date": utc_date(i)} for i in every))
    read = sorted(selected(rows, continued_rows("east", backlog, SLOS))["snapshot_id"].to_pylist())
    assert [every[-1] - i for i in read] == [6 * DAY_MS, 5 * DAY_MS, 6 * HOUR_MS, HOUR_MS, 5 * MINUTE_MS]


def burns(states: Sequence[bool | None], minutes: int, gaps: Sequence[int] = ()) -> str:
    """A letter for each snapshot: c or w if it has a critical problem or a warning, else a dot.

    Snapshots are `minutes` apart, and three times that before each number in `gaps`. All meet the objective at first,
    for as long as a burn rate needs.
    """
    well = 6 * 60 // minutes + 1
    every, at = [], FIRST_MS
    for number, is_met in enumerate([*[True] * well, *states]):
        at += (3 if number - well in gaps else 1) * minutes * MINUTE_MS
        every.append(
            (
                Snapshot(at, "r", "complete", 0, 0, 0, 0, 0, 1, (), minutes * MINUTE_MS),
                {("x", "a"): is_met},
            )
        )
    rows, _ = computed(every, iter([60] * len(every)), {"x": objective()})
    found = {p["snapshot_id"]: p["severity"][0] for p in budget_burn(table_of(*rows)).to_pylist()}
    return "".join(found.get(s.snapshot_id, ".") for s, _ in every[well:])


def test_an_unknown_snapshot_begins_no_problem_after_one_has_ended() -> None:
    states = [*[False] * 3, True, True, True, None, True, True, None]
    assert burns(states, 15) == ".ccww....."
    states = [*[False] * 3, None, None, True, None, True, True, True]
    assert burns(states, 15) == ".cccc....."


def test_one_missed_snapshot_is_not_two_because_an_unknown_one_follows() -> None:
    assert burns([False, None, True, None], 15, gaps=[0]) == "...."
    assert burns([False, None, False, None], 15, gaps=[0]) == "..cc"


def test_a_group_that_misses_a_few_minutes_of_every_ten_has_one_problem() -> None:
    """After the first miss, there are never three successive snapshots without the problem, until half an hour after
    the last one.
    """
    states = ([False] * 3 + [True] * 7) * 4 + [True] * 40
    first, others = ".." + "c" * 6 + "..", "c" * 8 + "ww"
    assert burns(states, 1) == first + others * 2 + "c" * 8 + "w" * 25 + "." * 17


def test_many_rows_have_the_same_budgets_and_problems_as_few(spark: SparkSession) -> None:
    """In buckets of Spark's workers: three groups, the second of which misses its objective all the time."""
    ids = [FIRST_MS + n * 15 * MINUTE_MS for n in range(6)]
    names = "snapshot_id group_id topic partition offset_status consumer_age_ms consumer_lag"
    ages = {"a": 5, "b": 70_000, "c": 6}
    readers = [(i, group, "t", p, "ok", age, 9) for i in ids for group, age in ages.items() for p in range(2)]
    lag = few_rows(LAG, names, *readers)
    before = dict(zip(ids[1:], ids[:-1], strict=True))
    timeline = Timeline(before, dict.fromkeys(ids, 15 * MINUTE_MS), dict.fromkeys(ids, ids[0]))
    compute = partial(slo_of_groups, slos={"x": objective()}, markers=1, timeline=timeline)
    many = DataRows(lag.chosen(OBJECTIVE_LAG).frame(spark, OBJECTIVE_LAG).repartition(2))
    found = []
    for rows in (lag, many):
        parts = {"lag": rows, "known": DataRows(table_of())}
        slo = bucketed(parts, SLO_PARTS, GROUP, compute, SLO.schema, 3)
        problems = slo.grouped(GROUP_AT, budget_burn, PROBLEMS)
        found.append([sorted(some.collected(), key=str) for some in (slo, problems)])
    by_driver, by_spark = found
    assert by_driver == by_spark
    assert {(row["group_id"], row["missed_ms"]) for row in by_spark[0] if row["snapshot_id"] == ids[-1]} == {
        ("a", 0),
        ("b", 75 * MINUTE_MS),
        ("c", 0),
    }
    # It is judged from the snapshot on that is an hour after the first one.
    assert {(row["group_id"], row["snapshot_id"]) for row in by_spark[1]} == {("b", ids[4]), ("b", ids[5])}
