"""Which part of a lake a report reads."""

from datetime import timedelta

import pytest

from pipeline.common.epoch import DAY_MS, utc, utc_date
from pipeline.lake import Lake
from pipeline.report.frames import DAYS, Frames
from pipeline.report.selection import Selection
from pipeline.tables import COMPUTED, FINDINGS, LAG, SNAPSHOTS
from tests.helpers.reports import NOON, frame, snapshot

LATER = 30 * DAY_MS
"""How much newer the snapshots of `east` are than those of `west`, a recording that does not grow."""


@pytest.fixture
def long_lake(request: pytest.FixtureRequest, lake: Lake) -> Lake:
    """Twenty days of two clusters with a snapshot per day, each with a mark and a finding."""
    if getattr(request, "param", "driver") == "spark":
        lake.__dict__["_driver"] = None
    ids = [("west", NOON + day * DAY_MS) for day in range(20)] + [
        ("east", NOON + LATER + d * DAY_MS) for d in range(20)
    ]
    of_day = [{"cluster": c, "snapshot_id": i, "snapshot_date": utc_date(i)} for c, i in ids]
    seen = [{"finding_id": f"{c} {i}", "first_seen": utc(i), "last_seen": utc(i) + timedelta(hours=1)} for c, i in ids]
    lake.replace(SNAPSHOTS, frame(lake.spark, SNAPSHOTS, *(snapshot(0) | row for row in of_day)), "true")
    lake.replace(COMPUTED, frame(lake.spark, COMPUTED, *({"job": "lag"} | row for row in of_day)), "true")
    findings = [{"cluster": c, "kind": "blocked_connector"} | row for (c, _), row in zip(ids, seen, strict=True)]
    lake.replace(FINDINGS, frame(lake.spark, FINDINGS, *findings), "true")
    return lake


def days_of(frames: Frames, cluster: str) -> list[int]:
    """The days of a cluster's snapshots; its marks and findings must have the same days."""
    ids = sorted(r["snapshot_id"] for r in frames.snapshots.where(f"cluster = '{cluster}'").collect())
    assert frames.computed is not None
    assert sorted(r["snapshot_id"] for r in frames.computed.where(f"cluster = '{cluster}'").collect()) == ids
    first = NOON if cluster == "west" else NOON + LATER
    return [(i - first) // DAY_MS for i in ids]


@pytest.mark.parametrize("long_lake", ["driver", "spark"], indirect=True)
def test_without_a_beginning_the_last_days_of_each_cluster_are_read(long_lake: Lake) -> None:
    found = Frames.of(long_lake, Selection())
    assert days_of(found, "east") == days_of(found, "west") == [*range(12, 20)]
    assert found.days == DAYS
    assert found.findings is not None
    assert found.findings.count() == 16


def test_with_an_end_the_last_days_before_it_are_read(long_lake: Lake) -> None:
    found = Frames.of(long_lake, Selection(to_ms=NOON + LATER + 9 * DAY_MS))
    assert days_of(found, "east") == [*range(2, 10)]
    assert days_of(found, "west") == [*range(12, 20)]


def test_with_a_beginning_all_since_then_are_read(long_lake: Lake) -> None:
    found = Frames.of(long_lake, Selection(from_ms=NOON + 3 * DAY_MS))
    assert days_of(found, "east") == [*range(20)]
    assert days_of(found, "west") == [*range(3, 20)]
    assert found.days is None


def test_a_table_that_is_read_by_snapshot_is_not_read_before(lake: Lake) -> None:
    """Spark would open it, which takes longer than reading few rows without Spark."""
    of_day = {"cluster": "west", "snapshot_id": NOON, "snapshot_date": utc_date(NOON)}
    lake.replace(LAG, frame(lake.spark, LAG, of_day), "true")
    found = Frames.of(lake, Selection())
    assert lake.read(LAG).inputFiles()
    assert not found.lag.inputFiles()
    assert found.at("lag", {"west": [NOON]}).count() == 1


def test_an_empty_lake_has_nothing_to_show(lake: Lake) -> None:
    assert Frames.of(lake, Selection()).snapshots.count() == 0
