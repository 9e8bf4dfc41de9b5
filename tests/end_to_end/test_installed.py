"""What a new user gets: the wheel with one of its extras in a new environment, and `make try` in a fresh checkout."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.helpers.environments import python_with
from tests.helpers.wheel import built_wheel
from tests.test_install import HEAVY

TIMEOUT_S = 300
MOST_MB = 900
pytestmark = [pytest.mark.lengthy, pytest.mark.timeout(3 * TIMEOUT_S)]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `laglake` of the wheel, in an environment with PySpark's client."""
    wheel = built_wheel(tmp_path_factory.mktemp("sources"))
    folder = tmp_path_factory.mktemp("installed")
    python = python_with(folder, f"{wheel}[connect]", "-c", ROOT / "constraints.txt")
    return python.with_name("laglake")


def called(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command that finds nothing of this checkout."""
    hidden = ("PYTHONPATH", "LAGLAKE_CONFIG", "SPARK_HOME", "MAKEFLAGS", "MAKELEVEL")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def size_mb(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


def test_the_example_is_shown_and_its_tables_are_read(command: Path, tmp_path: Path) -> None:
    tried = called(tmp_path, command, "try")
    assert (tried.returncode, tried.stderr) == (0, "")
    assert "laglake show --config build/try/config.toml" in tried.stdout
    assert "laglake demo" in tried.stdout
    assert "spark-submit" not in tried.stdout
    assert (tmp_path / "build" / "try" / "report.html").exists()
    shown = called(tmp_path, command, "show", "--lake", "build/try/lake", "--group", "^billing-slow$")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert [line.split()[:3] for line in shown.stdout.splitlines()[1:5]].count(["billing-slow", "invoices", "0"]) == 1


def test_every_command_has_help_and_names_only_what_is_there(command: Path, tmp_path: Path) -> None:
    listed = called(tmp_path, command, "--help").stdout.partition("jobs:")[2]
    names = [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]
    assert len(names) == 11
    for name in names:
        shown = called(tmp_path, command, name, "--help")
        assert (shown.returncode, shown.stderr) == (0, ""), name
        assert "spark-submit.sh" not in shown.stdout, name


def test_doctor_checks_a_cluster(command: Path, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('[lake]\nroot = "lake"\n[clusters.east]\nbootstrap_servers = ["127.0.0.1:1"]\n')
    ended = called(tmp_path, command, "doctor", "--config", "my.toml")
    assert ended.returncode == 1
    assert "WRONG east: 127.0.0.1:1 cannot be reached: connection refused" in ended.stdout


def test_make_try_in_a_fresh_checkout_installs_no_tools_and_is_small(tmp_path: Path) -> None:
    checkout = tmp_path / "laglake"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns("build", "dist", ".git", "*_cache", "__pycache__"))
    ended = called(checkout, "make", "try")
    assert ended.returncode == 0, ended.stderr
    assert "The report: build/try/report.html" in ended.stdout
    listed = called(checkout, checkout / "build" / "venv" / "bin" / "python", "-m", "pip", "list", "--format=freeze")
    installed = {line.partition("==")[0].lower() for line in listed.stdout.splitlines()}
    assert "pyspark-client" in installed
    assert not installed & (HEAVY | {"pyspark", "duckdb", "great-expectations"})
    assert size_mb(checkout) < MOST_MB
    shown = called(checkout, "./spark-submit.sh", "show", "--config", "build/try/config.toml", "--rows", "1")
    assert (shown.returncode, shown.stderr) == (0, "")
