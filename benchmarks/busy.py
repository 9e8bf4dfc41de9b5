"""`make accuracy ARGS=busy`: is lag correct while logs and commits move, compared with the journals of applications?

Three brokers, replication factor 3, acks=1, 2,000 records/s; a reader that keeps up, one that is 10 s behind, and one
that waits for transactions; and idle groups (`--idle`, 200,000 group-partitions). Snapshots are taken as in a job.
`busy_applications` has the applications, `busy_truth` computes the truth from their journals.
"""

from __future__ import annotations

import argparse
import re
import socket
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.busy_applications import Applications, Load
from benchmarks.busy_truth import Span, Truth
from benchmarks.page import write_section
from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.readiness import wait_until
from demo.embedded_kafka.topics import create_topics
from demo.workload.seeding import Seeding, seed_offsets
from pipeline.config import Config, LakeConfig
from pipeline.config.toml_file import FilledIn
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.session import spark_session
from pipeline.snapshot import take_snapshots
from pipeline.tables import COMMITTED_OFFSETS, LAG, WATERMARKS

HEADING = "## A busy cluster"
CLUSTER = "busy"
IDLE_PARTITIONS = 400
USER, PASSWORD = "laglake", "laglake"
AWAY = 3
"""The broker that laglake cannot reach, but all others can: packets to it are dropped."""
AWAY_SNAPSHOTS = 3
OPEN_FOR_S = 2.0
"""If a transaction has been open for this long, it was open when the snapshot asked."""
SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "4g", "spark.ui.enabled": "false"}


_TEXT = """\
{heading}

`make accuracy ARGS=busy` writes this section: three brokers, replication factor 3, acks=1, 2,000 records/s on 12
partitions; {number} snapshots, with {idle:,} further group-partitions that do not move. Each application keeps a
journal of what it sends, reads and commits, with the time just before each request and just after its answer. The
journal bounds the truth at every instant.

| what | measured | expected |
|---|---|---|
{lines}
"""


class Taken(NamedTuple):
    """A snapshot that was taken."""

    snapshot_id: int
    seconds: float


class Figure(NamedTuple):
    """A line of the table."""

    what: str
    measured: str
    expected: str = "–"


def main(arguments: Sequence[str], directory: Path, document: Path) -> int:
    """Measures, prints, and writes the section of the document."""
    parser = argparse.ArgumentParser(prog="make accuracy ARGS=busy")
    parser.add_argument("--idle", type=int, default=200_000, help="group-partitions that do not move")
    parser.add_argument("--snapshots", type=int, default=50)
    options = parser.parse_args(arguments)
    figures = measure(directory.absolute() / "busy", options.idle, options.snapshots)
    write_section(document, HEADING, _section(figures, options.idle, options.snapshots))
    return 0


def measure(directory: Path, idle: int, number: int) -> list[Figure]:
    """The figures of `number` snapshots, and of some more with a broker that cannot be reached."""
    load, folder = Load(), directory / f"{datetime.now(UTC):%H%M%S}"
    with (
        black_hole() as nowhere,
        EmbeddedKafka(directory / "kafka", brokers=3, users={USER: PASSWORD}, heap_mb=1024) as kafka,
    ):
        advertise(kafka, AWAY, nowhere)
        prepare(kafka.bootstrap_servers, load)
        if idle:
            seed_offsets(kafka.bootstrap_servers, seeding(idle))
        spark = spark_session("busy", SETTINGS)
        lake = Lake(spark, LakeConfig(root=str(folder / "lake")))
        healthy = config(folder, {"bootstrap_servers": tuple(kafka.bootstrap_servers.split(","))})
        hidden = config(folder, logged_in(kafka))
        with Applications(load, kafka.bootstrap_servers, folder / "journals") as applications:
            applications.wait_until_settled()
            busy = [take(spark, healthy) for _ in range(number)]
            applications.check()
        figures = truthfulness(lake, load, folder / "journals", idle)
        figures.append(
            Figure(
                "seconds that a snapshot takes: p50, p99",
                _seconds(_p([t.seconds for t in busy], part) for part in (0.5, 0.99)),
            )
        )
        away = [take(spark, hidden) for _ in range(AWAY_SNAPSHOTS)]
        usual = [take(spark, healthy) for _ in range(AWAY_SNAPSHOTS)]
        figures += reachability(lake, kafka, usual, away)
        spark.stop()
    return figures


