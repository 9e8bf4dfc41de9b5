"""Which subjects could be judged: those that differ from what is known of all groups, topics and the cluster."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import MINUTE_MS, utc_date
from pipeline.config import LakeConfig
from pipeline.derive.judged import subjects_judged
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import CLIENT_DIVERGENCE, GROUP_CHANGES, GROUP_MEMBERS, GROUP_STATUS, WATERMARKS, Table
from tests.helpers.stored import store

T0 = 1_769_860_800_000
FIRST, WHOLE, PARTIAL = (T0 + number * 20 * MINUTE_MS for number in range(3))
"""Three snapshots: in the last one, neither all groups nor all topics were read."""
READER_FINDERS = {"group": [FIRST, WHOLE], "topic": [FIRST, WHOLE], "cluster": [FIRST, WHOLE, PARTIAL]}


def status(group: str, at_ms: int, state: str | None = "Stable", errors: int = 0, unknown: int = 0) -> dict[str, Any]:
    of = {"group_id": group, "group_state": state, "rows_with_error": errors, "partitions_unknown": unknown}
    return of | {"snapshot_id": at_ms}


ROWS: dict[Table, list[dict[str, Any]]] = {
    GROUP_STATUS: [
        status("well", WHOLE),
        status("well", PARTIAL),
        status("with an error", WHOLE, errors=1),
        status("not known", PARTIAL, unknown=2),
        status("rebalancing", WHOLE, "PreparingRebalance"),
        status("rebalancing", PARTIAL, "CompletingRebalance"),
        status("of no state", WHOLE, None),
        status("assigning", WHOLE, "Assigning"),
        status("just changed", WHOLE),
        status("just changed", PARTIAL),
    ],
    GROUP_CHANGES: [
        {"group_id": "just changed", "change": "joined", "snapshot_id": FIRST},
        {"group_id": "well", "change": "commits_removed", "snapshot_id": WHOLE},
    ],
    GROUP_MEMBERS: [
        {"group_id": "unread \\ 'x'", "error": "COORDINATOR_NOT_AVAILABLE", "snapshot_id": PARTIAL},
        {"group_id": "unread in a whole one", "error": "COORDINATOR_NOT_AVAILABLE", "snapshot_id": WHOLE},
        {"error": "REQUEST_TIMED_OUT", "snapshot_id": PARTIAL},
    ],
    WATERMARKS: [{"error": "REQUEST_TIMED_OUT", "snapshot_id": PARTIAL}],
    CLIENT_DIVERGENCE: [{"client_id": "c", "instance": pod, "snapshot_id": WHOLE} for pod in ("a", "b")],
}
EXPECTED = {
    "group well": {PARTIAL: True},
    "members well": {PARTIAL: True},
    "group with an error": {WHOLE: False},
    "members with an error": {WHOLE: False},
    "members rebalancing": {WHOLE: False},
    "group rebalancing": {PARTIAL: True},
    "members of no state": {WHOLE: False},
    "group just changed": {PARTIAL: True},
    "members just changed": {PARTIAL: True},
    "members unread \\ 'x'": {PARTIAL: False},
    "replicas east": {PARTIAL: False},
}
"""The snapshot in which they could be judged although not all groups could, or the other way round."""
OF_ASSIGNMENTS = {
    "assignments well": {PARTIAL: True},
    "assignments with an error": {WHOLE: False},
    "assignments rebalancing": {WHOLE: False},
    "assignments of no state": {WHOLE: False},
    "assignments assigning": {WHOLE: False},
    "assignments just changed": {WHOLE: False, PARTIAL: True},
    "assignments unread \\ 'x'": {PARTIAL: False},
}
"""The change is 20 minutes before the second snapshot, and 40 minutes before the third."""


@pytest.mark.parametrize("by", ["spark", "driver"])
def test_subjects_that_could_be_judged_in_other_snapshots(spark: SparkSession, tmp_path: Path, by: str) -> None:
    with for_few_rows(spark):
        lake = Lake(spark, LakeConfig(root=str(tmp_path)))
        lake.prepare()
        for table, rows in ROWS.items():
            dated = [r | {"cluster": "east", "snapshot_date": utc_date(r["snapshot_id"])} for r in rows]
            store(lake, table, dated, of_snapshots("east", READER_FINDERS["cluster"]))
        if by == "spark":
            vars(lake)["_driver"] = None
        none = subjects_judged(lake, "east", READER_FINDERS, [PARTIAL], {"no_progress"}, has_clients=False)
        every = subjects_judged(lake, "east", READER_FINDERS, [PARTIAL], {"idle_member"}, has_clients=True)
    assert none == EXPECTED
    assert every == EXPECTED | OF_ASSIGNMENTS | {"client c": {WHOLE: True}}
