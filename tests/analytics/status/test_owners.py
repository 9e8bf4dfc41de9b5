"""Who owns a group."""

import re

from pyspark.sql import SparkSession

from pipeline.analytics.status.owners import Rules, with_owner

NAMES = ["payments-api", "web", "x" * 1_024 + "-late", "", "группа", None]


def owners(spark: SparkSession, rules: Rules) -> dict[str | None, str | None]:
    groups = spark.createDataFrame([(name, n) for n, name in enumerate(NAMES)], "group_id string, n int")
    rows = with_owner(groups, rules).orderBy("n").collect()
    assert [row["group_id"] for row in rows] == NAMES
    return {row["group_id"]: row["owner"] for row in rows}


def test_the_first_rule_that_matches_anywhere_in_the_name_counts(spark: SparkSession) -> None:
    found = owners(spark, [("^pay", "billing"), ("ment|web", "shop"), ("^г", "мы")])
    assert found == {"payments-api": "billing", "web": "shop", NAMES[2]: None, "": None, "группа": "мы", None: None}


def test_only_the_beginning_of_a_long_name_is_searched(spark: SparkSession) -> None:
    assert owners(spark, [("-late", "late"), ("^x", "long")])[NAMES[2]] == "long"


def test_without_rules_nobody_owns_anything(spark: SparkSession) -> None:
    assert {*owners(spark, []).values()} == {None}


def test_a_rule_is_an_expression_of_python(spark: SparkSession) -> None:
    only_python = "(?P<name>pay)(?P=name)?"
    assert re.search(only_python, "payments-api")
    assert owners(spark, [(only_python, "billing")])["payments-api"] == "billing"
