"""Warnings about snapshots that are too rare for what the settings say."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import cli, snapshot
from pipeline.common.epoch import HOUR_MS, MINUTE_MS
from pipeline.config import Config
from pipeline.config.rare_snapshots import too_rare

WINDOW = (
    "status.window is less than three times snapshot.schedule: a status needs three to five snapshots, which may take "
    "longer than window says"
)
HOURLY = '[lake]\nroot = "/l"\n[snapshot]\nschedule = "1h"\n[clusters.east]\nbootstrap_servers = ["b:1"]\n'


@pytest.mark.parametrize(
    ("schedule_ms", "window_ms", "warnings"),
    [
        (10 * MINUTE_MS, 30 * MINUTE_MS, []),
        (10 * MINUTE_MS, 30 * MINUTE_MS - 1, [WINDOW]),
        (60 * MINUTE_MS, 180 * MINUTE_MS, []),
    ],
)
def test_a_window_must_hold_three_intervals(schedule_ms: int, window_ms: int, warnings: list[str]) -> None:
    assert [*too_rare(schedule_ms, window_ms, ())] == warnings


@pytest.mark.parametrize(
    ("schedule_ms", "warning"),
    [
        (HOUR_MS - 1, None),
        (
            HOUR_MS,
            (
                "snapshot.schedule is an hour or more: budget_burn is never found by its rule for the last hour, only "
                "by that for six hours (slo.a, slo.b)"
            ),
        ),
        (6 * HOUR_MS, "snapshot.schedule is six hours or more: budget_burn is never found (slo.a, slo.b)"),
    ],
)
def test_objectives_need_two_snapshots_in_the_time_of_a_rule(schedule_ms: int, warning: str | None) -> None:
    assert [*too_rare(schedule_ms, 3 * schedule_ms, ("a", "b"))] == ([warning] if warning else [])
    assert [*too_rare(schedule_ms, 3 * schedule_ms, ())] == []


def test_a_check_shows_them_and_is_still_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(HOURLY)
    assert snapshot.main(["--config", str(file), "--check"]) == 0
    warning, said = capsys.readouterr().out.splitlines()
    assert warning == f"{file}: warning: {WINDOW}"
    assert "arguments and config are right" in said


@pytest.mark.parametrize(("job", "times"), [("snapshot", 0), ("lag", 1), ("run", 1)])
def test_jobs_that_judge_groups_log_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, job: str, times: int
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(HOURLY)
    monkeypatch.setattr(cli, "run_steps", lambda *_: 0)
    with caplog.at_level("WARNING", cli.log.name):
        assert cli.run(cli.parser(job, None), ["--config", str(file)]) == 0
    assert [record.getMessage() for record in caplog.records] == times * [f"{file}: {WINDOW}"]


def test_the_schedule_of_the_command_line_counts(load: Callable[..., Config]) -> None:
    config = load(HOURLY)
    often = config.model_copy(update={"snapshot": config.snapshot.model_copy(update={"schedule_ms": MINUTE_MS})})
    assert (config.warnings(), often.warnings()) == ([WINDOW], [])
