"""Whether a run would succeed: can each cluster be reached, is what a snapshot asks allowed, can the lake be written?

It asks the brokers as a snapshot does, from this machine; executors elsewhere may reach others. No Spark is needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from kafka.admin import ACLOperation
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

from pipeline.config import ClusterConfig, LakeConfig
from pipeline.errors import ClusterError
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.failures import Failure
from pipeline.kafka.group_members import read_members
from pipeline.kafka.groups import ListedGroup, list_groups
from pipeline.kafka.options import SourceOptions

GROUPS_TRIED = 500


class Check(NamedTuple):
    """One thing that was looked at. `is_right` is None where it cannot be known; `todo`: what makes it right."""

    is_right: bool | None
    what: str
    todo: str | None = None


def check_cluster(cluster: ClusterConfig) -> Iterator[Check]:
    """Connect and log in, then try what a snapshot asks."""
    options = SourceOptions.parse(cluster.source_options())
    try:
        with KafkaClient(options) as client:
            yield from _check_client(client, cluster)
    except ClusterError as error:
        yield Check(False, str(error), "see docs/troubleshooting.md")


def _check_client(client: KafkaClient, cluster: ClusterConfig) -> Iterator[Check]:
    brokers = client.brokers()
    yield Check(True, f"connected to cluster {client.cluster_id()}, which has {_number(len(brokers), 'broker')}")
    client.connect(brokers)
    for broker in sorted(client.unreachable()):
        yield Check(
            False,
            f"broker {broker} cannot be reached at {brokers[broker]}",
            "that is its advertised listener: open the way there, or correct advertised.listeners",
        )
    acls = _Acls(cluster)
    yield from _check_rights(client, acls)
    yield from _check_groups(client, acls)


def _check_rights(client: KafkaClient, acls: _Acls) -> Iterator[Check]:
    described = client.ask_any(DescribeClusterRequest(include_cluster_authorized_operations=True))
    # Brokers have it since Kafka 2.8.
    operations = None if isinstance(described, Failure) else described.authorized_operations
    may_describe = _is_authorized(operations, ACLOperation.DESCRIBE)
    yield Check(
        may_describe,
        "DESCRIBE on the cluster: sizes of logs, and all groups",
        acls.line("Describe", "--cluster") if may_describe is False else None,
    )
    answer = client.ask_any(
        MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    )
    if isinstance(answer, Failure):
        yield Check(False, f"the topics cannot be listed: {answer.error}")
        return
    chosen = set(client.options.topics.select(t.name for t in answer.topics))
    topics = {t.name: t.authorized_operations for t in answer.topics if t.name in chosen}
    yield Check(
        bool(topics) or None,
        f"DESCRIBE on topics: {_number(len(topics), 'topic')} that the config selects can be seen",
        None if topics else acls.line("Describe", "--topic '*'"),
    )
    without = sorted(
        name for name, found in topics.items() if _is_authorized(found, ACLOperation.DESCRIBE_CONFIGS) is False
    )
    yield Check(
        not without,
        "DESCRIBE_CONFIGS on topics: whether they are compacted" + _such_as(without, len(topics), "topic"),
        acls.line("DescribeConfigs", "--topic '*'") if without else None,
    )


def _check_groups(client: KafkaClient, acls: _Acls) -> Iterator[Check]:
    groups, unlisted = list_groups(client)
    for error in sorted({u.error for u in unlisted}):
        yield Check(False, f"some groups cannot be listed: {error}")
    tried = groups[:GROUPS_TRIED]
    refused = sorted(g for g, answer in _described(client, tried).items() if isinstance(answer, Failure))
    yield Check(
        (not refused) if groups else None,
        f"DESCRIBE on groups: {_number(len(groups), 'group')} that the config selects can be seen"
        + _such_as(refused, len(tried), "group"),
        acls.line("Describe", "--group '*'") if refused or not groups else None,
    )


def _described(client: KafkaClient, groups: Sequence[ListedGroup]) -> Mapping[str, Any]:
    return read_members(client, groups, lambda _: False) if groups else {}


def check_lake(lake: LakeConfig) -> Check:
    """Write a file where the tables are to be, or as near as there is a folder, and remove it."""
    place = lake.root or f"{lake.catalog}.{lake.schema_name}"
    url = urlsplit(lake.root or "catalog:")
    if url.scheme not in ("", "file"):
        return Check(None, f"the lake {place}: only a run can tell whether it can be written")
    folder = Path(url2pathname(url.path)) if url.scheme else Path(place)
    there = next(f for f in (folder, *folder.absolute().parents) if f.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Check(False, f"the lake {place}: {there} cannot be written: {error.strerror}")
    return Check(True, f"the lake {place} can be written")


class _Acls:
    """The lines that give a cluster's principal a right."""

    def __init__(self, cluster: ClusterConfig) -> None:
        self._server = cluster.bootstrap_servers[0]
        user = cluster.client.options().get("sasl_plain_username")
        self._principal = f"'User:{user}'" if user and "'" not in user else "'User:NAME'"

    def line(self, operation: str, resource: str) -> str:
        """One call of Kafka's own tool, to be made by an administrator."""
        return (
            f"kafka-acls.sh --bootstrap-server {self._server} --add --allow-principal {self._principal} "
            f"--operation {operation} {resource}"
        )


def _is_authorized(operations: Set[int] | None, wanted: ACLOperation) -> bool | None:
    """Whether an operation is among those that Kafka calls authorized (KIP-430); None where it does not say."""
    return None if operations is None else wanted in operations


def _such_as(names: Sequence[str], among: int, what: str) -> str:
    return f"; refused for {len(names)} of {_number(among, what)}, such as {names[0]}" if names else ""


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
