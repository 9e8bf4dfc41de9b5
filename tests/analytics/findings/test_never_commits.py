"""A group whose members have partitions in which it never commits."""

from datetime import timedelta
from typing import Any

import pytest

from pipeline.common.epoch import MINUTE_MS, to_epoch_ms
from tests.helpers.scene import NOW, SINCE, Scene, moved, problems

READER = ("g", "t", 0)


def scene_of(status: dict[str, Any] | None = None, then: dict[str, Any] | None = None, **lag: Any) -> Scene:
    scene = Scene()
    nothing = {"offset_status": "no_commit", "committed_offset": None, "consumer_lag": None}
    held = {"topic_id": "A", "member_id": "m", "log_start_offset": 100, "high_watermark": 900}
    scene.add(READER, "not_committed", **{**nothing, **held, **lag})
    scene.status[READER] |= {"has_members": True, **(status or {})}
    if then is not None:
        held = {"committed_offset": None, "offset_status": "no_commit", "member_id": "m"}
        scene.then[READER] = moved(100, 0) | held | then
    return scene


@pytest.mark.parametrize(
    ("more", "is_found"),
    [
        ({"then": {}}, True),
        ({}, False),
        ({"then": {}, "status": {"since": NOW - timedelta(minutes=29)}}, False),
        ({"then": {}, "status": {"since": NOW - timedelta(minutes=30)}}, True),
        ({"then": {}, "status": {"since": NOW - timedelta(seconds=10)}}, True),
        ({"then": {"offset_status": "ok"}, "status": {"since": NOW - timedelta(seconds=10)}}, False),
        ({"then": {}, "status": {"commit_since": NOW - timedelta(days=1)}}, False),
        ({"then": {}, "member_id": None}, False),
        ({"then": {}, "high_watermark": 800}, False),
        ({"then": {"high_watermark": 100}}, False),
        ({"then": {"member_id": None}}, False),
        ({"then": {"offset_status": None}}, False),
    ],
)
def test_a_group_never_commits_if_members_hold_a_growing_log_for_a_window(more: dict[str, Any], is_found: bool) -> None:
    assert (("never_commits", "g", "t") in problems(scene_of(**more))) is is_found


@pytest.mark.parametrize(("minutes", "is_found"), [(-1, False), (1, True)])
def test_a_log_has_grown_if_a_record_was_written_since_the_status_began(minutes: int, is_found: bool) -> None:
    """Nothing was written in the last ten snapshots."""
    scene = scene_of(then={}, high_watermark=800)
    scene.newest_record_ms = to_epoch_ms(SINCE) + minutes * MINUTE_MS
    assert (("never_commits", "g", "t") in problems(scene)) is is_found


def test_a_group_that_commits_elsewhere_has_only_idle_partitions() -> None:
    scene = scene_of(then={})
    scene.add(("g", "t", 1))
    assert not [kind for kind, *_ in problems(scene) if kind == "never_commits"]


def test_the_finding_says_how_much_can_be_read() -> None:
    row = problems(scene_of(then={}))["never_commits", "g", "t"]
    assert (row["severity"], row["magnitude"], row["partitions"]) == ("warning", 800.0, [0])
    assert row["summary"] == (
        "Members have partitions, and nothing was committed since 2026-01-31 10:00 UTC, although records are written; "
        "800 offsets can be read there."
    )
    assert row["evidence"]["readable_offsets"] == 800
