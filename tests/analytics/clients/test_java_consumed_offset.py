"""The positions of Java consumers from their lead, compared with the positions that the application itself printed."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace as Row
from typing import Any

import pyarrow as pa
import pytest

from pipeline.analytics.clients.java_consumed_offset import consumed_by_lead_sql
from pipeline.client_positions.position import TOO_LARGE, of_metrics
from pipeline.common.arrow_sql import arrow_queries
from pipeline.quality.rules import MAX_OFFSET
from tests.helpers.recordings import by_partition, rounds, table, unpacked

_LONGS = (
    *("reported_lag", "reported_lead", "committed_offset", "log_start_offset", "last_stable_offset", "high_watermark"),
    "known_consumed",
)
SCHEMA = pa.schema(
    {
        "cluster": pa.string(),
        "snapshot_id": pa.int64(),
        "client_id": pa.string(),
        "instance": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        **dict.fromkeys(_LONGS, pa.int64()),
        "stretch": pa.int64(),
    }
)
Values = tuple[Any, ...]
"""The values of the columns, but for the stretch: the snapshots are successive."""
CLIENTS = {"modern-b": "aggregator", "modern-b-slow": "worker-1"}
SECOND = 1_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


def consumed_by_lead(rows: Sequence[Values]) -> list[Row]:
    """The rows with the result for successive snapshots, in the order of time."""
    given = pa.Table.from_pylist([dict(zip(SCHEMA.names, (*row, 0), strict=True)) for row in rows], SCHEMA)
    with arrow_queries({"reports": given}) as queries:
        found = queries.rows(f"{consumed_by_lead_sql('reports')} ORDER BY snapshot_id")
    return [Row(**row) for row in found.to_pylist()]


def sampled(recording: Path, client: str, every: int) -> list[Values]:
    """What Jolokia reports in every n-th round, with what an independent client saw just before."""
    truth = by_partition(table(recording / "truth.csv"))
    rows = []
    for at_ms, metrics, _ in list(rounds(recording / client))[::every]:
        for p in of_metrics(metrics):
            if p.partition is not None and p.topic:
                now = next(r for r in reversed(truth[p.topic, p.partition]) if int(r["ts"]) <= at_ms)
                names = ("committed", "log_start", "last_stable_offset", "high_watermark")
                ends = [int(now[name]) if now[name] else None for name in names]
                reported = p.client_id, "app", p.topic, p.partition, p.reported_lag, p.reported_lead
                rows.append(("east", at_ms, *reported, *ends, None))
    return rows


@pytest.mark.parametrize("every", [1, 6])
@pytest.mark.parametrize("recording", CLIENTS)
def test_the_consumed_offset_is_the_position_of_the_application(folder: Path, recording: str, every: int) -> None:
    path = unpacked(recording, folder)
    positions = by_partition(table(path / CLIENTS[recording] / "positions.csv"))
    found = consumed_by_lead(sampled(path, CLIENTS[recording], every))
    reported, wrong = [], []
    for row in found:
        # The application prints from its poll loop, about every second; the agent takes a part of a second to answer.
        lines = positions[row.topic, row.partition]
        before = [int(r["position"]) for r in lines if int(r["ts"]) <= row.snapshot_id]
        after = [int(r["position"]) for r in lines if int(r["ts"]) >= row.snapshot_id + SECOND]
        if row.consumed_offset is not None and before and after:
            reported.append(row)
            if not before[-1] <= row.consumed_offset <= after[0]:
                wrong.append((row, before[-1], after[0]))
    assert len(found) >= 240 // every
    assert wrong == []
    assert len(reported) >= 0.97 * len([row for row in found if row.reported_lead is not None])


def test_a_paused_partition_does_not_use_the_current_log_start(folder: Path) -> None:
    rows = consumed_by_lead(sampled(unpacked("modern-b", folder), "aggregator", 1))
    while_paused = range(1795255778000, 1795255797001)
    paused = [r for r in rows if (r.topic, r.partition) == ("clicks", 0) and r.snapshot_id in while_paused]
    assert len(paused) >= 9
    assert {(row.log_start_offset, row.reported_lead, row.consumed_offset) for row in paused} == {(1200, 882, 882)}


def resolved(*rows: tuple[int, int | None, int, int]) -> list[int | None]:
    """The consumed offsets of one partition, from (snapshot, lead, lag, log start), in a log that ends at 200."""
    made = [("east", at, "c", "app", "t", 0, lag, lead, 90, start, 200, 200, None) for at, lead, lag, start in rows]
    return [row.consumed_offset for row in consumed_by_lead(made)]


def test_a_lead_from_before_or_after_a_deletion_gives_no_position() -> None:
    first, moved, clear, moved_again = (1, 50, 50, 100), (2, 60, 30, 110), (3, 70, 20, 110), (4, 70, 20, 150)
    assert resolved(first, moved, clear, moved_again) == [None, None, 180, 180]
    assert resolved((1, 50, 0, 0)) == [50]
    assert resolved((1, 50, 50, 100), (2, 50, 50, 100)) == [None, None]
    # Records fetched before a deletion are handed out after it: 110 + lead 90 + lag 10 is not the end of the log.
    assert resolved((1, 80, 20, 0), (2, 80, 20, 110), (3, 90, 10, 110)) == [80, 80, None]
    assert resolved((1, None, 0, 0), (2, 5, 0, 0)) == [None, 5]


def test_a_reader_whose_records_are_deleted_as_it_commits_them_moves() -> None:
    rows = [
        ("east", at, "c", "app", "t", 0, 0, 50, 10 * at, 10 * at, 50 + 10 * at, 50 + 10 * at, None) for at in range(4)
    ]
    found = consumed_by_lead(rows)
    assert [row.consumed_offset for row in found] == [50, None, None, None]


def test_the_largest_possible_numbers_give_a_position() -> None:
    """A metric may have any value, and an overflow would prevent the lag of the whole cluster."""
    most = TOO_LARGE - 1
    rows = [("east", at, "c", "app", "t", 0, most, most, 5, MAX_OFFSET, MAX_OFFSET, MAX_OFFSET, None) for at in (1, 2)]
    found = consumed_by_lead(rows)
    assert [row.consumed_offset for row in found] == [None, None]


def test_computing_snapshot_by_snapshot_gives_the_same_offsets(folder: Path) -> None:
    every = sampled(unpacked("modern-b", folder), "aggregator", 4)
    together = {(r.snapshot_id, r.topic, r.partition): r.consumed_offset for r in consumed_by_lead(every)}
    before: list[Values] = []
    found: dict[Values, int | None] = {}
    for instant in sorted({row[1] for row in every}):
        now = [row for row in every if row[1] == instant]
        offsets = {
            (r.topic, r.partition): r.consumed_offset
            for r in consumed_by_lead([*before, *now])
            if r.snapshot_id == instant
        }
        found |= {(instant, *of_one): offset for of_one, offset in offsets.items()}
        before = [(*row[:-1], offsets[row[4], row[5]]) for row in now]
    assert found == together
