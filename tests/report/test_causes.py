"""What a report shows of groups with a common cause: one finding, now and in the past. Small integers are minutes."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.common.epoch import to_epoch_ms
from pipeline.common.errors import LakeError
from pipeline.config import LakeConfig
from pipeline.config.notify import Silence
from pipeline.lake import Lake
from pipeline.report.model.details import Finding
from pipeline.report.model.selection import Selection
from pipeline.report.read import details, objects
from pipeline.report.read.excerpt import Excerpt
from pipeline.report.read.incident import selection_of
from pipeline.tables import FINDING_HISTORY, FINDINGS
from tests.helpers.findings import NOW
from tests.helpers.group_problems import during, ms, rows_found
from tests.helpers.stored import store

EVERY = [range(minute, minute + 1) for minute in range(30, 50)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Group a stops in minute 30, b and c in minute 32, d in 35; x stops alone, elsewhere. From 40 on, b is well."""
    rows = during(range(30, 50), "a") + during(range(32, 50), "c") + during(range(32, 40), "b")
    rows += during(range(35, 50), "d") + during(range(33, 50), "x", topics="u")
    known, history = rows_found(EVERY, rows)
    found = Lake(None, LakeConfig(root=str(tmp_path_factory.mktemp("causes") / "lake")))
    found.prepare()
    store(found, FINDINGS, known.values())
    store(found, FINDING_HISTORY, history)
    return found


def shown(lake: Lake, until: int = 49, silences: tuple[Silence, ...] = (), **selected: Any) -> dict[str, Finding]:
    """The findings of a report up to a minute, by group or topic, with what the snapshot of this minute has."""
    excerpt = Excerpt(lake, Selection(from_ms=0, to_ms=ms(until), **selected), silences)
    found = objects.with_now(
        objects.findings(details.findings(excerpt.findings(), 10)), excerpt.findings_at({"c": [ms(until)]})
    )
    return {f.group_id or f"topic {f.topic}": f for f in objects.with_silences(found, silences, NOW)}


def test_groups_with_a_common_cause_are_one_finding(lake: Lake) -> None:
    found = shown(lake)
    assert found.keys() == {"x", "topic t"}
    cause = found["topic t"]
    assert (cause.kind, cause.is_open, cause.first_seen_ms) == ("stopped_together", True, ms(32))
    assert cause.evidence["groups"] == ["a", "b", "c", "d"]
    assert cause.groups() == ["a", "c", "d"]  # b is well
    assert (cause.newest_evidence["consumer_lag"], cause.newest_evidence["groups_affected"]) == (15, 3)
    assert cause.summary.startswith("4 groups (a, b, c, d) have stopped at about the same time")
    assert all(cause.concerns("c", group) for group in "abcd")


def test_a_report_of_the_past_has_what_was_known_then(lake: Lake) -> None:
    assert [f.kind for f in shown(lake, until=31).values()] == ["no_progress"]
    then = shown(lake, until=33)
    assert then["topic t"].evidence["groups"] == ["a", "b", "c"]
    assert then.keys() == {"topic t", "x"}
    assert shown(lake, until=36)["topic t"].evidence["groups"] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("selected", [{"group": "^a$"}, {"group_ids": ("a",)}, {"topic": "^t$"}])
def test_a_report_about_one_group_shows_the_whole_cause(lake: Lake, selected: dict[str, object]) -> None:
    cause = shown(lake, **selected)["topic t"]
    assert (cause.groups(), cause.newest_evidence["consumer_lag"]) == (["a", "c", "d"], 15)


def test_a_report_about_a_topic_shows_groups_that_have_the_problem_there_too(tmp_path: Path) -> None:
    """Their cause is in t, where there are three of them."""
    rows = during(range(30, 40), "ab", topics="tu") + during(range(30, 40), "c")
    known, history = rows_found([range(30, 40)], rows)
    found = Lake(None, LakeConfig(root=str(tmp_path / "lake")))
    found.prepare()
    store(found, FINDINGS, known.values())
    store(found, FINDING_HISTORY, history)
    assert [*shown(found, until=39, topic="^u$")] == ["topic t"]


def test_a_cause_is_silenced_if_all_of_its_groups_are(lake: Lake) -> None:
    of_a, of_others = (Silence(group=group, reason=group) for group in ("^a$", "^[cd]$"))
    assert shown(lake, silences=(of_a,))["topic t"].silenced is None
    # That b, which is well, is not silenced makes no difference.
    assert shown(lake, silences=(of_others, of_a))["topic t"].silenced == "^a$"
    assert shown(lake, silences=(Silence(kind="stopped_together", reason="known"),))["topic t"].silenced == "known"


def test_a_page_about_one_of_the_findings_is_about_their_cause(lake: Lake) -> None:
    rows = lake.query("SELECT finding_id, group_id, cause_id FROM {findings}", FINDINGS)
    (cause_id,) = {row["cause_id"] for row in rows} - {None}
    for row in rows:
        found = selection_of(lake, row["finding_id"][:16])
        alone = row["group_id"] == "x"
        assert (found.group_ids, found.finding_id) == (
            (("x",), row["finding_id"]) if alone else (tuple("abcd"), cause_id)
        )
    of_cause = selection_of(lake, cause_id[:8])
    assert of_cause.group_ids == tuple("abcd")
    assert of_cause.from_ms == ms(32) - 30 * 60_000
    with pytest.raises(LakeError, match="there is no such finding"):
        selection_of(lake, "0" * 64)


def test_the_table_has_a_finding_for_each_group(lake: Lake) -> None:
    rows = lake.query("SELECT group_id, kind, first_seen, resolved_at FROM {findings}", FINDINGS)
    found = {row["group_id"]: (row["kind"], to_epoch_ms(row["first_seen"]), row["resolved_at"]) for row in rows}
    begins = {"a": 30, "b": 32, "c": 32, "d": 35, "x": 33}
    assert {group: (kind, at) for group, (kind, at, _) in found.items()} == {
        group: ("no_progress", ms(minute)) for group, minute in begins.items()
    }
    assert [group for group, (_, _, resolved) in found.items() if resolved is not None] == ["b"]
