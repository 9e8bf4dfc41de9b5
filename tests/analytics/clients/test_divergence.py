"""MaxLag beside consumer lag: the example in the article on ConsumerFetcherManager's MaxLag, and invented cases."""

from datetime import UTC, datetime
from types import SimpleNamespace as Row
from typing import Any

import pytest

from pipeline.analytics.clients.clients import reader_positions
from pipeline.analytics.clients.divergence import client_divergence
from pipeline.analytics.clients.instances import observed, with_instance
from pipeline.analytics.lag.lag import LAG_PARTS, lag_of_readers
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows
from pipeline.config.consumers import ConsumerSettings
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    GROUP_MEMBERS,
    LAG,
    WATERMARKS,
)
from tests.helpers.rows import few_rows

# Partition: committed offset, log end.
TABLE = {0: (353, 8727), 1: (258, 8702), 2: (307, 8615)}
OFFSETS = [353, 258, 307]
MINUTE_MS = 60_000
POSITION = (
    "snapshot_id as_of client_id fetcher topic partition reported_lag queue_chunks requests_total bytes_total "
    "source endpoint"
)
COMMIT = "snapshot_id group_id topic partition committed_offset"
METRICS = "kafka_client_metrics"


class Snapshots:
    """Successive snapshots of an old consumer of group and client `mgroup`, a minute apart."""

    def __init__(self) -> None:
        self.positions: list[tuple[Any, ...]] = []
        self.commits: list[tuple[Any, ...]] = []
        self.ends: list[tuple[Any, ...]] = []

    def add(
        self, lags: list[int], requests: int, committed: list[int], ends: list[int], late_ms: int | None = None
    ) -> None:
        """Adds a snapshot: its gauges and the truth, by partition. It was read `late_ms` after its instant."""
        at = MINUTE_MS * (1 + len(self.ends) // 3)

        def position(fetcher: str | None, topic: str | None, partition: int | None, *values: Any) -> None:
            reported = (
                at,
                datetime.fromtimestamp(at / 1000, UTC),
                "mgroup",
                fetcher,
                topic,
                partition,
                *values,
                METRICS,
                "http://app:9404",
            )
            self.positions.append(reported)

        position("b:9092", None, None, None, None, requests, 100 * requests)
        position(None, None, None, max(lags), None, None, None)
        for partition, lag in enumerate(lags):
            position(None, "mtopic", partition, lag, None, None, None)
            position(str(partition), "mtopic", None, None, 1, None, None)
            self.commits.append((at, "mgroup", "mtopic", partition, committed[partition]))
            read_at = None if late_ms is None else datetime.fromtimestamp((at + late_ms) / 1000, UTC)
            self.ends.append((at, read_at, "mtopic", partition, 0, ends[partition]))

    def tables(self, clients: dict[str, ConsumerSettings]) -> tuple[list[Row], list[Row]]:
        """The rows of `lag`, and those of `client_divergence`, in order."""
        names = "snapshot_id captured_at topic partition log_start_offset high_watermark"
        bronze = {
            "commits": few_rows(COMMITTED_OFFSETS, COMMIT, *self.commits),
            "watermarks": few_rows(WATERMARKS, names, *self.ends),
            "members": few_rows(GROUP_MEMBERS, "group_id"),
        }
        positions, nothing = few_rows(CLIENT_POSITIONS, POSITION, *self.positions), few_rows(LAG, "group_id")
        readers = reader_positions({**bronze, "positions": positions, "before": nothing}, (), clients)
        rulers = Rows(arrow_schema(LAG_PARTS["rulers"]).empty_table())
        parts = {**bronze, "previous": nothing, "rulers": rulers, "reported": readers}
        lag = lag_of_readers(parts, {}).collected_table()
        reported = observed(positions.collected_table())
        before = few_rows(CLIENT_DIVERGENCE, "group_id").collected_table()
        divergence = client_divergence(reported, with_instance(lag, reported), before, clients)
        ordered = (rows.sort_by("snapshot_id").to_pylist() for rows in (lag, divergence))
        of_lag, of_clients = ([Row(**row) for row in rows] for rows in ordered)
        return of_lag, of_clients


@pytest.fixture
def snapshots() -> Snapshots:
    return Snapshots()


def lagging(lag: list[Row], at: int) -> dict[int, tuple[int | None, ...]]:
    """By partition: fetched offset, consumer lag, fetcher lag, divergence."""
    found = [row for row in lag if row.snapshot_id == MINUTE_MS * at]
    return {r.partition: (r.fetched_offset, r.consumer_lag, r.fetcher_lag, r.divergence) for r in found}


def test_the_example_of_the_article(snapshots: Snapshots) -> None:
    """With a tiny fetch.message.max.bytes, MaxLag is 8443 after a message of partition 1 was fetched."""
    ends = [end for _, end in TABLE.values()]
    snapshots.add([8374, 8444, 8308], 1, OFFSETS, ends)
    snapshots.add([8374, 8444, 8308], 2, OFFSETS, ends)
    snapshots.add([8374, 8443, 8308], 3, OFFSETS, ends)
    lag, divergence = snapshots.tables({})
    # At the first snapshot, it is not known whether the fetcher is working.
    assert lagging(lag, 1)[1] == (None, 8444, None, None)
    assert lagging(lag, 2) == {0: (353, 8374, 8374, 0), 1: (258, 8444, 8444, 0), 2: (307, 8308, 8308, 0)}
    assert lagging(lag, 3) == {0: (353, 8374, 8374, 0), 1: (259, 8444, 8443, 1), 2: (307, 8308, 8308, 0)}
    last = divergence[2]
    assert (last.group_id, last.max_lag, last.max_fetcher_lag, last.sum_fetcher_lag) == ("mgroup", 8443, 8443, 25125)
    assert (last.max_consumer_lag, last.sum_consumer_lag) == (8444, 25126)
    assert (last.max_divergence, last.sum_divergence, last.verdict) == (1, 1, "truthful")


def test_a_commit_beyond_the_end_of_one_partition_hides_no_lag_of_a_client(snapshots: Snapshots) -> None:
    ends = [end for _, end in TABLE.values()]
    for number in (1, 2):
        snapshots.add([0, 0, 0], number, [2**63 - 1, 258, 307], ends)
    last = snapshots.tables({})[1][-1]
    assert (last.sum_consumer_lag, last.sum_divergence) == (8444 + 8308, 8444 + 8308)


def test_with_default_buffers_max_lag_is_0_and_blind(snapshots: Snapshots) -> None:
    """All records in the example fit into one chunk, so everything is fetched, and there seems to be no lag."""
    ends = [end for _, end in TABLE.values()]
    for number in (1, 2, 3):
        snapshots.add([0, 0, 0], number, OFFSETS, ends)
    lag, rows = snapshots.tables({})
    assert lagging(lag, 3) == {0: (8727, 8374, 0, 8374), 1: (8702, 8444, 0, 8444), 2: (8615, 8308, 0, 8308)}
    assert [r.verdict for r in rows] == [None, "blind", "blind"]
    assert (rows[-1].max_lag, rows[-1].max_divergence, rows[-1].hidden_lag) == (0, 8444, 8444)
    assert rows[-1].since == rows[1].captured_at


def test_a_queue_hides_as_many_records_as_it_holds(snapshots: Snapshots) -> None:
    """Each fetch gets 25 records, 100 bytes, so 4 bytes per record: two chunks of 1,000 bytes hide 500 records."""
    for number in range(1, 8):
        fetched = 25 * number
        snapshots.add([900 - fetched, 900, 900], number, [fetched, 0, 0], [900, 900, 900])
    settings = ConsumerSettings.of_properties({"queued.max.message.chunks": 2, "fetch.message.max.bytes": 1_000})
    last = snapshots.tables({"mgroup": settings})[1][-1]
    assert (last.record_bytes, last.queue_records) == (4, 500)
    # It has three threads, because it has three queues.
    assert last.buffer_bound_bytes == 3 * 2 * 1_000
    assert last.heap_share is None
    with_heap = ConsumerSettings.of_properties(
        {"queued.max.message.chunks": 2, "fetch.message.max.bytes": 1_000, "heap_bytes": 8_000}
    )
    reported = snapshots.tables({"mgroup": with_heap})[1][-1]
    assert reported.heap_share == 0.75


def test_a_gauge_whose_counters_stand_still_is_stale_while_logs_grow(snapshots: Snapshots) -> None:
    for number, requests in enumerate((1, 2, 2, 2, 3)):
        snapshots.add([0, 0, 0], requests, [100, 100, 100], [100 + 10 * number] * 3)
    lag, divergence = snapshots.tables({})
    assert [r.verdict for r in divergence][2:4] == ["truthful", "stale"]
    # The fetched offset stays as it was at the last answer, and is at the end again at the next.
    assert [lagging(lag, at)[0][0] for at in (2, 3, 4, 5)] == [110, 110, 110, 140]


def test_late_commits_do_not_make_a_gauge_blind(snapshots: Snapshots) -> None:
    """There are ten records and one commit per minute, so up to twenty records may be read and not committed."""
    for number in range(1, 4):
        snapshots.add([0, 0, 0], number, [100 + 10 * number - 20] * 3, [100 + 10 * number] * 3)
    assert [r.verdict for r in snapshots.tables({})[1]][1:] == ["truthful"] * 2


def test_the_allowed_delay_of_commits_depends_on_when_snapshots_were_read(snapshots: Snapshots) -> None:
    """There are ten records in 20 s and one commit per minute, so up to forty may be read and not committed."""
    for number, late_ms in enumerate((40_000, 0), start=1):
        snapshots.add([0, 0, 0], number, [100 + 10 * number - 30] * 3, [100 + 10 * number] * 3, late_ms)
    assert [r.verdict for r in snapshots.tables({})[1]] == [None, "truthful"]
