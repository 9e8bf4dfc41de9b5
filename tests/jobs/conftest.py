"""A checkout in which spark-submit.sh is called, with a stub for the spark-submit of SPARK_HOME."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.helpers.programs import write_program

SHIPPED = ("spark-submit.sh", "scripts", "conf", "jobs", "laglake", "pipeline")
STUB_STATUS = 7

Submit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that the script needs, in a folder with a blank in its name."""
    copy = tmp_path_factory.mktemp("a folder") / "lag lake"
    for name in SHIPPED:
        source = ROOT / name
        copier = shutil.copytree if source.is_dir() else shutil.copy2
        copy.mkdir(exist_ok=True)
        copier(source, copy / name)
    return copy


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs that comes first on PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    return folder


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """A Spark whose spark-submit prints its arguments, one per line, and ends with a special exit status."""
    home = tmp_path / "spark home"
    (home / "jars").mkdir(parents=True)
    write_program(home / "bin" / "spark-submit", f'printf "%s\\n" "$@"\nexit {STUB_STATUS}')
    return home


@pytest.fixture
def submit(checkout: Path, spark_home: Path, tools: Path, tmp_path: Path) -> Iterator[Submit]:
    """Runs the script from a folder of the user, which has a config.toml."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "config.toml").write_text('[lake]\nroot = "lake"\n[clusters.c]\nbootstrap_servers = ["127.0.0.1:1"]\n')

    def submit(*line: str, **env: str | None) -> "subprocess.CompletedProcess[str]":
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "LAGLAKE_", "PYTHON"))
        }
        settings = {
            **inherited,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "SPARK_HOME": str(spark_home),
            "PYSPARK_PYTHON": sys.executable,
            **env,
        }
        return subprocess.run(
            [str(checkout / "spark-submit.sh"), *line],
            cwd=work,
            env={name: value for name, value in settings.items() if value is not None},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    return submit
