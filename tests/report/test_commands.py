"""The commands of cards: which partitions, topics, groups and clusters they name, and what they are refused for."""

from typing import Any

import pytest

from pipeline.kinds import kind_named
from pipeline.kinds.command_lines import Command, CommandContext, place
from pipeline.report.cards.cards import cards
from pipeline.report.model.details import Finding
from pipeline.report.page.page import render
from tests.helpers.reports import NOON, cluster, group, report, text_of

TO = " --bootstrap-server $BOOTSTRAP"
ADVICE = f"Look at it. See the members: kafka-consumer-groups{TO} --describe --group payments --members --verbose"
UNLIMITED = "retention.ms=-1,retention.bytes=-1"
NO_MEMBERS = {"reason": "no_members", "members_seen_at": "2026-03-01T11:00:00Z"}


def finding(kind: str, **more: Any) -> Finding:
    plain: dict[str, Any] = {
        "cluster": "east",
        "group_id": "payments",
        "client_id": None,
        "topic": "orders",
        "partitions": (0, 3),
        "severity": "critical",
        "first_seen_ms": NOON,
        "last_seen_ms": NOON,
        "resolved_ms": None,
        "summary": "So it is.",
        "evidence": {},
        "advice": ADVICE,
    }
    return Finding(kind, **{**plain, **more})


def commands(found: Finding, around: CommandContext | None = None) -> list[Command]:
    return [*kind_named(found.kind).commands(found, around or CommandContext())]


def lines(found: Finding, around: CommandContext | None = None) -> list[str]:
    return [command.line.replace(TO, "") for command in commands(found, around)]


def resets(found: Finding, around: CommandContext | None = None) -> list[str]:
    return [line for line in lines(found, around) if "--reset-offsets" in line]


OF_TOPIC = {"group_id": None, "evidence": {"groups": ["g"]}}
RESETS = [
    ("deleted_unread", {}, "--group payments --topic orders:0,3 --to-earliest --dry-run"),
    ("no_progress", {"evidence": NO_MEMBERS}, "--group payments --topic orders:0,3 --to-latest --dry-run"),
    ("recreated_topic", OF_TOPIC, "--group g --topic orders:0,3 --to-earliest --dry-run"),
    (
        "truncated_log",
        OF_TOPIC,
        "--group g --topic orders:0,3 --to-datetime 2026-03-01T11:00:00.000 --dry-run",
    ),
]


def test_no_group_is_reset_in_partitions_of_which_it_may_have_lost_nothing() -> None:
    """What several groups have lost together is not known by group."""
    found = finding("deleted_unread", **OF_TOPIC)
    assert resets(found) == []
    assert "kafka-consumer-groups --describe --group g" in lines(found)


@pytest.mark.parametrize(("kind", "about", "words"), RESETS)
def test_a_reset_is_about_the_partitions_of_the_finding_only(kind: str, about: dict[str, Any], words: str) -> None:
    assert resets(finding(kind, **about)) == [f"kafka-consumer-groups --reset-offsets {words}"]


@pytest.mark.parametrize(("kind", "about"), [case[:2] for case in RESETS])
@pytest.mark.parametrize("unknown", [{"topic": None}, {"partitions": ()}, {"partitions": tuple(range(101))}])
def test_without_a_known_place_there_is_no_reset(kind: str, about: dict[str, Any], unknown: dict[str, Any]) -> None:
    assert resets(finding(kind, **{**about, **unknown})) == []


@pytest.mark.parametrize(("kind", "about"), [case[:2] for case in RESETS])
@pytest.mark.parametrize("group_type", ["streams", "share"])
def test_a_group_that_the_tool_refuses_has_no_reset(kind: str, about: dict[str, Any], group_type: str) -> None:
    around = CommandContext(types={"payments": group_type, "g": group_type})
    assert resets(finding(kind, **about), around) == []


