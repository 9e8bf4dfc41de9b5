"""Which part of a lake a report reads."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.example import unpacked
from pipeline.common.epoch import DAY_MS, utc, utc_date
from pipeline.config import LakeConfig
from pipeline.lake import Lake, predicates
from pipeline.report.model.selection import Selection
from pipeline.report.read.collect import all_partitions, collect, collect_groups, collect_partitions
from pipeline.report.read.excerpt import DAYS, Excerpt
from pipeline.tables import COMPUTED, FINDINGS, LAG, SNAPSHOTS
from tests.helpers.reports import NOON, NOW, frame, lag_row, snapshot

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


def days_of(of: Excerpt, cluster: str) -> list[int]:
    """The days of a cluster's snapshots, all of which have lag."""
    rows = [row for row in of.ledger().to_pylist() if row["cluster"] == cluster]
    assert all(row["has_lag"] for row in rows)
    first = NOON if cluster == "west" else NOON + LATER
    return sorted((row["snapshot_id"] - first) // DAY_MS for row in rows)


@pytest.mark.parametrize("long_lake", ["driver", "spark"], indirect=True)
def test_without_a_beginning_the_last_days_of_each_cluster_are_read(long_lake: Lake) -> None:
    found = Excerpt(long_lake)
    assert days_of(found, "east") == days_of(found, "west") == [*range(12, 20)]
    assert found.days == DAYS
    assert found.findings().num_rows == 16


def test_with_an_end_the_last_days_before_it_are_read(long_lake: Lake) -> None:
    found = Excerpt(long_lake, Selection(to_ms=NOON + LATER + 9 * DAY_MS))
    assert days_of(found, "east") == [*range(2, 10)]
    assert days_of(found, "west") == [*range(12, 20)]


def test_with_a_beginning_all_since_then_are_read(long_lake: Lake) -> None:
    found = Excerpt(long_lake, Selection(from_ms=NOON + 3 * DAY_MS))
    assert days_of(found, "east") == [*range(20)]
    assert days_of(found, "west") == [*range(3, 20)]
    assert found.days is None


NAMES = ("pay", "it's", "back\\slash", "${spark.app.name}", "{lag}", "percent%_", "two\nlines", "\0", "", "ж")
"""Names that engines quote in different ways."""


@pytest.fixture(params=["driver", "spark"])
def named(request: pytest.FixtureRequest, lake: Lake) -> Lake:
    """A lake with a snapshot of a group of each name, and of a newer one of the same groups."""
    if request.param == "spark":
        lake.__dict__["_driver"] = None
    rows = [lag_row(minute, name, 0, topic=f"of {name}") for minute in range(2) for name in NAMES]
    lake.replace(LAG, frame(lake.spark, LAG, *rows, lag_row(0, "none", 0, topic=None)), "true")
    return lake


def groups_of(of: Excerpt, groups: Sequence[str] | None = None) -> list[str]:
    rows = of.at(LAG, {"east": [NOON], "west": [NOON], "none": []}, ("group_id", "topic"), groups)
    return sorted(row["group_id"] for row in rows.collected())


def test_rows_are_picked_by_snapshot_and_by_any_name(named: Lake) -> None:
    assert groups_of(Excerpt(named)) == sorted([*NAMES, "none"])
    assert groups_of(Excerpt(named), NAMES[1:]) == sorted(NAMES[1:])
    assert groups_of(Excerpt(named, Selection(group="pay")), NAMES[:2]) == sorted(NAMES[:2])
    assert groups_of(Excerpt(named, Selection(group_ids=("\0", "absent")))) == ["\0"]
    assert groups_of(Excerpt(named), []) == []
    assert Excerpt(named).at(LAG, {}).is_empty()


def test_names_are_searched_by_pythons_regular_expressions(named: Lake) -> None:
    """Java has no `(?P<name>…)`."""
    assert groups_of(Excerpt(named, Selection(group="^(?P<first>p)"))) == ["pay", "percent%_"]
    assert groups_of(Excerpt(named, Selection(group="two$"))) == []
    assert groups_of(Excerpt(named, Selection(topic="^of .$"))) == ["\0", "ж"]
    assert groups_of(Excerpt(named, Selection(group="p", topic="lag"))) == []


def test_more_names_than_a_predicate_has_are_chosen_after_reading(named: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicates, "MOST_NAMED", 1)
    assert groups_of(Excerpt(named, Selection(group="^p"))) == ["pay", "percent%_"]


def test_an_empty_lake_has_nothing_to_show(lake: Lake) -> None:
    assert Excerpt(lake).ledger().num_rows == 0


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake that the demo has recorded."""
    return unpacked(tmp_path_factory.mktemp("example")).lake


MIDDLE = 1_795_745_410_000
"""An instant between its snapshots."""


@pytest.mark.parametrize(
    "selection",
    [Selection(), Selection(to_ms=MIDDLE, group="^(billing|ledger)-"), Selection(topic="^[a-i]")],
    ids=["all", "groups in the past", "topics"],
)
def test_spark_gives_the_same_report_as_the_driver(spark: SparkSession, example: Path, selection: Selection) -> None:
    by_spark = Lake(spark, LakeConfig(root=str(example)))
    by_spark.__dict__["_driver"] = None
    many, few = (Excerpt(lake, selection) for lake in (by_spark, Lake(None, LakeConfig(root=str(example)))))
    report = collect(few, NOW, "title")
    assert report.points
    assert report.partition_series
    assert collect(many, NOW, "title") == report
    assert collect_groups(many) == collect_groups(few)
    assert collect_partitions(many, 3) == collect_partitions(few, 3)
    partitions = [*all_partitions(few)]
    assert len(partitions) > 3
    assert [*all_partitions(many)] == partitions
