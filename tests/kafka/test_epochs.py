"""Commits whose records were cut off from the log, as the leader epoch stored with them shows, on a real leader."""

from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.kafka.snapshot import SnapshotSource
from tests.helpers.kafka import Row, delete_groups, read, reassign

LOG = TopicPartition("ep-log", 0)
BEFORE, AFTER = 5, 7
"""How many records the first leader has written, and then the second one."""


def commit(admin: Any, group: str, offset: int, leader_epoch: int) -> None:
    admin.alter_group_offsets(group, {LOG: OffsetAndMetadata(offset, "", leader_epoch)})


def append(producer: Any, records: int) -> None:
    for _ in range(records):
        producer.send(LOG.topic, b"x", partition=0)
    producer.flush()


@pytest.fixture(scope="module")
def commits(kafka3: EmbeddedKafka) -> dict[str, Row]:
    """The row of each group. If a commit is beyond the end of its epoch, its records are gone."""
    with KafkaAdminClient(bootstrap_servers=kafka3.bootstrap_servers) as admin:
        admin.create_topics({LOG.topic: {"assignments": {0: [2]}}})
        # acks: a former leader that does not know yet that it is no longer leader must not confirm records.
        with KafkaProducer(bootstrap_servers=kafka3.bootstrap_servers, acks="all") as producer:
            append(producer, BEFORE)
            reassign(admin, LOG, [3])
            append(producer, AFTER)
        (partition,) = admin.describe_topics([LOG.topic])[0]["partitions"]
        epoch = partition["leader_epoch"]
        assert epoch > 0
        stored: dict[str, tuple[int, int]] = {
            "ep-within": (BEFORE - 1, 0),
            "ep-at-its-end": (BEFORE, 0),
            "ep-cut-off": (BEFORE + 1, 0),
            "ep-now": (BEFORE + AFTER, epoch),
            "ep-none": (BEFORE + AFTER, -1),
        }
        for group, (offset, leader_epoch) in stored.items():
            commit(admin, group, offset, leader_epoch)
        rows = read(SnapshotSource, kafka3.bootstrap_servers, topics_allow="^ep-", groups_allow="^ep-")
        delete_groups(admin, "ep-")
    return {row["group_id"]: row for row in rows if row["kind"] == "committed_offsets"}


def test_a_commit_has_the_end_offset_of_its_leader_epoch_if_that_epoch_has_ended(commits: dict[str, Row]) -> None:
    ends = {group: row["epoch_end_offset"] for group, row in commits.items()}
    assert ends == {
        "ep-within": BEFORE,
        "ep-at-its-end": BEFORE,
        "ep-cut-off": BEFORE,
        "ep-now": None,
        "ep-none": None,
    }


def test_the_ends_around_a_commit_are_still_read(commits: dict[str, Row]) -> None:
    assert {row["high_watermark"] for row in commits.values()} == {BEFORE + AFTER}
    assert all(row["earlier_offset"] == row["committed_offset"] and not row["error"] for row in commits.values())
