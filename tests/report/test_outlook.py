"""What is said about when a group will have caught up, and about its objectives."""

from typing import Any

import pytest

from pipeline.report.model.details import Forecast, Objective
from pipeline.report.read import details
from pipeline.report.text.outlook import (
    attainment,
    caught_up,
    deleted,
    forecast_of,
    objectives_in_words,
    objectives_of,
    outlook,
    rates,
    share,
    why_no_bytes,
)
from pipeline.tables import FORECASTS, SLO
from tests.helpers.reports import NOON, at, group, lag_row, report, table_of

MINUTE = 60_000


def forecast(**more: Any) -> Forecast:
    values: dict[str, Any] = {
        "cluster": "east",
        "group_id": "g",
        "ends_ms": NOON,
        "caught_up_in_ms": 20 * MINUTE,
        "caught_up_in_low_ms": 18 * MINUTE,
        "caught_up_in_high_ms": 23 * MINUTE,
        "reason": None,
    }
    return Forecast(**values | more)


def objective(**more: Any) -> Objective:
    values: dict[str, Any] = {
        "cluster": "east",
        "slo": "fast",
        "group_id": "g",
        "objective": "consumer_age_ms < 60000",
        "target": 0.99,
        "window_ms": 7 * 86_400_000,
        "is_met": True,
        "attainment": 0.995,
        "window_unknown_ms": 0,
        "budget_left": 0.5,
        "burn_rate_1h": 0.0,
        "burn_rate_6h": 0.0,
    }
    return Objective(**values | more)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (forecast(), "caught up in 20 min (18 min to 23 min)"),
        (forecast(basis="now"), "caught up in 20 min (18 min to 23 min)"),
        (forecast(basis="same_hour"), "caught up in 20 min (18 min to 23 min), by the traffic of earlier weeks"),
        (
            forecast(caught_up_in_ms=None, reason="never_at_this_rate", basis="same_hour"),
            "never caught up at this rate, by the traffic of earlier weeks",
        ),
        (forecast(caught_up_in_high_ms=None), "caught up in 20 min (18 min to never)"),
        (forecast(caught_up_in_low_ms=0), "caught up in 20 min (now to 23 min)"),
        (forecast(caught_up_in_ms=0, caught_up_in_low_ms=0, caught_up_in_high_ms=0), None),
        (forecast(caught_up_in_ms=None, reason="never_at_this_rate"), "never caught up at this rate"),
        (forecast(caught_up_in_ms=None, reason="too_uncertain"), "its rate varies too much for a forecast"),
        (forecast(caught_up_in_ms=None, reason="too_little_history"), None),
        (forecast(caught_up_in_ms=None, reason="not_known"), None),
        (None, None),
    ],
)
def test_a_forecast_is_said_with_its_band(found: Forecast | None, words: str | None) -> None:
    assert caught_up(found) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "100 %"),
        (0, "0 %"),
        (0.5, "50 %"),
        (0.95238, "95.24 %"),
        (0.9995, "99.95 %"),
        (0.99999999, "99.9999 %"),
        (-3.8, "−380 %"),
        (-12.345678, "−1,234.57 %"),
    ],
)
def test_what_is_less_than_all_is_not_rounded_up_to_all(value: float, text: str) -> None:
    assert share(value) == text


@pytest.mark.parametrize(
    ("band", "words"),
    [
        ((300, 240, 420), "retention deletes unread records in 5 h (4 h to 7 h)"),
        ((300, 0, None), "retention deletes unread records in 5 h (now to never)"),
        ((None, 240, None), None),
    ],
)
def test_when_records_are_deleted_is_said_with_its_band(band: tuple[int | None, ...], words: str | None) -> None:
    names = ("deleted_in_ms", "deleted_in_low_ms", "deleted_in_high_ms")
    times = {name: None if minutes is None else minutes * MINUTE for name, minutes in zip(names, band, strict=True)}
    found = forecast(**times)
    assert deleted(found) == words
    assert outlook(found) == ["caught up in 20 min (18 min to 23 min)", *([words] if words else [])]
    assert (deleted(None), outlook(None)) == (None, [])


def test_rates_are_in_offsets_and_where_they_are_known_in_bytes() -> None:
    known = {
        "written_per_s_5m": 1_234.6,
        "written_bytes_per_s_5m": 1_234_567.8,
        "committed_per_s_5m": 0.01234,
        "committed_bytes_per_s_5m": 0.0,
        "committed_per_s_1h": 99.96,
    }
    found = forecast(bytes_reason="too_uncertain", **known)
    assert rates(found) == [("5 min", "1,235 offsets · 1.23 MB", "0.0123 offsets · 0 B"), ("1 h", "–", "100 offsets")]
    assert why_no_bytes(found) == "Where there are no bytes, they are not known to within a quarter."
    assert (rates(forecast()), rates(None)) == ([], [])
    assert [why_no_bytes(f) for f in (forecast(bytes_reason="not_known"), forecast(**known), None)] == [None] * 3


def test_an_objective_is_a_sentence() -> None:
    assert objectives_in_words([objective(), objective(is_met=False, attainment=0.95, budget_left=-4)]) == [
        "Objective fast (consumer_age_ms < 60000): 99.5 % of 99 %, 50 % of the error budget left over 7 d.",
        "Objective fast (consumer_age_ms < 60000): 95 % of 99 %, −400 % of the error budget left over 7 d, missed now.",
    ]
    assert attainment(objective(attainment=None, budget_left=None)) == "not known of 99 %"


def test_a_group_has_its_own_forecast_and_objectives() -> None:
    others = (forecast(group_id="f"), forecast(cluster="west"))
    slo = (objective(group_id="f"), objective(cluster="west"), objective(slo="mine"))
    whole = report(group(), forecasts=(*others, forecast(ends_ms=1)), objectives=slo)
    found = forecast_of(whole, group())
    assert found is not None
    assert found.ends_ms == 1
    assert [o.slo for o in objectives_of(whole, group())] == ["mine"]
    assert forecast_of(whole, group("none")) is None


def test_forecasts_are_those_of_whole_groups() -> None:
    def row(group_id: str, topic: str | None, in_ms: int) -> dict[str, Any]:
        return {**lag_row(0, group_id, 0), "topic": topic, "ends_at": at(1), "caught_up_in_ms": in_ms}

    found = details.forecasts(table_of(FORECASTS, row("g", None, 5), row("g", "t", 6), row("f", None, 7))).to_pylist()
    assert [(r["group_id"], r["caught_up_in_ms"]) for r in found] == [("f", 7), ("g", 5)]
    assert {r["ends_ms"] for r in found} == {NOON + MINUTE}


def test_the_objectives_with_the_least_budget_are_listed() -> None:
    def row(group_id: str, left: float | None) -> dict[str, Any]:
        return {**lag_row(0, group_id, 0), "slo": "fast", "budget_left": left, "target": 0.9, "window_ms": 1}

    rows = table_of(SLO, row("a", 0.5), row("b", None), row("c", -1.0), row("d", 0.7))
    assert [r["group_id"] for r in details.objectives(rows, 3).to_pylist()] == ["c", "a", "d"]
    assert [r["group_id"] for r in details.objectives(rows, 9).to_pylist()] == ["c", "a", "d", "b"]


def test_only_an_attainment_below_the_target_is_missed() -> None:
    assert [objective(attainment=a).is_missed for a in (0.98, 0.99, 0.999, None)] == [True, False, False, False]
