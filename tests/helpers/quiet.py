"""A quiet cluster: its records and commits are known and do not change, so that its lag is a literal."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from kafka import KafkaAdminClient, KafkaProducer

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.workload.seeding import commit_offsets
from pipeline.config import Config, load_config
from pipeline.lake import Lake
from pipeline.tables import LAG
from tests.helpers.stored import stored

RECORDS = 5
LAG_COLUMNS = ("group_id", "topic", "partition", "committed_offset", "high_watermark", "consumer_lag", "offset_status")


def seed(kafka: EmbeddedKafka, prefix: str) -> None:
    """Topic <prefix>-orders with 5 records in each of 2 partitions, and two groups that have committed there."""
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        topic = f"{prefix}-orders"
        create_topics(admin, {topic: 2})
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        for partition in (0, 1):
            for _ in range(RECORDS):
                producer.send(topic, b"x", partition=partition)
        producer.flush()
        producer.close()
        commit_offsets(admin, f"{prefix}-billing", {(topic, 0): 2, (topic, 1): 5})
        commit_offsets(admin, f"{prefix}-audit", {(topic, 1): 7})


def expected_lag(prefix: str) -> list[tuple[object, ...]]:
    """LAG_COLUMNS of one snapshot of what `seed` has created."""
    return [
        (f"{prefix}-audit", f"{prefix}-orders", 1, 7, 5, -2, "beyond_end"),
        (f"{prefix}-billing", f"{prefix}-orders", 0, 2, 5, 3, "ok"),
        (f"{prefix}-billing", f"{prefix}-orders", 1, 5, 5, 0, "ok"),
    ]


def lag_rows(lake: Lake, cluster: str, snapshot_id: int | None = None) -> list[tuple[object, ...]]:
    """LAG_COLUMNS of all lag rows of a cluster, or of one snapshot of it, sorted."""
    where = f"cluster = '{cluster}'" + ("" if snapshot_id is None else f" AND snapshot_id = {snapshot_id}")
    return sorted(tuple(row) for row in stored(lake, LAG, where, *LAG_COLUMNS))


def write_config(
    folder: Path, prefix: str, clusters: Mapping[str, str], snapshot: str = 'schedule = "1s"', client: str = ""
) -> Path:
    """A config file for clusters (name → bootstrap servers), of which only names that start with `prefix` are read.

    The lake is beside it. `snapshot` and `client` are lines of TOML.
    """
    tables = [f'[lake]\nroot = "{folder}/lake"\n[snapshot]\n{snapshot}\n']
    for name, servers in clusters.items():
        listed = ", ".join(f'"{server}"' for server in servers.split(","))
        tables.append(
            f"[clusters.{name}]\nbootstrap_servers = [{listed}]\n"
            f'groups = {{ allow = ["^{prefix}-"] }}\ntopics = {{ allow = ["^{prefix}-"] }}\n'
            f'limits = {{ connect_timeout = "20s" }}\n[clusters.{name}.client]\n{client}\n'
        )
    path = folder / "laglake.toml"
    # Atomically, because threads of a test may write and read the same file.
    unfinished = path.with_suffix(f".{uuid4().hex}")
    unfinished.write_text("".join(tables))
    return unfinished.replace(path)


def config(
    folder: Path, prefix: str, clusters: Mapping[str, str], snapshot: str = 'schedule = "1s"', client: str = ""
) -> Config:
    """The same config, loaded."""
    return load_config(write_config(folder, prefix, clusters, snapshot, client), {})
