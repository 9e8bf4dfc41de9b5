"""Problems of clients that last: one row each, in whatever order the snapshots come. Minutes stand for snapshots."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pipeline.analytics.findings.as_known import findings_as_known, lasting_at
from pipeline.analytics.findings.findings import finding_history, findings, findings_seen
from pipeline.analytics.findings.known_findings import KnownFindings, as_known, subjects
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows
from pipeline.tables import FINDING_HISTORY, FINDINGS, Table
from tests.helpers.rows import few_rows

MINUTE_MS = 60_000
ALWAYS = range(1, 13)
NOTHING = KnownFindings()
Found = SimpleNamespace
Seen = dict[int, str | None]
Whose = tuple[str | None, str | None, str | None]


def topics(minutes: Iterable[int], topic: str | None = None) -> Seen:
    return dict.fromkeys(minutes, topic)


# Client, group, kind; the minutes with the problem, and its topic; the minutes in which the client reports anything.
CASES: list[tuple[str, str | None, str, Seen, Iterable[int]]] = [
    ("lasting", "g", "blind_gauge", topics(ALWAYS), ALWAYS),
    ("blinking", "g", "blind_gauge", topics([1, 2, 4, 5, 6, 9, 10, 11, 12]), ALWAYS),
    ("ended", "g", "blind_gauge", topics([1, 2, 3]), ALWAYS),
    ("ending", "g", "blind_gauge", topics(range(1, 11)), ALWAYS),
    ("again", "g", "blind_gauge", topics([1, 2, 6, 7]), ALWAYS),
    ("silent", "g", "blind_gauge", topics([1, 2]), [1, 2]),
    ("pausing", "g", "blind_gauge", topics([1, 2]), [1, 2, 3, 6, 7]),
    ("nameless", None, "blind_gauge", topics([1, 2, 3, 4]), ALWAYS),
    ("nameless", "g", "blind_gauge", topics([7, 8, 9]), ALWAYS),
    ("paused", "g", "paused_partition", topics(ALWAYS, "a"), ALWAYS),
    ("paused", "g", "paused_partition", topics([1, 2, 3], "b"), ALWAYS),
    ("slow", "g", "slow_consumer", topics([1, 3, 8]) | {2: "t"}, ALWAYS),
    ("slow-ended", "g", "slow_consumer", topics([1, 2], "t"), ALWAYS),
    ("slow-moved", "g", "slow_consumer", {1: "t", 2: "u", 3: "u"}, [1, 2, 3]),
    ("blocked", "g", "blocked_connector", {1: None, 2: "t", 3: "t", 4: "u", 5: None}, ALWAYS),
]
Lasting = list[tuple[str | None, str | None, int, int, int | None]]


def at(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * MINUTE_MS / 1000, UTC)


def minute(instant: datetime | None) -> int | None:
    return None if instant is None else int(instant.timestamp() * 1000) // MINUTE_MS


def rows_of(table: Table, names: str, *rows: Sequence[Any]) -> pa.Table:
    """Rows of a table: `names` are the given columns, the others are NULL. The cluster is `east`."""
    found = [{"cluster": "east"} | dict(zip(names.split(), row, strict=True)) for row in rows]
    return pa.Table.from_pylist(found, arrow_schema(table.schema))


def problem(minute: int, kind: str, whose: Whose, topic: str | None, magnitude: float, **others: Any) -> dict[str, Any]:
    """A problem in a minute; `whose` are the group, the client and the process."""
    group, client, instance = whose
    of = {"group_id": group, "client_id": client, "instance": instance, "topic": topic}
    words = {"summary": f"as of {minute}", "evidence": "{}", "advice": "-"}
    at_ms = {"snapshot_id": minute * MINUTE_MS, "kind": kind, "cluster": "east", "severity": "warning"}
    return at_ms | of | {"partitions": [minute], "magnitude": magnitude, "places": None} | words | others


def seen_in(minutes: Iterable[int], cases: Any = CASES) -> pa.Table:
    """The problem gets worse from minute to minute, except in every fourth minute."""
    return pa.Table.from_pylist(
        [
            problem(m, kind, (group, client, None), seen[m], float(m % 4 and m))
            for client, group, kind, seen, _ in cases
            for m in minutes
            if m in seen
        ]
    )


def reported_in(minutes: Iterable[int], cases: Any = CASES) -> dict[str, dict[int, bool]]:
    return subjects(
        {"subject": f"client {client}", "snapshot_id": m * MINUTE_MS, "is_judged": True}
        for client, *_, reports in cases
        for m in minutes
        if m in reports
    )


def found_in(history: pa.Table, past: KnownFindings = NOTHING) -> list[Found]:
    """The rows of `findings` that a history adds or changes."""
    return [Found(**row) for row in findings(findings_seen(history).to_pylist(), past)]


def by_client(rows: Iterable[Found]) -> Callable[[str], Lasting]:
    """The findings of a client by time: group, topic, and the minutes of first_seen, last_seen and resolved_at."""
    found: dict[str, Lasting] = {}
    for r in sorted(rows, key=lambda r: (r.first_seen, r.topic or "")):
        times = minute(r.first_seen), minute(r.last_seen), minute(r.resolved_at)
        found.setdefault(r.client_id, []).append((r.group_id, r.topic, *times))  # type: ignore[arg-type]
    return lambda client: found.get(client, [])


class Kept:
    """The two tables, written as `keep_findings` does: the same rows are read, replaced and merged."""

    def __init__(self, cases: Any = CASES) -> None:
        self._cases = cases
        self.findings: dict[str, Found] = {}
        self.history: dict[int, list[dict[str, Any]]] = {}

    def add(self, batch: Iterable[int]) -> list[Found]:
        """The rows of `findings` that a batch changes."""
        first, *_, last = (*batch, *batch)
        open_or_newer = [vars(r) for r in self.findings.values() if (minute(r.resolved_at) or first) >= first]
        past = KnownFindings(as_known(open_or_newer), others=reported_in(range(first - 5, last + 1), self._cases))
        seen = finding_history(seen_in(batch, self._cases), past)
        self.history |= {m: [r for r in seen.to_pylist() if r["snapshot_id"] == m * MINUTE_MS] for m in batch}
        found = found_in(seen, past)
        self.findings |= {r.finding_id: r for r in found}
        return found

    def rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The rows of both tables."""
        return sorted(map(vars, self.findings.values()), key=str), sorted(
            (r for m in self.history.values() for r in m), key=str
        )


