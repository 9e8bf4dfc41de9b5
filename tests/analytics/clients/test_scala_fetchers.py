"""Blocked fetchers of old consumers, in recordings of three of its versions."""

from pathlib import Path
from types import SimpleNamespace as State
from typing import Any

import pytest

from pipeline.analytics.clients.instances import observed
from pipeline.analytics.clients.scala_fetchers import fetcher_states, growing_topics
from pipeline.client_positions.position import of_metrics
from pipeline.tables import CLIENT_POSITIONS, WATERMARKS
from tests.helpers.recordings import rounds, table, unpacked
from tests.helpers.rows import few_rows

POSITIONS = "snapshot_id client_id fetcher topic queue_chunks requests_total bytes_total endpoint"
ENDS = "snapshot_id topic high_watermark"
APP = "http://app:9404"
# When a topic's thread began to sleep for ever, by the application's own log; that topic, and the others.
ASLEEP = {
    "legacy-a2-blocked": (1795255108265, ["order.events"], ["mail_queue", "web-clicks"]),
    "legacy-a2-kafka-0.8.1.1": (1795256677405, ["hist.orders"], ["hist-clicks"]),
    "legacy-a2-kafka-1.1.1": (1795256542808, ["stock.levels"], ["cart-events"]),
}
SAMPLE_MS = 2_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


def states(folder: Path, recording: str, every: int = 1, first: int = 0) -> list[State]:
    """The states in every n-th round, from the first one on."""
    rows = unpacked(recording, folder)
    truth = table(rows / "truth.csv")
    positions, ends = [], []
    for at_ms, metrics, _ in list(rounds(rows))[first::every]:
        for p in of_metrics(metrics):
            counters = p.queue_chunks, p.requests_total, p.bytes_total
            positions.append((at_ms, p.client_id, p.fetcher, p.topic, *counters, APP))
        newest = max(int(r["ts"]) for r in truth if int(r["ts"]) <= at_ms)
        ends += [(at_ms, r["topic"], int(r["high_watermark"])) for r in truth if int(r["ts"]) == newest]
    return states_of(positions, ends)


def states_of(positions: list[tuple[Any, ...]], ends: list[tuple[Any, ...]]) -> list[State]:
    reported = observed(few_rows(CLIENT_POSITIONS, POSITIONS, *positions).collected_table())
    growing = growing_topics(few_rows(WATERMARKS, ENDS, *ends).collected_table())
    return [State(**row) for row in fetcher_states(reported, growing, {}).sort_by("snapshot_id").to_pylist()]


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("recording", ASLEEP)
def test_a_blocked_connector_is_seen_with_its_culprit_and_victims(folder: Path, recording: str, every: int) -> None:
    asleep_ms, culprits, victims = ASLEEP[recording]
    found = states(folder, recording, every)
    before = [row for row in found if row.snapshot_id <= asleep_ms]
    assert len(before) >= 2
    assert {row.state for row in before} <= {"fetching", "idle"}
    # The queue first takes two more chunks. Then two samples are needed; the first may be from just before.
    after = [row for row in found if row.snapshot_id > asleep_ms + (1 + 2 * every) * SAMPLE_MS]
    assert len(after) * every >= 15
    assert {(row.state, *row.culprits) for row in after} == {("blocked", *culprits)}
    assert {tuple(row.victims) for row in after} == {tuple(victims)}
    (since,) = {row.since_snapshot_id for row in after}
    assert asleep_ms < since <= asleep_ms + (1 + 2 * every) * SAMPLE_MS


def made(*rows: tuple[int, int, int, int, int]) -> list[tuple[str | None, list[str], list[str]]]:
    """The states of a client with topics a and b, from (requests, bytes, chunks of a, chunks of b, log end of both)."""
    positions: list[tuple[Any, ...]] = [(at, "c", "b:1", None, None, r, b, APP) for at, (r, b, *_) in enumerate(rows)]
    positions += [
        (at, "c", "0", t, row[2 + n], None, None, APP) for at, row in enumerate(rows) for n, t in enumerate("ab")
    ]
    ends = [(at, topic, row[4]) for at, row in enumerate(rows) for topic in "ab"]
    return [(r.state, r.culprits, r.victims) for r in states_of(positions, ends)]


def test_a_client_with_nothing_to_fetch_is_idle() -> None:
    assert made((1, 9, 0, 0, 5), (21, 9, 0, 0, 5)) == [("idle", [], [])]


def test_a_stopped_client_whose_logs_do_not_grow_has_no_state() -> None:
    assert made((1, 9, 0, 0, 5), (1, 9, 0, 0, 5)) == [(None, [], [])]


def test_a_slow_consumer_has_no_victims() -> None:
    assert made((1, 9, 2, 2, 5), (1, 9, 2, 2, 6)) == [("blocked", ["a", "b"], [])]


def test_a_restart_is_not_a_stall_and_recovery_shows_at_once() -> None:
    rows = [(9, 9, 0, 0, 5), (9, 9, 2, 0, 6), (9, 9, 2, 0, 7), (2, 4, 0, 0, 8), (8, 9, 0, 0, 9)]
    assert [state for state, _, _ in made(*rows)] == ["blocked", "blocked", "fetching", "fetching"]


def test_with_one_sample_a_minute_a_fetcher_is_blocked_after_a_minute_without_requests(folder: Path) -> None:
    """In the first minute, from 20 s on, it still fetched for half of the time; in the second minute it never did."""
    recording = "legacy-a2-blocked"
    _, culprits, victims = ASLEEP[recording]
    before, after = states(folder, recording, every=30, first=10)
    assert before.state == "fetching"
    assert (after.state, after.culprits, after.victims) == ("blocked", culprits, victims)
    assert after.since_snapshot_id == after.snapshot_id
