"""`make accuracy`: how far lag in bytes and time is from the true values, on a real broker, by workload.

Records are produced with known timestamps and sizes, offsets are committed, and snapshots are taken. The true time of a
record is the timestamp that it was produced with. The true bytes, and what the broker has written since, are read from
its own segment files. Neither comes from the code that is measured; tests/log_segments/test_segment_files.py compares
the reader of these files with DumpLogSegments.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from benchmarks import alerts, busy, forecasts, loss_forecasts, positions, season_forecasts
from benchmarks.page import write_section
from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.workload.seeding import commit_offsets
from pipeline.config import Config, LakeConfig
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.log_segments.log_dirs import PartitionDir, list_partitions, open_log
from pipeline.session import spark_session
from pipeline.snapshot import take_snapshots
from pipeline.tables import LAG

DIRECTORY = Path("build/accuracy")
DOCUMENT = Path("docs/accuracy.md")
SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "4g"}
BETWEEN_REPORTS = """\
librdkafka reports every `statistics.interval.ms`, here 2 s, and its offsets were true at the report (`as_of`). Compared
with the application's position at an instant between two reports, 7 of 343 are behind, by 1 to 6 records: those that
the application has read since the report."""
"""tests/client_positions/test_librdkafka_statistics.py computes these numbers."""
MISSED, MEASURED = "## Targets that are missed", "## How it is measured"
"""Headings. The section between them is written by hand and stays as it is: check it after a measurement."""
_HOW = """\
{measured}

`make accuracy ARGS=lag` prints these figures and writes this section. It writes seven topics on an embedded broker, and
takes {snapshots} snapshots, each one minute of record time after the one before. {groups} groups have committed between
log start and log end.

- **Off**: the error of a lag, as a share of the true lag.
- **Covered**: the share of rows whose stated error is not smaller than the true one.
- **Reuse**: the bytes that the broker has written to all topics since the record, where they are known.
"""
_CLIENTS = """
## Client positions

Recordings of real clients are replayed, and compared with the position that the application itself printed about once a
second.

- **Rows**: partitions that had been polled at least once.
- **Off**: the distance of a value from the range between the positions printed just before and just after it.
- For fetched offsets only their order can be checked: not before the position, and not beyond the log's end.

{between_reports}

