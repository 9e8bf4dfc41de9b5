"""Processes that share one client.id, such as Java's default, which is the same in every JVM, are judged separately."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from types import SimpleNamespace as Row
from typing import Any

import pytest

from pipeline.analytics.clients.clients import reader_positions
from pipeline.analytics.clients.divergence import client_divergence
from pipeline.analytics.clients.instances import observed, with_instance
from pipeline.analytics.clients.poll_loops import poll_states
from pipeline.analytics.clients.problems import problems
from pipeline.analytics.clients.scala_fetchers import fetcher_states, growing_topics
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
    Table,
)
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows

MINUTE_MS = 60_000
METRICS, LOG = "kafka_client_metrics", "kafka_request_log"
SETTINGS = {
    name: ConsumerSettings.of_properties({setting: wait_ms})
    for name, setting, wait_ms in (("batch", "fetch.max.wait.ms", 10_000), ("c-batch", "fetch.wait.max.ms", 10_000))
}


class Cluster:
    """Rows of bronze tables, snapshot by snapshot; each topic has the name of the group that reads it."""

    def __init__(self) -> None:
        self.rows: dict[Table, list[dict[str, Any]]] = {
            table: [] for table in (CLIENT_POSITIONS, COMMITTED_OFFSETS, WATERMARKS, GROUP_MEMBERS)
        }

    def report(self, at: int, client: str, endpoint: str, **values: Any) -> None:
        """Adds what an agent reports."""
        as_of = datetime.fromtimestamp(at / 1000, UTC)
        reported = {"snapshot_id": at, "as_of": as_of, "client_id": client, "endpoint": endpoint, "source": METRICS}
        self.rows[CLIENT_POSITIONS].append(reported | values)

    def reader(self, at: int, group: str, client: str, partition: int, end: int, host: str | None = None) -> None:
        """Adds a partition whose log begins at 0, and its reader, who commits nothing after the first record."""
        row = {"snapshot_id": at, "topic": group, "partition": partition}
        self.rows[WATERMARKS].append(row | {"log_start_offset": 0, "last_stable_offset": end, "high_watermark": end})
        self.rows[COMMITTED_OFFSETS].append(row | {"group_id": group, "committed_offset": 1})
        if host:
            member = {"group_id": group, "client_id": client, "member_id": f"{client}-{host}", "host": host}
            self.rows[GROUP_MEMBERS].append(row | member)

    def java(self, at: int, group: str, client: str, pod: str, partition: int, asked: int, read: int, end: int) -> None:
        """Adds a Java consumer, whose records-lag is as of the last records that arrived."""
        endpoint = f"http://{pod}:9404/metrics"
        self.report(at, client, endpoint, requests_total=asked, bytes_total=100 * asked)
        self.report(at, client, endpoint, topic=group, partition=partition, reported_lead=read, reported_lag=0)
        self.reader(at, group, client, partition, end, f"/{pod}")

    def few_rows(self, table: Table) -> Rows:
        rows = self.rows[table]
        names = sorted({name for row in rows for name in row})
        return few_rows(table, " ".join(names), *([row.get(n) for n in names] for row in rows))


def shared(cluster: Cluster) -> None:
    """Two pods of Java: the first has hardly asked, the second asks five times a second and keeps up."""
    for m in range(1, 5):
        cluster.java(m * MINUTE_MS, "app", "consumer-app-1", "pod-1", 0, asked=m, read=50, end=100 * m)
        cluster.java(m * MINUTE_MS, "app", "consumer-app-1", "pod-2", 1, asked=300 * m, read=100 * m, end=100 * m)


def paused(cluster: Cluster) -> None:
    """The first pod keeps asking, but reads nothing from one of its partitions; the second pod has no problem."""
    for m in range(1, 5):
        at = m * MINUTE_MS
        for partition, read in ((0, 50), (1, 100 * m)):
            cluster.java(at, "halved", "consumer-halved-1", "pod-1", partition, 300 * m, read, end=100 * m)
        cluster.java(at, "halved", "consumer-halved-1", "pod-2", 2, asked=300 * m, read=100 * m, end=100 * m)


def old(cluster: Cluster) -> None:
    """Two processes of the old consumer, whose client.id is the group. One waits for a topic whose queue is full."""
    for m in range(1, 5):
        at = m * MINUTE_MS
        for pod, partition, requests, chunks in (("old-1", 0, 1, 2), ("old-2", 1, 100 * m, 0)):
            endpoint = f"http://{pod}:7071/metrics"
            cluster.report(at, "mirror", endpoint, fetcher="b:9092", requests_total=requests, bytes_total=requests)
            cluster.report(at, "mirror", endpoint, topic="mirror", fetcher="0", queue_chunks=chunks)
            cluster.report(at, "mirror", endpoint, topic="mirror", partition=partition, reported_lag=5)
            cluster.reader(at, "mirror", "mirror", partition, end=100 * m)


def grouped(cluster: Cluster) -> None:
    """librdkafka's default name, in two groups that read the same topic: each process reports its own group."""
    for m in range(1, 5):
        at = m * MINUTE_MS
        cluster.reader(at, "first", "rdkafka", 0, end=100 * m)
        cluster.rows[COMMITTED_OFFSETS].append(
            {"snapshot_id": at, "group_id": "second", "topic": "first", "partition": 0, "committed_offset": 1}
        )
        for group, read in (("first", 10 * m), ("second", 100 * m)):
            endpoint = f"/var/log/{group}.jsonl"
            cluster.report(at, "rdkafka", endpoint, group_id=group, topic="first", partition=0, consumed_offset=read)


