"""The embedded Kafka and its workload, really started, and checked with Kafka's own tools."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    OffsetSpec,
    ResourcePattern,
    ResourceType,
)
from kafka.errors import GroupAuthorizationFailedError, KafkaError
from kafka.protocol.consumer import ListOffsetsRequest

from demo.embedded_kafka import watchdog
from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.children import Children
from demo.embedded_kafka.topics import create_topics
from demo.errors import BrokerError, InUseError, WorkloadError
from demo.workload import plan
from demo.workload.actors import Actor
from demo.workload.seeding import Seeding, commit_offsets, seed_offsets
from demo.workload.workload import Workload
from tests.helpers.kafka import wait_for

GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
# Replica ids, and the meaning of LATEST for them.
HIGH_WATERMARK, LOG_END = -1, -2


@pytest.fixture
def admin(kafka: EmbeddedKafka) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


@pytest.fixture
def producer3(kafka3: EmbeddedKafka) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=kafka3.bootstrap_servers, acks=1, enable_idempotence=False)
    yield producer
    producer.close(timeout=5)


def latest(admin: Any, partition: TopicPartition, leader: int, replica_id: int = HIGH_WATERMARK) -> int:
    """The leader's answer to LATEST for a reader with this replica id; kafka-python's public API has only -1."""
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    one = of_topic.ListOffsetsPartition(partition_index=partition.partition, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=replica_id, isolation_level=0, topics=[of_topic(name=partition.topic, partitions=[one])]
    )
    (answer,) = admin._manager.run(admin._manager.send, request, leader).topics[0].partitions
    assert answer.error_code == 0
    return int(answer.offset)


def write(producer: Any, partition: TopicPartition, records: int) -> None:
    sent = [producer.send(partition.topic, b"x", partition=partition.partition) for _ in range(records)]
    for future in sent:
        future.get(timeout=10)


# --- brokers


def test_one_broker_answers_and_keeps_its_logs_where_it_says(kafka: EmbeddedKafka, admin: Any) -> None:
    create_topics(admin, {"local-one": 2})
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    write(producer, TopicPartition("local-one", 1), records=3)
    producer.close()
    assert latest(admin, TopicPartition("local-one", 1), leader=1) == 3
    assert (kafka.log_dir(1) / "local-one-1" / f"{0:020}.log").stat().st_size > 0
    assert kafka.broker_ids == (1,)


def test_a_user_is_let_in_by_password_only_and_kept_from_a_group_by_an_acl(kafka: EmbeddedKafka, admin: Any) -> None:
    (user, password), *_ = kafka.users.items()
    commit_offsets(admin, "local-secret", {})
    group = ResourcePattern(ResourceType.GROUP, "local-secret")
    admin.create_acls([ACL(f"User:{user}", "*", ACLOperation.DESCRIBE, ACLPermissionType.DENY, group)])
    login = {
        "bootstrap_servers": kafka.sasl_bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
    }
    with KafkaAdminClient(**login, sasl_plain_password=password) as reader:
        assert reader.list_group_offsets(["local-open"]) == {"local-open": {}}
        with pytest.raises(GroupAuthorizationFailedError):
            reader.list_group_offsets(["local-secret"])
    with pytest.raises(KafkaError):
        KafkaAdminClient(**login, sasl_plain_password="wrong", bootstrap_timeout_ms=500)


def test_three_brokers_share_leaders_and_coordinators(admin3: Any) -> None:
    create_topics(admin3, {"local-spread": 6})
    for topic in admin3.describe_topics(["local-spread", "__consumer_offsets"]):
        assert {partition["leader_id"] for partition in topic["partitions"]} == {1, 2, 3}, topic["name"]
        assert all(len(partition["isr_nodes"]) == 3 for partition in topic["partitions"]), topic["name"]


def test_a_frozen_follower_holds_the_high_watermark_below_the_log_end(
    kafka3: EmbeddedKafka, admin3: Any, producer3: Any
) -> None:
    partition = TopicPartition("local-frozen", 0)
    admin3.create_topics({partition.topic: {"assignments": {0: [3, 2]}}}, wait_for_metadata=True)
    write(producer3, partition, records=5)
    wait_for(lambda: latest(admin3, partition, leader=3) == 5)
    kafka3.freeze(2)
    try:
        write(producer3, partition, records=4)
        assert latest(admin3, partition, leader=3) == 5
        assert latest(admin3, partition, leader=3, replica_id=LOG_END) == 9
    finally:
        kafka3.thaw(2)
    wait_for(lambda: latest(admin3, partition, leader=3) == 9)


def test_a_stopped_broker_hands_over_its_leaders_and_comes_back(
    kafka3: EmbeddedKafka, admin3: Any, producer3: Any
) -> None:
    partition = TopicPartition("local-stopped", 0)
    admin3.create_topics({partition.topic: {"assignments": {0: [2, 3]}}}, wait_for_metadata=True)
    write(producer3, partition, records=2)
    # Wait until the follower has the records, too: with acks=1, they may be lost if the leader changes at once.
    wait_for(lambda: latest(admin3, partition, leader=2) == 2)

    def described() -> Any:
        return admin3.describe_topics([partition.topic])[0]["partitions"][0]

    kafka3.stop(2)
    try:
        wait_for(lambda: described()["leader_id"] == 3)
        assert latest(admin3, partition, leader=3) == 2
    finally:
        kafka3.start(2)
    wait_for(lambda: sorted(described()["isr_nodes"]) == [2, 3])


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = EmbeddedKafka(tmp_path, properties={"num.io.threads": "-1"})
    with pytest.raises(BrokerError, match=r"num\.io\.threads"), broken:
        pass


# --- processes


def sleeper(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "import time; time.sleep(60)", *arguments]


def is_alive(pid: int) -> bool:
    """Whether a process is running, and is not a zombie that waits for its parent."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_children_are_gone_after_close_even_frozen_ones(tmp_path: Path) -> None:
    children = Children(tmp_path)
    processes = [children.start(sleeper(children.marker)) for _ in range(2)]
    processes[0].send_signal(signal.SIGSTOP)
    children.close()
    children.close()
    assert [process.returncode for process in processes] == [-signal.SIGKILL, -signal.SIGKILL]
    assert list((tmp_path / "pids").iterdir()) == []


