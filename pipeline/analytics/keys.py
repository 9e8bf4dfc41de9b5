"""The columns by which rows are joined, grouped and followed from snapshot to snapshot.

A key identifies something across snapshots; the key of the same name with `_AT` identifies it in one snapshot.
"""

TOPIC = ["cluster", "topic"]
PARTITION = [*TOPIC, "partition"]
READER = [*PARTITION, "group_id"]
"""A group that reads a partition."""
PARTITION_AT = ["cluster", "snapshot_id", "topic", "partition"]
READER_AT = [*PARTITION_AT, "group_id"]
PROCESS = ["cluster", "client_id", "instance"]
"""One consumer process, see `clients.instances`."""
PROCESS_PARTITION = [*PROCESS, "topic", "partition"]
FETCHER = [*PROCESS, "fetcher"]
"""A fetcher thread of an old consumer."""
MEMBER = ["cluster", "group_id", "client_id", "instance"]
"""A process in a group."""
MEMBER_PARTITION = [*MEMBER, "topic", "partition"]
