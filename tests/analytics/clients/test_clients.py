"""To which groups the positions that clients report belong, and which of several positions count."""

from datetime import UTC, datetime
from types import SimpleNamespace as Reader
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.clients import reports
from pipeline.analytics.clients.clients import POSITION_PARTS, reader_positions
from pipeline.analytics.clients.instances import observed
from pipeline.analytics.clients.poll_loops import asking
from pipeline.common.rows import Rows
from pipeline.config.consumers import ConsumerSettings
from pipeline.tables import CLIENT_POSITIONS, COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, WATERMARKS
from tests.helpers.rows import few_rows

BEFORE, NOW = 60_000, 120_000
AT = datetime.fromtimestamp(NOW / 1000, UTC)
LATER = datetime.fromtimestamp(NOW / 1000 + 1, UTC)
JAVA, LIBRDKAFKA, LOG = "kafka_client_metrics", "librdkafka_statistics", "kafka_request_log"
COMMITTED, UNCOMMITTED = ({"isolation.level": f"read_{level}"} for level in ("committed", "uncommitted"))
SETTINGS = {
    name: ConsumerSettings.of_properties(said)
    for name, said in {
        "configured": {"group.id": "by-settings"},
        "newly-configured": {"group.id": "new"},
        "careful": COMMITTED,
        "careful-group": COMMITTED,
        "careless-in-it": UNCOMMITTED,
        "careless-rdkafka": UNCOMMITTED,
    }.items()
}
# Client, group, and the partition that is assigned to the client.
MEMBERS = [
    ("teller", "by-members", "teller", 0),
    ("configured", "by-members", "configured", 0),
    ("in-two", "first", "of-two", 0),
    ("in-two", "second", "of-two", 1),
    ("in-both", "first", "of-both", 0),
    ("in-both", "second", "of-both", 0),
    ("in-one", "the-one", "other", 2),
    ("idle", "the-idle", None, None),
]
# Of each partition of `of-…` and `dot.ted`, the client and the host of the member that has it.
HOLDERS = {
    ("of-holder", 0): ("holder", None),
    ("of-holder", 1): ("other", None),
    ("of-absent", 0): ("absent", None),
    ("of-absent", 1): ("present", None),
    ("of-alias", 0): ("keeper", None),
    ("of-alias", 1): ("keeper", None),
    ("of-host", 0): ("pods", "10.0.0.1"),
    ("of-host", 1): ("pods", "10.0.0.2"),
    ("of-several-hosts", 0): ("multihomed", "10.0.0.1"),
    ("dot.ted", 0): ("m-1", None),
    ("unclear", 0): ("n-1", None),
    ("unclear", 1): ("n.1", None),
    ("exact", 0): ("o_1", None),
    ("exact", 1): ("o-1", None),
    ("as-it-is", 0): ("q-1", None),
}
NAMESAKES = ("old-moving", "old-standing", "old-elsewhere", "old-new", "java")
JAVA_GROUPS = {"careful": "g", "careless": "g", "of-careful-group": "careful-group", "careless-in-it": "careful-group"}
# Log start, last stable offset and high watermark of each partition.
ENDS = {BEFORE: (0, 40, 40), NOW: (0, 40, 50)}
# Partitions whose log starts at 20 now, and those whose group has committed 30: now, and in some of them before.
DELETED = ("deleted", "deleted-while-paused", "deleted-while-buffered", "deleted-before")
COMMITTED_BEYOND = {"beyond": None, "beyond-buffered": None, "beyond-since": 10, "beyond-before": 25}


