"""What is shipped: the wheel, for a cluster that has its own Spark, and the zip, for spark-submit."""

import configparser
import re
import runpy
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pyspark.sql import SparkSession

from jobs import entry_points
from pipeline.common.errors import LakeError
from pipeline.session import CONF, log_stores
from pipeline.session import package_zip as shipping
from pipeline.session import spark as session
from tests.conftest import ROOT
from tests.helpers.wheel import built_wheel


def package_files(*others: str) -> set[str]:
    """Every file of the packages that are sent to workers, and of `others`, Python or data."""
    files = (
        path for package in (*shipping.PACKAGES, *others) for path in (ROOT / package).rglob("*") if path.is_file()
    )
    return {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}


def requirements(*extras: str) -> list[Requirement]:
    listed = runpy.run_path(str(ROOT / "scripts" / "requirements.py"))["requirements"](list(extras))
    return [Requirement(line) for line in listed]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    file = built_wheel(tmp_path_factory.mktemp("sources"))
    assert re.fullmatch(r"laglake-[0-9.]+-py3-none-any\.whl", file.name)
    return zipfile.ZipFile(file)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """The wheel's METADATA."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    kept = {name for name in package_files("demo") if "/vega-" in name}  # where a report was written
    assert shipped == package_files("demo") - kept


def test_the_wheel_has_the_settings_of_spark_and_the_example(wheel: zipfile.ZipFile) -> None:
    for name in ("spark-defaults.conf", "log4j2.properties"):
        assert wheel.read(f"pipeline/session/{name}") == (ROOT / "conf" / name).read_bytes()
    assert wheel.read("jobs/example.tar.xz") == (ROOT / "jobs" / "example.tar.xz").read_bytes()


def test_the_wheel_leaves_spark_to_the_runtime(metadata: Message) -> None:
    needed = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    always = {canonicalize_name(r.name) for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})}
    assert "kafka-python" in always
    assert always.isdisjoint({"pyspark", "delta-spark", "py4j"})
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"


def test_the_commands_of_the_wheel_run_the_jobs(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    points = configparser.ConfigParser()
    points.read_string(wheel.read(name).decode())
    jobs = ("doctor", "lag", "maintain", "notify", "replay", "report", "run", "show", "snapshot")
    of_jobs = {f"laglake-{job}": f"jobs.entry_points:{job}" for job in jobs}
    assert dict(points["console_scripts"]) == {"laglake": "jobs.entry_points:laglake"} | of_jobs


def test_the_demo_is_in_the_wheel_and_is_not_sent_to_workers(wheel: zipfile.ZipFile) -> None:
    packages = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in packages if not name.endswith(".dist-info")} == {"demo", "jobs", "laglake", "pipeline"}
    assert shipping.PACKAGES == ("jobs", "laglake", "pipeline")


def test_spark_or_its_client_is_an_extra_and_the_two_have_one_version() -> None:
    versions = {r.name: str(r.specifier) for extra in ("spark", "connect") for r in requirements(extra)}
    assert versions["pyspark"] == versions["pyspark-client"]
    assert {r.name for r in requirements("connect")} - {r.name for r in requirements()} == {"pyspark-client"}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "usage: laglake JOB [OPTIONS OF THE JOB]"),
        (["lag", "--help"], 0, "usage: laglake lag"),
        ([], 2, "the following arguments are required: JOB"),
        (["lagg"], 2, "argument JOB: invalid choice: 'lagg' (choose from 'try', 'demo', 'run', 'snapshot'"),
        (["try", "--help"], 0, "usage: laglake try"),
        (["demo", "--help"], 0, "usage: laglake demo"),
        (["doctor", "--config", "nowhere.toml"], 2, "nowhere.toml"),
    ],
)
def test_one_command_runs_all_jobs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, said: str
) -> None:
    monkeypatch.setattr("sys.argv", ["laglake", *arguments])
    with pytest.raises(SystemExit) as ended:
        entry_points.laglake()
    assert ended.value.code == status
    assert said in "".join(capsys.readouterr())


def test_the_help_has_one_line_for_each_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["laglake", "--help"])
    with pytest.raises(SystemExit):
        entry_points.laglake()
    listed = re.findall(r"^  ([a-z]+)  +(\S.*)$", capsys.readouterr().out.partition("jobs:")[2], re.MULTILINE)
    assert [name for name, _ in listed] == [
        *("try", "demo", "run", "snapshot", "lag", "show", "report", "notify", "replay", "maintain", "doctor")
    ]
    assert all(len(about) < 90 for _, about in listed)


def test_the_zip_has_every_file_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    first = shipping.zip_packages(tmp_path / "a" / "one.zip")
    second = shipping.zip_packages(tmp_path / "two.zip")
    assert set(zipfile.ZipFile(first).namelist()) == package_files()
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "one.zip", "two.zip"]


def test_the_log_stores_of_the_package_are_given_to_a_spark_that_does_not_have_them(tmp_path: Path) -> None:
    spark, package = tmp_path / "spark", tmp_path / "package"
    (spark / "jars").mkdir(parents=True)
    package.mkdir()
    assert log_stores(spark, package) == {}
    (package / "laglake-log-stores.jar").touch()
    assert log_stores(spark, package) == {"spark.jars": f"{package}/laglake-log-stores.jar"}
    (spark / "jars" / "laglake-log-stores.jar").touch()
    assert log_stores(spark, package) == {}


def test_the_settings_of_a_session_are_those_of_spark_submit() -> None:
    for name in ("spark-defaults.conf", "log4j2.properties"):
        assert (CONF / name).resolve() == (ROOT / "conf" / name).resolve()


def test_the_jar_of_delta_is_of_the_version_and_spark_that_are_pinned() -> None:
    pins = {
        r.name: next(iter(r.specifier)).version for r in requirements("spark") if r.name in ("pyspark", "delta-spark")
    }
    minor = ".".join(pins["pyspark"].split(".")[:2])
    packages = re.search(
        r"^spark\.jars\.packages\s+(\S+)$", (ROOT / "conf/spark-defaults.conf").read_text(), re.MULTILINE
    )
    assert packages is not None
    assert packages[1] == f"io.delta:delta-spark_{minor}_2.13:{pins['delta-spark']}"


def test_a_session_with_a_spark_that_has_no_delta_is_refused_before_java_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    monkeypatch.setattr(session, "has_delta", lambda _: False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(
        LakeError, match=re.escape("Delta 4.4.0 has no build for Spark 4.3.0: use Spark 4.0, 4.1 or 4.2")
    ):
        session.classic_session("refused", {})


def test_every_requirement_has_a_tested_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }
    for requirement in requirements("spark", "connect", "dev"):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement
