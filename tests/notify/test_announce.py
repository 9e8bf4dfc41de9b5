"""Messages about the findings of a lake: sent once, kept in `notifications`, and sent again if that failed."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from pipeline.common.errors import LakeError
from pipeline.config import Config, LakeConfig
from pipeline.lake import Lake
from pipeline.lake.driver_tables import DriverTables
from pipeline.notify import announce as announce_module
from pipeline.notify import sending
from pipeline.notify.announce import announce
from pipeline.tables import FINDINGS, NOTIFICATIONS, Table
from tests.helpers.findings import NOW, Receiver, Row, config_of, finding
from tests.helpers.network import HOST, free_port

Load = Callable[..., Config]
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with these two tables, which the driver reads and writes without Spark."""
    lake = Lake(cast("SparkSession", None), LakeConfig(root=str(tmp_path)))
    driver = DriverTables(tmp_path)
    lake.__dict__["_driver"] = driver
    for table in (FINDINGS, NOTIFICATIONS):
        driver.create(table, {})
    return lake


def keep(lake: Lake, *rows: Row) -> None:
    """Writes rows of `findings`."""
    for row in rows:
        values = tuple(row[name] for name in FINDINGS.columns)
        lake.merge(FINDINGS, [values], row["cluster"], "true")


def kept(lake: Lake, *names: str) -> list[tuple[Any, ...]]:
    """Columns of `notifications`, sorted."""
    rows = lake.query("SELECT * FROM {notifications}", NOTIFICATIONS)
    return sorted(tuple(row[name] for name in names) for row in rows)


def run(lake: Lake, config: Config, now: datetime = NOW, clusters: Sequence[str] = ("east",)) -> int:
    return announce(lake, config, clusters, lambda: now)


@contextmanager
def chat(load: Load, *statuses: int, text: str = "") -> Iterator[tuple[Config, Receiver]]:
    """A receiver, and a config that sends everything there."""
    with Receiver(statuses=statuses or (200,)).serving() as receiver:
        yield config_of(load, f'[channels.chat]\ntype = "webhook"\nurl = "{receiver.url}"\n{text}'), receiver


def events(receiver: Receiver) -> list[tuple[str, str]]:
    return [(content["event"], content["dedup_key"]) for content in receiver.contents]


def test_each_finding_is_sent_once_when_it_opens_and_when_it_ends(lake: Lake, load: Load) -> None:
    keep(lake, finding(), finding("f2", group_id=None, client_id=None, instance=None, topic=None))
    with chat(load) as (config, receiver):
        assert run(lake, config) == 2
        assert run(lake, config) == 0
        keep(lake, finding(resolved_at=NOW, resolution_confirmed_at=NOW))
        assert run(lake, config) == 1
        assert run(lake, config) == 0
    assert events(receiver) == [("opened", "f1"), ("opened", "f2"), ("resolved", "f1")]
    assert kept(lake, "finding_id", "event", "status", "attempts", "error") == [
        ("f1", "opened", "sent", 1, None),
        ("f1", "resolved", "sent", 1, None),
        ("f2", "opened", "sent", 1, None),
    ]


