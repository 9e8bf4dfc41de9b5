"""The kinds of findings about commits that were moved, that Kafka will remove, or that are missing."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from pipeline.common.kafka_tools import tool
from pipeline.kinds.command_lines import Command, CommandContext, in_shell, offsets_file
from pipeline.kinds.group_commands import EXECUTE, STOP_FIRST, Commands, group_option, show_lag, show_members
from pipeline.kinds.groups import forecast_of, from_then, soon
from pipeline.kinds.kind import Clock, Facts, Finding, Headline, Kind, Words
from pipeline.kinds.reader_facts import ReaderFacts, figures, unread, where, where_in
from pipeline.kinds.text import counted, instant, iso, part, required, sentence, size, some

_LOOKS_LIKE_A_RESET = " This looks like a reset by a tool or an admin client."


class Rewound(Kind[ReaderFacts]):
    """Commits went back, and are still behind where they were.

    Says so if it looks like [a reset](#when-has-a-group-been-reset).
    """

    name = "rewound"
    severity = "warning"
    magnitude = "unread records"
    facts = ReaderFacts
    begins_in_status = True

    def words(self, facts: ReaderFacts) -> Words:
        was_reset = facts.reason == "offsets_reset"
        return Words(
            sentence(
                "Commits went back at ",
                instant(facts.since_ms),
                where(facts.rows, facts.of_partitions),
                ", and are still behind where they were",
                unread(facts),
                ".",
                _LOOKS_LIKE_A_RESET if was_reset else None,
            ),
            figures(facts),
            "Records are processed again. If this was not intended, find out who has reset the offsets."
            if was_reset
            else "Records are processed again. If nobody has reset the offsets on purpose, look for a consumer that "
            "seeks, or that started with auto.offset.reset=earliest.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        by = ", probably by a tool" if finding.newest_evidence.get("reason") == "offsets_reset" else ""
        text = f"commits went back at {clock(self.since_ms(finding))}{where_in(finding.newest_evidence)}{by}"
        return Headline("rewound", text)

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield from show_lag(finding, around)


class SkippedOffsets(Facts):
    """The records that a reset has skipped in a partition: from the first of these offsets on, before the second."""

    topic: str
    partition: int
    from_: int = Field(alias="from")
    to: int


class SkippedFacts(Facts):
    """The partitions of a group whose commits were moved ahead: how many records they skip, and the first ones."""

    group_id: str | None = None
    group_type: str | None = None
    since_ms: int | None = None
    rows: int = 0
    of_partitions: int | None = None
    topics: Sequence[str] = ()
    records: int | None = None
    records_bytes: int | None = None
    bytes_error: int | None = None
    written_ms: int | None = None
    offsets: Sequence[SkippedOffsets] = ()


class Skipped(Kind[SkippedFacts]):
    """A tool or an admin client has [moved commits ahead](#when-has-a-group-been-reset).

    The group has not read the records that they skip.
    """

    name = "skipped"
    severity = "warning"
    magnitude = "these records, at most"
    keys = (
        "`since`, `partitions`, `partitions_of_group`, `topics`, `worst_topic`, `worst_partition`; `skipped_offsets`, "
        "`skipped_bytes` with `bytes_error`; `first_written_at`; `offsets`: an object for each partition with `topic`, "
        "`partition`, and the commits `from` and `to`"
    )
    facts = SkippedFacts
    begins_in_status = True

    def words(self, facts: SkippedFacts) -> Words:
        worst = facts.offsets[0]
        offsets = [{"topic": o.topic, "partition": o.partition, "from": o.from_, "to": o.to} for o in facts.offsets]
        return Words(
            sentence(
                f"Commits were moved ahead at {instant(facts.since_ms)}",
                where(facts.rows, facts.of_partitions),
                " while the group had no members, and skip up to ",
                counted(facts.records, "record"),
                part(" (", size(facts.records_bytes, facts.bytes_error), ")"),
                part(", the first of them written at ", instant(facts.written_ms)),
                ".",
                _LOOKS_LIKE_A_RESET,
            ),
            {
                "since": iso(facts.since_ms),
                "partitions": facts.rows,
                "partitions_of_group": facts.of_partitions,
                "topics": facts.topics,
                "worst_topic": worst.topic,
                "worst_partition": worst.partition,
                "skipped_offsets": facts.records,
                "skipped_bytes": facts.records_bytes,
                "bytes_error": facts.bytes_error,
                "first_written_at": iso(facts.written_ms),
                "offsets": sorted(offsets, key=lambda one: [*one.values()]),
            },
            _how_to_go_back(facts, worst),
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        evidence = finding.newest_evidence
        records = some(evidence.get("skipped_offsets"), "record")
        text = f"commits were moved over {records} at {clock(self.since_ms(finding))}{where_in(evidence)}"
        return Headline("skipped", text)

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        offsets = finding.newest_evidence.get("offsets") or ()
        if not offsets or not around.is_plain(finding.group_id):
            yield from show_lag(finding, around)
            return
        lines = [
            in_shell(f"{one['topic']},{one['partition']},{one['from']}", "TOPIC,PARTITION,OFFSET") for one in offsets
        ]
        file = offsets_file(finding.cluster, finding.group_id, around)
        more = (finding.newest_evidence.get("partitions") or 0) - len(offsets)
        left_out = f"; {more} more partitions have fewer skipped records" if more > 0 else ""
        yield Command(f"Writes the old offsets into a file{left_out}", f"printf '%s\\n' {' '.join(lines)} > {file}")
        words = (group_option(finding.group_id), f"--from-file {file}", "--dry-run")
        what = f"{STOP_FIRST}Shows where the group would begin with them{EXECUTE}"
        yield Command(what, around.tool("consumer-groups", "--reset-offsets", *words))


class CommitsExpire(Kind[ReaderFacts]):
    """Kafka may remove the commits of a group that has [no members](#when-do-commits-expire).

    This is within `[status] data_loss_within` (a day), and the group has not read everything.
    """

    name = "commits_expire"
    severity = "warning"
    magnitude = "the milliseconds that are left, negative"
    keys = "`commits_expire_at`, `members_seen_at`"
    facts = ReaderFacts

    def words(self, facts: ReaderFacts) -> Words:
        left_ms, seen_ms = required(facts.expires_in_ms), facts.members_seen_ms
        at_ms = required(facts.at_ms) + left_ms
        return Words(
            sentence(
                f"Kafka may remove the group's committed offsets {soon(at_ms, left_ms)}",
                part("; the group last had members at ", instant(seen_ms)),
                part(", and ", counted(facts.consumer_lag, "record"), " are unread"),
                ".",
            ),
            {**figures(facts), "commits_expire_at": iso(at_ms), "members_seen_at": iso(seen_ms)},
            _how_to_keep(facts),
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        when = from_then(finding.newest_evidence.get("commits_expire_at"), clock)
        return Headline("commits expire", f"Kafka may remove the commits {when}{where_in(finding.newest_evidence)}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        if around.is_plain(finding.group_id):
            file = offsets_file(finding.cluster, finding.group_id, around)
            words = (group_option(finding.group_id), f"--to-current --all-topics --dry-run --export > {file}")
            what = (
                "Keeps the commits in a file. Look into it, because it also gets the tool's errors: it must have a "
                f"line for each partition. Later, --from-file {file} --execute restores them"
            )
            yield Command(what, around.tool("consumer-groups", "--reset-offsets", *words))

    def loss(self, finding: Finding, clock: Clock) -> str | None:
        if finding.resolved_ms is not None:
            return None
        when = from_then(finding.newest_evidence.get("commits_expire_at"), clock)
        made = forecast_of(finding, clock)
        return f"ahead: Kafka may remove the commits {when}; the group then starts where auto.offset.reset says{made}"


class NeverCommits(Kind[ReaderFacts]):
    """Members have partitions in which the group [has never committed](#when-does-a-group-never-commit).

    It has been so for one `[status] window`, and records are written.
    """

    name = "never_commits"
    severity = "warning"
    magnitude = "offsets that it may still read"
    keys = "`readable_offsets`: the offsets of these logs"
    facts = ReaderFacts
    begins_in_status = True

    def words(self, facts: ReaderFacts) -> Words:
        return Words(
            sentence(
                "Members have partitions, and nothing was committed",
                where(facts.rows, facts.of_partitions),
                part(" since ", instant(facts.since_ms)),
                ", although records are written",
                part("; ", counted(facts.readable, "offset"), " can be read there"),
                ".",
            ),
            {**figures(facts), "readable_offsets": facts.readable},
            "If the application keeps its offsets elsewhere, silence this kind for the group. If not, look for "
            "enable.auto.commit=false without a commit, or for commits that fail: after a restart, the group begins "
            "where auto.offset.reset says.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        text = f"nothing committed{where_in(finding.newest_evidence)} since {clock(self.since_ms(finding))}"
        return Headline("never commits", text)

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield from show_members(finding, around)


def _how_to_go_back(facts: SkippedFacts, worst: SkippedOffsets) -> str:
    back = (
        "If the group must read these records, stop its consumers and set its offsets back before retention deletes "
        "the records. It then also reads again what it has read since."
    )
    if facts.group_type == "streams":
        return back
    group, topic = in_shell(facts.group_id, "GROUP"), in_shell(worst.topic, "TOPIC")
    place = f"--topic {topic}:{worst.partition} --to-offset {worst.from_}"
    reset = tool("consumer-groups", f"--reset-offsets --group {group} {place} --dry-run")
    more = ". The evidence has the old offset of each partition." if facts.rows > 1 else ""
    return (
        f"{back} For the partition with the most of them, this shows it, and --execute in place of --dry-run does it: "
        f"{reset}{more}"
    )


def _how_to_keep(facts: ReaderFacts) -> str:
    start = "Start the group's consumers before then: without its offsets, it starts where auto.offset.reset says."
    if facts.group_type == "streams":
        # kafka-consumer-groups refuses such groups, and with kafka-streams-groups --execute deletes more.
        return start
    group = in_shell(facts.of_group, "GROUP")
    export = f"--reset-offsets --group {group} --to-current --all-topics --dry-run --export"
    file = offsets_file("", facts.of_group, CommandContext())
    return (
        f"{start} Or keep its position in a file, which must have a line for each partition, and which --from-file "
        f"with --execute restores: {tool('consumer-groups', export)} > {file}"
    )
