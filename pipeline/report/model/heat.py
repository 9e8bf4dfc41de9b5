"""The lag of single partitions over time, and when objectives were missed, as plain values.

Of a partition at a snapshot, a value is None if it is not known; snapshots without a row of the partition are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

Values = tuple[int | None, ...]
Names = tuple[str | None, ...]


@dataclass(frozen=True)
class PartitionSeries:
    """One of the worst partitions of a group: its rows of `lag` by time, as one tuple for each column.

    `records` is `consumer_lag`, `bytes` and `ms` are the same in other units, `age` is `consumer_age_ms`; `status` is
    `offset_status`. `member` is the id of the member that has the partition, `client` its client.id and address.
    `total` is how many partitions the group has had in this time.
    """

    cluster: str
    group_id: str
    topic: str
    partition: int
    total: int
    snapshot_ids: tuple[int, ...]
    records: Values
    bytes: Values
    ms: Values
    age: Values
    status: Names
    member: Names
    client: Names


@dataclass(frozen=True)
class OtherPartitions:
    """All partitions of a group that have no PartitionSeries of their own, together, by time.

    `records` and `bytes` are sums, `ms` and `age` maxima. `partitions` are how many there are; of so many, a value
    leaves out those that are counted beside it as unknown.
    """

    cluster: str
    group_id: str
    snapshot_ids: tuple[int, ...]
    partitions: tuple[int, ...]
    records: Values
    bytes: Values
    ms: Values
    age: Values
    records_unknown: tuple[int, ...]
    bytes_unknown: tuple[int, ...]
    ms_unknown: tuple[int, ...]
    age_unknown: tuple[int, ...]


@dataclass(frozen=True)
class Missed:
    """The snapshots at which a group missed an objective, and those at which it is not known whether it did."""

    cluster: str
    group_id: str
    slo: str
    missed_ids: tuple[int, ...]
    unknown_ids: tuple[int, ...]
