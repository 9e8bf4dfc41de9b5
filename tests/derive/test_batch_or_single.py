"""A snapshot has the same derived rows, also about clients, whether it is computed alone or together with others."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import MINUTE_MS, utc, utc_date
from pipeline.config import LakeConfig
from pipeline.config.slo import SloConfig
from pipeline.derive import Settings, compute_cluster, steps
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import (
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    FORECASTS,
    GROUP_CHANGES,
    GROUP_MEMBERS,
    GROUP_STATUS,
    LAG,
    LAG_HISTOGRAMS,
    PARTITION_STATUS,
    SNAPSHOTS,
    WATERMARKS,
    Table,
)
from tests.conftest import ROOT
from tests.helpers.stored import store, stored

T0 = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
SNAPSHOTS_TAKEN = 6
TOPICS, PARTITIONS = 4, 9
KINDS = ("java", "scala", "librdkafka")
Rows = dict[Table, list[dict[str, Any]]]


class Reader:
    """A group's client in a partition, which sometimes does not move, jumps, is not reported, or does not commit."""

    def __init__(self, chance: random.Random, number: int) -> None:
        self.chance = chance
        self.kind = KINDS[number % len(KINDS)]
        self.group, self.client = f"g{number % 5}", f"{self.kind}-{number % 4}"
        self.topic, self.partition = f"t{number % TOPICS}", number % PARTITIONS
        self.start, self.end = chance.choice([0, 0, 500]), 1_000
        self.committed = self.position = self.start + chance.randint(0, 400)
        self.reported_end, self.reported_start = self.end, self.start
        self.requests = 10

    def rows(self, snapshot_id: int) -> Iterator[tuple[Table, dict[str, Any]]]:
        """What a snapshot reads about it."""
        self._move()
        chance, partition = self.chance, {"topic": self.topic, "partition": self.partition}
        read_at = utc(snapshot_id + chance.randint(0, 9_000))
        # The commit may be read after that of the next snapshot.
        committed_at = utc(snapshot_id + (90_000 if chance.random() < 0.1 else chance.randint(0, 9_000)))
        stable = self.end - chance.choice([0, 0, 2])
        ends = {"log_start_offset": self.start, "last_stable_offset": stable, "high_watermark": self.end}
        yield WATERMARKS, partition | ends | self._log(snapshot_id, read_at)
        later = chance.choice([0, 0, 4])
        own = {name: value + (later if name != "log_start_offset" else 0) for name, value in ends.items()}
        own = own | {"ends_at": read_at} if chance.random() < 0.7 else {}
        commit = {"group_id": self.group, "committed_offset": self.committed, "captured_at": committed_at}
        if chance.random() < 0.9:
            yield COMMITTED_OFFSETS, partition | commit | own
        if chance.random() < 0.9:
            member = {"group_id": self.group, "client_id": self.client, "member_id": self.client, "state": "Stable"}
            yield GROUP_MEMBERS, partition | member | {"host": "/10.0.0.1", "captured_at": read_at}
        if chance.random() < 0.85:
            yield from ((CLIENT_POSITIONS, row) for row in self._reported(partition, read_at))

    def _move(self) -> None:
        chance = self.chance
        self.end += chance.choice([0, 3, 50])
        if chance.random() < 0.2:
            self.start += chance.randint(0, 100)
        if chance.random() < 0.6:
            self.reported_start, self.reported_end = self.start, self.end - chance.choice([0, 0, 1, 5])
            self.position = min(self.reported_end, max(self.start, self.position + chance.randint(0, 60)))
            self.requests += chance.choice([0, 1, 7])
        if chance.random() < 0.6:
            self.committed = max(self.committed, self.position - chance.choice([0, 0, 10]))

    def _log(self, snapshot_id: int, read_at: datetime) -> dict[str, Any]:
        return {
            "topic_id": self.topic,
            "leader": 1,
            "log_end_offset": self.end,
            "high_watermark_after": self.end,
            "max_timestamp_ms": snapshot_id,
            "max_timestamp_offset": self.end - 1,
            "log_bytes": 100 * (self.end - self.start),
            "log_bytes_error": 0,
            "captured_at": read_at,
        }

    def _reported(self, partition: dict[str, Any], read_at: datetime) -> Iterator[dict[str, Any]]:
        said = {"client_id": self.client, "as_of": read_at, "captured_at": read_at}
        said |= {"source": "kafka_client_metrics", "endpoint": f"http://{self.client}:9404"}
        lag = self.reported_end - self.position
        if self.kind == "java":
            yield said | partition | {"reported_lag": lag, "reported_lead": self.position - self.reported_start}
        elif self.kind == "scala":
            yield said | partition | {"reported_lag": lag, "fetcher": "b:9092"}
            yield said | {"fetcher": "b:9092", "requests_total": self.requests, "bytes_total": 100 * self.requests}
        else:
            offsets = {"consumed_offset": self.position, "fetched_offset": self.position + 3}
            yield said | partition | offsets | {"source": "librdkafka_statistics", "reported_end": self.reported_end}


def a_history(seed: int) -> list[tuple[int, Rows]]:
    chance = random.Random(seed)
    readers = [Reader(chance, number) for number in range(TOPICS * PARTITIONS)]
    history = []
    for number in range(SNAPSHOTS_TAKEN):
        snapshot_id = T0 + number * MINUTE_MS
        rows: Rows = {}
        for reader in readers:
            for table, row in reader.rows(snapshot_id):
                rows.setdefault(table, []).append(row)
        seen: dict[tuple[str, int], dict[str, Any]] = {}
        for row in rows[WATERMARKS]:  # two readers may share a partition
            seen.setdefault((row["topic"], row["partition"]), row)
        rows[WATERMARKS] = list(seen.values())
        history.append((snapshot_id, rows))
    return history