def logged(cluster: Cluster) -> None:
    """One pod reports its position. Two brokers' request logs show what it and another pod have asked for."""
    for m in range(1, 5):
        at = m * MINUTE_MS
        for broker in (1, 2):
            file = f"/logs/broker-{broker}"
            for pod, requests in (("10.0.0.1", m), ("10.0.0.2", 200 * m)):
                cluster.report(at, "py", file, source=LOG, host=pod, requests_total=requests, bytes_total=requests)
        for pod, partition, read in (("10.0.0.1", 0, 50), ("10.0.0.2", 1, 100 * m)):
            fetched = {"topic": "python", "partition": partition, "fetched_offset": read}
            cluster.report(at, "py", f"/logs/broker-{1 + partition}", source=LOG, host=pod, **fetched)
            cluster.reader(at, "python", "py", partition, end=100 * m, host=f"/{pod}")
        reported = {"topic": "python", "partition": 0, "consumed_offset": 50}
        cluster.report(at, "py", f"/var/log/py.jsonl{'.1' if m == 2 else ''}", **reported)


def two_agents_of_one_process(cluster: Cluster) -> None:
    """A process with two agents, one of which does not report one of its partitions yet."""
    for m in range(1, 5):
        at = m * MINUTE_MS
        for agent, partitions in ((":8778/jolokia", (0, 1)), (":9404/metrics", (0,))):
            endpoint = f"http://both{agent}"
            cluster.report(at, "twice", endpoint, requests_total=m, bytes_total=m)
            for partition in partitions:
                cluster.report(at, "twice", endpoint, topic="twice", partition=partition, consumed_offset=50)
        for partition in (0, 1):
            cluster.reader(at, "twice", "twice", partition, end=100 * m, host="/both")


def batches(cluster: Cluster) -> None:
    """Readers that ask every ten seconds, and then get everything, so that some records are unread at each snapshot."""
    for client in ("batch", "c-batch", "batch-of-unknown-wait"):
        for m in range(1, 6):
            # Fewer records are written than before, so the unread ones may be more than were written since.
            read, end = 100 * m - 20 - 10 * m, 100 * m
            cluster.java(m * MINUTE_MS, client, client, client, 0, asked=6 * m, read=read, end=end)
    for m in range(1, 6):
        cluster.java(m * MINUTE_MS, "stuck", "batch", "stuck", 0, asked=1, read=50, end=100 * m)


def one_of_two_groups_reported(cluster: Cluster) -> None:
    """A client.id in two groups: one's process reports that it keeps up; nothing is known about the other's."""
    for m in range(1, 5):
        at = m * MINUTE_MS
        cluster.report(at, "common", "http://reported:9404/metrics", group_id="reported", reported_lag=0)
        for group in ("reported", "unreported"):
            cluster.reader(at, group, "common", 0, end=100_000 * m, host=f"/{group}")


