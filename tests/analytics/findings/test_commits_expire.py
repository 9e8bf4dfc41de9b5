"""When Kafka will remove the committed offsets of a group that has no members."""

import re
from datetime import timedelta
from typing import Any

import pytest

from tests.helpers.scene import DAY_MS, HOUR_MS, NOW, Scene, problems

READER = ("g", "t", 0)
TO = " --bootstrap-server $BOOTSTRAP"

CASES = [
    # What is known, and the hours that are left. The brokers keep commits for two days, if nothing else is said.
    ("within a day", {"seen": 25}, 23),
    ("exactly a day", {"seen": 24}, 24),
    ("in more than a day", {"seen": 24 - 1 / 3600}, None),
    ("due", {"seen": 48}, 0),
    ("overdue for an hour", {"seen": 49}, 0),
    ("not removed in time, so it was not due", {"seen": 49 + 1 / 3600}, None),
    ("never seen with members", {"seen": None, "commit": 47}, None),
    ("has members", {"seen": 25, "has_members": True}, None),
    ("members not known", {"seen": 25, "has_members": None}, None),
    ("nothing unread", {"seen": 25, "unread": 0}, None),
    ("only markers unread", {"seen": 25, "unread": 3, "markers": 3}, None),
    ("a record and markers unread", {"seen": 25, "unread": 3, "markers": 2}, 23),
    ("kept for how long is not known", {"seen": 25, "kept": None}, None),
    ("classic, old commit", {"seen": 25, "commit": 30, "group_type": "classic"}, 23),
    ("classic, committed since", {"seen": 60, "commit": 26, "group_type": "classic"}, 22),
    ("classic, committed elsewhere since", {"seen": 60, "commit": 50, "other": 30, "group_type": "classic"}, 18),
    ("classic, committed elsewhere today", {"seen": 60, "commit": 47, "other": 1, "group_type": "classic"}, None),
    ("consumer, old commit", {"seen": 25, "commit": 30, "group_type": "consumer"}, 18),
    ("consumer, new commit", {"seen": 25, "commit": 20, "group_type": "consumer"}, None),
    ("consumer, committed elsewhere today", {"seen": 25, "commit": 30, "other": 1, "group_type": "consumer"}, 18),
    ("consumer, due", {"seen": 25, "commit": 49, "group_type": "consumer"}, 0),
    ("consumer, committed again until it left", {"seen": 25, "commit": 50, "group_type": "consumer"}, 23),
    ("consumer, long idle before it left", {"seen": 20, "commit": 900, "group_type": "consumer"}, None),
    ("consumer, not removed in time", {"seen": 50, "commit": 60, "group_type": "consumer"}, None),
]


@pytest.mark.parametrize(("known", "left"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_commits_expire_if_a_group_has_had_no_members_for_long(known: dict[str, Any], left: int | None) -> None:
    scene = Scene()
    scene.offsets_retention_ms = known.get("kept", 2 * DAY_MS)
    more = {"group_type": known.get("group_type"), "unread_markers": known.get("markers")}
    scene.waiting(READER, known.get("unread", 10), reason="no_members", **more)
    seen, commit, other = (
        None if hours is None else NOW - timedelta(hours=hours)
        for hours in (known["seen"], known.get("commit"), known.get("other"))
    )
    scene.without_members(READER, seen, commit)
    scene.status[READER]["has_members"] = known.get("has_members", False)
    scene.add(("g", "t", 1), group_type=known.get("group_type"))
    scene.without_members(("g", "t", 1), seen, other)
    found = problems(scene).get(("commits_expire", "g", "t"))
    assert (found and -found["magnitude"]) == (None if left is None else left * HOUR_MS)


def test_the_finding_says_when_and_how_to_keep_the_position() -> None:
    scene = Scene()
    for partition in (0, 1):
        reader = ("g", "t", partition)
        scene.waiting(reader, 700, reason="no_members")
        scene.without_members(reader, NOW - timedelta(hours=150))
    found = problems(scene)["commits_expire", "g", "t"]
    assert found["severity"] == "warning"
    assert found["summary"] == (
        "Kafka may remove the group's committed offsets from 2026-02-01 06:00 UTC on, in 18 h; the group last had "
        "members at 2026-01-25 06:00 UTC, and 1,400 records are unread."
    )
    assert found["evidence"]["commits_expire_at"] == "2026-02-01T06:00:00Z"
    assert found["evidence"]["members_seen_at"] == "2026-01-25T06:00:00Z"
    assert f"kafka-consumer-groups{TO} --reset-offsets --group g --to-current --all-topics" in found["advice"]
    assert found["advice"].endswith(" > g-offsets.csv")


def test_a_hostile_name_is_one_word_of_the_command_and_no_path() -> None:
    scene = Scene()
    reader = ("g; rm -rf /", "t", 0)
    scene.waiting(reader, 1, reason="no_members")
    scene.without_members(reader, NOW - timedelta(hours=150))
    advice = problems(scene)["commits_expire", "g; rm -rf /", "t"]["advice"]
    assert "--reset-offsets --group 'g; rm -rf /' --to-current" in advice
    (file,) = re.findall(" > (.*)$", advice)
    assert re.fullmatch(r"g__rm__rf__-[0-9a-f]{8}-offsets\.csv", file)


def test_a_group_of_kafka_streams_has_no_command() -> None:
    """kafka-consumer-groups refuses it, and kafka-streams-groups would also delete internal topics."""
    scene = Scene()
    scene.waiting(READER, 1, reason="no_members", group_type="streams")
    scene.without_members(READER, NOW - timedelta(hours=150), NOW - timedelta(hours=150))
    advice = problems(scene)["commits_expire", "g", "t"]["advice"]
    assert advice.endswith("it starts where auto.offset.reset says.")
