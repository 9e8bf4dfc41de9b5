"""What `make` installs for whom, and what it says meanwhile."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.conftest import ROOT

HEAVY = {"jupyterlab", "mkdocs-material", "mypy", "moto", "scipy", "kubernetes-validate", "pytest", "ruff"}
PIP = """\
Collecting pyarrow>=18 (from -r build/requirements.txt (line 9))
  Downloading pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl (55.0 MB)
Collecting jinja2>=3.1 (from -r build/requirements.txt (line 4))
  Using cached jinja2-3.1.6-py3-none-any.whl (500 kB)
Requirement already satisfied: numpy in ./lib (from -r build/requirements.txt (line 6)) (2.4.6)
Collecting pyspark==4.2.0 (from -r build/requirements.txt (line 14))
  Downloading pyspark-4.2.0.tar.gz (450.1 MB)
  Building wheel for pyspark (pyproject.toml): started
  Building wheel for pyspark (pyproject.toml): finished with status 'done'
Installing collected packages: pyarrow, jinja2, pyspark
Successfully installed jinja2-3.1.6 pyarrow-26.0.1 pyspark-4.2.0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A fresh checkout: everything but what is built."""
    for part in ROOT.iterdir():
        if part.name != "build":
            (tmp_path / part.name).symlink_to(part)
    return tmp_path


def would_do(checkout: Path, target: str) -> str:
    """A dry run of make."""
    env = {"PATH": os.environ["PATH"]}  # without the flags of the make that runs the tests
    return subprocess.run(
        ["make", "-n", target], cwd=checkout, env=env, capture_output=True, text=True, check=True
    ).stdout


def scripts(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / f"{name}.py"))


def names(lines: list[str]) -> set[str]:
    return {Requirement(line).name for line in lines}


def installed(would: str) -> list[str]:
    """The files of requirements that are installed, in order."""
    return re.findall(r"scripts/install\.py .* build/(requirements\S*)\.txt", would)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("try", ["requirements-light"]),
        ("demo", ["requirements"]),
        ("lint", ["requirements", "requirements-dev"]),
        ("test", ["requirements", "requirements-dev"]),
        ("test-thorough", ["requirements", "requirements-dev"]),
        ("docs", ["requirements", "requirements-dev"]),
        ("notebooks", ["requirements", "requirements-notebooks"]),
    ],
)
def test_a_fresh_checkout_installs_what_the_target_needs(checkout: Path, target: str, expected: list[str]) -> None:
    would = would_do(checkout, target)
    assert installed(would) == expected
    assert would.count("-m venv build/venv") == 1
    assert ("install-delta.sh" in would) == (target not in ("try", "lint", "docs"))
    assert ("check-java.sh" in would) == (target not in ("try", "lint", "docs"))


def test_try_installs_nothing_where_spark_is_installed(checkout: Path) -> None:
    folder = checkout / "build" / "venv" / "bin"
    folder.mkdir(parents=True)
    for made in ("bin/python", ".installed"):
        (folder.parent / made).touch()
    would = would_do(checkout, "try")
    assert "install.py" not in would
    assert "-m jobs try" in would


STUB_OF_PIP = """\
import os, sys
with open("calls", "a") as calls:
    calls.write(" ".join(a for a in sys.argv[1:] if a not in ("--disable-pip-version-check", "--progress-bar", "off")))
    calls.write(f" {os.path.exists('.light')}\\n")
sys.exit("FAILING" in os.environ and sys.argv[1] == "wheel")
"""


def installed_after_try(folder: Path, **env: str) -> tuple[int, list[str]]:
    """Installs Spark where `make try` has been; returns the status, and pip's calls with whether its mark was there."""
    (folder / "pip.py").write_text(STUB_OF_PIP)
    (folder / ".light").touch()
    command = [sys.executable, str(ROOT / "scripts" / "install.py"), "Spark", "list.txt", ".light"]
    ended = subprocess.run(command, cwd=folder, env=os.environ | env, capture_output=True, check=False)
    return ended.returncode, (folder / "calls").read_text().splitlines()


def test_spark_is_fetched_before_it_replaces_its_client(tmp_path: Path, checkout: Path) -> None:
    assert re.search(r"scripts/install\.py .* build/requirements\.txt build/venv/\.light\n", would_do(checkout, "demo"))
    assert installed_after_try(tmp_path) == (
        0,
        [
            "wheel --wheel-dir build/wheels -r list.txt -c constraints.txt True",
            "uninstall --quiet --yes pyspark-client False",
            "install --no-index --find-links build/wheels -r list.txt -c constraints.txt False",
        ],
    )


def test_if_spark_cannot_be_fetched_its_client_stays(tmp_path: Path) -> None:
    status, calls = installed_after_try(tmp_path, FAILING="1")
    assert status == 1
    assert [call.split()[0] for call in calls] == ["wheel"]
    assert (tmp_path / ".light").exists()


def test_each_kind_of_environment_has_only_its_own_packages() -> None:
    requirements = scripts("requirements")
    light, runtime = names(requirements["light"]()), names(requirements["requirements"](["spark"]))
    assert "great-expectations" in runtime
    assert "pyspark" in runtime
    assert light == runtime - {"altair", "duckdb", "great-expectations", "pyspark", "delta-spark"} | {"pyspark-client"}
    assert not runtime & HEAVY
    assert names(requirements["requirements"](["spark", "dev"])) > runtime


def test_the_list_of_the_light_environment_is_printed() -> None:
    command = [sys.executable, "scripts/requirements.py", "--light"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "pyspark-client==4.2.0" in lines
    assert names(lines) == names(scripts("requirements")["light"]())


def test_only_packages_that_take_time_have_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress = scripts("install")["Progress"]("Spark", is_terminal=False)
    for line in PIP.splitlines():
        progress.see(line)
    said = [line.split("] ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "package 1: pyarrow 26.0.1 (55 MB)",
        "package 4: pyspark 4.2.0 (450 MB)",
        "pyspark is prepared",
        f"3 packages, 506 MB, are there; they are unpacked into {sys.prefix}",
    ]


def test_a_terminal_also_counts_the_other_packages(capsys: pytest.CaptureFixture[str]) -> None:
    progress = scripts("install")["Progress"]("Spark", is_terminal=True)
    for line in PIP.splitlines()[:4]:
        progress.see(line)
    assert re.sub(r"\[ *[\d.]+ s\] ", "", capsys.readouterr().out) == (
        "Spark: package 1, pyarrow\x1b[K\rpackage 1: pyarrow 26.0.1 (55 MB)\x1b[K\nSpark: package 2, jinja2\x1b[K\r"
    )


def test_a_failure_of_pip_is_shown(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "list.txt").write_text("./no-such-package\n")
    command = [sys.executable, str(ROOT / "scripts" / "install.py"), "nothing", "list.txt"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "pip failed:\nERROR: " in ended.stdout
    assert "no-such-package" in (tmp_path / "build" / "pip.log").read_text()
