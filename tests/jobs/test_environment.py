"""spark-submit.sh without SPARK_HOME: what it installs into build/venv, for which jobs, and when."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.programs import write_program

Submit = Callable[..., "subprocess.CompletedProcess[str]"]
WITHOUT_SPARK = [
    ["show", "--help"],
    ["doctor", "--cluster", "no-such-cluster"],
    ["try", "--help"],
    ["lag", "-h"],
    ["report", "--check"],
    ["notify", "--test", "no-such-channel"],
]
INSTALLS_LIGHT = "spark-submit.sh: installing what jobs without Spark need into build/venv, once"
INSTALLS_SPARK = "spark-submit.sh: installing Spark into build/venv, which takes minutes, once"


@pytest.fixture
def venv(checkout: Path) -> Iterator[Path]:
    """The place of the virtual environment, which is absent."""
    place = checkout / "build" / "venv"
    shutil.rmtree(place, ignore_errors=True)
    yield place
    shutil.rmtree(place, ignore_errors=True)


def write_python(venv: Path, mark: str) -> None:
    write_program(venv / "bin" / "python", f'exec "{sys.executable}" "$@"')
    (venv / mark).touch()


@pytest.fixture
def stub_of_make(venv: Path, tools: Path, tmp_path: Path) -> None:
    """A make that installs at once: the real one takes a minute, and is what these tests run in."""
    write_program(tmp_path / "python", f'exec "{sys.executable}" "$@"')
    mark = f'if [[ $* == *.light ]]; then mark=.light; else mark=.installed; fi; mkdir -p "{venv}/bin"'
    write_program(tools / "make", f'echo "make $*"; {mark}; cp "{tmp_path}/python" "{venv}/bin/"; >"{venv}/$mark"')


@pytest.mark.usefixtures("stub_of_make")
@pytest.mark.parametrize("line", WITHOUT_SPARK, ids=" ".join)
def test_what_needs_no_spark_installs_none_and_needs_no_java(
    submit: Submit, checkout: Path, tools: Path, line: list[str]
) -> None:
    write_program(tools / "java", "echo started >&2; exit 1")
    installed, made, *_ = submit(*line, SPARK_HOME=None).stderr.splitlines()
    assert installed == INSTALLS_LIGHT
    assert made == f"make --silent --no-print-directory -C {checkout} build/venv/.light"


@pytest.mark.usefixtures("stub_of_make")
@pytest.mark.parametrize("mark", [".light", ".installed"])
def test_what_is_installed_is_enough_for_what_needs_no_spark(submit: Submit, venv: Path, mark: str) -> None:
    write_python(venv, mark)
    ended = submit("report", "--check", SPARK_HOME=None)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.usefixtures("stub_of_make")
@pytest.mark.parametrize("has_light", [False, True])
def test_a_run_installs_spark_first(submit: Submit, checkout: Path, venv: Path, has_light: bool) -> None:
    if has_light:
        write_python(venv, ".light")
    installed, made, *_ = submit("run", SPARK_HOME=None, JAVA_HOME="/nowhere").stderr.splitlines()
    assert installed == INSTALLS_SPARK
    assert made == f"make --silent --no-print-directory -C {checkout} check-java jars"


@pytest.mark.usefixtures("stub_of_make")
def test_a_mistake_is_found_before_spark_is_installed(submit: Submit, venv: Path) -> None:
    write_python(venv, ".light")
    ended = submit("run", "--config", "nope.toml", SPARK_HOME=None)
    assert (ended.returncode, ended.stderr) == (2, "nope.toml: cannot be read: No such file or directory\n")


def test_with_a_spark_elsewhere_what_make_try_has_installed_serves_only_what_needs_no_spark(
    submit: Submit, venv: Path, tools: Path
) -> None:
    write_program(tools / "python3", "exit 1")
    write_python(venv, ".light")
    assert submit("try", "--help", PYSPARK_PYTHON=None).returncode == 0
    ended = submit("run", "--config", "config.toml", PYSPARK_PYTHON=None)
    assert "SPARK_HOME is set, so PYSPARK_PYTHON must name a python" in ended.stderr


def test_a_name_in_the_users_folder_is_not_imported(submit: Submit, tmp_path: Path) -> None:
    (tmp_path / "work" / "jobs.py").write_text("raise SystemExit('the wrong jobs')")
    assert submit("show", "--help").returncode == 0
