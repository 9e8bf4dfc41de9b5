"""The command line of the jobs: instants, clusters, exit statuses, and one line for each mistake."""

import argparse
import importlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from jobs import cli, lag, maintain, replay
from jobs.argument_types import begin, end, instant
from jobs.session import Job, Step
from jobs.snapshot import exit_status
from jobs.terminal import log_format, print_table
from pipeline.common.errors import ConfigError
from pipeline.config import Config, load_config
from pipeline.report.model.selection import Selection

JOBS = ("snapshot", "lag", "report", "run")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """A config of two clusters."""
    servers = 'bootstrap_servers = ["127.0.0.1:1"]\n'
    file = tmp_path / "two.toml"
    file.write_text(f'[lake]\nroot = "/lake"\n[clusters.east]\n{servers}[clusters.west]\n{servers}')
    return file


@pytest.fixture
def config(config_file: Path) -> Config:
    """The same config, loaded."""
    return load_config(config_file, {})


@pytest.fixture(params=JOBS)
def job(request: pytest.FixtureRequest) -> ModuleType:
    """The module of each job that has `--at`."""
    return importlib.import_module(f"jobs.{request.param}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2026-01-31T12:00:00Z", NOON, id="Z"),
        pytest.param("2026-01-31T13:00+01:00", NOON, id="offset"),
        pytest.param("2026-01-31 07:00:00-0500", NOON, id="blank and short offset"),
        pytest.param("2026-01-31T12:00:00.250Z", NOON.replace(microsecond=250_000), id="milliseconds"),
        pytest.param("1769860800000", NOON, id="epoch milliseconds"),
        pytest.param("1769860800001", NOON.replace(microsecond=1_000), id="to the millisecond"),
        pytest.param("100000000000", datetime(1973, 3, 3, 9, 46, 40, tzinfo=UTC), id="the earliest number"),
    ],
)
def test_an_instant_is_read_as_utc(text: str, expected: datetime) -> None:
    read = instant(text)
    assert read == expected
    assert read.tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("2026-01-31T12:00:00", "for UTC write 2026-01-31T12:00:00Z", id="naive"),
        pytest.param("2026-01-31", "for UTC write 2026-01-31T00:00:00Z", id="only a day"),
        pytest.param("1769860800", "looks like seconds", id="epoch seconds"),
        pytest.param("99999999999", "looks like seconds", id="just too small a number"),
        pytest.param("9" * 20, "not an instant", id="beyond the calendar"),
        pytest.param("yesterday", "not an instant", id="a word"),
        pytest.param("", "not an instant", id="nothing"),
    ],
)
def test_an_ambiguous_instant_is_refused(text: str, why: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=why):
        instant(text)


def test_a_day_is_from_its_first_to_its_last_millisecond() -> None:
    day = begin("2026-01-31"), end("2026-01-31")
    assert day == (NOON.replace(hour=0), NOON.replace(hour=23, minute=59, second=59, microsecond=999_000))
    assert begin("2026-01-31T12:00:00Z") == end("1769860800000") == NOON
    for text in ("2026-02-30", "2026-1-1"):
        with pytest.raises(argparse.ArgumentTypeError, match="not an instant"):
            begin(text)


@pytest.mark.parametrize(
    ("statuses", "lenient", "strict"),
    [
        pytest.param(["complete"], 0, 0, id="all read"),
        pytest.param(["complete", "unfinished"], 1, 1, id="one not finished by another run"),
        pytest.param(["partial"], 0, 1, id="read in part"),
        pytest.param(["complete", "failed"], 0, 1, id="one of two failed"),
        pytest.param(["partial", "failed"], 0, 1, id="one in part, one failed"),
        pytest.param(["failed", "failed"], 1, 1, id="nothing could be read"),
    ],
)
def test_the_exit_status_follows_from_how_the_snapshots_ended(statuses: list[str], lenient: int, strict: int) -> None:
    assert exit_status(statuses, "nothing") == lenient
    assert exit_status(statuses, "partial") == strict