@pytest.fixture(scope="module")
def at_once() -> Kept:
    """All cases, with all snapshots in one batch."""
    kept = Kept()
    kept.add(ALWAYS)
    return kept


@pytest.fixture(scope="module")
def together(at_once: Kept) -> list[Found]:
    return list(at_once.findings.values())


@pytest.fixture(scope="module")
def lasting(together: list[Found]) -> Callable[[str], Lasting]:
    return by_client(together)


def test_a_lasting_problem_is_one_finding(together: list[Found], lasting: Callable[[str], Lasting]) -> None:
    assert lasting("lasting") == [("g", None, 1, 12, None)]
    row = next(r for r in together if r.client_id == "lasting")
    assert (row.severity, row.owner) == ("warning", None)


def test_one_or_two_snapshots_without_the_problem_do_not_end_a_finding(lasting: Callable[[str], Lasting]) -> None:
    assert lasting("blinking") == [("g", None, 1, 12, None)]
    assert lasting("ending") == [("g", None, 1, 10, None)]


def test_three_snapshots_without_the_problem_end_a_finding_at_the_first(
    lasting: Callable[[str], Lasting],
) -> None:
    assert lasting("ended") == [("g", None, 1, 3, 4)]


def test_a_problem_that_comes_back_is_another_finding(together: list[Found], lasting: Callable[[str], Lasting]) -> None:
    assert lasting("again") == [("g", None, 1, 2, 3), ("g", None, 6, 7, 8)]
    assert len({r.finding_id for r in together}) == len(together) == len(CASES) + 3


