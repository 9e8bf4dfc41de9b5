"""The parts of sentences: numbers, bytes, times and names, and what is not known."""

from typing import Any

import pytest

from pipeline.kinds.text import (
    counted,
    duration,
    for_streams,
    instant,
    iso,
    number,
    part,
    percent,
    quotient,
    rounded,
    sentence,
    size,
    tenths,
)
from tests.helpers.worded import NOON_MS

LARGEST = 2**63 - 1


def test_a_sentence_leaves_out_what_is_not_known() -> None:
    assert sentence("a", None, "b") == "ab"
    assert part(" (", None, ")") is None
    assert part(" (", "1 B", ")") == " (1 B)"


@pytest.mark.parametrize("function", [number, tenths, size, duration, instant, iso])
def test_the_text_of_what_is_not_known_is_not_known(function: Any) -> None:
    assert function(None) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1_234, "1,234 records"), (None, None)],
)
def test_a_noun_has_an_s_unless_it_is_one(value: int | None, text: str | None) -> None:
    assert counted(value, "record") == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (-1_234, "-1,234"), (LARGEST, "9,223,372,036,854,775,807"), (2.5, "2"), (3.5, "4")]
)
def test_numbers_have_commas(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(10.0, "10"), (12.5, "12.5"), (0.04, "0"), (1_234.56, "1,234.6")])
def test_rates_have_at_most_one_digit_after_the_point(value: float, text: str) -> None:
    assert tenths(value) == text


@pytest.mark.parametrize(
    ("epoch_ms", "shown", "for_programs"),
    [
        (NOON_MS + 59_999, "2026-01-31 12:00 UTC", "2026-01-31T12:00:59Z"),
        (-1, "1969-12-31 23:59 UTC", "1969-12-31T23:59:59Z"),
        (-61_000_000_000_000, "0036-12-26 11:33 UTC", "0036-12-26T11:33:20Z"),
        (253_402_300_799_999, "9999-12-31 23:59 UTC", "9999-12-31T23:59:59Z"),
        (253_402_300_800_000, None, None),
        (LARGEST, None, None),
        (-LARGEST, None, None),
    ],
)
def test_instants_are_in_utc_and_in_the_years_that_have_four_digits(
    epoch_ms: int, shown: str | None, for_programs: str | None
) -> None:
    assert (instant(epoch_ms), iso(epoch_ms)) == (shown, for_programs)


@pytest.mark.parametrize(
    ("value", "digits", "result"),
    [
        (0.125, 2, 0.13),
        (1.15, 1, 1.2),
        (2.5, 0, 3.0),
        (0.4999, 0, 0.0),
        (1e-5, 2, 0.0),
        (1e300, 2, 1e300),
        (None, 2, None),
    ],
)
def test_halves_are_rounded_up(value: float | None, digits: int, result: float | None) -> None:
    assert rounded(value, digits) == result


@pytest.mark.parametrize(
    ("value", "of", "result"), [(1, 2, 0.5), (0, 2, 0.0), (1, 0, None), (1, None, None), (None, 2, None)]
)
def test_nothing_is_a_part_of_nothing(value: float | None, of: float | None, result: float | None) -> None:
    assert quotient(value, of) == result


def test_a_share_is_in_whole_percent() -> None:
    assert [percent(share) for share in (0.0, 0.804, 0.805, 1.0)] == ["0 %", "80 %", "80 %", "100 %"]


def test_a_group_of_kafka_streams_has_its_own_tool() -> None:
    assert for_streams("kafka-consumer-groups --list", "streams") == "kafka-streams-groups --list"
    for other in ("consumer", "classic", None):
        assert for_streams("kafka-consumer-groups --list", other) == "kafka-consumer-groups --list"
