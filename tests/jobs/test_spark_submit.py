"""spark-submit.sh: what it does itself, and what it passes to the spark-submit of SPARK_HOME.

Here, a stub that prints its arguments replaces that program. The tests of the runtimes run the jobs through the real
one.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.session import read_defaults
from pipeline.session.delta_package import delta_for
from tests.conftest import ROOT
from tests.helpers.kafka import wait_for
from tests.helpers.programs import write_program

STUB_STATUS = 7
Submit = Callable[..., "subprocess.CompletedProcess[str]"]


def only_path_without_java(folder: Path) -> str:
    """A PATH with the programs that the script calls, but no java."""
    for name in ("bash", "cat", "dirname", "env", "head", "python3", "sed"):
        (folder / name).symlink_to(shutil.which(name) or "")
    return str(folder)


@pytest.mark.parametrize(
    "job", ["snapshot", "lag", "show", "report", "run", "notify", "replay", "maintain", "doctor", "try"]
)
def test_the_help_of_a_job_does_not_start_java(submit: Submit, tools: Path, job: str) -> None:
    write_program(tools / "java", "echo started >&2; exit 1")
    shown = submit(job, "--help", JAVA_HOME=None)
    assert shown.returncode == 0
    assert f"usage: laglake {job}" in shown.stdout
    assert shown.stderr == ""


def test_output_goes_to_stdout_and_the_log_to_stderr(submit: Submit, spark_home: Path) -> None:
    body = f'echo a log line\necho "a table" > "$LAGLAKE_STDOUT"\nexit {STUB_STATUS}'
    write_program(spark_home / "bin" / "spark-submit", body)
    shown = submit("lag", "--config", "config.toml", "--show", "5")
    assert (shown.returncode, shown.stdout, shown.stderr) == (STUB_STATUS, "a table\n", "a log line\n")


def test_doctor_does_not_start_spark(submit: Submit, tmp_path: Path) -> None:
    ended = submit("doctor", "--config", "config.toml")
    assert ended.returncode == 1
    assert f"{tmp_path}/work/lake can be written" in ended.stdout.splitlines()[0]
    assert "127.0.0.1:1 cannot be reached: connection refused" in ended.stdout


def test_a_check_by_the_user_prints_a_line_and_that_of_the_script_prints_nothing(submit: Submit) -> None:
    assert "arguments and config are right" in submit("run", "--config", "config.toml", "--check").stdout
    assert submit("run", "--config", "config.toml").stdout == ""


def test_the_help_of_the_script_explains_the_order_of_options(submit: Submit) -> None:
    shown = submit("--help")
    assert shown.returncode == 0
    assert "./spark-submit.sh [OPTIONS OF SPARK-SUBMIT --] JOB [OPTIONS OF THE JOB]" in shown.stdout


def test_a_repeated_job_gets_the_same_options_except_for_the_compiler_and_its_status_is_returned(
    submit: Submit,
) -> None:
    options = ["--master", "yarn", "--conf", "spark.a=b c"]
    once, repeated = (submit(*options, "--", "run", "--config", "config.toml", *more) for more in ([], ["--every"]))
    assert once.returncode == repeated.returncode == STUB_STATUS
    different = set(once.stderr.splitlines()) ^ set(repeated.stderr.splitlines())
    assert {line.partition("=")[0] for line in different} == {"spark.driver.defaultJavaOptions", "--every"}


def test_sigterm_before_the_job_has_begun_ends_it_at_once(
    checkout: Path, spark_home: Path, tools: Path, tmp_path: Path
) -> None:
    write_program(spark_home / "bin" / "spark-submit", f'echo $$ >"{tmp_path}/spark"; exec sleep 300')
    (tmp_path / "config.toml").write_text('[lake]\nroot = "lake"\n[clusters.c]\nbootstrap_servers = ["127.0.0.1:1"]\n')
    command = [str(checkout / "spark-submit.sh"), "run", "--every", "--config", str(tmp_path / "config.toml")]
    env = os.environ | {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
    wait_for(lambda: (tmp_path / "spark").exists() and (tmp_path / "spark").read_text())
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "spark").read_text()), 0)


@pytest.mark.parametrize("line", [[], ["demo"], ["--master", "local", "run"], ["--master", "local", "--"]])
def test_without_a_job_the_script_lists_the_jobs(submit: Submit, line: list[str]) -> None:
    ended = submit(*line)
    assert ended.returncode == 2
    assert ended.stderr == (
        "spark-submit.sh: the job must be snapshot, lag, show, report, run, notify, replay, maintain, doctor or try; "
        "options of spark-submit go before --; --help explains the jobs; for the demo call make demo\n"
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        pytest.param(["--config", "nope.toml"], "nope.toml: cannot be read: No such file or directory", id="no file"),
        pytest.param(
            ["--config", "config.toml", "--cluster", "x"], "--cluster x: not in config.toml, which has c", id="cluster"
        ),
        pytest.param(
            ["--at", "2026-01-31T12:00:00"],
            "laglake run: argument --at: has no offset, so it could be any zone's; for UTC write 2026-01-31T12:00:00Z",
            id="naive time",
        ),
    ],
)
def test_a_mistake_is_an_error_of_one_line_before_java_starts(
    submit: Submit, tools: Path, line: list[str], why: str
) -> None:
    write_program(tools / "java", "echo started >&2; exit 1")
    ended = submit("run", *line, JAVA_HOME=None)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"{why}\n")


def test_without_java_the_script_names_what_to_install(submit: Submit, tools: Path) -> None:
    ended = submit("run", "--config", "config.toml", PATH=only_path_without_java(tools), JAVA_HOME=None)
    assert ended.returncode == 1
    assert ended.stderr.startswith("laglake needs Java 17 or newer, and there is none at java.")
    assert "apt install openjdk-17-jre-headless" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_without_java_names_what_to_install_before_it_does_anything(
    tmp_path: Path, tools: Path, target: str
) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    ended = subprocess.run(
        [shutil.which("make") or "", target],
        cwd=tmp_path,
        env={"PATH": only_path_without_java(tools)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode != 0
    assert ended.stdout == ""
    assert ended.stderr.startswith("laglake needs Java 17 or newer")
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("version", "is_enough"), [("1.8.0_412", False), ("16.0.2", False), ("17", True), ("21-ea", True)]
)
def test_java_must_be_17_or_newer(submit: Submit, tmp_path: Path, version: str, is_enough: bool) -> None:
    write_program(tmp_path / "a jdk" / "bin" / "java", f"echo 'openjdk version \"{version}\" 2021-07-20' >&2")
    ended = submit("run", "--config", "config.toml", JAVA_HOME=str(tmp_path / "a jdk"))
    assert ended.returncode == (STUB_STATUS if is_enough else 1)
    assert ("laglake needs Java 17 or newer" in ended.stderr) == (not is_enough)


def test_spark_submit_gets_the_callers_options_then_the_job_and_its_status_is_returned(
    submit: Submit, checkout: Path
) -> None:
    ended = submit(
        "--master", "local[2]", "--conf", "a.b=c d", "--", "run", "--config", "config.toml", "--cluster", "c"
    )
    given = ended.stderr.splitlines()
    assert ended.returncode == STUB_STATUS
    assert ended.stdout == ""
    assert given[-5:] == [f"{checkout}/jobs/run.py", "--config", "config.toml", "--cluster", "c"]
    assert given[given.index("--master") + 1] == "local[2]"
    assert "a.b=c d" in given
    assert "spark.sql.session.timeZone=UTC" in given
    assert given[given.index("--py-files") + 1] == f"{checkout}/build/laglake.zip"
    # The caller's options come after the project's, and spark-submit uses the last ones.
    assert given.index("a.b=c d") > given.index("spark.sql.session.timeZone=UTC")
    assert "spark.master" not in ended.stderr


def test_executors_get_the_package_only_from_the_shipped_zip(submit: Submit, spark_home: Path, checkout: Path) -> None:
    write_program(spark_home / "bin" / "spark-submit", 'echo "PYTHONPATH=${PYTHONPATH:-}"')
    assert submit("run", "--config", "config.toml").stderr == "PYTHONPATH=\n"
    listed = subprocess.run(
        [sys.executable, "-c", "import jobs.run, pipeline.config; print(jobs.run.__file__)"],
        cwd=spark_home,
        env={**os.environ, "PYTHONPATH": str(checkout / "build" / "laglake.zip")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout == f"{checkout}/build/laglake.zip/jobs/run.py\n"


@pytest.mark.parametrize("form", [["--packages", "org:extra:1"], ["--packages=org:extra:1"]])
def test_the_callers_packages_are_added_to_deltas(submit: Submit, form: list[str]) -> None:
    given = submit(*form, "--", "run", "--config", "config.toml").stderr.splitlines()
    delta, extra = given[given.index("--packages") + 1].split(",")
    assert delta.startswith("io.delta:delta-spark_")
    assert extra == "org:extra:1"
    assert given.count("--packages") == 1


def test_the_callers_py_files_are_added_to_the_package(submit: Submit, checkout: Path) -> None:
    given = submit("--py-files", "extra.py", "--", "run", "--config", "config.toml").stderr.splitlines()
    assert given[given.index("--py-files") + 1] == f"{checkout}/build/laglake.zip,extra.py"
    assert given.count("--py-files") == 1


def test_delta_has_the_version_for_the_spark_that_is_used(submit: Submit, spark_home: Path) -> None:
    (spark_home / "jars" / "spark-core_2.13-4.0.1.jar").touch()
    given = submit("run", "--config", "config.toml").stderr.splitlines()
    pinned = read_defaults(ROOT / "conf" / "spark-defaults.conf")["spark.jars.packages"]
    assert given[given.index("--packages") + 1] == pinned.replace("_4.2_", "_4.0_") != pinned
    assert delta_for("4.0.1", pinned) == pinned.replace("_4.2_", "_4.0_")


@pytest.mark.parametrize("core", ["spark-core_2.13-4.3.0.jar", "spark-core_2.12-3.5.6.jar"])
def test_a_spark_that_has_no_delta_is_refused_in_one_line_unless_it_brings_its_own(
    submit: Submit, spark_home: Path, core: str
) -> None:
    (spark_home / "jars" / core).touch()
    refused = submit("run", "--config", "config.toml")
    version = core.rpartition("-")[2].removesuffix(".jar")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"spark-submit.sh: {spark_home}: Delta 4.4.0 has no build for Spark {version}: use Spark 4.0, 4.1 or 4.2, or "
        "put a build of Delta for it into its folder jars\n"
    )
    (spark_home / "jars" / "delta-spark_own.jar").touch()
    assert submit("run", "--config", "config.toml").returncode == STUB_STATUS


def test_with_deltas_jar_in_spark_no_packages_are_resolved(submit: Submit, spark_home: Path) -> None:
    (spark_home / "jars" / "io.delta_delta-spark_4.2_2.13-4.4.0.jar").touch()
    assert "--packages" not in submit("run", "--config", "config.toml").stderr


DELTAS = (
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar",
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar",
    "laglake-log-stores.jar",
)


@pytest.mark.parametrize(
    ("options", "are_sent"),
    [
        (["--master=yarn"], False),
        (["--conf", "spark.executor.cores=2", "--master", "spark://host:7077"], True),
        (["--conf=spark.master=spark://host:7077"], True),
        (["--conf", "spark.master=spark://host:7077", "--master", "local"], False),
        (["--properties-file", "my.conf"], True),
    ],
)
def test_executors_of_another_spark_are_sent_deltas_jars(
    submit: Submit, spark_home: Path, tmp_path: Path, options: list[str], are_sent: bool
) -> None:
    for name in (*DELTAS, "spark-core_2.13-4.2.0.jar"):
        (spark_home / "jars" / name).touch()
    (tmp_path / "work" / "my.conf").write_text("spark.executor.cores 2\nspark.master  spark://host:7077\n")
    given = submit(*options, "--jars", "own.jar", "--", "run", "--config", "config.toml").stderr.splitlines()
    sent = given[given.index("--jars") + 1].split(",")
    assert sent == [*(f"{spark_home}/jars/{name}" for name in DELTAS if are_sent), "own.jar"]
    assert "--packages" not in given


def test_executors_of_a_spark_whose_settings_or_environment_name_a_cluster_are_sent_deltas_jars(
    submit: Submit, spark_home: Path
) -> None:
    (spark_home / "jars" / DELTAS[0]).touch()
    given = submit("run", "--config", "config.toml", MASTER="spark://host:7077").stderr.splitlines()
    assert given[given.index("--jars") + 1] == f"{spark_home}/jars/{DELTAS[0]}"
    (spark_home / "conf").mkdir()
    (spark_home / "conf" / "spark-defaults.conf").write_text("spark.master spark://host:7077\n")
    given = submit("run", "--config", "config.toml").stderr.splitlines()
    assert given[given.index("--jars") + 1] == f"{spark_home}/jars/{DELTAS[0]}"
    given = submit("run", "--config", "config.toml", MASTER="local").stderr.splitlines()
    assert "--jars" in given, "the file of settings counts more than the environment"
    given = submit("--master", "local", "--", "run", "--config", "config.toml").stderr.splitlines()
    assert "--jars" not in given


def test_a_python_without_the_dependencies_is_refused(submit: Submit, tools: Path) -> None:
    write_program(tools / "python3", "exit 1")
    ended = submit("run", "--config", "config.toml", PYSPARK_PYTHON=None)
    assert ended.returncode == 1
    assert ended.stderr.startswith("spark-submit.sh: SPARK_HOME is set, so PYSPARK_PYTHON must name a python")


def test_the_default_config_is_that_of_the_project_in_any_working_directory(submit: Submit, checkout: Path) -> None:
    (checkout / "conf" / "local.toml").rename(checkout / "conf" / "moved.toml")
    try:
        ended = submit("run")
    finally:
        (checkout / "conf" / "moved.toml").rename(checkout / "conf" / "local.toml")
    assert ended.stderr == f"{checkout}/conf/local.toml: cannot be read: No such file or directory\n"
    assert submit("run").returncode == STUB_STATUS


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.spark
def test_a_failure_in_spark_is_one_line_and_exit_status_1(submit: Submit, tmp_path: Path) -> None:
    log = tmp_path / "work" / "lake" / "snapshots" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("not a commit")
    pyspark = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__path__[0])"], capture_output=True, text=True, check=True
    )
    ended = submit("--master", "local[1]", "--", "lag", "--config", "config.toml", SPARK_HOME=pyspark.stdout.strip())
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("snapshots: ")
    assert "Traceback" not in ended.stderr
    assert " INFO " not in ended.stderr
