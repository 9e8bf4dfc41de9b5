"""The digest of some days: what it counts, what it says, and that it reaches the people who own something."""

import html
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import notify
from pipeline.common.epoch import to_epoch_ms, utc_date
from pipeline.config import Config
from pipeline.lake import Lake
from pipeline.notify.digest import LISTED, Digest, as_html, digest_of, message_of, sections
from pipeline.notify.send_digest import read_digest
from pipeline.tables import FINDINGS, SLO, SNAPSHOTS
from tests.helpers.findings import HOUR, NOW, Receiver, Row, config_of, finding
from tests.helpers.reports import HOSTILE, frame

Load = Callable[..., Config]
DAY = timedelta(days=1)
SINCE = NOW - 7 * DAY
WEEK = (SINCE, NOW)
OWNERS = '[[owners]]\ngroup = "^orders"\nowner = "shop"\nchannel = "shop"\n'
SHOP = '[channels.shop]\ntype = "webhook"\nurl = "http://127.0.0.1:9"\n'


@pytest.fixture
def config(load: Load) -> Config:
    return config_of(load, OWNERS + SHOP + '[channels.chat]\ntype = "webhook"\nurl = "http://127.0.0.1:9"\n')


MISSED = (
    "- fast, group orders, cluster east: consumer_age_ms < 60000 in 95.00% of the time instead of 99.00%; -400% of the "
    "error budget is left"
)


def lasting(name: str, first: datetime, hours: float | None, **more: Any) -> Row:
    """A finding that begins at an instant, and is resolved after some hours if that is not None."""
    end = None if hours is None else first + hours * HOUR
    return finding(name, first_seen=first, resolved_at=end, **{"client_id": None, "topic": None, **more})


def objective(**more: Any) -> Row:
    row = {"cluster": "east", "slo": "fast", "group_id": "orders", "objective": "consumer_age_ms < 60000"}
    return {**row, "target": 0.99, "attainment": 0.95, "budget_left": -4.0, **more}


def test_only_the_time_within_the_days_counts(config: Config) -> None:
    rows = [
        lasting("a", SINCE - DAY, 26, kind="rewound"),  # the last two hours of it
        lasting("b", SINCE + DAY, 3, kind="rewound"),
        lasting("c", NOW - 5 * HOUR, None),
        lasting("d", NOW - 5 * HOUR, 9),  # resolved only after these days
    ]
    found = digest_of(rows, [], {}, config, WEEK)
    assert [(t.name, t.findings, t.lasted / HOUR) for t in found.by_kind()] == [
        ("slow consumer", 2, 10.0),
        ("rewound", 2, 5.0),
    ]
    assert (found.begun, sorted(f.finding_id for f in found.still_open)) == (3, ["c", "d"])


def test_information_is_no_trouble_but_is_counted_by_kind(config: Config) -> None:
    rows = [lasting("a", NOW - HOUR, None, severity="info"), lasting("b", NOW - HOUR, None, group_id="web")]
    found = digest_of(rows, [], {}, config, WEEK)
    assert [t.name for t in found.by_subject()] == ["group web, cluster east"]
    assert found.by_kind()[0].findings == 2


@pytest.mark.parametrize(
    ("more", "subject"),
    [
        ({"group_id": None, "client_id": "c1"}, "client c1, cluster east"),
        ({"group_id": None, "topic": "t"}, "topic t, cluster east"),
        ({"group_id": None}, "cluster east"),
    ],
)
def test_a_problem_without_a_group_is_named_by_what_it_is_of(config: Config, more: Row, subject: str) -> None:
    found = digest_of([lasting("a", NOW - HOUR, 1, **more)], [], {}, config, WEEK)
    assert [t.name for t in found.by_subject()] == [subject]


def test_the_whole_message(config: Config) -> None:
    rows = [
        lasting("a", NOW - 2 * HOUR, None, kind="no_progress", group_id="orders"),
        lasting("b", NOW - DAY, 1.5, kind="falling_behind", group_id="web", severity="warning"),
    ]
    slo = [objective(), objective(group_id="web", attainment=0.999, budget_left=0.9)]
    found = digest_of(rows, slo, {"east": {"complete": 10_070, "failed": 3, "partial": 7}}, config, WEEK)
    message = message_of(found, "https://r.example.com/r.html")
    assert message.title == "Kafka consumer lag, 2026-01-24 to 2026-01-31: 2 findings, 1 still open"
    assert (message.event, message.severity, message.dedup_key) == ("digest", "critical", "laglake-digest-2026-01-31")
    assert message.body.split("\n") == [
        "Still open:",
        "- Critical: no progress, group orders, cluster east, since 2026-01-31 10:00 UTC",
        "",
        "Objectives missed:",
        MISSED,
        "",
        "By kind:",
        "- no progress: 1 finding, 2.0 h",
        "- falling behind: 1 finding, 1.5 h",
        "",
        "Where:",
        "- group orders, cluster east: 1 finding, 2.0 h",
        "- group web, cluster east: 1 finding, 1.5 h",
        "",
        "Snapshots:",
        "- east: 10,080 snapshots; 3 failed, 7 partial",
        "",
        "Report: https://r.example.com/r.html",
    ]


def test_a_quiet_week_says_so(config: Config) -> None:
    found = digest_of([], [], {"east": {"complete": 1}}, config, WEEK)
    assert message_of(found, None).body == "Snapshots:\n- east: 1 snapshot; all complete"
    assert message_of(found, None).severity == "info"
    assert "Nothing was found" in as_html(digest_of([], [], {}, config, WEEK), None)