{clients}
"""
SNAPSHOTS = 12
MINUTE_MS = 60_000
SHARES = (0.0, 0.003, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.999)
"""Where groups have committed, as parts of the log from its start to its end."""


@dataclass(frozen=True)
class Workload:
    """What is written between two snapshots, a minute of record time: pauses in ms, sizes in bytes, records a batch."""

    pauses_ms: Callable[[random.Random], float]
    size: Callable[[random.Random], float]
    batch: int = 5
    codec: str | None = None
    is_paused: Callable[[int], bool] = lambda _: False
    keep: float = 1.0


WORKLOADS: dict[str, Workload] = {
    "steady": Workload(lambda _: 1_000, lambda _: 500),
    "log-normal rates": Workload(lambda c: c.lognormvariate(5, 1.5), lambda _: 500),
    "bursts": Workload(lambda c: 20_000 if c.random() < 0.02 else 20, lambda _: 500, batch=20),
    "10 B to 100 KB": Workload(lambda _: 1_000, lambda c: 10 ** c.uniform(1, 5), batch=3),
    "compressed": Workload(lambda _: 500, lambda c: 10 ** c.uniform(2, 4), batch=20, codec="gzip"),
    "a paused producer": Workload(lambda _: 500, lambda _: 500, is_paused=lambda minute: minute % 3 != 0),
    "its head is deleted": Workload(lambda _: 500, lambda c: 10 ** c.uniform(2, 3), keep=0.6),
}


@dataclass
class Log:
    """What was written to a partition."""

    times_ms: list[int] = field(default_factory=list)
    start: int = 0


def main() -> int:
    """Measures, prints, and writes docs/accuracy.md; with the name of a part, only the sections of that part."""
    parts = {"lag": _lag, "busy": _busy, "alerts": _alerts, "forecasts": _forecasts}
    for name in sys.argv[1:2] or parts:
        parts[name]()
    return 0


def _busy() -> None:
    busy.main(sys.argv[2:], DIRECTORY, DOCUMENT)


def _alerts() -> None:
    alerts.main(spark_session("accuracy", SETTINGS), DIRECTORY.absolute(), DOCUMENT)


def _forecasts() -> None:
    for of in (forecasts, loss_forecasts, season_forecasts):
        write_section(DOCUMENT, of.HEADING, of.section())


def _lag() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    # Kafka's smallest segment size, and frequent retention checks, so that files are deleted meanwhile.
    properties = {"log.segment.bytes": str(1024 * 1024), "log.retention.check.interval.ms": "2000"}
    with EmbeddedKafka(DIRECTORY / "kafka", properties=properties) as kafka:
        spark = spark_session("accuracy", {"spark.master": "local[2]"})
        lake = f"{DIRECTORY.absolute()}/lake-{datetime.now(UTC):%H%M%S}"
        settings = Config.model_validate(
            {
                "lake": {"root": lake},
                "snapshot": {"schedule": "1s"},
                "clusters": {"real": {"bootstrap_servers": (kafka.bootstrap_servers,)}},
            }
        )
        first: list[Errors] = []
        found: list[Errors] = []
        for topics in _written(kafka):
            (outcome,) = take_snapshots(spark, settings, ["real"], None, lambda: datetime.now(UTC))
            print(f"snapshot: {outcome.status}: {outcome.message}", flush=True)
            compute_lag(spark, settings, ["real"], lambda: datetime.now(UTC))
            rows = _newest(Lake(spark, LakeConfig(root=lake)))
            data = kafka.directory / "node-1" / "data"
            written = _written_bytes(data)
            found = [_errors(row, topics[row.topic], data, written) for row in rows]
            first = first or found
        clients = positions.table(Lake(spark, LakeConfig(root=lake)), settings, DIRECTORY / "recordings")
        spark.stop()
    _write(first, found, clients)


def _written(kafka: EmbeddedKafka) -> Any:
    """Writes minute after minute, commits and deletes; yields what each topic has after each minute."""
    chance = random.Random(20260131)
    logs = {name.replace(" ", "-"): Log() for name in WORKLOADS}
    start_ms = int((datetime.now(UTC) - timedelta(minutes=SNAPSHOTS + 1)).timestamp() * 1000)
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, dict.fromkeys(logs, 1))
        for minute in range(SNAPSHOTS):
            for workload, (topic, log) in zip(WORKLOADS.values(), logs.items(), strict=True):
                _write_minute(kafka, topic, log, workload, minute, start_ms + minute * MINUTE_MS, chance)
                if workload.keep < 1 and minute % 4 == 3:
                    log.start = int((1 - workload.keep) * len(log.times_ms))
                    admin.delete_records({TopicPartition(topic, 0): log.start})
            for share in SHARES:
                commits = {
                    (topic, 0): log.start + int(share * (len(log.times_ms) - log.start)) for topic, log in logs.items()
                }
                commit_offsets(admin, f"at-{share}", commits)
            yield logs


def _write_minute(
    kafka: EmbeddedKafka, topic: str, log: Log, workload: Workload, minute: int, start_ms: int, chance: random.Random
) -> None:
    if workload.is_paused(minute):
        return
    producer = KafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, linger_ms=1_000, compression_type=workload.codec
    )
    at_ms = float(max([start_ms, *log.times_ms[-1:]]))
    while at_ms < start_ms + MINUTE_MS:
        for _ in range(workload.batch):
            value = bytes(chance.choices(b"abcdefgh", k=int(workload.size(chance))))
            log.times_ms.append(int(at_ms))
            producer.send(topic, value, partition=0, timestamp_ms=int(at_ms))
            at_ms += workload.pauses_ms(chance)
        producer.flush()
    producer.close()


def _newest(lake: Lake) -> list[Any]:
    rows = lake.read(LAG)
    newest = rows.agg({"snapshot_id": "max"}).collect()[0][0]
    return rows.where(f"snapshot_id = {newest} AND committed_offset IS NOT NULL").collect()


@dataclass(frozen=True)
class Errors:
    """How far one row is from the truth, as parts of the true lag, and whether its stated error covers this."""

    workload: str
    bytes_off: float | None
    is_bytes_near: bool
    is_bytes_covered: bool
    time_off: float | None
    is_time_covered: bool
    reuse_off: float | None
    is_reuse_covered: bool


def _written_bytes(data: Path) -> list[tuple[int, int]]:
    """The newest timestamp and the size of each batch in all partitions of the broker, including internal topics."""
    logs = filter(None, map(open_log, list_partitions(str(data))))
    batches = (batch for log in logs for segment in log.segments for batch in segment.scan())
    return [(batch.max_timestamp_ms, batch.size) for batch in batches if batch.max_timestamp_ms is not None]


def _errors(row: Any, log: Log, data: Path, written: Sequence[tuple[int, int]]) -> Errors:
    files = open_log(PartitionDir(str(data), row.topic, row.partition))
    true_bytes = files.at(row.committed_offset).bytes_to_end if files else None
    end_ms = log.times_ms[-1]
    is_end = row.committed_offset == len(log.times_ms)
    true_ms = 0 if is_end else end_ms - log.times_ms[row.committed_offset]
    bytes_off, is_bytes_covered = _off(row.consumer_lag_bytes, row.bytes_error, true_bytes)
    batches = (batch for segment in files.segments for batch in segment.scan()) if files else ()
    batch_bytes = next((batch.size for batch in batches if batch.last_offset >= row.committed_offset), 0)
    is_near = bytes_off is None or bytes_off * (true_bytes or 0) <= 0.01 * (true_bytes or 0) + batch_bytes
    time_off, is_time_covered = _off(row.consumer_lag_ms, row.time_error_ms, true_ms)
    reuse_off, is_reuse_covered = None, True
    if row.reuse_method == "interpolated":
        since_ms = None if is_end else log.times_ms[row.committed_offset]
        true_reuse = 0 if since_ms is None else sum(size for newest_ms, size in written if newest_ms >= since_ms)
        reuse_off, is_reuse_covered = _off(row.reuse_bytes, row.reuse_error_bytes, true_reuse)
    return Errors(
        row.topic, bytes_off, is_near, is_bytes_covered, time_off, is_time_covered, reuse_off, is_reuse_covered
    )


def _off(lag: int | None, error: int | None, true: int | None) -> tuple[float | None, bool]:
    if lag is None or error is None or true is None:
        return None, True
    return abs(lag - true) / max(1, true), abs(lag - true) <= error


def _write(first: Sequence[Errors], last: Sequence[Errors], clients: str) -> None:
    _, missed_heading, rest = DOCUMENT.read_text().partition(f"{MISSED}\n")
    missed, _, _ = rest.partition(f"{MEASURED}\n")
    head = f"# Accuracy\n\n{_conclusion(last)}\n\n{missed_heading}{missed}"
    text = head + _HOW.format(measured=MEASURED, snapshots=SNAPSHOTS, groups=len(SHARES))
    for title, errors in (("The first snapshot", first), (f"Snapshot {SNAPSHOTS}", last)):
        text += f"\n## {title}\n\n{_table(errors)}"
    text += _CLIENTS.format(between_reports=BETWEEN_REPORTS, clients=clients)
    _, heading, section = DOCUMENT.read_text().partition(f"\n{busy.HEADING}\n")
    DOCUMENT.write_text(text + heading + section)
    print(text)


def _conclusion(errors: Sequence[Errors]) -> str:
    """The results in a few sentences."""
    covered = sum(e.is_bytes_covered and e.is_time_covered and e.is_reuse_covered for e in errors)
    in_bytes = _spread([e.bytes_off for e in errors if e.bytes_off is not None])
    in_time = _spread([e.time_off for e in errors if e.time_off is not None])
    return (
        f"You may rely on the stated error of every value: it covers the truth in {covered} of {len(errors)} rows of "
        "the last snapshot below.\nHow far that holds on a busy cluster is [further below](#a-busy-cluster).\n\n"
        f"A lag in time is off by {in_time} of the true lag (median, p99, max).\nA lag in bytes is off by {in_bytes}: "
        "look at `bytes_error` before you rely on a short one.\nThe large values belong to short lags, because all "
        f"records of a batch have the same position in the log.\n{statistics.mean(e.is_bytes_near for e in errors):.1%}"
        " of the rows are off by at most 1 % plus one batch."
    )


def _table(errors: Sequence[Errors]) -> str:
    of_bytes = "workload", "bytes off: median, p99, max", "within 1 % + one batch", "covered"
    names = *of_bytes, "time off: median, p99, max", "covered", "reuse off: median, p99, max", "covered", "rows"
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for workload in [*dict.fromkeys(e.workload for e in errors), "all"]:
        rows = [e for e in errors if workload in (e.workload, "all")]
        columns = (
            _spread([e.bytes_off for e in rows if e.bytes_off is not None]),
            f"{statistics.mean(e.is_bytes_near for e in rows):.1%}",
            f"{statistics.mean(e.is_bytes_covered for e in rows):.1%}",
            _spread([e.time_off for e in rows if e.time_off is not None]),
            f"{statistics.mean(e.is_time_covered for e in rows):.1%}",
            _spread([e.reuse_off for e in rows if e.reuse_off is not None]),
            f"{statistics.mean(e.is_reuse_covered for e in rows):.1%}",
        )
        lines.append(f"| {workload.replace('-', ' ')} | {' | '.join(columns)} | {len(rows)} |")
    return "\n".join(lines) + "\n"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    p99 = sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]
    return ", ".join(f"{v:.2%}" for v in (statistics.median(values), p99, max(values)))


if __name__ == "__main__":
    sys.exit(main())