class Reports:
    """Rows of `client_positions`."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, client: str, topic: str | None = None, partition: int = 0, at: int = NOW, **values: Any) -> None:
        """Adds what a client reports about a partition, or if `topic` is None, about itself."""
        of_partition = {"topic": topic, "partition": None if topic is None else partition}
        as_of = datetime.fromtimestamp((at + values.pop("later_ms", 0)) / 1000, UTC)
        reported = {
            "snapshot_id": at,
            "as_of": as_of,
            "client_id": client,
            "source": JAVA,
            "endpoint": "http://app:9404",
        }
        self.rows.append(reported | of_partition | values)

    def add_old(self, client: str, at: int, requests: int) -> None:
        """Adds an old consumer, whose ConsumerLag is 10."""
        self.add(client, at=at, fetcher="b:9092", requests_total=requests, bytes_total=100 * requests)
        self.add(client, client, at=at, reported_lag=10)


def reported() -> list[dict[str, Any]]:
    reported = Reports()
    reported.add("teller", "teller", consumed_offset=30, group_id="by-itself")
    for client in ("configured", "in-one", "idle", "stranger", "java"):
        reported.add(client, client, consumed_offset=30)
    for partition in (0, 1, 2):
        reported.add("in-two", "of-two", partition, consumed_offset=30)
    reported.add("in-both", "of-both", consumed_offset=30)
    for at in (BEFORE, NOW):
        reported.add("newly-configured", "newly-configured", at=at, consumed_offset=30)
        reported.add_old("old-moving", at, requests=at)
        reported.add_old("old-standing", at, requests=1)
        reported.add_old("old-elsewhere", at, requests=1)
    reported.add_old("old-new", NOW, requests=1)
    two: dict[str, Any] = {"topic": "two-clients", "group_id": "g"}
    reported.add("b", **two, consumed_offset=25, fetched_offset=28, source=LIBRDKAFKA, reported_end=33)
    reported.add("a", **two, consumed_offset=27, later_ms=1, source=LOG)
    reported.add("c", **two, later_ms=2, source=LOG, is_paused=True)
    for topic, offsets in {"tied": (5, 6), "tied-too": (6, 5)}.items():
        for offset in offsets:
            reported.add("a", topic, group_id="g", consumed_offset=offset, endpoint=f"http://app:{offset}")
    for client, group in JAVA_GROUPS.items():
        reported.add(client, client, group_id=group, reported_lead=30, reported_lag=5)
    for client in ("rdkafka", "careless-rdkafka"):
        ends = {"reported_end": 47, "reported_stable_end": 38}
        reported.add(client, client, group_id="g", consumed_offset=30, source=LIBRDKAFKA, reported_lag=99, **ends)
    reported.add("rdkafka-new", "rdkafka-new", group_id="g", consumed_offset=30, source=LIBRDKAFKA, reported_lag=5)
    add_members_reports(reported)
    add_impossible_reports(reported)
    reported.add("unlisted", "unlisted", group_id="g", consumed_offset=30)
    reported.add("broken", "broken", group_id="g", consumed_offset=30, error="not a number")
    return reported.rows


def add_members_reports(reported: Reports) -> None:
    """Adds reports of members about partitions that they have or do not have, and names that agents have changed."""
    # A millisecond after the holder, another member of the group repeats what it had before it gave the partition away.
    reported.add("holder", "of-holder", consumed_offset=30)
    reported.add("other", "of-holder", later_ms=1, consumed_offset=10, fetched_offset=12)
    reported.add("present", "of-absent", consumed_offset=10)
    # A name that no member has may be another name of the holder.
    for partition in (0, 1):
        reported.add("alias", "of-alias", partition, later_ms=1, group_id="of-alias", consumed_offset=25)
    reported.add("keeper", "of-alias", 1, group_id="of-alias", consumed_offset=30)
    for host, later_ms, fetched in (("10.0.0.1", 0, 30), ("10.0.0.2", 1, 10)):
        reported.add("pods", "of-host", host=host, later_ms=later_ms, source=LOG, fetched_offset=fetched)
    reported.add("multihomed", "of-several-hosts", host="192.168.0.1", source=LOG, fetched_offset=30)
    reported.add("m_1", "dot_ted", reported_lead=30, reported_lag=5)
    reported.add("m-1", "dot.ted", fetched_offset=32, source=LOG)
    agents = {"endpoint": "http://pod:9404", "group_id": "g"}
    reported.add("two-agents", "two_agents", reported_lead=30, reported_lag=5, **agents)
    logged = {"endpoint": "/logs/broker-1", "source": LOG, "host": "10.0.0.9", "later_ms": 1}
    reported.add("two-agents", "two.agents", fetched_offset=32, **logged)
    for client, topic in {"n_1": "unclear", "o_1": "exact", "p_1": "invented"}.items():
        reported.add(client, topic, consumed_offset=30)
    reported.add("q_1", "as-it-is", fetched_offset=30, source=LOG)


def add_impossible_reports(reported: Reports) -> None:
    """Adds offsets below log start, and below commits of the group."""

    def add(name: str, consumed: int, fetched: int, at: int = NOW) -> None:
        reported.add(
            "c", name, at=at, group_id="g", source=LIBRDKAFKA, consumed_offset=consumed, fetched_offset=fetched
        )

    add("deleted", 10, 10)
    for at in (BEFORE, NOW):
        add("deleted-while-paused", 10, 10, at)
        add("deleted-before", 10, 10, at)
    add("deleted-while-buffered", 10, 35)
    for name in COMMITTED_BEYOND:
        for at in (BEFORE, NOW):
            add(name, 20, 35 if name == "beyond-buffered" else 20, at)


def lag_before() -> Rows:
    """What `lag` has of the snapshot before."""
    columns = (
        "snapshot_id group_id client_id topic partition log_start_offset last_stable_offset high_watermark "
        "committed_offset consumed_offset fetched_offset instance"
    )
    here, elsewhere = "http://app:9404", "http://elsewhere:9404"
    return few_rows(
        LAG,
        columns,
        *((BEFORE, c, c, c, 0, *ENDS[BEFORE], None, None, 30, here) for c in ("old-moving", "old-standing")),
        (BEFORE, "old-elsewhere", "old-elsewhere", "old-elsewhere", 0, *ENDS[BEFORE], None, None, 30, elsewhere),
        (BEFORE, "g", "c", "deleted-while-paused", 0, *ENDS[BEFORE], None, 10, None, here),
        (BEFORE, "g", "c", "deleted-before", 0, 20, 40, 40, None, None, None, here),
        *(
            (BEFORE, "g", "c", name, 0, *ENDS[BEFORE], committed, None, None, None)
            for name, committed in COMMITTED_BEYOND.items()
            if committed
        ),
    )


def known_rows() -> dict[str, Rows]:
    """What clients report, and what brokers and `lag` know of the partitions."""
    rows = reported()
    names = sorted({name for row in rows for name in row})
    partitions = {
        (r["topic"], r["partition"]) for r in rows if r["topic"] not in (None, "unlisted", "dot_ted", "two_agents")
    }
    start, stable, high = ENDS[NOW]
    watermarks = few_rows(
        WATERMARKS,
        "snapshot_id topic partition log_start_offset last_stable_offset high_watermark",
        *((NOW, *of_one, 20 if of_one[0] in DELETED else start, stable, high) for of_one in sorted(partitions)),
    )
    commits = few_rows(
        COMMITTED_OFFSETS,
        "snapshot_id group_id topic partition committed_offset captured_at",
        *((NOW, group, "other", 0, 1, None) for group in NAMESAKES),
        (NOW, None, None, None, None, None),
        (NOW, "g", "beyond", 0, 30, AT),
        *((NOW, "g", name, 0, 30, LATER) for name in COMMITTED_BEYOND if name != "beyond"),
    )
    members = few_rows(
        GROUP_MEMBERS,
        "snapshot_id client_id group_id topic partition host",
        *((NOW, *one, None) for one in MEMBERS),
        *((NOW, client, topic, topic, partition, host) for (topic, partition), (client, host) in HOLDERS.items()),
    )
    return {
        "positions": few_rows(CLIENT_POSITIONS, " ".join(names), *([row.get(n) for n in names] for row in rows)),
        "watermarks": watermarks,
        "commits": commits,
        "members": members,
        "before": lag_before(),
    }


@pytest.fixture(scope="module")
def readers() -> dict[tuple[str, int], Reader]:
    """The only reader of each topic and partition."""
    found = [Reader(**row) for row in reader_positions(known_rows(), (), SETTINGS).collected()]
    assert {r.snapshot_id for r in found} == {NOW}
    by_partition = {(r.topic, r.partition): r for r in found}
    assert len(by_partition) == len(found)
    return by_partition


def test_many_rows_have_the_same_positions_as_few(spark: SparkSession, readers: dict[tuple[str, int], Reader]) -> None:
    """Also if some tables have few rows: here, that of the members."""
    few = {name: rows.chosen(POSITION_PARTS[name]) for name, rows in known_rows().items()}
    many = {name: Rows(rows.frame(spark, POSITION_PARTS[name]).repartition(2)) for name, rows in few.items()}
    many["members"] = few["members"]
    found = [reader_positions(parts, [BEFORE, NOW], SETTINGS, 3).collected() for parts in (few, many)]
    by_driver, by_spark = (sorted(rows, key=str) for rows in found)
    assert {(r["topic"], r["partition"]) for r in by_driver} == readers.keys()
    assert by_driver == by_spark


def test_reports_that_are_joined_a_few_at_a_time_give_the_same_positions(
    readers: dict[tuple[str, int], Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million readers may have one client.id."""
    monkeypatch.setattr(reports, "MOST_ROWS", 10)
    found = [Reader(**row) for row in reader_positions(known_rows(), (), SETTINGS).collected()]
    assert {(r.topic, r.partition): r for r in found} == readers


