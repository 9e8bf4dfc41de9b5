"""The job `notify`: the test of a channel, and what the step of a run does if something fails."""

import logging
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs import cli, maintain, notify, report, run
from jobs.session import Job
from pipeline.common.errors import LakeError
from pipeline.config import Config
from pipeline.lake import Lake
from pipeline.notify import announce, send_digest
from pipeline.notify.digest import Digest
from tests.conftest import ROOT
from tests.helpers.findings import NOW, Receiver, config_of
from tests.helpers.network import HOST, free_port

NO_SESSION = cast("SparkSession", None)
LAKE = '[lake]\nroot = "/no/such/lake"\n[clusters.east]\nbootstrap_servers = ["b:1"]\n'
Load = Callable[..., Config]


def config_file(folder: Path, text: str) -> str:
    file = folder / "c.toml"
    file.write_text(LAKE + text)
    return str(file)


def hook(url: str) -> str:
    return f'[channels.hook]\ntype = "webhook"\nurl = "{url}"\n'


def test_a_test_message_is_sent_without_a_lake_and_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Receiver().serving() as receiver:
        assert notify.main(["--config", config_file(tmp_path, hook(receiver.url)), "--test", "hook"]) == 0
    assert capsys.readouterr() == ("channel hook has accepted the test message\n", "")
    assert [content["event"] for content in receiver.contents] == ["test"]


def test_a_test_message_does_not_start_spark(tmp_path: Path) -> None:
    program = (
        "import sys; from jobs import notify; notify.main(sys.argv[1:]); "
        "from pyspark import SparkContext; print(SparkContext._gateway)"
    )
    with Receiver().serving() as receiver:
        line = ["--config", config_file(tmp_path, hook(receiver.url)), "--test", "hook"]
        command = [sys.executable, "-c", program, *line]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout.splitlines() == ["channel hook has accepted the test message", "None"]
    assert len(receiver.requests) == 1


def test_a_test_message_that_fails_is_one_line_and_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "hunter2")
    file = config_file(tmp_path, hook(f"http://u:${{env:PW}}@{HOST}:{free_port()}/hunter2"))
    assert notify.main(["--config", file, "--test", "hook"]) == 1
    assert capsys.readouterr() == ("", "channel hook did not accept the test message: Connection refused\n")


@pytest.mark.parametrize(
    ("text", "known"),
    [("", "no channels"), (hook("http://h"), "hook"), (hook("h"), None)],
    ids=["none", "one", "wrong"],
)
def test_a_channel_that_does_not_exist_is_one_line_and_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, known: str | None
) -> None:
    file = config_file(tmp_path, text)
    assert notify.main(["--config", file, "--test", "x"]) == 2
    unknown = f"--test x: not in {file}, which has {known}\n"
    wrong = f"{file}: channels.hook: url must be a URL with http or https\n"
    assert capsys.readouterr() == ("", unknown if known else wrong)


def test_check_sends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Receiver().serving() as receiver:
        line = ["--config", config_file(tmp_path, hook(receiver.url)), "--test", "hook", "--check"]
        assert notify.main(line) == 0
    assert receiver.requests == []
    assert "arguments and config are right" in capsys.readouterr().out


def job(config: Config) -> Job:
    return Job(config, ("east",), None, "nothing", Path("r.html"))


def test_without_channels_the_step_does_not_touch_spark(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lake, "prepare", None)
    assert notify.step(NO_SESSION, job(load(LAKE))) == 0


@pytest.fixture
def no_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lake needs no preparation."""
    monkeypatch.setattr(Lake, "prepare", lambda *_: None)


@pytest.mark.usefixtures("no_lake")
def test_the_step_says_how_many_findings_were_sent(
    load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def sends(lake: Lake, config: Config, clusters: tuple[str, ...], clock: Callable[[], datetime]) -> int:
        assert (clusters, clock().tzinfo is None) == (("east",), False)
        return 3

    monkeypatch.setattr(announce, "announce", sends)
    with caplog.at_level(logging.INFO):
        assert notify.step(NO_SESSION, job(config_of(load))) == 0
    assert [record.getMessage() for record in caplog.records] == ["notify: 3 findings sent"]


@pytest.mark.usefixtures("no_lake")
def test_a_lake_that_fails_is_one_line_and_does_not_end_the_run(
    load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> int:
        raise LakeError("notifications: the store is down\nat line 1")

    monkeypatch.setattr(announce, "announce", fails)
    assert notify.step(NO_SESSION, job(config_of(load))) == 1
    said = "messages about findings may be missing or sent again: notifications: the store is down"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("ERROR", said)]


def test_a_run_sends_messages_after_the_report_and_before_it_maintains(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(cli, "run", lambda _, __, *all_steps, load: steps.extend(all_steps) or 0)
    assert run.main([]) == 0
    assert steps[2:4] == [report.step_of_run, notify.step]
    assert isinstance(steps[4], maintain.Daily)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device; free some space"),
        (LakeError("findings: cannot be read"), "findings: cannot be read"),
        (KeyError("x"), "unexpected KeyError: 'x' (--verbose logs where)"),
    ],
)
def test_a_report_that_cannot_be_written_is_an_error_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, why: str
) -> None:
    def failing(*_: object) -> int:
        raise error

    monkeypatch.setattr(report, "step", failing)
    with caplog.at_level(logging.INFO):
        assert report.step_of_run(NO_SESSION, cast("Job", None)) == 1
    assert [record.getMessage() for record in caplog.records] == [f"the report is not written: {why}"]


@pytest.mark.usefixtures("no_lake")
def test_a_digest_that_cannot_be_written_is_still_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, load: Load, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    page = tmp_path / "file" / "digest.html"
    empty = Digest(NOW, NOW, (), (), {})
    monkeypatch.setattr(send_digest, "read_digest", lambda *_: empty)
    with Receiver().serving() as receiver:
        config = config_of(load, hook(receiver.url))
        assert notify.digest_step(NO_SESSION, job(config), 1_000, page) == 1
    assert [content["event"] for content in receiver.contents] == ["digest"]
    assert f"the digest could not be written to {page}: " in caplog.text