def lake_of(spark: SparkSession, folder: Path, history: list[tuple[int, Rows]], status: dict[int, str]) -> Lake:
    lake = Lake(spark, LakeConfig(root=str(folder)))
    lake.prepare()
    landed: Rows = {}
    for snapshot_id, rows in history:
        of = {"cluster": "c", "snapshot_id": snapshot_id, "snapshot_date": utc_date(snapshot_id)}
        for table, found in rows.items():
            landed.setdefault(table, []).extend(of | row for row in found)
        counts = {table.name: len(found) for table, found in rows.items()}
        known = {"run_id": "r", "status": status.get(snapshot_id, "complete"), "rows": counts, "groups": 5}
        landed.setdefault(SNAPSHOTS, []).append(of | known)
    for table, found in landed.items():
        store(lake, table, found, of_snapshots("c", [snapshot_id for snapshot_id, _ in history]))
    return lake


def rows_of(lake: Lake, table: Table) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = [row.asDict(recursive=True) for row in stored(lake, table)]
    found = {tuple(row[name] for name in table.key): row for row in rows}
    assert len(found) == len(rows)
    return found


class Recorder:
    """Which tables each step has read and written."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.read: defaultdict[str, set[str]] = defaultdict(set)
        self.written: defaultdict[str, set[str]] = defaultdict(set)
        self._step: str | None = None
        for name, of_step in (("read", self.read), ("rows", self.read), ("commit", self.written)):
            patch.setattr(Lake, name, self._seen(getattr(Lake, name), of_step, lambda table, *_: [table]))
        patch.setattr(Lake, "query", self._seen(Lake.query, self.read, lambda _, *tables: tables))
        patch.setattr(steps, "compute_readers", self._within("readers", steps.compute_readers))
        within = (step._replace(run=self._within(name_of(step), step.run)) for step in steps.STEPS)
        patch.setattr(steps, "STEPS", tuple(within))

    def _within(self, step: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def running(*args: Any, **options: Any) -> Any:
            self._step = step
            try:
                return run(*args, **options)
            finally:
                self._step = None

        return running

    def _seen(
        self, method: Callable[..., Any], of_step: dict[str, set[str]], tables: Callable[..., Sequence[Table]]
    ) -> Callable[..., Any]:
        def seen(lake: Lake, *args: Any, **options: Any) -> Any:
            if self._step is not None:
                of_step[self._step] |= {table.name for table in tables(*args)}
            return method(lake, *args, **options)

        return seen


def name_of(step: steps.Step) -> str:
    return step.writes[0].name


@dataclass(frozen=True)
class Made:
    lakes: list[Lake]
    recorder: Recorder


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The derived tables of a history that is computed in one batch, and of one in batches of two snapshots."""
    history = a_history(seed=2)
    partial = {history[3][0]: "partial"}
    settings = Settings(slo={"fresh": SloConfig(groups=".*", objective="consumer_age_ms < 60000", target=0.99)})
    with for_few_rows(spark), pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(patch)
        lakes = [lake_of(spark, tmp_path_factory.mktemp(name), history, partial) for name in ("together", "singly")]
        for lake, most in zip(lakes, (None, 2), strict=True):
            compute_cluster(lake, "c", lambda: utc(T0 + 10 * MINUTE_MS), settings, most=most)
    return Made(lakes, recorder)


def test_each_step_reads_and_writes_the_tables_that_it_names(made: Made) -> None:
    for step in steps.STEPS:
        name = name_of(step)
        assert made.recorder.written[name] == {table.name for table in step.writes}, name
        assert made.recorder.read[name] <= {table.name for table in step.reads}, name
    assert made.recorder.read["readers"] <= {table.name for table in steps.READERS_READ}
    assert made.recorder.written["readers"] == set()


def test_each_step_comes_after_those_whose_rows_it_reads() -> None:
    derived = {table.name for step in steps.STEPS for table in step.writes}
    written: set[str] = set()
    for step in steps.STEPS:
        own = {table.name for table in step.writes}
        assert {table.name for table in step.reads} & derived <= written | own, own
        written |= own


def test_the_design_has_the_tables_of_each_step() -> None:
    lines = (ROOT / "docs" / "design-cost.md").read_text().splitlines()
    first = lines.index("  | writes | reads |") + 2
    expected = []
    for step in steps.STEPS:
        writes, reads = (", ".join(f"`{table.name}`" for table in tables) for tables in (step.writes, step.reads))
        expected.append(f"  | {writes} | {reads} |".replace("|  |", "| |"))
    end = next(number for number, line in enumerate(lines[first:], first) if not line.startswith("  |"))
    assert lines[first:end] == expected


def test_a_snapshot_has_the_same_rows_in_a_batch_and_alone(made: Made) -> None:
    lakes = made.lakes
    for table in (LAG, PARTITION_STATUS, GROUP_STATUS, FORECASTS, GROUP_CHANGES, LAG_HISTOGRAMS):
        together, singly = (rows_of(lake, table) for lake in lakes)
        assert together.keys() == singly.keys()
        different = {
            key: {name: (value, singly[key][name]) for name, value in row.items() if value != singly[key][name]}
            for key, row in together.items()
            if row != singly[key]
        }
        assert not different, (table.name, different)
    observed = [row["fetched_offset"] for row in rows_of(lakes[0], LAG).values() if row["consumed_offset"] is not None]
    assert len(observed) > 20
    assert len([offset for offset in observed if offset is not None]) > 5
