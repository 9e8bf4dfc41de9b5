"""The page as a file: if there is nothing to show yet, and if it cannot be written."""

from pathlib import Path

import pytest

from pipeline.report.model.report import Report
from pipeline.report.model.selection import Selection
from pipeline.report.page.page import render
from pipeline.report.read.excerpt import Excerpt
from pipeline.report.write import write_report
from tests.helpers.reports import NOW, lake_of, snapshot, text_of


def test_an_empty_lake_gets_a_page_that_says_what_to_do(tmp_path: Path) -> None:
    output = tmp_path / "new" / "folder" / "report.html"
    assert write_report(Excerpt(lake_of(tmp_path / "lake")), output, NOW) == output
    text = text_of(output.read_text(encoding="utf-8"))
    assert "There are no snapshots yet" in text
    assert "./spark-submit.sh run --config" in text
    assert [p.name for p in output.parent.iterdir()] == ["report.html"]


def test_a_selection_without_snapshots_is_not_taken_for_an_empty_lake() -> None:
    text = text_of(render(Report("t", NOW, selection=Selection(group="x"))))
    assert "The selection has no snapshots, or the lake is empty. Select more, or take a first" in text


def test_snapshots_without_lag_get_a_page_that_says_so(tmp_path: Path) -> None:
    snapshots = (
        snapshot(0, "failed", errors=[("cluster", "east", "no route", 1)]),
        snapshot(1, "running"),
    )
    excerpt = Excerpt(lake_of(tmp_path / "lake", snapshots=snapshots))
    text = text_of(write_report(excerpt, tmp_path / "report.html", NOW).read_text("utf-8"))
    assert "There is no lag yet" in text
    assert "cluster east: no route" in text
    assert "not finished, so not used" in text


def test_a_page_that_cannot_be_made_leaves_the_last_one_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    excerpt = Excerpt(lake_of(tmp_path / "lake"))
    output = tmp_path / "pages" / "report.html"
    output.parent.mkdir()
    output.write_text("the last one")

    def no_space(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", no_space)
    with pytest.raises(OSError, match="no space left"):
        write_report(excerpt, output, NOW)
    assert [(p.name, p.read_text()) for p in output.parent.iterdir()] == [("report.html", "the last one")]