@pytest.mark.parametrize("kind", ["deleted_unread", "recreated_topic", "truncated_log"])
def test_consumers_are_stopped_before_a_reset(kind: str) -> None:
    found = commands(finding(kind, evidence={"groups": ["g"]}))
    assert [c.what.startswith("Stop the group's consumers first") for c in found if "--reset-offsets" in c.line] == [
        True
    ]


def test_a_place_is_that_of_the_snapshot_shown() -> None:
    moved = finding("deleted_unread", now={"worst_topic": "clicks"}, now_topic="clicks", now_partitions=(7,))
    assert lines(moved) == [
        "kafka-configs --describe --all --entity-type topics --entity-name clicks",
        f"kafka-configs --alter --entity-type topics --entity-name clicks --add-config {UNLIMITED}",
        "kafka-consumer-groups --reset-offsets --group payments --topic clicks:7 --to-earliest --dry-run",
    ]
    assert place(finding("x", topic="my topic")) == "'my topic:0,3'"
    assert place(finding("x", topic="a\nb")) is None


def test_the_topic_of_a_command_is_that_of_its_partition() -> None:
    stuck = finding("no_progress", evidence={"worst_topic": "clicks", "worst_partition": 3})
    around = CommandContext({("clicks", 3): 41, ("orders", 3): 5})
    assert lines(stuck, around)[1] == (
        "kafka-console-consumer --topic clicks --partition 3 --offset 41 --max-messages 1"
    )
    assert len(lines(stuck, CommandContext({("clicks", 4): 41}))) == 1


def test_retention_is_raised_for_each_topic_that_loses_records() -> None:
    ahead = finding("data_loss_ahead", topic=None, evidence={"worst_topic": "b", "topics": ["a", "b", "c"]})
    assert [line.split()[-1] for line in lines(ahead) if "--describe" in line] == ["b", "a"]
    assert [line.split()[-3] for line in lines(ahead) if "--alter" in line] == ["b", "a"]
    note, keep, *_ = commands(ahead)
    assert note.what.endswith("put it back later with --delete-config retention.ms,retention.bytes")
    assert keep.what.endswith("Do the same for 1 more topic of the finding")
    one = finding("data_loss_ahead", evidence={"topics": ["orders"]})
    assert [line.split()[-1] for line in lines(one) if "--describe" in line] == ["orders"]


def test_only_a_transaction_that_hangs_is_aborted() -> None:
    where = {"worst_topic": "ledger", "worst_partition": 0}
    held = finding("open_transaction", group_id=None, topic="ledger", evidence=where)
    shown = "kafka-transactions describe-producers --topic ledger --partition 0"
    hanging = "kafka-transactions find-hanging --topic ledger"
    assert lines(held) == [hanging, shown]
    known = finding("open_transaction", group_id=None, evidence={**where, "transaction_start_offset": 1_234})
    abort = "kafka-transactions abort --topic ledger --partition 0 --start-offset 1234"
    assert lines(known) == [hanging, abort, shown]
    what = commands(known)[1].what
    assert what.startswith("Only if the list has the transaction")
    assert "Repeat it for each partition" in what


OLD = [
    {"topic": "orders", "partition": 0, "from": 300, "to": 900},
    {"topic": "clicks", "partition": 3, "from": 7, "to": 800},
]


def test_a_group_that_was_reset_is_set_back_to_its_old_offsets() -> None:
    skipped = finding("skipped", evidence={"offsets": OLD, "partitions": 2, "skipped_offsets": 1_393})
    file = "payments-offsets.csv"
    assert lines(skipped) == [
        f"printf '%s\\n' orders,0,300 clicks,3,7 > {file}",
        f"kafka-consumer-groups --reset-offsets --group payments --from-file {file} --dry-run",
    ]
    write, reset = commands(skipped)
    assert write.what == "Writes the old offsets into a file"
    assert reset.what.startswith("Stop the group's consumers first")
    assert reset.what.endswith("--execute in place of --dry-run sets it")


def test_the_commands_say_how_many_partitions_are_left_out() -> None:
    skipped = finding("skipped", evidence={"offsets": OLD, "partitions": 5})
    assert commands(skipped)[0].what.endswith("a file; 3 more partitions have fewer skipped records")


