"""For which readers records were deleted that they had not read, and which commits belong to a deleted topic."""

from datetime import timedelta
from typing import Any

import pytest

from tests.helpers.scene import NOW, Scene, problems

LATER = {"captured_at": NOW + timedelta(seconds=2)}
READ_BETWEEN = {"consumer_lag_error": 0}
CASES: list[tuple[str, dict[str, Any], str, bool | None, bool]] = [
    # Commit 100. What else is known of the reader, its status, whether its group has members, whether it has lost some.
    ("records", {"log_start_offset": 150, "high_watermark": 200}, "ok", True, True),
    ("one record", {"log_start_offset": 101, "high_watermark": 102}, "ok", True, True),
    ("a marker, the log is empty", {"log_start_offset": 101, "high_watermark": 101}, "ok", True, False),
    ("a record and a marker", {"log_start_offset": 102, "high_watermark": 102}, "ok", True, True),
    ("log start read later", {"log_start_offset": 150, "high_watermark": 200} | LATER, "ok", True, False),
    ("between two commits", {"log_start_offset": 150, "high_watermark": 200} | LATER | READ_BETWEEN, "ok", True, True),
    ("read later, stopped", {"log_start_offset": 150, "high_watermark": 200} | LATER, "stopped", True, True),
    ("read later, no members", {"log_start_offset": 150, "high_watermark": 200} | LATER, "ok", False, True),
    ("read later, members not known", {"log_start_offset": 150, "high_watermark": 200} | LATER, "ok", None, True),
]


@pytest.mark.parametrize(("known", "status", "members", "is_lost"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_records_that_were_deleted_unread(
    known: dict[str, Any], status: str, members: bool | None, is_lost: bool
) -> None:
    scene, reader = Scene(), ("g", "t", 0)
    scene.add(reader, status, offset_status="deleted_unread", **known)
    scene.status[reader]["has_members"] = members
    assert (("deleted_unread", "g", "t") in problems(scene)) == is_lost


@pytest.mark.parametrize(("committed", "is_problem"), [(0, False), (1, True)])
def test_a_commit_at_the_start_of_a_deleted_topic_needs_no_reset(committed: int, is_problem: bool) -> None:
    """Kafka removes the commits of a deleted topic, and an idle consumer commits 0 again before the next snapshot."""
    scene = Scene()
    scene.add(("g", "t", 0), offset_status="recreated", committed_offset=committed)
    assert (("recreated_topic", None, "t") in problems(scene)) == is_problem
