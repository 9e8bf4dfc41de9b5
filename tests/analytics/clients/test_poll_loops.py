"""Which partitions of a slow Java client count as paused, for simulated poll loops that pause some, or none."""

import random
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.analytics.clients.instances import observed, with_instance
from pipeline.analytics.clients.poll_loops import poll_states
from pipeline.tables import CLIENT_POSITIONS, LAG
from tests.helpers.rows import few_rows

SECOND_MS = 1_000
COSTLY_MS = 110
PAUSED_S = (30, 120)


@dataclass
class PollLoop:
    """A Java consumer: it hands out all it has of a partition, in order, before it fetches more from that partition."""

    rates: dict[str, float]
    """Records written per second, by topic (with one partition). `costly` takes COSTLY_MS per record, others 1 ms."""
    paused: frozenset[str] = frozenset()
    max_poll_records: int = 10
    chunk: int = 1_000
    read: dict[str, int] = field(default_factory=dict)
    buffered: deque[tuple[str, int]] = field(default_factory=deque)
    asked: int = 0
    now_ms: float = 0.0

    def end(self, topic: str, now_ms: float) -> int:
        return int(self.rates[topic] * now_ms / 1_000)

    def poll(self) -> None:
        """Fetches what is not buffered, hands out at most max.poll.records, asks for more, and works."""
        self._fetch()
        got: list[str] = []
        kept: list[tuple[str, int]] = []
        while self.buffered and len(got) < self.max_poll_records:
            topic, count = self.buffered.popleft()
            if self._is_paused(topic):
                kept.append((topic, count))
                continue
            taken = min(count, self.max_poll_records - len(got))
            got += [topic] * taken
            self.read[topic] = self.read.get(topic, 0) + taken
            if count > taken:
                self.buffered.appendleft((topic, count - taken))
        self.buffered.extend(kept)
        self._fetch()
        self.now_ms += sum(COSTLY_MS if topic == "costly" else 1 for topic in got) or 100

    def _is_paused(self, topic: str) -> bool:
        return topic in self.paused and PAUSED_S[0] <= self.now_ms / 1_000 < PAUSED_S[1]

    def _fetch(self) -> None:
        wanted = [t for t in self.rates if t not in dict(self.buffered) and not self._is_paused(t)]
        self.asked += bool(wanted)
        random.shuffle(wanted)
        for topic in wanted:
            count = min(self.chunk, self.end(topic, self.now_ms) - self.read.get(topic, 0))
            if count > 0:
                self.buffered.append((topic, count))


def states(loops: dict[str, PollLoop], sample_s: int) -> list[dict[str, Any]]:
    """`poll_states` of clients, sampled for three minutes."""
    positions: list[tuple[Any, ...]] = []
    lag: list[tuple[Any, ...]] = []
    for client, loop in loops.items():
        for at_ms in range(sample_s * SECOND_MS, 180 * SECOND_MS, sample_s * SECOND_MS):
            while loop.now_ms < at_ms:
                loop.poll()
            positions.append((at_ms, client, loop.asked // 50, "kafka_client_metrics", f"http://{client}:9404"))
            lag += [(at_ms, "g", client, t, 0, loop.read.get(t, 0), loop.end(t, at_ms)) for t in loop.rates]
    return states_of(positions, lag)


def states_of(positions: list[tuple[Any, ...]], lag: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    names = "as_of snapshot_id client_id requests_total source endpoint"
    rows = few_rows(CLIENT_POSITIONS, names, *((at(row[0]), *row) for row in positions))
    reported = observed(rows.collected_table())
    names = "captured_at snapshot_id group_id client_id topic partition consumed_offset high_watermark"
    readers = few_rows(LAG, names, *((at(row[0]), *row) for row in lag)).collected_table()
    found: list[dict[str, Any]] = poll_states(with_instance(readers, reported), reported).to_pylist()
    return found


def at(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def called_paused(loops: dict[str, PollLoop], sample_s: int) -> dict[str, set[str]]:
    rows = [row for row in states(loops, sample_s) if row["is_paused"]]
    return {client: {r["topic"] for r in rows if r["client_id"] == client} for client in loops}


@pytest.mark.parametrize("sample_s", [10, 15])
def test_a_partition_that_a_slow_client_skips_while_all_others_move_is_paused(sample_s: int) -> None:
    random.seed(1)
    rates = {"costly": 12.0, "light": 20.0, "kept": 15.0}
    few = {"max_poll_records": 10, "chunk": 20}
    loops = {
        "one": PollLoop(rates, frozenset({"kept"}), **few),
        "two": PollLoop(rates | {"also": 5.0}, frozenset({"kept", "also"}), **few),
        "with-an-idle-one": PollLoop(rates | {"idle": 0.0}, frozenset({"kept"}), **few),
        "none": PollLoop(rates, **few),
    }
    assert called_paused(loops, sample_s) == {
        "one": {"kept"},
        "two": {"kept", "also"},
        "with-an-idle-one": {"kept"},
        "none": set(),
    }


@pytest.mark.parametrize(("others", "paused"), [([10, 20, 30, 40], {"still"}), ([10, 20, 30, 30], set())])
def test_a_partition_is_paused_only_if_all_others_have_moved(others: list[int], paused: set[str]) -> None:
    """In the last case, one of the others has not moved: it waits, too, and is not paused."""
    read = {"costly": [10, 20, 30, 40], "light": [10, 20, 30, 40], "other": others, "still": [0, 0, 0, 0]}
    times = [number * 10 * SECOND_MS for number in range(1, 6)]
    positions = [(at_ms, "app", n, "kafka_client_metrics", "http://app:9404") for n, at_ms in enumerate(times)]
    lag = [
        (at_ms, "g", "app", topic, 0, consumed, 100 * n)
        for topic, later in read.items()
        for n, (at_ms, consumed) in enumerate(zip(times, [0, *later], strict=True), 1)
    ]
    found = [row for row in states_of(positions, lag) if row["is_paused"] and row["snapshot_id"] == times[-1]]
    assert {row["topic"] for row in found} == paused


@pytest.mark.parametrize("sample_s", [2, 10, 20])
def test_a_partition_that_waits_for_a_slow_topic_is_never_paused(sample_s: int) -> None:
    """However much is handed out at once, and however much of a slow topic is buffered."""
    random.seed(2)
    loops = {}
    for number in range(40):
        topics = ["costly", "light", "more", "other"][: random.choice([2, 3, 4])]
        rates = {topic: random.choice([2.0, 5.0, 20.0, 60.0]) for topic in topics}
        shape = {"max_poll_records": random.choice([1, 10, 100, 500]), "chunk": random.choice([5, 50, 400, 5_000])}
        loops[f"app-{number}"] = PollLoop(rates, **shape)
    assert {client: topics for client, topics in called_paused(loops, sample_s).items() if topics} == {}