def test_the_group_is_the_reported_one_whatever_members_say(readers: dict[tuple[str, int], Reader]) -> None:
    assert readers["teller", 0].group_id == "by-itself"


def test_without_a_reported_group_it_is_the_configured_one(readers: dict[tuple[str, int], Reader]) -> None:
    assert readers["configured", 0].group_id == "by-settings"


def test_without_a_configured_group_it_is_that_of_the_assigned_member(
    readers: dict[tuple[str, int], Reader],
) -> None:
    """The client id is used in two groups."""
    assert [readers["of-two", p].group_id for p in (0, 1)] == ["first", "second"]


def test_without_such_a_member_it_is_that_of_the_clients_members(
    readers: dict[tuple[str, int], Reader],
) -> None:
    """One member is assigned other partitions, and one none at all."""
    assert (readers["in-one", 0].group_id, readers["idle", 0].group_id) == ("the-one", "the-idle")


def test_otherwise_only_an_old_consumer_has_the_group_of_the_same_name(
    readers: dict[tuple[str, int], Reader],
) -> None:
    assert [readers[client, 0].group_id for client in ("old-moving", "old-standing")] == ["old-moving", "old-standing"]
    assert ("java", 0) not in readers


def test_ambiguous_and_unknown_groups_and_errors_are_left_out(readers: dict[tuple[str, int], Reader]) -> None:
    """A client id in two groups, of which neither or both have the partition; and a client that no broker knows."""
    assert not {("of-two", 2), ("of-both", 0), ("stranger", 0), ("broken", 0)} & readers.keys()