def test_a_folder_in_use_is_refused_with_the_owners_pid(tmp_path: Path) -> None:
    children = Children(tmp_path)
    with pytest.raises(InUseError, match=f"process {os.getpid()} runs a Kafka"):
        Children(tmp_path)
    children.close()
    Children(tmp_path).close()


def test_leftovers_are_killed_only_if_they_are_provably_ours(tmp_path: Path) -> None:
    ours, strangers = (subprocess.Popen(sleeper(mark)) for mark in (f"-Dlaglake.home={tmp_path}", "other"))
    for process in (ours, strangers):  # the kernel shows a command line only some time after Popen has returned
        wait_for(Path(f"/proc/{process.pid}/cmdline").read_bytes)
    (tmp_path / "pids").mkdir()
    for process in (ours, strangers):
        (tmp_path / "pids" / str(process.pid)).touch()
    Children(tmp_path).close()
    try:
        assert not is_alive(ours.pid)
        assert is_alive(strangers.pid)
    finally:
        for process in (ours, strangers):
            process.kill()
            process.wait()


@contextmanager
def program(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """`python -m demo.serve`, up and announced."""
    (directory / "bootstrap-servers").unlink(missing_ok=True)  # left by a Kafka that was killed
    command = [sys.executable, "-m", "demo.serve", "--directory", str(directory), "--no-workload"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: (directory / "bootstrap-servers").exists() or process.poll() is not None, timeout_s=60)
        yield process
    finally:
        process.kill()
        process.communicate()


def broker_pids(directory: Path) -> list[int]:
    return [int(file.name) for file in (directory / "pids").iterdir()]


@pytest.mark.kafka
def test_brokers_die_with_a_killed_parent_and_a_new_start_ends_cleanly(tmp_path: Path) -> None:
    with program(tmp_path) as process:
        killed = broker_pids(tmp_path)
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(is_alive, killed)), timeout_s=5)
    with program(tmp_path) as process:
        started = broker_pids(tmp_path)
        assert started
        assert killed != started
        process.terminate()
        output, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (0, "")
    assert output.startswith("bootstrap servers: 127.0.0.1:")
    assert not any(map(is_alive, started))
    assert not (tmp_path / "bootstrap-servers").exists()