def test_the_offsets_are_those_that_are_still_skipped() -> None:
    skipped = finding("skipped", evidence={"offsets": OLD}, now={"offsets": OLD[1:], "partitions": 1})
    assert lines(skipped)[0] == "printf '%s\\n' clicks,3,7 > payments-offsets.csv"


@pytest.mark.parametrize("group_type", ["streams", "share"])
def test_a_group_that_the_tool_refuses_has_no_reset_to_its_old_offsets(group_type: str) -> None:
    around = CommandContext(types={"payments": group_type})
    assert resets(finding("skipped", evidence={"offsets": OLD}), around) == []


def test_a_group_that_was_never_seen_with_members_is_not_skipped() -> None:
    never = finding("no_progress", evidence={"reason": "no_members"})
    assert lines(never) == ["kafka-consumer-groups --describe --group payments --state"]


@pytest.mark.parametrize(
    ("group_type", "tools"),
    [
        ("classic", ["kafka-consumer-groups --describe --group payments --members --verbose"]),
        (None, ["kafka-consumer-groups --describe --group payments --members --verbose"]),
        ("streams", ["kafka-streams-groups --describe --group payments --members --verbose"]),
        ("share", []),
    ],
)
def test_the_tool_is_that_of_the_type_of_the_group(group_type: str | None, tools: list[str]) -> None:
    assert lines(finding("falling_behind"), CommandContext(types={"payments": group_type})) == tools


def test_each_group_keeps_its_commits_in_a_file_of_its_own() -> None:
    def file(group_id: str, name: str = "east", *, is_alone: bool = True) -> str:
        found = finding("commits_expire", group_id=group_id, cluster=name)
        return lines(found, CommandContext(is_alone=is_alone))[0].split(" > ")[1]

    assert file("payments") == "payments-offsets.csv"
    assert file("payments", is_alone=False) == "east-payments-offsets.csv"
    odd = ["../etc/passwd", "a/b", "a b", "-x", "x" * 249, "$(rm)"]
    files = [file(name) for name in odd]
    assert len({*files}) == len(odd)
    assert all(name.removesuffix("-offsets.csv").replace("-", "").replace(".", "").isidentifier() for name in files)
    assert max(map(len, files)) < 200
    assert lines(finding("commits_expire"), CommandContext(types={"payments": "streams"})) == []


def test_each_cluster_has_a_variable_of_its_own() -> None:
    both = tuple(finding("falling_behind", cluster=name) for name in ("eu-east", "eu.east"))
    clusters = tuple(map(cluster, ("eu-east", "eu.east")))
    shown = report(clusters=clusters, findings=both, findings_open=2)
    assert [c.commands[0].line.split()[2] for c in cards(shown)] == ["$BOOTSTRAP_EU_EAST", "$BOOTSTRAP_EU_EAST_2"]
    explained = "from $BOOTSTRAP_EU_EAST (cluster eu-east ) and $BOOTSTRAP_EU_EAST_2 (cluster eu.east )."
    assert explained in text_of(render(shown)).replace("eu-east)", "eu-east )").replace("eu.east)", "eu.east )")
    alone = report(group("payments"), findings=both[:1], clusters=clusters[:1], findings_open=1)
    assert "the address of a broker from $BOOTSTRAP . Brokers" in text_of(render(alone))


def test_advice_does_not_repeat_a_command_of_the_card() -> None:
    def advice(kind: str, name: str = "east") -> tuple[str, ...]:
        clusters = tuple(map(cluster, dict.fromkeys(("east", name))))
        found = finding(kind, cluster=name)
        (card,) = cards(report(clusters=clusters, findings=(found,), findings_open=1))
        return card.advice

    assert advice("falling_behind") == ("Look at it.",)
    assert advice("clock_ahead") == (ADVICE,)
    assert advice("clock_behind") == (ADVICE,)
    assert advice("clock_ahead", "west") == (ADVICE.replace("$BOOTSTRAP", "$BOOTSTRAP_WEST"),)
