"""Lag while logs and commits move, on three brokers, compared with the journals of the applications.

`make accuracy ARGS=busy` does the same for longer. Each application is a separate process, and the truth at any instant
is between what it had requested by then and what had been acknowledged. No duration on this machine is asserted, except
that an answer is read within a second.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import busy
from benchmarks.busy_applications import Applications, Load
from benchmarks.busy_truth import Span, Truth
from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.lake import Lake
from pipeline.tables import COMMITTED_OFFSETS, WATERMARKS

pytestmark = [pytest.mark.lengthy, pytest.mark.timeout(1_800)]

# As busy as two cores allow beside everything else. Transactions are open for so long that both snapshots are hardly
# ever read between two of them.
LOAD = Load(orders="busy-orders", ledger="busy-ledger", records_per_s=300, behind_s=5.0)
SNAPSHOTS = 2
ANSWERED_S, STEP_S = 1.0, 0.05


@dataclass(frozen=True)
class Busy:
    """What laglake read about each reader, by its role, and the truth according to the journals."""

    lag: dict[str, list[Any]]
    commits: list[Any]
    ends: list[Any]
    prompt: Truth
    late: Truth
    ledger: Truth


@pytest.fixture(scope="module")
def seen(spark: SparkSession, kafka3: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Busy:
    folder = tmp_path_factory.mktemp("busy")
    names = {"groups": {"allow": ("busy-",)}, "topics": {"allow": ("^busy-",)}}
    settings = busy.config(folder, {"bootstrap_servers": tuple(kafka3.bootstrap_servers.split(",")), **names})
    busy.prepare(kafka3.bootstrap_servers, LOAD)
    with Applications(LOAD, kafka3.bootstrap_servers, folder / "journals") as applications:
        applications.wait_until_settled()
        for _ in range(SNAPSHOTS):
            busy.take(spark, settings)
        applications.check()
    lake = Lake(spark, settings.lake)
    return Busy(
        {role: busy.lag_rows(lake, group) for role, group in LOAD.groups.items()},
        read(lake, COMMITTED_OFFSETS, "ends_at"),
        read(lake, WATERMARKS, "captured_at"),
        Truth.of_orders(folder / "journals", "prompt"),
        Truth.of_orders(folder / "journals", "late"),
        Truth.of_ledger(folder / "journals"),
    )


def read(lake: Lake, table: Any, instant: str) -> list[Any]:
    """The rows about `orders` with `instant` in seconds since 1970."""
    rows = lake.frame(table).where(F.col("topic") == LOAD.orders)
    return rows.withColumn("instant", F.unix_micros(instant) / 1e6).collect()


def with_older_commit(age_ms: Callable[[int, float], Span], seconds: float) -> Callable[[int, float], Span]:
    """The age of the first unread record, according to the commit of `seconds` before."""
    return lambda partition, instant: Span(*(ms + 1000 * seconds for ms in age_ms(partition, instant - seconds)))


def lately(truth: Callable[[int, float], Span]) -> Callable[[int, float], Span]:
    """The truth at some instant within the last ANSWERED_S, because a busy machine reads an answer late."""
    steps = range(int(ANSWERED_S / STEP_S) + 1)

    def hull(partition: int, instant: float) -> Span:
        spans = [truth(partition, instant - STEP_S * step) for step in steps]
        return Span(min(one.low for one in spans), max(one.high for one in spans))

    return hull


def share(found: list[bool]) -> float:
    return sum(found) / len(found)


# --- the scenario


def test_every_reader_was_seen_in_every_snapshot(seen: Busy) -> None:
    rows = {role: len(found) for role, found in seen.lag.items()}
    orders, ledger = SNAPSHOTS * LOAD.partitions, SNAPSHOTS * LOAD.ledger_partitions
    assert rows == {"prompt": orders, "late": orders, "read-committed": ledger}


def test_the_journals_reveal_a_lag_from_an_older_commit(seen: Busy) -> None:
    """As if commits were read some seconds before the ends of the logs."""
    rows, truth = seen.lag["prompt"], seen.prompt

    def with_a_gap(partition: int, instant: float) -> Span:
        committed, end = truth.committed(partition, instant - 3), truth.high_watermark(partition, instant)
        return Span(end.low - committed.high, end.high - committed.low)

    apart = [with_a_gap(row["partition"], row["instant"]) for row in rows]
    true = [truth.consumer_lag(row["partition"], row["instant"]) for row in rows]
    assert share([one.meets(*other) for one, other in zip(apart, true, strict=True)]) < 0.1


# --- the reader that keeps up


def test_lag_is_true_within_its_stated_error_while_both_ends_move(seen: Busy) -> None:
    assert share(busy.covered(seen.lag["prompt"], "consumer_lag", lately(seen.prompt.consumer_lag))) >= 0.99
    assert share(busy.covered(seen.lag["late"], "consumer_lag", lately(seen.late.consumer_lag))) >= 0.99


def test_the_error_of_lag_is_small_beside_a_backlog_of_seconds(seen: Busy) -> None:
    parts = [row["consumer_lag_error"] / row["consumer_lag"] for row in seen.lag["late"]]
    assert min(parts) >= 0
    assert statistics.median(parts) < 0.5


def test_lag_is_never_negative_and_no_commit_is_beyond_the_end(seen: Busy) -> None:
    rows = seen.lag["prompt"] + seen.lag["late"]
    assert min(row["consumer_lag"] for row in rows) >= 0
    assert {row["offset_status"] for row in rows} == {"ok"}


def test_the_end_of_the_log_is_read_between_two_reads_of_the_commit(seen: Busy) -> None:
    for row in seen.commits:
        assert row["captured_at"] >= row["ends_at"]
        assert row["earlier_offset"] <= row["committed_offset"]
        assert row["last_stable_offset"] == row["high_watermark"]
        late = row["group_id"] == LOAD.groups["late"]
        truth = seen.late if late else seen.prompt
        # What was read by then: the upper bounds are those of that instant, the lower bounds may be older.
        assert row["high_watermark"] <= truth.high_watermark(row["partition"], row["instant"]).high
        assert row["earlier_offset"] <= truth.committed(row["partition"], row["instant"]).high
        assert row["committed_offset"] >= truth.committed(row["partition"], row["instant"]).low


# --- transactions and replicas


@pytest.mark.parametrize("lag", ["transaction_lag", "replication_lag"])
def test_without_open_transactions_and_with_all_replicated_these_lags_are_zero(seen: Busy, lag: str) -> None:
    assert share([row[lag] == 0 for row in seen.lag["prompt"]]) >= 0.9
    true = {"transaction_lag": lambda *_: Span(0, 0), "replication_lag": seen.prompt.replication_lag}[lag]
    assert all(busy.covered(seen.lag["prompt"], lag, lately(true)))


def test_an_open_transaction_hides_what_follows_its_first_record(seen: Busy) -> None:
    opened = busy.while_open(seen.lag["read-committed"], seen.ledger)
    assert opened
    assert [row["last_stable_offset"] for row, _ in opened] == [first for _, first in opened]
    rows = [row for row, _ in opened]
    assert min(row["transaction_lag"] for row in rows) > 0
    assert all(busy.covered(rows, "transaction_lag", busy.open_lag(seen.ledger)))


# --- time


def test_the_newest_timestamp_of_a_replicated_log_that_moves_is_known(seen: Busy) -> None:
    assert len(seen.ends) == SNAPSHOTS * LOAD.partitions
    for row in seen.ends:
        # It is read after the ends of the log, so it may belong to a record beyond them, but not to an older one.
        assert row["max_timestamp_ms"] is not None
        assert row["max_timestamp_offset"] >= seen.prompt.high_watermark(row["partition"], row["instant"]).low - 1


@pytest.mark.parametrize("lag", ["consumer_lag_ms", "consumer_age_ms"])
def test_time_lag_of_a_reader_that_waits_is_true_within_its_stated_error(seen: Busy, lag: str) -> None:
    rows, true = seen.lag["late"], lately(getattr(seen.late, lag))
    off_ms = busy.off(rows, lag, true)
    assert share([ms <= row["time_error_ms"] for ms, row in zip(off_ms, rows, strict=True)]) >= 0.99
    assert statistics.median(off_ms) <= 200
    # The journals would reveal a commit that was read two seconds before the end of its log.
    assert statistics.median(busy.off(rows, "consumer_age_ms", with_older_commit(seen.late.consumer_age_ms, 2))) > 1_000
