"""The stored notebooks; and the questions of notebook 06, on the same rows in Spark and in DuckDB.

tests/laglake/test_notebooks.py runs all notebooks.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from pipeline.tables import CLIENT_DIVERGENCE, FINDINGS, LAG, SNAPSHOTS
from tests.conftest import ROOT
from tests.helpers.both_engines import with_views
from tests.helpers.reports import at, lag_row, snapshot

NOTEBOOK = ROOT / "notebooks" / "06_sql.ipynb"
OF_SPARK_ALONE = "quantiles("


def lags(minute: int) -> list[dict[str, Any]]:
    common = {"captured_at": at(minute), "log_start_offset": 100 * minute, "high_watermark": 1000 + 100 * minute}
    lost = {"offset_status": "deleted_unread"} if minute == 2 else {}
    return [
        lag_row(
            minute,
            "late",
            0,
            consumer_lag=300 * minute,
            consumer_lag_bytes=3_000 * minute,
            bytes_error=10,
            consumer_age_ms=60_000 * minute,
            time_error_ms=600,
            headroom=50,
            headroom_ms=90_000,
            committed_offset=50,
            consumed_offset=70,
            member_id="m-1",
            **common,
            **lost,
        ),
        lag_row(minute, "fine", 0, consumer_lag=0, committed_offset=1000, headroom=900, member_id="m-2", **common),
        lag_row(minute, "gone", 0, consumer_lag=900, headroom=5, headroom_ms=1, **common),
    ]


def rows() -> dict[str, Any]:
    """Three snapshots: `late` falls behind and has lost records, `fine` keeps up, and `gone` has no reader."""
    problem = {"what": "watermarks", "where": "t", "error": "NOT_LEADER_OR_FOLLOWER", "count": 2}
    blocked = {"kind": "blocked_connector", "client_id": "c", "topic": "t", "first_seen": at(1), "resolved_at": None}
    return {
        "snapshots": (SNAPSHOTS, [snapshot(0), snapshot(1), snapshot(2, "partial", errors=[problem])]),
        "lag": (LAG, [row for minute in range(3) for row in lags(minute)]),
        "client_divergence": (
            CLIENT_DIVERGENCE,
            [
                {"cluster": "east", "client_id": "c", "verdict": v, "hidden_lag": n}
                for n, v in enumerate(["ok", "stale"])
            ],
        ),
        "findings": (FINDINGS, [{"cluster": "east", "evidence": '{"victim_topics":["a"]}', **blocked}]),
    }


@pytest.fixture(scope="module")
def asked(spark: SparkSession) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """The answers of Spark and of DuckDB to each question that both can answer."""
    duck = with_views(spark, rows())
    return answers(lambda query: spark.sql(query).toPandas()), answers(lambda query: duck.sql(query).df())


def answers(ask: Callable[[str], pd.DataFrame]) -> list[pd.DataFrame]:
    """The answers that the cells of the notebook get."""
    found = []

    def noted(query: str) -> pd.DataFrame:
        found.append(ask(query))
        return found[-1]

    _, *cells = (cell.source for cell in nbformat.read(Path(NOTEBOOK), as_version=4).cells if cell.cell_type == "code")
    for cell in cells:
        if OF_SPARK_ALONE not in cell:
            exec(cell, {"ask": noted})
    return found


def test_duckdb_answers_as_spark_does(asked: tuple[list[pd.DataFrame], list[pd.DataFrame]]) -> None:
    in_spark, in_duckdb = asked
    assert len(in_spark) == len(in_duckdb) == 10  # one question has two queries, and one is only for Spark
    for one, other in zip(in_spark, in_duckdb, strict=True):
        assert [*one.columns] == [*other.columns]
        assert len(one) == len(other) > 0
        for name in one.columns:
            if pd.api.types.is_numeric_dtype(one[name]):
                assert one[name].astype(float).tolist() == pytest.approx(
                    other[name].astype(float).tolist(), nan_ok=True
                )
            elif one[name].dtype == object and name != "errors":
                assert [*map(str, one[name])] == [*map(str, other[name])]


def test_the_answers_are_those_of_the_recorded_truth(asked: tuple[list[pd.DataFrame], list[pd.DataFrame]]) -> None:
    _, then, now, since, lost, next_lost, gauges, blocked, unread, unknown = asked[1]
    assert then[["group_id", "offsets"]].to_numpy().tolist() == [["gone", 900], ["late", 300], ["fine", 0]]
    assert now.loc[0, ["group_id", "bytes", "minutes"]].tolist() == ["late", 6_000, 2]
    assert since.set_index("group_id").behind_since.dt.minute.to_dict() == {"late": 1, "gone": 0}
    assert lost[["group_id", "lost"]].to_numpy().tolist() == [["late", 130]]
    assert next_lost.group_id.tolist() == ["gone", "late"]
    assert gauges.verdict.tolist() == ["ok", "stale"]
    assert blocked.culprit.tolist() == ["t"]
    assert unread[["group_id", "written"]].to_numpy().tolist() == [["gone", 200]]
    assert unknown.status.tolist() == ["partial"]


@pytest.mark.parametrize("file", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda file: file.stem)
def test_a_notebook_is_stored_with_its_outputs(file: Path) -> None:
    cells = nbformat.read(file, as_version=4).cells
    assert cells[0].cell_type == "markdown"
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]  # by `make notebook-outputs`
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert {output.output_type for output in outputs} <= {"display_data", "execute_result", "stream"}
    shown = str([output.get("data", output.get("text")) for output in outputs])
    assert not re.search(r"(?<![\w.])/(work|home|root|tmp|Users)/", shown)
    draws = any("alt.Chart" in cell.source for cell in code)
    assert draws == ("image/svg+xml" in shown)


def test_make_notebooks_installs_jupyter(tmp_path: Path) -> None:
    """A dry run, as in a fresh checkout: it prints what it would do."""
    for part in ROOT.iterdir():
        if part.name != "build":
            (tmp_path / part.name).symlink_to(part)
    env = {"PATH": os.environ["PATH"]}  # without the flags of the make that runs the tests
    command = ["make", "-n", "notebooks"]
    would = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout
    steps = [
        "-m venv build/venv",
        "scripts/requirements.py spark > build/requirements.txt",
        "scripts/install.py .* build/requirements.txt",
        "scripts/install-delta.sh",
        "scripts/requirements.py spark notebooks > build/requirements-notebooks.txt",
        "scripts/install.py .* build/requirements-notebooks.txt",
        "spark-submit.sh replay .* --recording build/recording/",
        "build/venv/bin/python -m jupyterlab notebooks",
    ]
    assert re.search(".*".join(f"(?:{step})" for step in steps), would, re.DOTALL), would
    assert not (tmp_path / "build").exists()
    command = [sys.executable, "scripts/requirements.py", "notebooks"]
    wanted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "jupyterlab" in wanted
    assert re.search("^jupyterlab==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
