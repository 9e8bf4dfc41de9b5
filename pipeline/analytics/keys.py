"""The columns by which rows are joined, grouped and followed from snapshot to snapshot.

A key identifies something across snapshots; the key of the same name with `_AT` identifies it in one snapshot.
"""

SNAPSHOT = ["cluster", "snapshot_id"]
TOPIC = ["cluster", "topic"]
TOPIC_AT = [*SNAPSHOT, "topic"]
TOPIC_PARTITION = ["topic", "partition"]
"""A partition in one cluster."""
PARTITION = ["cluster", *TOPIC_PARTITION]
PARTITION_AT = [*SNAPSHOT, *TOPIC_PARTITION]
READER = [*PARTITION, "group_id"]
"""A group that reads a partition."""
READER_AT = [*PARTITION_AT, "group_id"]
GROUP = ["cluster", "group_id"]
GROUP_AT = [*SNAPSHOT, "group_id"]
BROKER_AT = [*SNAPSHOT, "broker"]
CLIENT = ["cluster", "client_id"]
"""A client.id, which several processes may have."""
CLIENT_AT = [*SNAPSHOT, "client_id"]
PROCESS = [*CLIENT, "instance"]
"""One consumer process, see `clients.instances`."""
PROCESS_AT = [*CLIENT_AT, "instance"]
PROCESS_PARTITION = [*PROCESS, *TOPIC_PARTITION]
FETCHER = [*PROCESS, "fetcher"]
"""A fetcher thread of an old consumer."""
MEMBER = [*GROUP, "client_id", "instance"]
"""A process in a group."""
MEMBER_AT = [*PROCESS_AT, "group_id"]
FINDING = ["cluster", "finding_id"]
MEMBER_PARTITION = [*MEMBER, *TOPIC_PARTITION]
