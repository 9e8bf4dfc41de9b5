"""Offsets that are transaction markers, which no reader ever gets, are no lag of records."""

import pytest

from pipeline.config.status import StatusConfig
from tests.helpers.judged import judged, steady


@pytest.mark.parametrize(("lag", "status"), [(0, "ok"), (1, "ok"), (2, "not_progressing")])
def test_one_unread_offset_of_a_quiet_log_may_be_a_transaction_marker(lag: int, status: str) -> None:
    committed = steady(10)[-1][0]
    assert committed is not None
    assert judged([*steady(10), *[(committed, committed + lag)] * 60])[-1] == status


@pytest.mark.parametrize(("markers", "status"), [(2, "not_progressing"), (3, "ok")])
def test_as_many_unread_offsets_as_configured_markers_are_ok(markers: int, status: str) -> None:
    committed = steady(10)[-1][0]
    assert committed is not None
    assert (
        judged([*steady(10), *[(committed, committed + 3)] * 60], settings=StatusConfig(markers=markers))[-1] == status
    )


@pytest.mark.parametrize(
    ("lag", "markers", "status"),
    [
        pytest.param(1, 0, "not_progressing", id="the last record, which the setting alone would hide"),
        pytest.param(1, 1, "ok", id="one marker"),
        pytest.param(2, 1, "not_progressing", id="a record and a marker"),
        pytest.param(2, 2, "ok", id="two markers, which are more than the setting"),
        pytest.param(40, 39, "not_progressing", id="a record among many markers"),
        pytest.param(40, 40, "ok", id="many markers"),
        pytest.param(1, None, "ok", id="not known, as many as the setting"),
        pytest.param(2, None, "not_progressing", id="not known, more than the setting"),
    ],
)
def test_where_markers_are_counted_a_reader_waits_exactly_if_more_is_unread(
    lag: int, markers: int | None, status: str
) -> None:
    committed = steady(10)[-1][0]
    assert committed is not None
    assert judged([*steady(10), *[(committed, committed + lag)] * 60], markers=[0] * 10 + [markers] * 60)[-1] == status


@pytest.mark.parametrize(("records", "status"), [(0, "ok"), (1, "not_progressing")])
def test_markers_that_keep_being_written_are_no_records(records: int, status: str) -> None:
    committed = steady(10)[-1][0]
    assert committed is not None
    quiet = [(committed, committed + records + number) for number in range(1, 60)]
    assert judged([*steady(10), *quiet], markers=[0] * 10 + [*range(1, 60)])[-1] == status
    assert judged([*steady(10), *quiet])[-1] == "not_progressing", "without a count, a log that grows has records"


def test_a_reader_that_only_markers_are_left_for_does_not_wait() -> None:
    """So a long time before a marker does not make a long wait usual, and a stop is found as early as before."""
    night = [(900, 901)] * 600
    stopped = [(1_000, 1_000 + 100 * number) for number in range(4)]
    assert judged([*steady(10), *night, *stopped], markers=[0] * 10 + [1] * 600 + [0] * 4)[-1] == "not_progressing"
    assert judged([*steady(10), *night, *steady(20)[10:], *night], markers=[None] * 1_220)[-1] == "ok"


def test_markers_that_could_not_be_counted_now_and_then_give_no_alarm() -> None:
    markers = [0] * 10 + [1 if number % 7 else None for number in range(200)]
    assert set(judged([*steady(10), *[(900, 901)] * 200], markers=markers)) == {"ok"}
