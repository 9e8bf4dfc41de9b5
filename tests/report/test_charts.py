"""The charts as Vega draws them, without a browser."""

import copy
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import vl_convert

from pipeline.report.charts.vega import charts
from pipeline.report.model.report import Instant
from scripts.charts import chart_files
from tests.conftest import ROOT
from tests.helpers.reports import MINUTE, NOON

HOUR = 60 * MINUTE


def test_the_files_that_draw_charts_are_up_to_date() -> None:
    for file, text in chart_files().items():
        assert file.read_text(encoding="utf-8") == text, "make docs writes it"


def test_vegas_runtime_is_made_once_and_kept(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "pipeline", tmp_path / "pipeline", ignore=shutil.ignore_patterns("vega-*.js"))
    first, second = (runtime_in(tmp_path) for _ in range(2))
    (kept,) = (tmp_path / "pipeline" / "report" / "page").glob("vega-*.js")
    assert first == (True, kept.stat().st_size)
    assert second == (False, kept.stat().st_size)
    kept.unlink()
    kept.mkdir()  # nothing can be kept under this name
    assert runtime_in(tmp_path) == first


def runtime_in(folder: Path) -> tuple[bool, int]:
    """Whether the copy in a folder makes Vega's runtime, and how many bytes it returns."""
    code = "import sys; from pipeline.report.charts.vega import runtime; "
    code += "print(len(runtime().encode())); print('vl_convert' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    size, makes = done.stdout.split()
    return makes == "True", int(size)


def labels_of(name: str, span_ms: int, high: float = 1) -> list[str]:
    """The labels on the axes of a chart of five snapshots."""
    instants = tuple(Instant("east", NOON + n * span_ms // 4, 0, 5) for n in range(5))
    specification = copy.deepcopy(charts()[name])
    points = [{"t_ms": at.snapshot_id, "value": 1, "line": "a", "colour": "red"} for at in instants]
    for data in specification["data"]:
        data.update({"points": {"values": points}, "bands": {"values": []}}.get(data["name"], {}))
    values = {"first": NOON, "last": NOON + span_ms, "high": high}
    for signal in specification["signals"]:
        signal["value"] = values.get(signal["name"], signal.get("value"))
        if signal["name"] == "width":  # there is no page whose width it could have
            signal["value"] = 800
            signal.pop("init", None)
            signal.pop("on", None)
    return re.findall(r"<text[^>]*>([^<]*)</text>", vl_convert.vega_to_svg(specification))


@pytest.mark.parametrize("name", ["lag", "log_lag", "series"])
@pytest.mark.parametrize(
    ("span_ms", "first_labels"),
    [
        pytest.param(5 * MINUTE, ["12:00", "12:00:30", "12:01"], id="minutes"),
        pytest.param(3 * HOUR, ["12:00", "12:30", "13:00"], id="hours"),
        pytest.param(72 * HOUR, ["12:00", "Mar 02", "12:00"], id="days"),
    ],
)
def test_all_axes_of_time_have_a_clock_of_24_hours(name: str, span_ms: int, first_labels: list[str]) -> None:
    assert labels_of(name, span_ms)[:3] == first_labels


@pytest.mark.parametrize(
    ("high", "labels"),
    [
        pytest.param(0.8, ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8"], id="less than one"),
        pytest.param(1_200_000_000, ["0", "200M", "400M", "600M", "800M", "1G", "1.2G"], id="many"),
    ],
)
def test_a_rate_below_one_has_no_letter_that_looks_like_a_million(high: float, labels: list[str]) -> None:
    assert labels_of("series", HOUR, high)[-len(labels) :] == labels