def test_an_open_finding_lasts_while_its_client_reports_nothing(lasting: Callable[[str], Lasting]) -> None:
    assert lasting("silent") == [("g", None, 1, 2, None)]
    # There are no reports in minutes 4 and 5, so 3, 6 and 7 are the three minutes without the problem.
    assert lasting("pausing") == [("g", None, 1, 2, 3)]


def test_a_client_without_a_group_has_findings_of_its_own(lasting: Callable[[str], Lasting]) -> None:
    assert lasting("nameless") == [(None, None, 1, 4, 5), ("g", None, 7, 9, 10)]


def test_each_topic_with_paused_partitions_is_a_finding(lasting: Callable[[str], Lasting]) -> None:
    assert lasting("paused") == [("g", "a", 1, 12, None), ("g", "b", 1, 3, 4)]


def test_the_topic_of_a_slow_consumer_stays_known(lasting: Callable[[str], Lasting]) -> None:
    """It is known only in the second minute. Twice, the problem is absent for four minutes; five would end it."""
    assert lasting("slow") == [("g", "t", 1, 8, None)]
    assert lasting("slow-ended") == [("g", "t", 1, 2, 3)]


def test_a_problem_with_another_cause_is_another_finding(lasting: Callable[[str], Lasting]) -> None:
    assert lasting("slow-moved") == [("g", "t", 1, 1, None), ("g", "u", 2, 3, None)]
    # The first problem belongs to the finding of t, when the cause became known; the last one, without a cause, to u's.
    assert lasting("blocked") == [("g", "t", 1, 3, 4), ("g", "u", 4, 5, 6)]


def test_a_finding_describes_its_worst_moment(together: list[Found]) -> None:
    def worst(client: str) -> list[Any]:
        of_client = sorted((r for r in together if r.client_id == client), key=lambda r: r.first_seen)
        return [(minute(r.worst_at), r.magnitude, r.summary, r.partitions) for r in of_client]

    assert worst("lasting") == [(11, 11.0, "as of 11", [11])]
    assert worst("blocked") == [(3, 3.0, "as of 3", [3]), (5, 5.0, "as of 5", [5])]


def test_the_worst_moment_is_by_severity_then_known_partitions_then_magnitude_then_time() -> None:
    def worst(*moments: tuple[str, list[int] | None, float | None]) -> int | None:
        names = "snapshot_id finding_id kind client_id severity partitions magnitude"
        rows = [(m * MINUTE_MS, "f", "k", "c", *moment) for m, moment in enumerate(moments, 1)]
        (found,) = found_in(rows_of(FINDING_HISTORY, names, *rows))
        return minute(found.worst_at)

    assert worst(("warning", [0], 9.0), ("critical", None, None), ("info", [0], 9.0)) == 2
    assert worst(("warning", None, 9.0), ("warning", [0], 1.0)) == 2
    assert worst(("warning", [0], None), ("warning", [0], 1.0), ("warning", [0], 1.0)) == 2


def test_the_history_keeps_each_snapshot_with_a_problem(at_once: Kept) -> None:
    assert set(at_once.history) == set(ALWAYS)
    of_client = {m: [r for r in rows if r["client_id"] == "blocked"] for m, rows in at_once.history.items()}
    assert {m: [(r["topic"], r["summary"]) for r in rows] for m, rows in of_client.items() if rows} == {
        1: [(None, "as of 1")],
        2: [("t", "as of 2")],
        3: [("t", "as of 3")],
        4: [("u", "as of 4")],
        5: [(None, "as of 5")],
    }
    ids = [rows[0]["finding_id"] for m, rows in of_client.items() if m <= 5]
    assert ids == [identity("blocked", first, "blocked_connector") for first in (1, 1, 1, 4, 4)]
    assert {str(r["snapshot_date"]) for rows in at_once.history.values() for r in rows} == {"1970-01-01"}


