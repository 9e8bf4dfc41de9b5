"""The page and the text about an incident for which no finding stands: some groups in some time."""

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.selection import add_selection, output_of, selection_of
from pipeline.common.errors import ConfigError
from pipeline.report.formats.markdown import as_markdown
from pipeline.report.model.report import Instant, Report
from pipeline.report.model.selection import Selection
from pipeline.report.page.page import render
from tests.helpers.reports import MINUTE, NOON, cluster, finding, group, report, text_of

OWNED = {"owner": "shop", "tier": "1", "channel": "pager"}
TIME = "from 2026-03-01 12:00:00 UTC, to 2026-03-01 13:00:00 UTC"


def incident(*, is_incident: bool = True) -> Report:
    """One group with a finding, and a failed snapshot."""
    selection = Selection(None, NOON, NOON + 60 * MINUTE, "^orders$", is_incident=is_incident)
    instants = (Instant("east", NOON, 0, 2), Instant("east", NOON + 9 * MINUTE, 1, 2))
    stopped = finding(group_id="orders", resolved_ms=NOON + 5 * MINUTE, finding_id="ab" * 32, **OWNED)
    return replace(
        report(group("orders", 7, **OWNED), clusters=(cluster(failed=1),), instants=instants),
        title="Incident",
        selection=selection,
        findings=(stopped,),
        findings_total=1,
    )


SAID = "no progress of group orders, since 2026-03-01 12:00:00 UTC, until 2026-03-01 12:05:00 UTC: So it is."
GAP = "east: there is a gap between 2026-03-01 12:00:00 UTC and 2026-03-01 12:09:00 UTC"


def test_the_page_says_whose_the_groups_are_what_was_found_and_what_was_not_seen() -> None:
    page = render(incident())
    text = text_of(page)
    assert f"<h1>Incident: groups with ^orders$, {TIME}</h1>" in page
    assert (
        "1 finding in this time Groups orders of cluster east; owner shop, tier 1; messages go to channel pager" in text
    )
    assert f"Findings {SAID} Based on east: " in text
    assert f"; 1 failed {GAP}" in text
    assert 'id="incident"' not in render(incident(is_incident=False))


def test_the_text_has_the_findings_the_group_and_what_people_add() -> None:
    lines = as_markdown(incident()).splitlines()
    assert lines[0] == f"# Incident: groups with ^orders$, {TIME}"
    assert [line for line in lines if line.startswith("## ")] == [
        "## Findings in this time",
        "## Timeline",
        "## Lag",
        "## What this is based on",
        "## Cause",
        "## What was done",
        "## What will be changed",
    ]
    for line in (f"- {SAID}", "Owner: shop, tier 1. Messages go to channel pager.", f"- {GAP}"):
        assert line in lines, line
    assert "## Cause" not in as_markdown(incident(is_incident=False))


def parsed(*line: str) -> argparse.Namespace:
    command = argparse.ArgumentParser()
    add_selection(command)
    command.set_defaults(at=None, output=None)
    return command.parse_args(line)


WINDOW = ("--group", "^orders$", "--from", "2026-03-01T12:00:00Z", "--to", "2026-03-01T13:00:00Z")


def test_without_an_id_the_groups_and_the_time_are_those_of_the_other_options() -> None:
    arguments = parsed("--incident", *WINDOW)
    assert selection_of(arguments, ()) == replace(incident().selection)
    assert output_of(arguments) == Path("build/incident.html")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ((), "--incident without a FINDING_ID needs --group and --from, which say what to show"),
        (WINDOW[:2], "--incident without a FINDING_ID needs --group and --from, which say what to show"),
        (WINDOW[2:], "--incident without a FINDING_ID needs --group and --from, which say what to show"),
        (
            (*WINDOW, "--format", "json"),
            "--incident and --format cannot be combined: it writes the page, and Markdown beside it",
        ),
    ],
)
def test_what_does_not_say_what_to_show_is_refused(line: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        selection_of(parsed("--incident", *line), ())
    assert str(caught.value) == reason
