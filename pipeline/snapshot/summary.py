"""Summarises a landed snapshot for its ledger row: what was read, what could not be read, and what looks odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.common.words import named
from pipeline.kafka.groups import OFFSETS_TOPIC
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.ledger import COMPLETE, FAILED, PARTIAL, Claim, ErrorEntry, Summary
from pipeline.quality.counts import IN_FUTURE, METADATA_MISSING
from pipeline.quality.rules import ODDITIES
from pipeline.tables import BRONZE, CLIENT_POSITIONS, COMMITTED_OFFSETS, GROUP_MEMBERS, LOG_SAMPLES, WATERMARKS, Table

REPEATED = "repeated_tasks"
"""The warning that counts attempts of Spark's tasks whose requests are not in `requests`, because they are lost."""
MAX_ERRORS = 100
"""The largest number of different errors that a ledger row lists, the most frequent first."""


@dataclass
class Landed:
    """What the reads of one snapshot have cost and which errors they had, before the summary is made."""

    requests: dict[str, int] = field(default_factory=dict)
    brokers: list[Any] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    quarantined: Counter[str] = field(default_factory=Counter)
    errors: list[ErrorEntry] = field(default_factory=list)
    positions: int = 0
    samples: int = 0
    warnings: dict[str, int] = field(default_factory=dict)

    def add_requests(self, broker: int | None, count: int | None) -> None:
        """Adds what a task has counted: requests to a broker; or, without a broker, how often it was tried before."""
        if count and broker is None:
            self.warnings[REPEATED] = self.warnings.get(REPEATED, 0) + count
        elif count:
            self.requests[str(broker)] = self.requests.get(str(broker), 0) + count


def summarize(lake: Lake, claim: Claim, landed: Landed) -> Summary:
    """The content of the ledger row, from the counts that were made while the rows landed and from rows with errors."""
    errors = [
        *_broker_errors(landed.brokers),
        *_read_errors(lake, claim, landed),
        *(("quarantine", name, "failed an expectation", n) for name, n in landed.quarantined.items() if n),
        *landed.errors,  # last, because clients may have very many
    ]
    members, watermarks = landed.counts[GROUP_MEMBERS.name], landed.counts[WATERMARKS.name]
    kept = {name: count["rows"] - landed.quarantined[name] for name, count in landed.counts.items()}
    return Summary(
        status=_status(landed, errors),
        groups=members["groups"],
        partitions=kept[WATERMARKS.name] - watermarks["errors"],
        rows=kept | {LOG_SAMPLES.name: landed.samples, CLIENT_POSITIONS.name: landed.positions},
        expected={
            "brokers": len(landed.brokers),
            "groups": members["all_groups"],
            "partitions": watermarks["rows"],
        },
        errors=errors[:MAX_ERRORS],
        warnings={name: count for name, count in _oddities(landed).items() if count} | landed.warnings,
        requests=landed.requests,
        capabilities=_capabilities(landed.brokers),
        cluster_id=cluster_id_of(landed.brokers),
    )


def _read_errors(lake: Lake, claim: Claim, landed: Landed) -> list[ErrorEntry]:
    with_errors = [table for table in BRONZE if landed.counts[table.name]["errors"]]
    return [entry for table in with_errors for entry in error_entries(lake, table, claim)]


def _oddities(landed: Landed) -> dict[str, int]:
    odd = {name: landed.counts[WATERMARKS.name][name] for name in ODDITIES}
    odd[METADATA_MISSING] = landed.counts[COMMITTED_OFFSETS.name][METADATA_MISSING]
    return odd | {IN_FUTURE: sum(count[IN_FUTURE] for count in landed.counts.values())}


_GROUPS_OF = f"'groups in {OFFSETS_TOPIC}-' || CAST(partition AS STRING)"
"""Of which groups a row without a group is; NULL if not even the partition of __consumer_offsets is known."""
_FIRST_AT = {
    COMMITTED_OFFSETS.name: f"CASE WHEN group_id IS NULL THEN {_GROUPS_OF} ELSE group_id END",
    GROUP_MEMBERS.name: (
        f"CASE WHEN group_id IS NULL THEN {_GROUPS_OF} || coalesce(' at broker ' || CAST(coordinator AS STRING), '') "
        "ELSE group_id END"
    ),
    WATERMARKS.name: "concat_ws('-', topic, CAST(partition AS STRING))",
    CLIENT_POSITIONS.name: "endpoint",
}
"""Where the error in a row was, as SQL that Spark and DataFusion understand."""


def error_entries(lake: Lake, table: Table, claim: Claim) -> list[ErrorEntry]:
    """The errors in a snapshot's rows of a table, the most frequent first, each with one example of where it was."""
    found = lake.query(
        f"SELECT error, count(*) AS times, min({_FIRST_AT[table.name]}) AS first_at FROM {{{table.name}}} "
        f"WHERE {of_snapshots(claim.cluster, [claim.snapshot_id])} AND error IS NOT NULL "
        f"GROUP BY error ORDER BY times DESC, error LIMIT {MAX_ERRORS}",
        table,
    )
    return [(table.name, _and_others(r["first_at"], r["times"]), r["error"], r["times"]) for r in found]


def _and_others(where: str | None, count: int) -> str:
    first = named(where) if where is not None else "unknown groups"
    return first if count == 1 else f"{first} and others"


def _broker_errors(brokers: Sequence[Any]) -> list[ErrorEntry]:
    return [("broker", f"{b['broker']} ({b['address']})", b["error"], 1) for b in brokers if b["error"]]


def _status(landed: Landed, errors: Sequence[ErrorEntry]) -> str:
    if not errors:
        return COMPLETE
    has_rows = any(c["rows"] - landed.quarantined[name] > c["errors"] for name, c in landed.counts.items())
    return PARTIAL if has_rows else FAILED


def cluster_id_of(brokers: Sequence[Any]) -> str | None:
    """Kafka's id of the cluster in rows of `kafka_brokers`; None before 0.10.1."""
    return next((b["cluster_id"] for b in brokers if b["cluster_id"]), None)


def _capabilities(brokers: Sequence[Any]) -> dict[str, str | None]:
    """What every broker that answers can do: for each API the lowest of their versions, None if one lacks it."""
    answered = [b["capabilities"] for b in brokers if b["capabilities"]]
    apis = sorted({api for capabilities in answered for api in capabilities})
    return {api: _lowest([capabilities.get(api) for capabilities in answered]) for api in apis}


def _lowest(versions: Sequence[str | None]) -> str | None:
    if any(version is None for version in versions):
        return None
    return str(min(int(version) for version in versions if version is not None))
