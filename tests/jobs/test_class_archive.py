"""The archive of Java classes: which jobs use it, how it is made, and that Java ignores one that does not fit.

A stub replaces Spark; where Java matters, the real one gets the options that Spark would get.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from tests.conftest import ROOT
from tests.helpers.programs import write_program

STUB_STATUS = 7
RECORDING = "tests/data/recordings/legacy-a2-blocked.tar.xz"
OPTIONS = "spark.driver.defaultJavaOptions="
LAUNCHER = next((Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar"))
Submit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def build(checkout: Path) -> Iterator[Path]:
    """The folder of the archive, without one, in a checkout that also has what is needed to write one."""
    (checkout / RECORDING).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / RECORDING, checkout / RECORDING)
    folder = checkout / "build"
    folder.mkdir(exist_ok=True)
    yield folder
    for archive in folder.glob("classes-*"):
        archive.unlink()


def put(build: Path, content: bytes, size: int | None = None) -> Path:
    """Writes an archive under the name for its size, or for another one."""
    archive = build / f"classes-{len(content) if size is None else size}.jsa"
    archive.write_bytes(content)
    return archive


def using(archive: Path) -> list[str]:
    return [f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", "-Xlog:cds*=off"]


def java_options(submit: Submit, *options: str) -> list[str]:
    """The options that the driver's JVM gets from a job."""
    given = submit(*options, "--", "run", "--config", "config.toml").stderr.splitlines()
    return shlex.split(next(line for line in given if line.startswith(OPTIONS)).removeprefix(OPTIONS))


def writing(build: Path, spark_home: Path) -> "subprocess.Popen[str]":
    """Starts what `make class-archive` calls."""
    env = {"PATH": os.environ["PATH"], "SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable}
    script = build.parent / "scripts" / "archive-classes.sh"
    return subprocess.Popen([script], env=env, stderr=subprocess.PIPE, text=True)


def ended(writer: "subprocess.Popen[str]") -> tuple[int, str]:
    """The exit status and the log of what `writing` has started."""
    log = writer.communicate(timeout=60)[1]
    return writer.returncode, log


def write_spark(spark_home: Path, then: str) -> None:
    """A Spark whose driver writes its process id into the archive, if it should write one."""
    finds = """archive=$(printf '%s\\n' "$@" | sed -n 's/.*-XX:ArchiveClassesAtExit="\\([^"]*\\)".*/\\1/p')\n"""
    write_program(spark_home / "bin" / "spark-submit", f"{finds}{then}")


@pytest.mark.parametrize(
    ("options", "is_used"),
    [
        pytest.param([], True, id="default"),
        pytest.param(["--master", "local[2]"], True, id="local"),
        pytest.param(["--master", "yarn"], False, id="yarn"),
        pytest.param(["--master", "spark://host:7077"], False, id="standalone"),
        pytest.param(["--conf", "spark.driver.extraJavaOptions=-XX:ArchiveClassesAtExit=x"], False, id="writes one"),
    ],
)
def test_a_job_on_this_machine_uses_the_archive(submit: Submit, build: Path, options: list[str], is_used: bool) -> None:
    without = java_options(submit, *options)
    archive = put(build, b"classes")
    assert java_options(submit, *options) == [*without, *(using(archive) if is_used else [])]


def test_an_archive_of_another_size_than_that_in_its_name_is_not_used(submit: Submit, build: Path) -> None:
    without = java_options(submit)
    put(build, b"class", 7)
    put(build, b"", 1)
    assert java_options(submit) == without
    archive = put(build, b"whole one")
    assert java_options(submit) == [*without, *using(archive)]


@pytest.mark.parametrize("kind", ["of another class path", "damaged at its begin", "damaged in its middle", "empty"])
def test_java_ignores_an_archive_that_does_not_fit_and_says_nothing(submit: Submit, build: Path, kind: str) -> None:
    launch = ["org.apache.spark.launcher.Main"]
    written = build / "written.jsa"
    subprocess.run(
        ["java", f"-XX:ArchiveClassesAtExit={written}", "-Xlog:disable", "-cp", LAUNCHER, *launch],
        stderr=subprocess.DEVNULL,
    )
    whole = written.read_bytes()
    written.unlink()
    middle = len(whole) // 2
    damaged = {
        "damaged at its begin": b"x" * 300 + whole[300:],
        "damaged in its middle": whole[:middle] + b"x" * 300 + whole[middle + 300 :],
        "empty": b"",
    }
    archive = put(build, damaged.get(kind, whole))
    options = java_options(submit)
    assert options[-3:] == using(archive)
    command = ["-cp", f"/another.jar:{LAUNCHER}" if kind == "of another class path" else str(LAUNCHER), *launch]
    with_it = subprocess.run(["java", *options, *command], capture_output=True, text=True)
    without = subprocess.run(["java", *command], capture_output=True, text=True)
    assert "missing class name" in without.stderr, "the class of the launcher has been loaded"
    assert (with_it.returncode, with_it.stdout, with_it.stderr) == (1, without.stdout, without.stderr)


def test_a_new_archive_replaces_the_older_ones_when_it_is_whole(build: Path, spark_home: Path) -> None:
    write_spark(spark_home, f'ls "{build}" >"{spark_home}/before"; echo new >"$archive"')
    put(build, b"old")
    put(build, b"older")
    assert ended(writing(build, spark_home))[0] == 0
    assert {"classes-3.jsa", "classes-5.jsa"} < {*(spark_home / "before").read_text().split()}
    assert [file.name for file in build.rglob("*classes*")] == ["classes-4.jsa"]


def test_a_failed_attempt_keeps_the_archive_and_shows_the_log(build: Path, spark_home: Path) -> None:
    write_spark(spark_home, f'echo half >"$archive"; echo why >&2; exit {STUB_STATUS}')
    old = put(build, b"old")
    status, log = ended(writing(build, spark_home))
    assert status == 1
    assert log.endswith("\nwhy\n")
    assert [*build.rglob("*classes*")] == [old]


def test_two_writers_at_a_time_leave_whole_archives(build: Path, spark_home: Path) -> None:
    write_spark(spark_home, 'for i in 1 2 3 4; do printf "%9d\n" $$ >>"$archive"; sleep 0.2; done')
    writers = [writing(build, spark_home) for _ in range(2)]
    assert [ended(writer)[0] for writer in writers] == [0, 0]
    (archive,) = build.rglob("*classes*")
    lines = archive.read_text().splitlines()
    assert (archive.name, len(lines), len({*lines})) == ("classes-40.jsa", 4, 1)