def test_computing_in_batches_gives_the_same_findings_and_history(at_once: Kept) -> None:
    """Each batch is computed twice, as after a run that was killed before it had marked the batch."""
    kept = Kept()
    found, history = at_once.rows()
    everything = pa.Table.from_pylist(found, arrow_schema(FINDINGS.schema))
    for batch in ([1, 2, 3], [4], [5, 6], [7], range(8, 13)):
        kept.add(batch)
        then = kept.rows()
        kept.add(batch)
        assert kept.rows() == then
        at_ms = max(batch) * MINUTE_MS
        ids = lasting_at(everything, at_ms)["finding_id"].to_pylist()
        rows = [row for row in history if row["snapshot_id"] <= at_ms and row["finding_id"] in ids]
        seen = Rows(pa.Table.from_pylist(rows, arrow_schema(FINDING_HISTORY.schema)))
        assert sorted(findings_as_known(everything, seen, at_ms).to_pylist(), key=str) == then[0]
    assert kept.rows() == at_once.rows()


def test_history_that_was_removed_is_unknown() -> None:
    names = "finding_id kind client_id severity summary first_seen last_seen worst_at resolved_at"
    old = rows_of(
        FINDINGS,
        names,
        ("going", "blind_gauge", "a", "warning", "as of 9", at(1), at(9), at(9), None),
        ("over", "blind_gauge", "b", "warning", "as of 4", at(1), at(4), at(4), at(5)),
    )
    nothing = few_rows(FINDING_HISTORY, "kind")
    found = findings_as_known(old, nothing, 6 * MINUTE_MS).to_pylist()
    known = {row["finding_id"]: Found(**row) for row in found}
    going, over = known["going"], known["over"]
    assert (going.summary, going.severity) == ("blind_gauge of a: nothing was kept from that time.", None)
    assert (minute(going.last_seen), minute(over.last_seen), minute(over.resolved_at)) == (6, 4, 5)
    assert (over.summary, over.severity, minute(over.worst_at)) == ("as of 4", "warning", 4)
    going_on = rows_of(
        FINDING_HISTORY, "snapshot_id finding_id kind client_id", (10 * MINUTE_MS, "going", "blind_gauge", "a")
    )
    (later,) = found_in(going_on, KnownFindings(as_known(old.slice(0, 1).to_pylist())))
    assert (minute(later.first_seen), minute(later.last_seen), minute(later.worst_at)) == (1, 10, 9)


def identity(client: str, first: int, kind: str = "blind_gauge") -> str:
    of = f'"kind":"{kind}","cluster":"east","group_id":"g","client_id":"{client}","first_seen":{first * MINUTE_MS}'
    return sha256(f"{{{of}}}".encode()).hexdigest()


def owned(client: str, first: int, last: int, resolved: int | None) -> tuple[Any, ...]:
    ends = at(first), at(last), at(last), resolved and at(resolved)
    return identity(client, first), "blind_gauge", "g", client, "team", "1", "chat", *ends