def test_clusters_come_in_the_order_of_the_config(config: Config, config_file: Path) -> None:
    assert cli.choose_clusters(config, (), config_file) == ("east", "west")
    assert cli.choose_clusters(config, ("west", "east", "west"), config_file) == ("east", "west")
    assert cli.choose_clusters(config, ("west",), config_file) == ("west",)


def test_the_error_of_an_unknown_cluster_lists_the_known_ones(config: Config, config_file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        cli.choose_clusters(config, ("east", "wset"), config_file)
    assert str(caught.value) == f"--cluster wset: not in {config_file}, which has east, west"


def test_a_valid_command_line_passes_the_check(
    job: ModuleType, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--config", str(config_file), "--cluster", "east", "--cluster", "west", "--at", "2026-01-31T12:00:00Z"]
    shows = ["--show"] if job is lag else []
    assert job.main([*line, *shows, "--fail-on", "partial", "--check"]) == 0
    said = f"{config_file}: arguments and config are right; `doctor` also checks the clusters and the lake\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("line", "why"),
    [
        pytest.param(["--at", "2026-01-31T12:00:00"], "argument --at: has no offset", id="naive time"),
        pytest.param(["--fail-on", "all"], "argument --fail-on: invalid choice: 'all'", id="not a choice"),
        pytest.param(["--clusters", "east"], "unrecognized arguments: --clusters east", id="unknown option"),
        pytest.param(["--conf", "x"], "unrecognized arguments: --conf x", id="abbreviated option"),
    ],
)
def test_a_wrong_argument_is_an_error_of_one_line(
    job: ModuleType, line: list[str], why: str, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        job.main(["--config", str(config_file), *line])
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert why in message
    assert message.count("\n") == 1


def test_a_wrong_config_is_an_error_of_one_line(job: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.main(["--config", "nope.toml"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("nope.toml: cannot be read")
    assert message.count("\n") == 1


@pytest.mark.parametrize("job", ["snapshot", "lag", "run"])
def test_a_cluster_that_the_config_does_not_have_is_an_error_of_one_line(
    job: str, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert importlib.import_module(f"jobs.{job}").main(["--config", str(config_file), "--cluster", "wset"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("--cluster wset: not in")
    assert message.count("\n") == 1


def test_the_report_may_select_a_time_and_clusters_that_only_the_lake_has(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = cli.parser("report", None, at=cli.AS_OF, output=True, selection=True)
    line = ["--config", str(config_file), "--from", "1769860800000", "--to", "1769860800001", "--group", "^pay"]
    found = []

    def step(_: object, job: Job) -> int:
        found.append(job.selection)
        return 0

    def in_no_session(_: str, job: Job, steps: Sequence[Step], __: object) -> int:
        return max(step(None, job) for step in steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "run_steps", in_no_session)
        assert cli.run(command, line, step) == 0
        assert cli.run(command, [*line, "--cluster", "recorded", "--topic", "a|b"], step) == 0
        assert cli.run(command, [*line, "--from", "1769860800002"], step) == 2
        assert cli.run(command, [*line[:2], "--at", "1769860800001"], step) == 0
        assert cli.run(command, [*line[:2], "--from", "2026-01-31", "--to", "2026-01-31"], step) == 0
    times = (1_769_860_800_000, 1_769_860_800_001)
    as_of, of_a_day = Selection(None, None, times[1]), Selection(None, 1_769_817_600_000, 1_769_903_999_999)
    assert found == [Selection(None, *times, "^pay"), Selection(("recorded",), *times, "^pay", "a|b"), as_of, of_a_day]
    assert capsys.readouterr().err == "--from 2026-01-31T12:00:00Z is after --to 2026-01-31T12:00:00Z\n"
    with pytest.raises(SystemExit):
        cli.run(command, ["--group", "("])
    assert "argument --group: '(' is not a valid regular expression" in capsys.readouterr().err


def test_lag_can_be_shown_as_of_an_instant(
    config_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list[Selection]()
    monkeypatch.setattr(cli, "run_steps", lambda _, job, *__: found.append(job.selection) or 0)
    line, at = ["--config", str(config_file)], ["--at", "2026-01-31T12:00:00Z"]
    assert lag.main([*line, *at, "--show"]) == lag.main([*line, "--show"]) == lag.main(line) == 0
    clusters = ("east", "west")
    assert found == [Selection(clusters, to_ms=1_769_860_800_000), Selection(clusters), Selection(clusters)]
    assert lag.main([*line, *at]) == 2
    why = "--at needs --show: without it, the lag of every snapshot is computed and none is shown\n"
    assert capsys.readouterr() == ("", why)


@pytest.mark.parametrize("job", [maintain, replay])
def test_a_job_without_the_option_at_refuses_it(
    job: ModuleType, config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--config", str(config_file), *(["--recording", str(tmp_path)] if job is replay else [])]
    assert job.main([*line, "--check"]) == 0
    with pytest.raises(SystemExit) as ended:
        job.main([*line, "--check", "--at", "2026-01-31T12:00:00Z"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --at 2026-01-31T12:00:00Z" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        job.main(["--help"])
    assert "--at" not in capsys.readouterr().out


def test_help_shows_examples_and_explains_the_exit_statuses(
    job: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        job.main(["--help"])
    shown = capsys.readouterr().out
    name = job.__name__.removeprefix("jobs.")
    assert ended.value.code == 0
    assert f"./spark-submit.sh {name} --config" in shown
    assert "exit status: 0" in shown
    assert ("--output" in shown) == (name in ("report", "run"))


@pytest.mark.parametrize(("job", "times"), [("snapshot", 1), ("run", 1), ("lag", 0)])
def test_jobs_that_log_in_warn_of_a_password_in_plain_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, job: str, times: int
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        '[lake]\nroot = "/l"\n[clusters.east]\nbootstrap_servers = ["b:1"]\n[clusters.east.client]\n'
        'security_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\nsasl_plain_username = "u"\n'
        'sasl_plain_password = "${env:HOME}"\n'
    )
    monkeypatch.setattr(cli, "run_steps", lambda *_: 0)
    with caplog.at_level("WARNING", cli.log.name):
        assert cli.run(cli.parser(job, None), ["--config", str(file)]) == 0
    warning = ["east: the password for the brokers is sent in plain text: use SASL_SSL"]
    assert [record.getMessage() for record in caplog.records] == times * warning


def test_an_environment_variable_may_name_the_config(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cli.CONFIG_VARIABLE, str(config_file))
    assert cli.parser("snapshot", "").parse_args([]).config == config_file
    monkeypatch.delenv(cli.CONFIG_VARIABLE)
    assert cli.parser("snapshot", "").parse_args([]).config == Path("conf/local.toml")


def test_a_log_event_is_one_line_with_its_time_in_utc() -> None:
    record = logging.LogRecord("jobs", logging.INFO, "", 0, "group %s read", ("a\nb\r\x1b[31m\u2028c",), None)
    record.created, record.msecs = NOON.timestamp(), 7
    assert log_format().format(record) == "2026-01-31T12:00:00.007Z INFO group a\\nb\\r\\x1b[31m\\u2028c read"


def test_the_errors_of_a_job_are_printed_line_by_line_without_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.refused(ConfigError("group a\x1b[31m\u2028b\nand another")) == 2
    assert capsys.readouterr() == ("", "group a\\x1b[31m\\u2028b\nand another\n")


def test_a_table_goes_to_stdout_or_to_the_file_that_the_script_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    print_table(lambda coloured: f"coloured: {coloured}")
    assert capsys.readouterr() == ("coloured: False\n", "")
    monkeypatch.setenv("LAGLAKE_STDOUT", str(tmp_path / "shown"))
    monkeypatch.setenv("LAGLAKE_STDOUT_IS_A_TERMINAL", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(lambda coloured: f"coloured: {coloured}")
    assert (tmp_path / "shown").read_text() == "coloured: True\n"
    assert capsys.readouterr() == ("", "")