def test_a_partition_that_the_cluster_does_not_have_is_left_out(readers: dict[tuple[str, int], Reader]) -> None:
    """The partition may be denied by the configuration, deleted, or invented by the client."""
    assert ("unlisted", 0) not in readers


def test_a_group_that_becomes_known_does_not_change_earlier_snapshots(
    readers: dict[tuple[str, int], Reader],
) -> None:
    """The client also reported in the previous snapshot, but its `lag` was written without the client."""
    assert (readers["newly-configured", 0].group_id, readers["newly-configured", 0].snapshot_id) == ("new", NOW)


def test_of_two_clients_with_a_partition_the_newest_value_of_each_kind_counts(
    readers: dict[tuple[str, int], Reader],
) -> None:
    row = readers["two-clients", 0]
    # The last stable offset is 40, and the end that librdkafka knows is 33.
    assert (row.consumed_offset, row.fetched_offset, row.stale_lag, row.reported_client_id) == (27, 28, 7, "c")


def test_the_member_that_has_a_partition_is_its_reader_however_new_the_report_of_another_member_is(
    readers: dict[tuple[str, int], Reader],
) -> None:
    row = readers["of-holder", 0]
    assert (row.consumed_offset, row.fetched_offset, row.reported_client_id) == (30, None, "holder")


def test_what_a_member_reports_about_a_partition_of_another_member_is_not_its_position(
    readers: dict[tuple[str, int], Reader],
) -> None:
    """The member that has the partition does not report."""
    assert ("of-absent", 0) not in readers


def test_a_client_that_is_not_a_member_is_believed_if_the_member_does_not_report(
    readers: dict[tuple[str, int], Reader],
) -> None:
    """An agent's rule may give a client another name."""
    assert [readers["of-alias", p].consumed_offset for p in (0, 1)] == [25, 30]


def test_of_two_hosts_with_one_client_id_the_one_that_has_the_partition_counts(
    readers: dict[tuple[str, int], Reader],
) -> None:
    assert (readers["of-host", 0].fetched_offset, readers["of-host", 0].reported_instance) == (30, "10.0.0.1")
    # The address of a member is that of one connection; others may come from another address of its host.
    assert readers["of-several-hosts", 0].fetched_offset == 30


def test_names_that_an_agent_changed_are_those_of_the_member_and_topic_that_brokers_know(
    readers: dict[tuple[str, int], Reader],
) -> None:
    """Java writes dot_ted for dot.ted, and a rule that puts the client into a metric's name, m_1 for m-1."""
    row = readers["dot.ted", 0]
    assert (row.group_id, row.consumed_offset, row.fetched_offset, row.reported_client_id) == ("dot.ted", 30, 32, "m-1")
    assert ("dot_ted", 0) not in readers


def test_two_agents_of_one_process_may_write_a_topic_differently(readers: dict[tuple[str, int], Reader]) -> None:
    """A request log has the topic's own name, so its address belongs to the process that reports two_agents."""
    row = readers["two.agents", 0]
    assert (row.group_id, row.consumed_offset, row.fetched_offset) == ("g", 30, 32)
    assert row.reported_instance == "http://pod:9404"


