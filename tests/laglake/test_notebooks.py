"""Each job and each notebook works through Spark Connect, without its own Java, and shows correct results.

The tables are in a catalog, so everything is as on serverless compute, except for the workers' sandbox.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.config import LakeConfig
from pipeline.lake import Lake
from pipeline.tables import FINDINGS, LAG
from tests.conftest import KAFKA_USERS, ROOT, ConnectServer
from tests.helpers.quiet import expected_lag, lag_rows, seed, write_config
from tests.helpers.recordings import table, unpacked
from tests.helpers.secrets import LOGIN, PASSWORD_VARIABLE, USER, leaks

PREFIX = "notebook"
RECORDING = "legacy-a2-blocked"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

pytestmark = [pytest.mark.lengthy, pytest.mark.connect]


SCHEMA = "notebooks"
LAKE = f"spark_catalog.{SCHEMA}"
JOBS = f"""
import os, sys
from pyspark.sql import SparkSession
from jobs import lag, replay, report, run, snapshot
config, recording, csv, page = sys.argv[1:]
spark = SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).getOrCreate()
spark.sql("CREATE SCHEMA {LAKE}")
spark.stop()
common = ["--config", config, "--lake", "{LAKE}"]
sys.exit(
    replay.main([*common, "--recording", recording])
    or snapshot.main([*common, "--fail-on", "partial"])
    or run.main([*common, "--fail-on", "partial", "--output", page])
    or lag.main([*common, "--show"])
    or report.main([*common, "--format", "csv", "--output", csv])
)
"""


@pytest.fixture(scope="module")
def jobs(
    kafka: EmbeddedKafka, connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """All jobs, one after the other: the folder of their lake, and what they printed.

    The lake has a recording of a blocked connector and two snapshots of a quiet cluster.
    """
    folder = tmp_path_factory.mktemp("notebooks")
    seed(kafka, PREFIX)
    servers = {"live": kafka.sasl_bootstrap_servers}
    file = write_config(folder, PREFIX, servers, 'schedule = "1ms"', client=LOGIN)
    command = [sys.executable, "-c", JOBS, str(file), str(unpacked(RECORDING, folder)), str(folder / "report.csv")]
    command.append(str(folder / "report.html"))
    env = connect_server.client_env() | {PASSWORD_VARIABLE: KAFKA_USERS[USER]}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=800)
    assert ran.returncode == 0, ran.stderr[-6000:]
    return folder, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def folder(jobs: tuple[Path, str]) -> Path:
    return jobs[0]


def test_the_jobs(jobs: tuple[Path, str], spark: SparkSession, connect_server: ConnectServer) -> None:
    folder, printed = jobs
    assert re.search(rf"{PREFIX}-billing +{PREFIX}-orders +0 +2 +5 +3 ", printed)
    lake = Lake(spark, LakeConfig(root=str(connect_server.warehouse / f"{SCHEMA}.db")))
    for snapshot_id in {r[0] for r in lake.frame(LAG, "cluster = 'live'").select("snapshot_id").collect()}:
        assert lag_rows(lake, "live", snapshot_id) == expected_lag(PREFIX)
    assert leaks(printed) == []
    assert f"{PREFIX}-billing" in (folder / "report.html").read_text()
    reported = table(folder / "report.csv")
    of_live = sorted((r["group_id"], r["topic"], int(r["partition"])) for r in reported if r["cluster"] == "live")
    assert of_live == [row[:3] for row in expected_lag(PREFIX)]
    assert {r["cluster"] for r in reported} == {"live", RECORDING}
    assert lake.frame(FINDINGS, "kind = 'blocked_connector'").count() == 1


class Ran:
    """A notebook that was run: the output of its cells as text, and the kinds of outputs."""

    def __init__(self, notebook: Any) -> None:
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        shown = [output.get("data", {}) for output in outputs]
        printed = "".join(output.get("text", "") for output in outputs if output.output_type == "stream")
        self.text = printed + "\n" + "\n".join(data.get("text/plain", "") for data in shown)
        self.charts = sum("image/svg+xml" in data for data in shown)


@pytest.fixture
def run(folder: Path, kafka: EmbeddedKafka, connect_server: ConnectServer) -> Any:
    def run(name: str, lake: str = LAKE) -> Ran:
        (file,) = (file for file in NOTEBOOKS if file.name.startswith(name))
        notebook = nbformat.read(file, as_version=4)
        wide = "'display.width', 400, 'display.max_columns', 99, 'display.max_colwidth', 200"
        notebook.cells.insert(0, nbformat.v4.new_code_cell(f"import pandas\npandas.set_option({wide})"))
        env = connect_server.client_env()
        env |= {"LAGLAKE_LAKE": lake, "LAGLAKE_BOOTSTRAP": kafka.bootstrap_servers}
        client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(file.parent)}})
        return Ran(client.execute(env=env))

    return run


def test_a_first_look(run: Any) -> None:
    shown = run("01")
    assert re.search(rf"{PREFIX}-billing +3 +0 ", shown.text)
    assert re.search(rf"{PREFIX}-audit +0 +0 .*beyond_end", shown.text)
    assert "blocked_connector" in shown.text
    assert shown.charts == 1


def test_fetcher_lag_and_consumer_lag(run: Any, folder: Path) -> None:
    shown = run("02")
    truth = table(folder / RECORDING / "truth.csv")
    last = [row for row in truth if row["ts"] == truth[-1]["ts"]]
    lag = max(int(row["high_watermark"]) - int(row["committed"]) for row in last)
    reported = re.search(r"The gauge reads 0 while the group is ([\d,]+) offsets behind: it is stale\.", shown.text)
    assert reported
    assert int(reported[1].replace(",", "")) == lag
    assert "queued.max.message.chunks = 10: up to 30 MiB" in shown.text
    assert shown.charts == 1


def test_one_slow_topic_blocks_all(run: Any) -> None:
    shown = run("03")
    assert re.search(
        r"blocked_connector, 09:58:31 to [\d:]+: The fetcher of backend waits for order.events, ", shown.text
    )
    assert "nothing comes for mail_queue, web-clicks meanwhile" in shown.text
    assert "'victim_topics': ['mail_queue', 'web-clicks']" in shown.text
    assert shown.charts == 2


def test_bytes_time_and_page_cache(run: Any) -> None:
    shown = run("04")
    assert re.search(rf"{PREFIX}-billing +{PREFIX}-orders +0 +3 +[1-9]", shown.text)
    assert "ConsumerFetchLagTimeInMs" in shown.text
    assert "cache_99_bytes" in shown.text
    assert shown.charts == 1


def test_live(run: Any) -> None:
    shown = run("05")
    assert re.search(rf"{PREFIX}-billing +3(\.0)? +2 +2 +3(\.0)?", shown.text)


def test_sql(run: Any, connect_server: ConnectServer) -> None:
    shown = run("06", str(connect_server.warehouse / f"{SCHEMA}.db"))  # the same lake as a folder
    assert f"{PREFIX}-audit" in shown.text
    assert re.search(
        r'blocked_connector +backend +order.events .*"victim_topics": ?\["mail_queue", ?"web-clicks"\]', shown.text
    )
    assert "half_and_99" in shown.text
