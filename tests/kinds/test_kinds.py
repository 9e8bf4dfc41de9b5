"""Each kind of finding is declared whole, once, and found in one place."""

import re

import pytest

from pipeline.analytics.findings.reader_finders import READER_FINDERS
from pipeline.kinds import FOUND, KINDS, SHARED, Kind, kind_named, rank
from pipeline.kinds.command_lines import CommandContext
from pipeline.kinds.kind import Facts
from pipeline.tables import SEVERITIES
from tests.conftest import ROOT
from tests.helpers.reports import finding

ANALYTICS = ROOT / "pipeline" / "analytics"
FINDERS = {file.name: file.read_text() for of in ("findings", "clients") for file in (ANALYTICS / of).glob("*.py")}


def test_no_two_kinds_have_the_same_name() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert [rank(kind.name) for kind in KINDS] == [*range(len(KINDS))]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_is_declared_whole(kind: Kind[Facts]) -> None:
    assert re.fullmatch("[a-z_]+", kind.name)
    assert re.match("critical|warning|info", kind.severity)
    assert kind.magnitude
    assert issubclass(kind.facts, Facts)
    assert type(kind).words is not Kind.words or type(kind).words_together is not Kind.words_together
    assert type(kind).headline is not Kind.headline
    assert type(kind).commands is not Kind.commands
    for other in (kind.shared_as, kind.instead_of):
        assert other is None or kind_named(other).name == other


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in SHARED.values()], ids=lambda kind: kind.name)
def test_a_kind_that_groups_share_has_words_for_all_of_them(kind: Kind[Facts]) -> None:
    assert type(kind).words_together is not Kind.words_together


@pytest.mark.parametrize("kind", FOUND)
def test_a_kind_has_one_finder(kind: str) -> None:
    """The file that writes down its name, as a text of SQL or of Python."""
    finders = [name for name, text in FINDERS.items() if re.search(rf"""["']{kind}["']""", text)]
    assert len(finders) == 1, finders


def test_an_unknown_kind_says_its_summary() -> None:
    known = finding(kind="of_a_newer_laglake", summary="So it is.")
    assert kind_named(known.kind).headline(known, str) == ("of a newer laglake", "So it is.")
    assert [*kind_named(known.kind).commands(known, CommandContext())] == []
    assert rank("of_a_newer_laglake") == len(KINDS)


def test_a_kind_of_readers_has_one_severity() -> None:
    """Its finder writes it into SQL. Where it depends on the problem, the finder decides, and the kind says when."""
    assert {kind_named(name).severity for name in READER_FINDERS} <= {*SEVERITIES}