def test_a_name_that_may_be_several_members_or_none_is_not_resolved(readers: dict[tuple[str, int], Reader]) -> None:
    assert not {("unclear", 0), ("unclear", 1), ("invented", 0)} & readers.keys()
    assert readers["exact", 0].reported_client_id == "o_1"
    # A request log has the client's own name, so it is another client.
    assert ("as-it-is", 0) not in readers


def test_an_offset_below_log_start_is_not_known_unless_nothing_was_read_since_it_was_deleted(
    readers: dict[tuple[str, int], Reader],
) -> None:
    offsets = {name: (readers[name, 0].consumed_offset, readers[name, 0].fetched_offset) for name in DELETED}
    assert offsets == {
        "deleted": (None, None),
        # A paused reader stands at a record that was deleted.
        "deleted-while-paused": (10, 10),
        # It hands out what it had fetched before.
        "deleted-while-buffered": (10, 35),
        # It was not known before that either.
        "deleted-before": (None, None),
    }


def test_an_offset_below_the_groups_commit_is_not_known_if_nothing_is_buffered_and_the_commit_was_there_before(
    readers: dict[tuple[str, int], Reader],
) -> None:
    """A client commits what it has read. Only a commit after its report may be ahead of it."""
    offsets = {name: readers[name, 0].consumed_offset for name in COMMITTED_BEYOND}
    assert offsets == {"beyond": None, "beyond-buffered": 20, "beyond-since": 20, "beyond-before": None}


def test_of_two_agents_at_one_instant_the_same_one_counts_in_any_order(
    readers: dict[tuple[str, int], Reader],
) -> None:
    first, second = (readers[topic, 0].consumed_offset for topic in ("tied", "tied-too"))
    assert first in (5, 6)
    assert first == second


def test_the_end_of_a_java_consumers_lag_depends_on_its_isolation_level(readers: dict[tuple[str, int], Reader]) -> None:
    """Position 30 + lag 5 = 35; the last stable offset is 40, the high watermark 50. The client's settings go first."""
    found = [(readers[c, 0].consumed_offset, readers[c, 0].stale_lag) for c in JAVA_GROUPS]
    assert found == [(30, 5), (30, 15), (30, 5), (30, 15)]


def test_librdkafka_reports_both_ends_and_is_read_committed_by_default(
    readers: dict[tuple[str, int], Reader],
) -> None:
    """It reports the ends 38 and 47; the last stable offset is 40, and the high watermark 50."""
    assert [readers[c, 0].stale_lag for c in ("rdkafka", "careless-rdkafka")] == [2, 3]


def test_librdkafkas_lag_is_not_added_to_its_position(readers: dict[tuple[str, int], Reader]) -> None:
    """The lag may count from the committed offset."""
    assert readers["rdkafka-new", 0].stale_lag is None


def test_while_an_old_consumer_fetches_its_lag_gives_the_fetched_offset(readers: dict[tuple[str, int], Reader]) -> None:
    """Its lag is 10, the end is 50. If its counters move, the lag counts to 50; if not, to 40, the end at that time."""
    moving, standing, new = (readers[c, 0] for c in ("old-moving", "old-standing", "old-new"))
    assert (moving.fetched_offset, moving.stale_lag, moving.consumed_offset) == (40, 0, None)
    assert (standing.fetched_offset, standing.stale_lag) == (30, 10)
    assert (new.fetched_offset, new.stale_lag) == (None, None)


def test_an_offset_of_another_process_is_not_carried_forward(readers: dict[tuple[str, int], Reader]) -> None:
    """Another process had the partition in the previous snapshot."""
    assert readers["old-elsewhere", 0].fetched_offset is None


def test_the_fetch_rate_depends_on_when_counters_were_read() -> None:
    """The first was read 50 s late, so 10 s are between them; if that time is not known, the scheduled minute."""
    read_ms = {"known": (BEFORE + 50_000, NOW), "unknown": (None, None), "the other way round": (NOW + 1, NOW)}
    rows = [
        (snapshot_id, ms and datetime.fromtimestamp(ms / 1000, UTC), client, requests, JAVA, "http://app:9404")
        for client, times in read_ms.items()
        for snapshot_id, ms, requests in zip((BEFORE, NOW), times, (100, 112), strict=True)
    ]
    names = "snapshot_id captured_at client_id requests_total source endpoint"
    found = asking(observed(few_rows(CLIENT_POSITIONS, names, *rows).collected_table())).to_pylist()
    by_client = {r["client_id"]: r["asked_per_s"] for r in found if r["snapshot_id"] == NOW}
    assert by_client == {"known": 1.2, "unknown": 0.2, "the other way round": None}