def read_twice(cluster: Cluster) -> None:
    """An old consumer whose metrics are written every other minute, so that each report is read twice."""
    for m in range(1, 7):
        at, written = m * MINUTE_MS, (m + 1) // 2
        text = {"captured_at": datetime.fromtimestamp(written * 2 * MINUTE_MS / 1000, UTC)}
        endpoint = "/metrics/seldom.prom"
        counters = {"requests_total": 100 * written, "bytes_total": 100 * written}
        cluster.report(at, "seldom", endpoint, fetcher="b:9092", **counters, **text)
        cluster.report(at, "seldom", endpoint, topic="seldom", fetcher="0", queue_chunks=0, **text)
        cluster.report(at, "seldom", endpoint, topic="seldom", partition=0, reported_lag=5, **text)
        cluster.reader(at, "seldom", "seldom", 0, end=100 * m)


def left_behind(cluster: Cluster) -> None:
    """An old consumer that fetches from one broker, and still has the counters of another broker that it has left."""
    for m in range(1, 5):
        at, endpoint = m * MINUTE_MS, "http://moved:7071/metrics"
        for broker, requests in (("b1:9092", 900), ("b2:9092", 100 * m)):
            cluster.report(at, "moved", endpoint, fetcher=broker, requests_total=requests, bytes_total=requests)
        cluster.report(at, "moved", endpoint, topic="moved", fetcher="0", queue_chunks=0)
        cluster.report(at, "moved", endpoint, topic="moved", partition=0, reported_lag=5)
        cluster.reader(at, "moved", "moved", 0, end=100 * m)


CASES: tuple[Callable[[Cluster], None], ...] = (
    shared,
    paused,
    old,
    grouped,
    logged,
    two_agents_of_one_process,
    batches,
    one_of_two_groups_reported,
    read_twice,
    left_behind,
)
Found = dict[str, list[Row]]


@pytest.fixture(scope="module")
def found() -> Found:
    """The rows for all cases, by table."""
    cluster = Cluster()
    for case in CASES:
        case(cluster)
    names = {"commits": COMMITTED_OFFSETS, "watermarks": WATERMARKS, "members": GROUP_MEMBERS}
    bronze = {name: cluster.few_rows(table) for name, table in names.items()}
    positions, nothing = cluster.few_rows(CLIENT_POSITIONS), few_rows(LAG, "group_id")
    readers = reader_positions({**bronze, "positions": positions, "before": nothing}, (), SETTINGS)
    rulers = Rows(arrow_schema(LAG_PARTS["rulers"]).empty_table())
    lag = lag_of_readers({**bronze, "previous": nothing, "rulers": rulers, "reported": readers}, {}).collected_table()
    reported = observed(positions.collected_table())
    of_process = with_instance(lag, reported)
    before = few_rows(CLIENT_DIVERGENCE, "group_id").collected_table()
    divergence = client_divergence(reported, of_process, before, SETTINGS)
    fetchers = fetcher_states(reported, growing_topics(bronze["watermarks"].collected_table()), SETTINGS)
    wrong = problems(divergence, fetchers, poll_states(of_process, reported, SETTINGS), of_process)
    found = {"lag": lag.to_pylist(), "divergence": divergence.to_pylist(), "problems": worded_rows(wrong)}
    return {name: [Row(**row) for row in rows] for name, rows in found.items()}


def wrong(found: Found, group: str, *kinds: str) -> set[tuple[str, str]]:
    """The problems of a group's processes in the last snapshot: kinds and instances."""
    rows = [r for r in found["problems"] if r.group_id == group and (not kinds or r.kind in kinds)]
    last = max((r.snapshot_id for r in rows), default=0)
    return {(r.kind, r.instance) for r in rows if r.snapshot_id == last}


def of_group(rows: Iterable[Row], group: str) -> list[Row]:
    return [r for r in rows if r.group_id == group]