def test_a_dead_webhook_is_one_warning_and_is_tried_again_in_the_next_run(
    lake: Lake, load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    keep(lake, finding(), finding("f2", severity="warning"), finding("f3", severity="warning"))
    dead = config_of(load, f'[channels.chat]\ntype = "webhook"\nurl = "http://{HOST}:{free_port()}/hunter2"\n')
    with caplog.at_level(logging.WARNING):
        for day in range(3):
            assert run(lake, dead, NOW + day * DAY) == 0
    said = "channel chat: 1 message not sent, later runs try again: Connection refused"
    assert [record.getMessage() for record in caplog.records] == [said] * 3
    rows = kept(lake, "finding_id", "status", "attempts", "error")
    # Each run begins with what was tried least often.
    assert [(name, status, attempts) for name, status, attempts, _ in rows] == [
        ("f1", "failed", 1),
        ("f2", "failed", 1),
        ("f3", "failed", 1),
    ]
    assert {error.removeprefix("not tried: ") for *_, error in rows} == {"Connection refused"}
    with chat(load) as (config, receiver):
        assert run(lake, config, NOW + 5 * DAY) == 3
    assert sorted(events(receiver)) == [("opened", "f1"), ("opened", "f2"), ("opened", "f3")]
    assert {row[:2] for row in kept(lake, "status", "attempts")} == {("sent", 2)}


def test_a_message_that_is_refused_does_not_hold_up_others(
    lake: Lake, load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    keep(lake, finding(), finding("f2", severity="warning"))
    with chat(load, 400, 200, 500) as (config, receiver), caplog.at_level(logging.WARNING):
        assert [run(lake, config), run(lake, config, NOW + MINUTE)] == [1, 0]
    assert [key for _, key in events(receiver)] == ["f1", "f2", "f1"]
    assert kept(lake, "finding_id", "status", "attempts", "error") == [
        ("f1", "failed", 2, "HTTP status 500"),
        ("f2", "sent", 1, None),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        f"channel chat: 1 message not sent, later runs try again: HTTP status {status}" for status in (400, 500)
    ]


def test_a_slow_receiver_is_a_warning(
    lake: Lake, load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep(lake, finding(), finding("f2", severity="warning"))
    with chat(load) as (config, receiver), caplog.at_level(logging.WARNING):
        monkeypatch.setattr(sending, "LONGEST_MS", -1)
        assert run(lake, config) == 0
    said = "channel chat: messages about 2 findings not sent, later runs try again: the receiver is slow"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert receiver.requests == []
    assert {row[:2] for row in kept(lake, "status", "attempts")} == {("failed", 0)}


def test_a_silenced_finding_is_sent_when_the_silence_ends(lake: Lake, load: Load) -> None:
    keep(lake, finding())
    silence = f'[[silences]]\ngroup = "orders"\nreason = "known"\nuntil = "{(NOW + 3 * DAY).isoformat()}"\n'
    with chat(load, text=silence) as (config, receiver):
        assert [run(lake, config, NOW + day * DAY) for day in range(5)] == [0, 0, 0, 1, 0]
    assert events(receiver) == [("opened", "f1")]


def test_a_run_that_is_killed_after_sending_sends_once_more_with_the_same_key(
    lake: Lake, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(lake, finding())
    with chat(load) as (config, receiver):
        with monkeypatch.context() as patch:
            patch.setattr(announce_module, "_rows", killed)
            with pytest.raises(KeyboardInterrupt):
                run(lake, config)
        assert kept(lake, "status", "attempts", "error") == [("failed", 1, "being sent")]
        assert [run(lake, config, NOW + MINUTE), run(lake, config, NOW + 2 * MINUTE)] == [1, 0]
    assert events(receiver) == [("opened", "f1")] * 2
    assert kept(lake, "status", "attempts", "error") == [("sent", 2, None)]


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_nothing_is_sent_if_the_table_cannot_say_so(lake: Lake, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each run would send everything again."""
    keep(lake, finding())

    def refused(*_: object) -> None:
        raise LakeError("notifications: no permission")

    with chat(load) as (config, receiver):
        with monkeypatch.context() as patch:
            patch.setattr(Lake, "merge", refused)
            for _ in range(2):
                with pytest.raises(LakeError, match="no permission"):
                    run(lake, config)
        assert receiver.requests == []
        assert run(lake, config) == 1


def test_of_two_jobs_at_once_one_sends(lake: Lake, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(lake, finding())
    others: list[int] = []
    with chat(load) as (config, receiver):

        def beside(*arguments: Any) -> Any:
            monkeypatch.setattr(announce_module, "send", sending.send)
            others.append(run(lake, config))
            return sending.send(*arguments)

        monkeypatch.setattr(announce_module, "send", beside)
        assert run(lake, config) == 1
    assert (others, events(receiver)) == ([0], [("opened", "f1")])


def test_the_pauses_between_tries_become_longer(lake: Lake, load: Load) -> None:
    """A receiver that fails may still have shown the message to somebody."""
    keep(lake, finding())
    with chat(load, 500) as (config, receiver):
        tried = []
        for minute in range(75):
            before = len(receiver.requests)
            run(lake, config, NOW + minute * MINUTE)
            tried += [minute] * (len(receiver.requests) - before)
    assert tried == [0, 1, 2, 4, 8, 16, 31, 46, 61]


def test_a_flood_counts_as_sent_for_each_finding(lake: Lake, load: Load) -> None:
    rows = [finding(f"f{n:03}") for n in range(50)]
    lake.merge(FINDINGS, [tuple(row[name] for name in FINDINGS.columns) for row in rows], "east")
    with chat(load) as (config, receiver):
        assert [run(lake, config), run(lake, config)] == [50, 0]
    assert len(receiver.requests) == 21


def test_clusters_are_separate_and_only_those_of_the_job_are_read(lake: Lake, load: Load) -> None:
    keep(lake, finding(), finding(cluster="west"), finding(cluster="north"))
    with chat(load) as (config, receiver):
        assert run(lake, config, clusters=("east", "west")) == 2
        assert run(lake, config, clusters=()) == 0
    assert sorted(content["finding"]["cluster"] for content in receiver.contents) == ["east", "west"]
    assert kept(lake, "cluster", "finding_id") == [("east", "f1"), ("west", "f1")]


@pytest.mark.parametrize(
    ("resolved", "confirmed", "is_sent"),
    [(6 * DAY, None, True), (8 * DAY, None, False), (8 * DAY, 6 * DAY, True), (8 * DAY, 8 * DAY, False)],
)
def test_what_ended_more_than_a_week_ago_is_not_read(
    lake: Lake, load: Load, resolved: timedelta, confirmed: timedelta | None, is_sent: bool
) -> None:
    long_ago = NOW - 30 * DAY
    keep(lake, finding(first_seen=long_ago))
    with chat(load) as (config, _):
        assert run(lake, config, long_ago) == 1
        ended = {"resolved_at": NOW - resolved, "resolution_confirmed_at": confirmed and NOW - confirmed}
        keep(lake, finding(first_seen=long_ago, **ended))
        assert run(lake, config, NOW.replace(microsecond=123_456)) == int(is_sent)


def test_a_job_that_fails_does_not_undo_what_another_has_sent(
    lake: Lake, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(lake, finding())
    rows = announce_module._rows
    with chat(load, 500, 200) as (config, _):

        def late(*arguments: Any) -> Any:
            monkeypatch.setattr(announce_module, "_rows", rows)
            assert run(lake, config, NOW + MINUTE) == 1  # another job, which comes first
            return rows(*arguments)

        monkeypatch.setattr(announce_module, "_rows", late)
        assert run(lake, config) == 0
    assert kept(lake, "finding_id", "status") == [("f1", "sent")]


def test_hostile_names_reach_the_receiver_and_the_table(lake: Lake, load: Load) -> None:
    names = ["a\n'b\\\"--", "群组 👍🏽", "x" * 1_000_000, "{findings} {0} %s", "<b>@here</b>"]
    keep(lake, *(finding(f"f{n}", group_id=name, topic=name, client_id=name) for n, name in enumerate(names)))
    with chat(load) as (config, receiver):
        assert [run(lake, config), run(lake, config)] == [len(names), 0]
    got = {content["dedup_key"]: content["finding"]["group_id"] for content in receiver.contents}
    assert [got[f"f{n}"] for n in (0, 1, 3, 4)] == [names[n] for n in (0, 1, 3, 4)]


def test_without_findings_or_channels_nothing_is_written(lake: Lake, load: Load, tmp_path: Path) -> None:
    def versions() -> int:
        return len(list((tmp_path / NOTIFICATIONS.name / "_delta_log").glob("*.json")))

    with chat(load) as (config, _):
        before = versions()
        assert run(lake, config) == 0
        keep(lake, finding(first_seen=NOW - 30 * DAY))
        assert run(lake, config) == 0
    no_lake = cast("Lake", None)
    no_channels = load('[lake]\nroot = "/l"\n[clusters.east]\nbootstrap_servers = ["b:1"]\n')
    assert run(no_lake, no_channels) == 0
    assert versions() == before


def test_no_secret_is_in_the_table(lake: Lake, load: Load) -> None:
    keep(lake, finding())
    text = f'[channels.chat]\ntype = "pagerduty"\nurl = "http://u:${{env:KEY}}@{HOST}:{free_port()}/hunter2"\n'
    assert run(lake, config_of(load, f'{text}routing_key = "${{env:KEY}}"\n', KEY="hunter2")) == 0
    assert "hunter2" not in str(lake.query("SELECT * FROM {notifications}", NOTIFICATIONS))


def test_a_lake_without_the_table_is_an_error_of_the_lake(lake: Lake, load: Load, tmp_path: Path) -> None:
    keep(lake, finding())
    absent: Table = NOTIFICATIONS
    (tmp_path / absent.name).rename(tmp_path / "elsewhere")
    with chat(load) as (config, receiver), pytest.raises(LakeError):
        run(lake, config)
    assert receiver.requests == []