def config(folder: Path, cluster: Mapping[str, Any]) -> Config:
    """A configuration with this cluster, under the name that it has in the lake."""
    tables = {"lake": {"root": str(folder / "lake")}, "snapshot": {"schedule": "1s"}, "clusters": {CLUSTER: cluster}}
    return Config.model_validate(tables)


def logged_in(kafka: EmbeddedKafka) -> dict[str, Any]:
    """The cluster, by the listener on which one broker cannot be reached."""
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    servers = tuple(kafka.sasl_bootstrap_servers.split(",")[: AWAY - 1])
    return {
        "bootstrap_servers": servers,
        "client": {**sasl, "sasl_plain_username": USER, "sasl_plain_password": FilledIn(PASSWORD)},
    }


def prepare(servers: str, load: Load) -> None:
    """Creates the applications' topics, on all brokers, with min.insync.replicas=1."""
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        create_topics(admin, load.topics, replicas=3, configs={"min.insync.replicas": "1"})


def seeding(idle: int) -> Seeding:
    """Groups that have committed and never move."""
    partitions = min(idle, IDLE_PARTITIONS)
    return Seeding(groups=idle // partitions, topics=min(4, partitions), partitions=partitions, prefix="idle")


def take(spark: SparkSession, settings: Config) -> Taken:
    """Takes one snapshot and computes its lag, as a job does; only the snapshot is timed."""
    time.sleep(1 - time.time() % 1)  # a second snapshot in the same second would be skipped
    started = time.monotonic()
    (outcome,) = take_snapshots(spark, settings, [CLUSTER], None, lambda: datetime.now(UTC))
    seconds = time.monotonic() - started
    print(f"snapshot: {outcome.status} after {seconds:.1f} s: {outcome.message}", flush=True)
    compute_lag(spark, settings, [CLUSTER], lambda: datetime.now(UTC))
    return Taken(outcome.snapshot_id, seconds)


# --- what was read, compared with the truth


def lag_rows(lake: Lake, group: str) -> list[Any]:
    """The rows of `lag` for one application, with `instant`: when they were read, in seconds since 1970."""
    rows = lake.read(LAG).where(F.col("group_id") == group)
    return rows.withColumn("instant", F.unix_micros("captured_at") / 1e6).collect()


def covered(rows: Iterable[Any], lag: str, truth: Callable[[int, float], Span]) -> list[bool]:
    """For each row, whether the truth at its instant overlaps the range that it states: from `lag` to `lag` + error."""
    return [_states(row[lag], row[f"{lag}_error"], truth(row["partition"], row["instant"])) for row in rows]


def _states(value: int | None, error: int | None, true: Span) -> bool:
    return value is not None and error is not None and true.meets(value, value + error)


def off(rows: Iterable[Any], lag: str, truth: Callable[[int, float], Span]) -> list[float]:
    """For each row, how far `lag` is outside of the truth at its instant; infinite if it is NULL."""
    return [
        truth(row["partition"], row["instant"]).off(row[lag]) if row[lag] is not None else float("inf") for row in rows
    ]


def while_open(rows: Iterable[Any], truth: Truth) -> list[tuple[Any, int]]:
    """The rows that were read while a transaction was certainly open, and the offset of its first record."""
    found = ((row, truth.open_since(row["partition"], row["instant"], OPEN_FOR_S)) for row in rows)
    return [(row, first) for row, first in found if first is not None]


def open_lag(truth: Truth) -> Callable[[int, float], Span]:
    """How much an open transaction hides: from its first record to the high watermark."""

    def lag(partition: int, instant: float) -> Span:
        first = truth.open_since(partition, instant, OPEN_FOR_S) or 0
        return Span(*(end - first for end in truth.high_watermark(partition, instant)))

    return lag


def gaps_s(lake: Lake, groups: Sequence[str] | None = None) -> tuple[float, float]:
    """The time between reading a log's end and reading a commit in it: median and 99th percentile, in seconds."""
    rows = lake.read(COMMITTED_OFFSETS).where(F.col("committed_offset").isNotNull())
    if groups is not None:
        rows = rows.where(F.col("group_id").isin(*groups))
    gap = F.abs(F.unix_micros("captured_at") - F.unix_micros("ends_at")) / 1e6
    median, p99 = rows.agg(F.percentile(gap, F.array(F.lit(0.5), F.lit(0.99)))).collect()[0][0]
    return median, p99


def truthfulness(lake: Lake, load: Load, journals: Path, idle: int) -> list[Figure]:
    """The tables' rows about the applications, compared with the journals of these."""
    rows = {role: lag_rows(lake, group) for role, group in load.groups.items()}
    newest = lake.read(WATERMARKS).where(F.col("topic") == load.orders).select("max_timestamp_ms").collect()
    return [
        Figure(
            "between reading a commit and the log's end: p50, p99",
            _seconds(gaps_s(lake, list(load.groups.values()))),
            "≤ 1 s",
        ),
        Figure(
            "the same, the idle groups included",
            _seconds(gaps_s(lake)),
            "≤ 3 s" if idle >= 100_000 else "≤ 1 s",
        ),
        *_prompt(rows["prompt"], Truth.of_orders(journals, "prompt"), load),
        *(
            Figure(f"`{lag}` of `{load.orders}` that is 0; of them with error 0", _zero(rows["prompt"], lag), "≥ 99 %")
            for lag in ("replication_lag", "transaction_lag")
        ),
        Figure(
            "newest timestamp that is known, acks=1",
            _share(row["max_timestamp_ms"] is not None for row in newest),
            "≥ 99 %",
        ),
        *_late(rows["late"], Truth.of_orders(journals, "late"), load),
        *_ledger(rows["read-committed"], Truth.of_ledger(journals)),
    ]


def _prompt(rows: Sequence[Any], truth: Truth, load: Load) -> Iterator[Figure]:
    spans = [truth.consumer_lag(row["partition"], row["instant"]) for row in rows]
    rate = load.partition_records_per_s
    yield Figure("`consumer_lag` of the reader that keeps up, records: p50, p99", _spread(rows, "consumer_lag"))
    yield Figure(
        "the same by its own journal: at least, at most (p50)",
        ", ".join(f"{_p(ends, 0.5):.0f}" for ends in zip(*spans, strict=True)),
    )
    yield Figure(
        "within its stated error of the journal", _share(covered(rows, "consumer_lag", truth.consumer_lag)), "≥ 99 %"
    )
    yield Figure(
        "that error in seconds of production: p50, p99",
        _seconds([_p([row["consumer_lag_error"] / rate for row in rows], part) for part in (0.5, 0.99)]),
        "≤ 1 s",
    )


def _late(rows: Sequence[Any], truth: Truth, load: Load) -> Iterator[Figure]:
    for lag, true in (("consumer_lag_ms", truth.consumer_lag_ms), ("consumer_age_ms", truth.consumer_age_ms)):
        values = [row[lag] / 1000 for row in rows if row[lag] is not None]
        middles = [statistics.mean(true(row["partition"], row["instant"])) / 1000 for row in rows]
        yield Figure(
            f"`{lag}` of the reader {load.behind_s:g} s behind: p1, p50, p99", _seconds(_range(values)), "10 s ± 0.2 s"
        )
        yield Figure(f"the same by its own journal (`{lag}`)", _seconds(_range(middles)))
        away = [ms / 1000 for ms in off(rows, lag, true)]
        yield Figure(f"`{lag}`, off its journal: p50, p99", _seconds([_p(away, 0.5), _p(away, 0.99)]), "≤ 0.2 s")
        is_covered = [ms <= (row["time_error_ms"] or 0) for ms, row in zip(off(rows, lag, true), rows, strict=True)]
        yield Figure(f"`{lag}` within `time_error_ms` of its journal", _share(is_covered), "≥ 99 %")
    yield Figure("`time_error_ms` of that reader, ms: p50, p99", _spread(rows, "time_error_ms"), "stated")


def _ledger(rows: Sequence[Any], truth: Truth) -> Iterator[Figure]:
    opened = while_open(rows, truth)
    is_covered = covered([row for row, _ in opened], "transaction_lag", open_lag(truth))
    yield Figure(
        "`last_stable_offset` that is the first record of the open transaction",
        _share(row["last_stable_offset"] == first for row, first in opened),
        "≥ 99 %",
    )
    yield Figure(
        "`transaction_lag` within its stated error of that transaction's journal", _share(is_covered), "≥ 99 %"
    )


def _zero(rows: Sequence[Any], lag: str) -> str:
    return f"{_share(row[lag] == 0 for row in rows)}; {_share(row[lag] == row[f'{lag}_error'] == 0 for row in rows)}"


# --- a broker that cannot be reached


@contextmanager
def black_hole() -> Iterator[str]:
    """host:port of a listener whose queue is full, so that packets to it are silently dropped."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


def advertise(kafka: EmbeddedKafka, broker: int, address: str) -> None:
    """Changes the broker's address for clients that log in. The other brokers do not use this address."""
    kafka.stop(broker)
    file = kafka.directory / f"node-{broker}" / "server.properties"
    file.write_text(re.sub(r"(?m)^(advertised\.listeners=.*SASL://)[^,\n]+", rf"\g<1>{address}", file.read_text()))
    kafka.start(broker)
    with KafkaAdminClient(bootstrap_servers=kafka.address(1)) as admin:

        def leads() -> bool:
            admin.elect_leaders(0, raise_errors=False)
            topics = admin.describe_topics(["__consumer_offsets"])
            return broker in {partition["leader_id"] for topic in topics for partition in topic["partitions"]}

        wait_until("the broker to lead again", leads, time.monotonic() + 60)


def reachability(lake: Lake, kafka: EmbeddedKafka, usual: Sequence[Taken], away: Sequence[Taken]) -> Iterator[Figure]:
    """What it costs if one broker drops packets, and whether everything on the other brokers was read."""
    others = [broker for broker in kafka.broker_ids if broker != AWAY]
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        groups = lake.spark.createDataFrame(
            [(g["group_id"],) for g in admin.list_groups(broker_ids=others)], "group_id string"
        )
    commits = lake.read(COMMITTED_OFFSETS).join(F.broadcast(groups), "group_id", how="left_semi")
    ends = lake.read(WATERMARKS).where(F.col("leader").isin(others))
    added_s = statistics.median(taken.seconds for taken in away) - statistics.median(taken.seconds for taken in usual)
    yield Figure(
        "one of three brokers swallows packets: seconds that a snapshot takes longer", f"{added_s:.1f} s", "≤ 15 s"
    )
    yield Figure("commits that the others coordinate, read meanwhile", _read_share(commits, usual, away), "100 %")
    yield Figure("ends of logs that the others lead, read meanwhile", _read_share(ends, usual, away), "100 %")


def _read_share(rows: DataFrame, usual: Sequence[Taken], away: Sequence[Taken]) -> str:
    """The rows without an error, as a part of the rows that a snapshot usually has."""
    counts = [
        rows.where(F.col("error").isNull() & F.col("snapshot_id").isin([taken.snapshot_id for taken in some])).count()
        for some in (away, usual)
    ]
    return f"{counts[0] / counts[1]:.2%}"


# --- the table


def _section(figures: Sequence[Figure], idle: int, number: int) -> str:
    """The section of the document."""
    lines = (f"| {f.what} | {f.measured} | {f.expected} |" for f in figures)
    return _TEXT.format(idle=idle, number=number, heading=HEADING, lines="\n".join(lines))


def _p(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def _range(values: Sequence[float]) -> list[float]:
    return [_p(values, part) for part in (0.01, 0.5, 0.99)]


def _spread(rows: Iterable[Any], column: str) -> str:
    values = [row[column] for row in rows if row[column] is not None]
    return f"{_p(values, 0.5):,.0f}, {_p(values, 0.99):,.0f}"


def _seconds(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.2f} s" for value in values)


def _share(truths: Iterable[bool]) -> str:
    found = list(truths)
    return f"{statistics.mean(found):.1%} of {len(found)}" if found else "–"
