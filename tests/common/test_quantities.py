"""How bytes and durations are written, with their errors."""

import pytest

from pipeline.common.quantities import duration, size


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        pytest.param(2_900_000, None, "2.9 MB", id="no error is stated"),
        pytest.param(2_900_000, 0, "2.9 MB", id="exact"),
        pytest.param(2_900_000, 100_000, "2.9 MB ± 0.1 MB", id="in one unit"),
        pytest.param(2_940_000, 110_000, "2.9 MB ± 0.2 MB", id="what is rounded off is part of the error"),
        pytest.param(1_234_567, 900, "1.23 MB ± 10 kB", id="an error too small for the unit"),
        pytest.param(287_000, 1_010_000, "< 1.3 MB", id="the error exceeds the value"),
        pytest.param(1_000, 1_000, "1 kB ± 1 kB", id="the error is as large as the value"),
        pytest.param(1_000, 1_001, "< 2.1 kB", id="the error is larger by one"),
        pytest.param(0, 5, "< 5 B", id="none, give or take some"),
        pytest.param(-40_000, 500, "−40 kB ± 0.5 kB", id="negative"),
        pytest.param(-5, 100, "> −110 B", id="negative, and the error exceeds it"),
    ],
)
def test_values_and_errors_are_rounded_to_readable_digits(value: int, error: int | None, expected: str) -> None:
    assert size(value, error) == expected


def test_the_rounded_error_covers_the_stated_one() -> None:
    """The text, converted back to bytes, always covers at least the range of value and error."""
    units = {"B": 1, "kB": 1_000, "MB": 10**6, "GB": 10**9}

    def read(text: str) -> float:
        number, unit = text.split()
        return float(number.replace(",", "")) * units[unit]

    for value in (0, 1, 999, 1_005, 99_949, 123_456, 999_999, 7_654_321, 10**12 + 1):
        for error in (1, 9, 95, 1_049, 12_345, 999_999, 10**9):
            shown = size(value, error)
            if error > value:
                assert read(shown.removeprefix("< ")) >= value + error
            else:
                middle, around = map(read, shown.split(" ± "))
                assert middle - around <= value - error + 1e-3
                assert middle + around >= value + error - 1e-3


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (59_949, "59.9 s"),
        (90_000, "1.5 min"),
        (3_600_000, "1 h"),
        (3_780_000, "1.05 h"),
        (86_400_000, "1 d"),
        (2**63 - 1, "106,751,991,167 d"),
    ],
)
def test_times_are_in_a_readable_unit(ms: int, expected: str) -> None:
    assert duration(ms) == expected
