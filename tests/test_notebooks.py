"""Each notebook runs from top to bottom, in a kernel of its own and through Spark Connect, and shows what is true."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql import SparkSession

from jobs.cli import utc_now
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.local.broker import EmbeddedKafka
from pipeline.replay import replay
from pipeline.snapshot import take_snapshots
from tests.conftest import ROOT, ConnectServer
from tests.helpers.quiet import config, seed
from tests.helpers.recordings import table, unpacked

PREFIX = "notebook"
RECORDING = "legacy-a2-blocked"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

pytestmark = [pytest.mark.slow, pytest.mark.connect]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake: two snapshots of a quiet cluster, and a recording of a blocked connector."""
    folder = tmp_path_factory.mktemp("notebooks")
    seed(kafka, PREFIX)
    settings = config(folder, PREFIX, {"live": kafka.bootstrap_servers}, 'schedule = "1ms"')
    lake = Lake(spark, settings.lake)
    replay(lake, settings, unpacked(RECORDING, folder), RECORDING, utc_now)
    for _ in range(2):
        taken = take_snapshots(spark, settings, ["live"], utc_now(), utc_now)
        assert [t.status for t in taken] == ["complete"]
    compute_lag(spark, settings, ["live"], utc_now)
    return folder


class Ran:
    """A notebook that was run: what its cells have shown, as text, and what kinds of output there were."""

    def __init__(self, notebook: Any) -> None:
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        shown = [output.get("data", {}) for output in outputs]
        printed = "".join(output.get("text", "") for output in outputs if output.output_type == "stream")
        self.text = printed + "\n" + "\n".join(data.get("text/plain", "") for data in shown)
        self.charts = sum("vegaEmbed" in data.get("text/html", "") for data in shown)


@pytest.fixture
def run(folder: Path, kafka: EmbeddedKafka, connect_server: ConnectServer) -> Any:
    def run(name: str) -> Ran:
        (file,) = (file for file in NOTEBOOKS if file.name.startswith(name))
        notebook = nbformat.read(file, as_version=4)
        wide = "'display.width', 400, 'display.max_columns', 99, 'display.max_colwidth', 200"
        notebook.cells.insert(0, nbformat.v4.new_code_cell(f"import pandas\npandas.set_option({wide})"))
        env = connect_server.client_env()
        env |= {"LAGLAKE_LAKE": str(folder / "lake"), "LAGLAKE_BOOTSTRAP": kafka.bootstrap_servers}
        client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(file.parent)}})
        return Ran(client.execute(env=env))

    return run


def test_a_first_look(run: Any) -> None:
    shown = run("01")
    assert re.search(rf"{PREFIX}-billing +3 +0 ", shown.text)
    assert re.search(rf"{PREFIX}-audit +-2 +0 .*beyond_end", shown.text)
    assert "blocked_connector" in shown.text
    assert shown.charts == 1


def test_fetcher_lag_and_consumer_lag(run: Any, folder: Path) -> None:
    shown = run("02")
    truth = table(folder / RECORDING / "truth.csv")
    last = [row for row in truth if row["ts"] == truth[-1]["ts"]]
    lag = max(int(row["high_watermark"]) - int(row["committed"]) for row in last)
    told = re.search(r"The gauge reads 0 while the group is ([\d,]+) offsets behind: it is stale\.", shown.text)
    assert told
    assert int(told[1].replace(",", "")) == lag
    assert "queued.max.message.chunks = 10: up to 30 MiB" in shown.text
    assert shown.charts == 1


def test_one_slow_topic_blocks_all(run: Any) -> None:
    shown = run("03")
    assert re.search(r"blocked_connector, 09:58:31 to [\d:]+: backend's fetcher waits for order.events, ", shown.text)
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


def test_sql(run: Any) -> None:
    shown = run("06")
    assert f"{PREFIX}-audit" in shown.text
    assert re.search(r"blocked_connector +backend +order.events +\[\"mail_queue\",\"web-clicks\"\]", shown.text)
    assert "half_and_99" in shown.text


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_kept_without_outputs(file: Path) -> None:
    cells = nbformat.read(file, as_version=4).cells
    assert cells[0].cell_type == "markdown"
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)
