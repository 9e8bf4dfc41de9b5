"""The settings for few rows: how long they are used, and that the session's own settings are restored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pipeline.config import LakeConfig
from pipeline.lake import Lake
from pipeline.lake.few_rows import FEW_FOR_SPARK, FEW_ROWS, MANY_ROWS, expect_rows, for_few_rows, own_setting

OWN = {
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "1000",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


def settings(spark: SparkSession) -> dict[str, str | None]:
    return {name: spark.conf.get(name) for name in FEW_ROWS}


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with settings that all differ from those for few rows."""
    before = settings(spark)
    for name, value in OWN.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, str(value))


def test_the_settings_for_few_rows_last_while_rows_are_few(session: SparkSession) -> None:
    with for_few_rows(session):
        expect_rows(session, FEW_FOR_SPARK - 1)
        assert settings(session) == FEW_ROWS
    assert settings(session) == OWN


def test_more_rows_restore_the_sessions_own_settings(session: SparkSession) -> None:
    with for_few_rows(session):
        expect_rows(session, FEW_FOR_SPARK)
        assert settings(session) == OWN
    assert settings(session) == OWN


def test_a_guarded_lake_expects_as_many_rows_as_the_lake_and_one_for_another_cluster_does_not(
    session: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(session, LakeConfig(root=str(tmp_path)))
    with for_few_rows(session):
        lake.expect_rows(MANY_ROWS - 1)
        assert lake._expects_fewer(MANY_ROWS)
        lake.expect_rows(MANY_ROWS)
        assert not lake._expects_fewer(MANY_ROWS)
        assert not lake.guarded(lambda: None)._expects_fewer(MANY_ROWS)
        assert lake.for_one_cluster()._expects_fewer(1)


def test_an_error_restores_the_sessions_own_settings(session: SparkSession) -> None:
    with pytest.raises(KeyError), for_few_rows(session):
        raise KeyError
    assert settings(session) == OWN


def test_of_two_jobs_at_once_only_the_first_changes_the_settings(session: SparkSession) -> None:
    with for_few_rows(session), for_few_rows(session):
        assert settings(session) == FEW_ROWS
    assert settings(session) == OWN


def test_without_a_job_nothing_changes(session: SparkSession) -> None:
    expect_rows(session, MANY_ROWS)
    assert settings(session) == OWN


def test_the_sessions_own_value_of_a_setting_is_known(session: SparkSession) -> None:
    name = "spark.sql.shuffle.partitions"
    with for_few_rows(session):
        assert (session.conf.get(name), own_setting(session, name)) == ("1", "7")
    assert own_setting(session, name) == "7"


def test_databricks_keeps_its_own_settings(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with for_few_rows(session):
        assert settings(session) == OWN


class Server:
    """A session whose server refuses the last of the settings, as a vendor's server may do."""

    def __init__(self) -> None:
        self.conf = self
        self.settings = dict(OWN)

    def get(self, name: str) -> str:
        return self.settings[name]

    def set(self, name: str, value: str) -> None:
        if name == list(FEW_ROWS)[-1]:
            raise AnalysisException(f"{name} cannot be set here")
        self.settings[name] = value


def test_a_server_that_refuses_a_setting_keeps_all_of_its_own() -> None:
    server: Any = Server()
    with for_few_rows(cast(SparkSession, server)):
        assert server.settings == OWN
    assert server.settings == OWN