def test_without_proc_no_process_is_identified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert watchdog.is_ours(os.getpid(), "anything") is None


# --- the workload


Rows = list[dict[str, str]]


def described_groups(kafka: EmbeddedKafka) -> dict[str, Rows]:
    """Group → the output of ConsumerGroupCommand for each of its partitions, with its own column names."""
    arguments = ("--bootstrap-server", kafka.bootstrap_servers, "--describe", "--all-groups")
    finished = kafka.run_tool(GROUPS_TOOL, *arguments)
    assert finished.returncode == 0, finished.stderr
    groups: dict[str, Rows] = {}
    columns: list[str] = []
    for line in finished.stdout.splitlines():
        cells = line.split()
        if cells[:1] == ["GROUP"]:
            columns = cells
        elif cells and len(cells) == len(columns):
            row = dict(zip(columns, cells, strict=True))
            groups.setdefault(row["GROUP"], []).append(row)
    return groups


def column(rows: Rows, name: str) -> list[int]:
    return [int(row[name]) for row in sorted(rows, key=lambda row: (row["TOPIC"], int(row["PARTITION"])))]


def wait_for_a_rewind(admin: Any) -> None:
    """Waits until the group has committed a smaller offset than a moment before."""
    before = 0
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        committed = admin.list_group_offsets([plan.AUDIT_REWOUND])[plan.AUDIT_REWOUND]
        now = sum(offset.offset for offset in committed.values())
        if now < before:
            return
        before = now
        time.sleep(0.1)
    pytest.fail("audit-rewound did not go back")


@dataclass(frozen=True)
class Descriptions:
    """Two outputs of Kafka's own tool for the workload, a rewind apart, and the log starts of the archive then."""

    first: dict[str, Rows]
    second: dict[str, Rows]
    archive_starts: dict[int, int]


@pytest.fixture(scope="module")
def descriptions(kafka: EmbeddedKafka) -> Descriptions:
    archive = [TopicPartition("archive", partition) for partition in range(plan.ARCHIVE.partitions)]
    pace = plan.Pace(stop_after_s=2, rewind_every_s=4, truncate_every_s=1)
    with Workload(kafka, pace) as workload, KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        workload.wait_until_settled(timeout_s=60)
        first = described_groups(kafka)
        wait_for_a_rewind(admin)
        second = described_groups(kafka)
        starts = admin.list_partition_offsets(dict.fromkeys(archive, OffsetSpec.EARLIEST))
        workload.check()
        workload.stop()
    assert workload.errors() == {}
    return Descriptions(first, second, {partition.partition: start.offset for partition, start in starts.items()})


def test_every_group_of_the_plan_is_there(descriptions: Descriptions) -> None:
    assert set(plan.GROUPS) <= set(descriptions.first)


@pytest.mark.parametrize("group", [plan.CHECKOUT_HEALTHY, plan.ORDERS_KIP848])
def test_healthy_readers_keep_up(descriptions: Descriptions, group: str) -> None:
    three_seconds = plan.ORDERS.records_per_s / plan.ORDERS.partitions * 3
    assert max(column(descriptions.second[group], "LAG")) < three_seconds
    assert sum(column(descriptions.second[group], "CURRENT-OFFSET")) > sum(
        column(descriptions.first[group], "CURRENT-OFFSET")
    )


