"""Who owns a group."""

import re

import pyarrow as pa

from pipeline.analytics.status.owners import Owned, Rules, owners_of

NAMES = ["payments-api", "web", "x" * 1_024 + "-late", "", "группа", None]


OTHERS = Owned(channel="chat")


def owned(rules: Rules) -> dict[str | None, Owned]:
    """Whose each group is; each name is there twice, in two chunks."""
    found = owners_of(pa.chunked_array([NAMES, NAMES], pa.string()), rules, OTHERS)
    assert found.column_names == ["owner", "tier", "channel"]
    rows = [Owned(**row) for row in found.to_pylist()]
    assert rows == 2 * rows[: len(NAMES)]
    return dict(zip(NAMES, rows[: len(NAMES)], strict=True))


def owners(*rules: tuple[str, str]) -> dict[str | None, str | None]:
    found = owned([(expression, Owned(owner)) for expression, owner in rules])
    return {name: of.owner for name, of in found.items()}


def test_the_first_rule_that_matches_anywhere_in_the_name_counts() -> None:
    found = owners(("^pay", "billing"), ("ment|web", "shop"), ("^г", "мы"))
    assert found == {"payments-api": "billing", "web": "shop", NAMES[2]: None, "": None, "группа": "мы", None: None}


def test_only_the_beginning_of_a_long_name_is_searched() -> None:
    assert owners(("-late", "late"), ("^x", "long"))[NAMES[2]] == "long"


def test_tier_and_channel_are_those_of_the_rule_that_says_the_owner() -> None:
    rules = [("^pay", Owned("billing", "1", "pager")), ("ment|web", Owned("shop", None, "mail")), ("^x", Owned("x"))]
    found = owned(rules)
    assert found["payments-api"] == ("billing", "1", "pager")
    assert found["web"] == ("shop", None, "mail")
    assert found[NAMES[2]] == ("x", None, None)
    assert found[""] == found[None] == OTHERS


def test_without_rules_nobody_owns_anything() -> None:
    assert {*owned([]).values()} == {OTHERS}


def test_a_rule_is_an_expression_of_python() -> None:
    only_python = "(?P<name>pay)(?P=name)?"
    assert re.search(only_python, "payments-api")
    assert owners((only_python, "billing"))["payments-api"] == "billing"