def test_of_two_pods_only_the_stuck_one_is_slow(found: Found) -> None:
    assert wrong(found, "app", "slow_consumer", "paused_partition") == {("slow_consumer", "http://pod-1:9404/metrics")}
    (row,) = [r for r in of_group(found["problems"], "app") if r.kind == "slow_consumer" and r.snapshot_id == 240_000]
    assert row.summary.startswith("consumer-app-1 at http://pod-1:9404/metrics hardly asks for records any more")
    assert '"hosts":["/pod-1"]' in row.evidence
    assert '"records_waiting":350' in row.evidence


def test_the_gauge_of_each_pod_has_its_own_verdict(found: Found) -> None:
    rows = of_group(found["divergence"], "app")
    assert {(r.instance, r.max_consumer_lag, r.verdict) for r in rows if r.snapshot_id == 240_000} == {
        ("http://pod-1:9404/metrics", 399, "blind"),
        ("http://pod-2:9404/metrics", 399, "truthful"),
    }


def test_a_paused_partition_belongs_to_the_pod_that_fetches_other_partitions(found: Found) -> None:
    assert wrong(found, "halved", "slow_consumer", "paused_partition") == {
        ("paused_partition", "http://pod-1:9404/metrics")
    }


def test_one_of_two_old_consumers_is_blocked(found: Found) -> None:
    assert wrong(found, "mirror", "blocked_connector") == {("blocked_connector", "http://old-1:7071/metrics")}
    (row,) = [r for r in of_group(found["problems"], "mirror") if r.snapshot_id == 240_000 and "blocked" in r.kind]
    assert (row.topic, row.partitions) == ("mirror", [0])
    assert row.summary.startswith("The fetcher of mirror at http://old-1:7071/metrics waits for mirror")


def test_processes_with_one_client_id_in_two_groups_have_their_own_positions(found: Found) -> None:
    last = [r for r in found["lag"] if r.topic == "first" and r.snapshot_id == 240_000]
    assert {(r.group_id, r.instance, r.consumed_offset) for r in last} == {
        ("first", "/var/log/first.jsonl", 40),
        ("second", "/var/log/second.jsonl", 400),
    }


def test_requests_of_all_brokers_logs_count_for_the_process_at_their_address(found: Found) -> None:
    """The process's agent reports no counters. A file that was rolled over belongs to the same process."""
    assert {(r.partition, r.instance) for r in of_group(found["lag"], "python")} == {
        (0, "/var/log/py.jsonl"),
        (1, "10.0.0.2"),
    }
    assert wrong(found, "python", "slow_consumer", "paused_partition") == {("slow_consumer", "/var/log/py.jsonl")}


def test_two_agents_of_one_process_make_one_finding(found: Found) -> None:
    assert wrong(found, "twice", "slow_consumer") == {("slow_consumer", "http://both:8778/jolokia")}
    assert len([r for r in of_group(found["divergence"], "twice") if r.snapshot_id == 240_000]) == 1


def test_a_process_is_not_judged_by_the_lag_of_another_one_with_its_name(found: Found) -> None:
    assert {r.instance for r in of_group(found["divergence"], "reported")} == {"http://reported:9404/metrics"}
    assert of_group(found["divergence"], "unreported") == []
    assert wrong(found, "unreported") == set()


def test_a_counter_read_twice_from_one_report_has_not_stood_still(found: Found) -> None:
    assert wrong(found, "seldom", "blocked_connector") == set()
    assert {r.verdict for r in of_group(found["divergence"], "seldom")}.isdisjoint({"stale"})


def test_a_fetcher_that_has_ended_is_not_blocked(found: Found) -> None:
    assert wrong(found, "moved", "blocked_connector") == set()


def test_a_reader_that_asks_every_ten_seconds_is_not_slow_while_it_reads_all(found: Found) -> None:
    for group in ("batch", "c-batch", "batch-of-unknown-wait"):
        assert wrong(found, group, "slow_consumer") == set()


def test_a_reader_that_stops_is_slow_however_long_its_fetches_may_wait(found: Found) -> None:
    assert wrong(found, "stuck", "slow_consumer") == {("slow_consumer", "http://stuck:9404/metrics")}
