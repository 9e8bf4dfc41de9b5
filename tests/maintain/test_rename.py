"""Renaming a cluster: nothing of its history is lost, and it continues under the new name."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs import maintain as maintain_job
from pipeline.analytics.findings.identity import ids_in_cluster
from pipeline.common.errors import LakeError
from pipeline.derive import compute_cluster
from pipeline.lake import Lake, lake_tables, of_cluster
from pipeline.lake.few_rows import MANY_ROWS, for_few_rows
from pipeline.maintain import rename_cluster
from pipeline.maintain.rename import _renamed
from pipeline.tables import COMPUTED, FINDING_HISTORY, FINDINGS, LAG, LAG_HISTOGRAMS, NOTIFICATIONS, SNAPSHOTS, TABLES
from tests.helpers.copied import copied
from tests.helpers.kept_lake import CLUSTER as OLD
from tests.helpers.kept_lake import kept_lake
from tests.helpers.stored import stored

NEW = "production"
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the kept lake. It must not change."""
    return kept_lake(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, kept: Path) -> Lake:
    found = copied(spark, kept, tmp_path)
    found.prepare()
    return found


def config(tmp_path: Path) -> Path:
    file = tmp_path / "laglake.toml"
    text = f'[lake]\nroot = "{tmp_path}/lake"\n[clusters.{NEW}]\nbootstrap_servers = ["localhost:1"]\n'
    file.write_text(text)
    return file


def contents(lake: Lake, cluster: str) -> dict[str, list[str]]:
    """All rows of a cluster, without its name and without the ids of findings, which depend on the name."""
    found = {}
    for table in TABLES:
        every = lake.query(f"SELECT * FROM {{{table.name}}} WHERE {of_cluster(cluster)}", table)
        rows = [{name: row[name] for name in table.stored.names if name != "cluster"} for row in every]
        for row in rows:
            row.pop("finding_id", None)
            if row.get("scope") == "cluster":
                assert row.pop("scope_value") == cluster
        found[table.name] = sorted(map(str, rows))
    return found


def test_spark_renames_as_the_driver_does(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tables: of findings, whose ids change; of histograms, which repeat the name; and one with all else."""
    tables = (FINDINGS, FINDING_HISTORY, LAG_HISTOGRAMS, LAG)
    ids = ids_in_cluster(lake.rows(FINDINGS, of_cluster(OLD)).collected(), NEW)
    expected = [_renamed(lake, table, OLD, NEW, ids).collected() for table in tables]
    assert all(expected)
    monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
    by_spark = lake.guarded(lambda: None)
    by_spark.expect_rows(MANY_ROWS)
    for table, rows in zip(tables, expected, strict=True):
        found = _renamed(by_spark, table, OLD, NEW, ids)
        assert isinstance(found.rows, DataFrame)
        assert sorted(map(str, found.collected())) == sorted(map(str, rows))


def test_all_tables_continue_under_the_new_name(lake: Lake, tmp_path: Path) -> None:
    before = contents(lake, OLD)
    assert all(before[table.name] for table in (SNAPSHOTS, LAG, LAG_HISTOGRAMS, FINDINGS, FINDING_HISTORY, COMPUTED))
    assert maintain_job.main(["--config", str(config(tmp_path)), "--rename-cluster", OLD, NEW]) == 0
    assert contents(lake, NEW) == before
    assert not any(contents(lake, OLD).values())
    known = kinds_by_id(lake)
    newest = max(row.snapshot_id for row in stored(lake, LAG, of_cluster(NEW), "snapshot_id"))
    lake.delete(COMPUTED, f"{of_cluster(NEW)} AND snapshot_id = {newest}")
    with for_few_rows(lake.spark):
        assert compute_cluster(lake, NEW, lambda: datetime.now(UTC)) == 1
    # A finding that lasts is the same row as before, by its id.
    assert known
    assert kinds_by_id(lake) == known


def kinds_by_id(lake: Lake) -> dict[str, str]:
    return {row.finding_id: row.kind for row in stored(lake, FINDINGS, of_cluster(NEW))}


def test_messages_belong_to_the_same_findings_as_before(lake: Lake) -> None:
    old_ids = {row.finding_id for row in stored(lake, FINDINGS, of_cluster(OLD))}
    sent_at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    sent = (OLD, min(old_ids), "chat", "opened", "sent", 1, sent_at, sent_at, None)
    lake.merge(NOTIFICATIONS, [sent], OLD)
    rename_cluster(lake, OLD, NEW)
    new_ids = {row.finding_id for row in stored(lake, FINDINGS, of_cluster(NEW))}
    (message,) = stored(lake, NOTIFICATIONS, of_cluster(NEW))
    assert message["finding_id"] in new_ids - old_ids


def test_a_killed_job_can_be_repeated(lake: Lake) -> None:
    before, left = contents(lake, OLD), [None] * 4

    def may_write() -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()

    with pytest.raises(KeyboardInterrupt):
        rename_cluster(lake.guarded(may_write), OLD, NEW)
    assert any(contents(lake, NEW).values())
    rename_cluster(lake, OLD, NEW)
    assert contents(lake, NEW) == before
    assert not any(contents(lake, OLD).values())


def test_a_name_in_use_and_an_unknown_cluster_are_refused(lake: Lake) -> None:
    with pytest.raises(LakeError, match="there is a cluster demo in the lake already"):
        rename_cluster(lake, OLD, OLD)
    with pytest.raises(LakeError, match="there is no cluster unknown in the lake"):
        rename_cluster(lake, "unknown", NEW)