def test_only_changed_findings_are_returned_and_owners_are_kept() -> None:
    """Minute 4 comes late, then 13. A finding seen at minute 9 must not be changed by minute 4."""
    known = [("owned", 1, 12, None), ("late", 5, 9, None), ("unseen", 5, 9, None), ("over", 1, 3, 4), ("gone", 1, 2, 3)]
    columns = "finding_id kind group_id client_id owner tier channel first_seen last_seen worst_at resolved_at"
    before = rows_of(FINDINGS, columns, *(owned(*of) for of in known))
    cases = [
        ("owned", "g", "blind_gauge", topics([4, 13]), [4, 13]),
        ("late", "g", "blind_gauge", topics([4]), [4]),
        ("unseen", "g", "blind_gauge", {}, [3, 4]),
        ("over", "g", "blind_gauge", topics([4]), [4]),
        ("gone", "g", "blind_gauge", topics([13]), [13]),
    ]
    past = KnownFindings(as_known(before.to_pylist()), others=reported_in([3, 4, 13], cases))
    history = finding_history(seen_in([4, 13], cases), past)
    rows = found_in(history, past)
    assert {r.finding_id: (r.client_id, minute(r.first_seen), minute(r.last_seen)) for r in rows} == {
        identity("owned", 1): ("owned", 1, 13),
        identity("gone", 13): ("gone", 13, 13),
    }
    assert {(r.client_id, r.owner, r.tier, r.channel) for r in rows} == {
        ("owned", "team", "1", "chat"),
        ("gone", None, None, None),
    }
    assert {(r["snapshot_id"] // MINUTE_MS, r["client_id"]) for r in history.to_pylist()} == {
        (4, "owned"),
        (13, "owned"),
        (13, "gone"),
    }


def test_each_process_with_a_client_id_has_findings_of_its_own() -> None:
    """The problem on pod-1 continues. The one on pod-2 has ended: the client still reports, but without it."""
    seen = [("pod-1", m) for m in ALWAYS] + [("pod-2", m) for m in (1, 2, 3)]
    rows = [problem(m, "slow_consumer", ("g", "shared", pod), None, 1.0, summary=pod) for pod, m in seen]
    past = KnownFindings(others=reported_in(ALWAYS, [("shared", "g", "slow_consumer", {}, ALWAYS)]))
    found = found_in(finding_history(pa.Table.from_pylist(rows), past), past)
    assert {
        (r.instance, r.summary, minute(r.first_seen), minute(r.last_seen), minute(r.resolved_at)) for r in found
    } == {
        ("pod-1", "pod-1", 1, 12, None),
        ("pod-2", "pod-2", 1, 3, 4),
    }
    assert len({r.finding_id for r in found}) == 2


GROUP_PROBLEMS = [
    # Minute, topic (None: several), partitions, magnitude.
    (1, "a", [0], 5.0),
    (2, None, None, 1e7),
    (3, "b", [0], 9.0),
]


def group_problems_in(minutes: Iterable[int]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            problem(m, "no_progress", ("g", None, None), topic, magnitude, partitions=of, severity="critical")
            for m, topic, of, magnitude in GROUP_PROBLEMS
            if m in minutes
        ]
    )


@pytest.mark.parametrize("batches", [[[1, 2, 3]], [[1], [2], [3]], [[1, 2], [3]]], ids=str)
def test_a_group_has_one_finding_whichever_of_its_topics_is_concerned(
    batches: list[list[int]],
) -> None:
    judged = {"group": [m * MINUTE_MS for m in (1, 2, 3)]}
    known: list[Found] = []
    for batch in batches:
        past = KnownFindings(as_known(map(vars, known)), judged)
        known = found_in(finding_history(group_problems_in(batch), past), past)
    (found,) = known
    times = [minute(getattr(found, name)) for name in ("first_seen", "last_seen", "worst_at", "resolved_at")]
    assert (times, found.topic, found.partitions, found.magnitude) == ([1, 3, 2, None], None, None, 1e7)


ENDS = [
    # What is judged after minute 1, and the minute in which the finding is resolved.
    ("always", range(1, 7), [], 2),
    ("not read", [1], [], None),
    ("read in partial snapshots", [1], [(m, True) for m in (3, 4, 5)], 3),
    ("with errors in complete ones", range(1, 7), [(m, False) for m in (2, 3, 4)], None),
    ("two are not enough", [1, 2, 3], [], None),
]


@pytest.mark.parametrize(("judged", "rows", "end"), [case[1:] for case in ENDS], ids=[case[0] for case in ENDS])
def test_a_finding_of_a_group_ends_where_the_group_was_read(
    judged: Iterable[int], rows: list[tuple[int, bool]], end: int | None
) -> None:
    others = {"group g": {m * MINUTE_MS: is_judged for m, is_judged in rows}}
    past = KnownFindings(whole={"group": [m * MINUTE_MS for m in judged]}, others=others)
    (found,) = found_in(finding_history(group_problems_in([1]), past), past)
    assert minute(found.resolved_at) == end