@pytest.mark.parametrize(("group", "members"), [(plan.CHECKOUT_HEALTHY, 2), (plan.ORDERS_KIP848, 1)])
def test_healthy_readers_share_the_topic_among_their_members(
    descriptions: Descriptions, group: str, members: int
) -> None:
    assert len({row["CLIENT-ID"] for row in descriptions.second[group]}) == members


def test_the_slow_reader_reads_on_and_falls_behind(descriptions: Descriptions) -> None:
    first, second = descriptions.first[plan.BILLING_SLOW], descriptions.second[plan.BILLING_SLOW]
    assert sum(column(second, "CURRENT-OFFSET")) > sum(column(first, "CURRENT-OFFSET"))
    assert sum(column(second, "LAG")) > sum(column(first, "LAG"))


@pytest.mark.parametrize("group", [plan.SEARCH_STOPPED, plan.ARCHIVE_TRUNCATED])
def test_stopped_readers_have_left_and_their_lag_grows(descriptions: Descriptions, group: str) -> None:
    first, second = descriptions.first[group], descriptions.second[group]
    assert {row["CONSUMER-ID"] for row in second} == {"-"}
    assert column(second, "CURRENT-OFFSET") == column(first, "CURRENT-OFFSET")
    assert min(column(second, "CURRENT-OFFSET")) > 0
    assert sum(column(second, "LAG")) > sum(column(first, "LAG"))


def test_the_archives_records_are_deleted_unread(descriptions: Descriptions) -> None:
    for row in descriptions.second[plan.ARCHIVE_TRUNCATED]:
        assert descriptions.archive_starts[int(row["PARTITION"])] > int(row["CURRENT-OFFSET"])


def test_the_read_committed_reader_waits_behind_the_open_transaction(descriptions: Descriptions) -> None:
    first, second = descriptions.first[plan.LEDGER_READ_COMMITTED], descriptions.second[plan.LEDGER_READ_COMMITTED]
    assert column(second, "CURRENT-OFFSET") == column(first, "CURRENT-OFFSET")
    assert min(column(second, "LAG")) > min(column(first, "LAG")) > 0
    assert {row["CLIENT-ID"] for row in second} == {"ledger-read-committed-1"}


def test_the_partial_reader_has_all_partitions_and_committed_one(descriptions: Descriptions) -> None:
    partial = descriptions.second[plan.PAYMENTS_PARTIAL]
    assert [row["CLIENT-ID"] for row in partial] == ["payments-partial-1"] * plan.PAYMENTS.partitions
    assert [row["PARTITION"] for row in partial if row["CURRENT-OFFSET"] != "-"] == ["0"]


def test_an_actors_failure_is_kept_and_named(kafka: EmbeddedKafka) -> None:
    class Broken(Actor):
        def act(self) -> None:
            raise RuntimeError("out of ideas")

    workload = Workload(kafka)
    workload._actors = [Broken("broken-1", kafka.bootstrap_servers)]
    workload.start()
    with pytest.raises(WorkloadError, match=r"broken-1: RuntimeError.*out of ideas"):
        workload.wait_until_settled(timeout_s=5)
    workload.stop()
    assert list(workload.errors()) == ["broken-1"]


# --- seeding


def test_seeded_lags_are_what_kafkas_own_tool_says(kafka: EmbeddedKafka) -> None:
    seeding = Seeding(groups=5, topics=2, partitions=7, records=3, prefix="local-seed")
    seed_offsets(kafka.bootstrap_servers, seeding)
    groups = described_groups(kafka)
    assert seeding.topic_partitions == {"local-seed-topic-0": 4, "local-seed-topic-1": 3}
    for number, group_id in enumerate(seeding.group_ids):
        lags = sorted(column(groups[group_id], "LAG"))
        assert lags == sorted(3 - offset for offset in seeding.committed(number).values())