def test_long_lists_are_cut(config: Config) -> None:
    rows = [lasting(f"{n}", NOW - HOUR, None, group_id=f"g{n:03}") for n in range(LISTED + 5)]
    listed = dict(sections(digest_of(rows, [], {}, config, WEEK)))
    assert (len(listed["Still open"]), listed["Still open"][-1], listed["Where"][-1]) == (
        LISTED + 1,
        "and 5 more",
        "and 5 more",
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_cannot_add_markup_or_lines(config: Config, name: str) -> None:
    row = lasting("a", NOW - HOUR, None, group_id=name, kind=name)
    found = digest_of([row], [objective(group_id=name, slo="s")], {}, config, WEEK)
    page = as_html(found, "https://r.example.com/?a=1&b=<")
    assert {tag.lower() for tag in re.findall(r"<(/?\w+)", page)} <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "p", "a", "h2", "ul", "li"),
        *("/html", "/head", "/title", "/style", "/body", "/h1", "/p", "/a", "/h2", "/ul", "/li"),
    }
    assert len(re.findall("<li>", page)) == 4
    lines = message_of(found, None).body.split("\n")
    assert len(lines) == 11
    assert html.unescape(page).count("javascript:") == 0


def test_each_owner_gets_what_is_theirs(config: Config) -> None:
    rows = [lasting("a", NOW - HOUR, None), lasting("b", NOW - HOUR, None, group_id="web")]
    whole = digest_of(rows, [objective(), objective(group_id="web")], {"east": {"complete": 1}}, config, WEEK)

    def part(channel: str) -> tuple[list[str], list[str]]:
        found: Digest = whole.of_channel(channel)
        return [f.finding_id for f in found.findings], [m.group_id for m in found.missed]

    assert part("shop") == (["a"], ["orders"])
    assert part("chat") == (["b"], ["web"])
    assert part("other") == ([], [])


SLO_TOML = '[slo.fast]\ngroups = "."\nobjective = "consumer_age_ms < 60000"\ntarget = 0.99\n'


@pytest.mark.parametrize("engine", ["driver", "spark"])
def test_it_is_read_from_the_tables(lake: Lake, load: Load, engine: str) -> None:
    if engine == "spark":
        lake.__dict__["_driver"] = None
    config = config_of(load, SLO_TOML)
    rows = [
        lasting("before", SINCE - DAY, 24),  # resolved when the week begins: not in it
        lasting("into", SINCE - DAY, 25),
        lasting("open", SINCE - DAY, None),
        lasting("after", NOW + HOUR, None),
        lasting("west", NOW - HOUR, None, cluster="west"),
    ]
    lake.replace(FINDINGS, frame(lake.spark, FINDINGS, *rows), "true")

    def at(when: datetime, **more: Any) -> Row:
        return {
            "cluster": "east",
            "snapshot_id": to_epoch_ms(when),
            "snapshot_date": utc_date(to_epoch_ms(when)),
            **more,
        }

    ledger = [at(SINCE, status="failed"), at(NOW, status="complete"), at(NOW - HOUR, status="partial")]
    lake.replace(SNAPSHOTS, frame(lake.spark, SNAPSHOTS, *ledger, at(NOW + HOUR, status="complete")), "true")
    objectives = [
        at(NOW - HOUR, **objective(group_id="older")),
        at(NOW - timedelta(minutes=1), **objective(group_id="missed")),
        at(NOW - timedelta(minutes=1), **objective(group_id="reached", attainment=0.99)),
        at(NOW - timedelta(minutes=1), **objective(group_id="unknown", attainment=None)),
    ]
    lake.replace(SLO, frame(lake.spark, SLO, *objectives), "true")
    found = read_digest(lake, config, ["east"], NOW, 7 * 86_400_000)
    assert sorted(f.finding_id for f in found.findings) == ["into", "open"]
    assert found.snapshots == {"east": {"complete": 1, "partial": 1}}
    assert [m.group_id for m in found.missed] == ["missed"]


def test_the_job_writes_a_page_and_sends_one_message_to_each_channel_for_people(
    spark: SparkSession, lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = lasting("a", NOW - HOUR, None, group_id="orders")
    lake.replace(FINDINGS, frame(spark, FINDINGS, row), "true")
    page = tmp_path / "out" / "digest.html"
    with Receiver().serving() as people, Receiver().serving() as alarms:
        file = tmp_path / "c.toml"
        file.write_text(
            f'[lake]\nroot = "{lake._config.root}"\n[clusters.east]\nbootstrap_servers = ["b:1"]\n{OWNERS}'
            f'[channels.shop]\ntype = "webhook"\nurl = "{people.url}"\n'
            f'[channels.pager]\ntype = "pagerduty"\nrouting_key = "${{env:HOME}}"\nurl = "{alarms.url}"\n'
        )
        command = ["--config", str(file), "--at", NOW.isoformat(), "--output", str(page)]
        assert notify.main([*command, "--digest"]) == 0
        assert alarms.contents == []
        (content,) = people.contents
    assert (content["event"], content["finding"], content["findings"]) == ("digest", None, None)
    assert content["title"] == "Kafka consumer lag, 2026-01-24 to 2026-01-31: 1 finding, 1 still open"
    assert "group orders, cluster east, since 2026-01-31 11:00 UTC" in page.read_text()
    # The receiver is gone now: the page is written, and the job fails.
    page.unlink()
    assert notify.main([*command, "--digest", "1d"]) == 1
    assert page.exists()
    assert "channel shop did not accept the digest: " in caplog.text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--output", "x.html"], "--output needs --digest"),
        (["--at", "2026-01-31T12:00:00Z"], "--at needs --digest"),
        (["--test", "chat", "--digest"], "--test and --digest cannot be combined"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    assert notify.main(arguments) == 2
    assert capsys.readouterr().err == f"{reason}\n"
