"""Who owns a group."""

import re

from pyspark.sql import SparkSession

from pipeline.analytics.status.owners import Owned, Rules, with_owner

NAMES = ["payments-api", "web", "x" * 1_024 + "-late", "", "группа", None]


OTHERS = Owned(channel="chat")


def owned(spark: SparkSession, rules: Rules) -> dict[str | None, Owned]:
    groups = spark.createDataFrame([(name, n) for n, name in enumerate(NAMES)], "group_id string, n int")
    frame = with_owner(groups, rules, OTHERS)
    assert frame.columns == ["group_id", "n", "owner", "tier", "channel"]
    rows = frame.orderBy("n").collect()
    assert [row["group_id"] for row in rows] == NAMES
    return {row["group_id"]: Owned(row["owner"], row["tier"], row["channel"]) for row in rows}


def owners(spark: SparkSession, *rules: tuple[str, str]) -> dict[str | None, str | None]:
    found = owned(spark, [(expression, Owned(owner)) for expression, owner in rules])
    return {name: of.owner for name, of in found.items()}


def test_the_first_rule_that_matches_anywhere_in_the_name_counts(spark: SparkSession) -> None:
    found = owners(spark, ("^pay", "billing"), ("ment|web", "shop"), ("^г", "мы"))
    assert found == {"payments-api": "billing", "web": "shop", NAMES[2]: None, "": None, "группа": "мы", None: None}


def test_only_the_beginning_of_a_long_name_is_searched(spark: SparkSession) -> None:
    assert owners(spark, ("-late", "late"), ("^x", "long"))[NAMES[2]] == "long"


def test_tier_and_channel_are_those_of_the_rule_that_says_the_owner(spark: SparkSession) -> None:
    rules = [("^pay", Owned("billing", "1", "pager")), ("ment|web", Owned("shop", None, "mail")), ("^x", Owned("x"))]
    found = owned(spark, rules)
    assert found["payments-api"] == ("billing", "1", "pager")
    assert found["web"] == ("shop", None, "mail")
    assert found[NAMES[2]] == ("x", None, None)
    assert found[""] == found[None] == OTHERS


def test_without_rules_nobody_owns_anything(spark: SparkSession) -> None:
    assert {*owned(spark, []).values()} == {OTHERS}


def test_a_rule_is_an_expression_of_python(spark: SparkSession) -> None:
    only_python = "(?P<name>pay)(?P=name)?"
    assert re.search(only_python, "payments-api")
    assert owners(spark, (only_python, "billing"))["payments-api"] == "billing"
