"""Which part of a lake a page about one finding shows."""

from datetime import timedelta
from typing import Any

import pytest

from pipeline.common.epoch import HOUR_MS, MINUTE_MS, to_epoch_ms
from pipeline.common.errors import LakeError
from pipeline.lake import Lake
from pipeline.report.model.selection import Selection
from pipeline.report.read.incident import selection_of
from pipeline.tables import FINDINGS
from tests.helpers.findings import NOW, Row, finding
from tests.helpers.reports import frame

ID = "ab" * 32
NOW_MS = to_epoch_ms(NOW)


@pytest.fixture(params=["driver", "spark"])
def with_findings(request: pytest.FixtureRequest, lake: Lake) -> Any:
    if request.param == "spark":
        lake.__dict__["_driver"] = None

    def write(*rows: Row) -> Lake:
        lake.replace(FINDINGS, frame(lake.spark, FINDINGS, *rows), "true")
        return lake

    return write


def lasting(minutes: int, **more: Any) -> Row:
    """A finding that began this many minutes before NOW."""
    return finding(ID, first_seen=NOW - timedelta(minutes=minutes), last_seen=NOW, **more)


def resolved(minutes: int) -> Row:
    ends = {"resolved_at": NOW + timedelta(minutes=1), "resolution_confirmed_at": NOW + timedelta(minutes=3)}
    return lasting(minutes, **ends)


@pytest.mark.parametrize(
    ("row", "before_ms", "to_ms"),
    [
        (lasting(5), 30 * MINUTE_MS, None),
        (lasting(120), 2 * HOUR_MS, None),
        (lasting(7 * 60), 6 * HOUR_MS, None),
        # From its beginning to the snapshot that confirms its end it took 43 minutes.
        (resolved(40), 43 * MINUTE_MS, NOW_MS + 33 * MINUTE_MS),
    ],
)
def test_it_shows_the_group_from_before_the_finding_until_after_it(
    with_findings: Any, row: Row, before_ms: int, to_ms: int | None
) -> None:
    lake = with_findings(row, finding("cd" * 32))
    from_ms = to_epoch_ms(row["first_seen"]) - before_ms
    expected = Selection(("east",), from_ms, to_ms, group_ids=("orders",), finding_id=ID)
    for digits in (6, 64):
        assert selection_of(lake, ID[:digits]) == expected


def test_a_finding_without_a_group_shows_its_cluster(with_findings: Any) -> None:
    found = selection_of(with_findings(lasting(5, group_id=None)), ID)
    assert (found.clusters, found.group_ids) == (("east",), None)


def test_a_finding_of_a_topic_shows_the_groups_that_it_concerns(with_findings: Any) -> None:
    found = selection_of(with_findings(lasting(5, group_id=None, evidence='{"groups": ["a", "b\'c"]}')), ID)
    assert found.group_ids == ("a", "b'c")


def test_an_id_that_names_no_or_several_findings_is_refused(with_findings: Any) -> None:
    lake = with_findings(lasting(5), finding("ab" * 31 + "cd"))
    with pytest.raises(LakeError, match="--incident 000000: there is no such finding"):
        selection_of(lake, "000000")
    with pytest.raises(LakeError, match="--incident abababab: several findings begin with this"):
        selection_of(lake, "abababab")
    with pytest.raises(LakeError, match="not a finding_id"):
        selection_of(lake, "' OR true --")
