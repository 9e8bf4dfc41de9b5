"""A group may have the empty text for its name; a person then reads `""` and not nothing."""

import re
from collections.abc import Callable

import pytest

from pipeline.config import Config
from pipeline.kafka.doctor import _such_as
from pipeline.kinds.group_commands import group_option
from pipeline.kinds.reader_facts import groups_named
from pipeline.notify.due import Due, finding_of
from pipeline.notify.message import evidence_in_words, message_of
from pipeline.report.formats.markdown import as_markdown
from pipeline.report.formats.terminal import format_groups, format_partitions
from pipeline.report.model.ledger import Snapshot, SnapshotError
from pipeline.report.model.selection import Selection
from pipeline.report.page.page import render
from pipeline.snapshot.summary import _and_others
from tests.helpers import findings
from tests.helpers.reports import NOON, cards_of, finding, group, page_data, partition, report, text_of

EMPTY = '""'


@pytest.fixture(scope="module")
def page() -> str:
    error = SnapshotError("group_members", "", "NOT_COORDINATOR", 1)
    listed = Snapshot("east", NOON, "partial", NOON, NOON + 1_500, 1, 1, {}, {}, (error,), 1)
    return render(report(group("", client_id=None), findings=(finding(group_id=""),), snapshots=(listed,)))


def test_the_page_shows_it_in_each_table_on_its_card_and_in_addresses(page: str) -> None:
    names = re.findall(r'<(?:th|td)[^>]*class="name"[^>]*>(?:<button[^>]*>.*?<span>)?<bdi>(.*?)</bdi>', page)
    assert names.count("&#34;&#34;") == 2  # of groups and of findings
    assert "" not in re.findall(r"<bdi>(.*?)</bdi>", page)
    assert [*cards_of(page)] == [EMPTY]
    assert page_data(page)["groups"][0]["name"] == EMPTY
    assert f"group_members {EMPTY}: NOT_COORDINATOR" in text_of(page)


def test_a_client_that_is_not_known_is_not_shown_as_an_empty_name(page: str) -> None:
    (row,) = re.findall(r"<td class=\"name\"><bdi>&#34;&#34;</bdi>(.*?)</td>", page)
    assert row == "<small></small>"


def test_the_terminal_shows_it() -> None:
    assert format_groups([group("")]).splitlines()[1].split()[0] == EMPTY
    unknown = partition("orders", 0, group_id="", client_id=None)
    header, line = format_partitions([unknown]).splitlines()[:2]
    assert line.split()[0] == EMPTY
    assert line[header.index("CLIENT-ID") :].split()[0] == "-"


def test_a_document_shows_it() -> None:
    found = finding(group_id="", finding_id="f")
    incident = report(group(""), group("a"), findings=(found,), incident=found)
    lines = as_markdown(incident).splitlines()
    assert lines[0] == f"# Incident: no progress, group {EMPTY}"
    assert f"| Group | {EMPTY} |" in lines
    assert f"## {EMPTY}, cluster east" in lines
    assert str(Selection(group_ids=("", "a"))) == f"groups {EMPTY}, a"


def test_a_message_shows_it_and_its_link_leads_to_the_group(load: Callable[..., Config], page: str) -> None:
    config = findings.config_of(load)
    row = findings.finding(group_id="", client_id=None, evidence='{"groups": ["", "a"]}')
    message = message_of(Due(finding_of(row, config), "chat", "opened"), "https://r.example/r.html")
    assert message.title == f"Critical: slow consumer, group {EMPTY}, cluster east"
    lines = message.body.split("\n")
    assert f"Group: {EMPTY}" in lines
    assert "Report: https://r.example/r.html#group/east/%22%22" in lines
    assert not any(line.startswith("Client:") for line in lines)
    assert evidence_in_words(row["evidence"]) == f"groups: {EMPTY}, a"


def test_sentences_commands_and_errors_show_it() -> None:
    assert groups_named(["", "a"], 2) == f"2 groups ({EMPTY}, a)"
    assert _such_as(["a", ""], 2, "group") == f"; refused for 2 of 2 groups, such as {EMPTY}"
    assert _and_others("", 2) == f"{EMPTY} and others"
    assert group_option("") == "--group ''"
    assert group_option(None) == "--group GROUP"
