"""`make bench`: how fast committed offsets are written to Delta, compared with Kafka's own tool, and lag is computed.

One local broker, Spark local[2]. The figures are those of this machine on this day; the ratios are more general.
`ARGS=lag_job`, `landing`, `analytics`, `status`, `status_history`, `added`, `clients`, `ledger` or `storage` runs only
one part;
`ARGS=cold` compares new processes with one that only starts Spark; `ARGS=waterfall` shows what each phase of a `run`
costs.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import added, clients, lag_job, ledger, status, status_history, storage
from benchmarks.histograms import seconds as histogram_s
from benchmarks.history import seconds as history_s
from benchmarks.lag import READERS, Bronze
from benchmarks.memory import PeakMemory
from benchmarks.page import write_page
from benchmarks.timing import computed, timed, warm
from demo.embedded_kafka.broker import EmbeddedKafka
from demo.workload.seeding import Seeding, seed_offsets
from pipeline.common.epoch import utc_date
from pipeline.config import LakeConfig
from pipeline.lake import Lake, of_snapshots
from pipeline.quality import judge_rows
from pipeline.session import spark_session
from pipeline.tables import COMMITTED_OFFSETS

DIRECTORY = Path("build/bench")
LAG_JOBS = (3, 20_000, 100_000, 300_000)
"""Partitions, each with ten readers."""
MILLION = 1_000_000
TINY = Seeding(groups=9, topics=1, partitions=3)
SMALL = Seeding(groups=500, topics=4, partitions=400)
LARGE = Seeding(groups=2500, topics=4, partitions=400)
RUNS = 4
COLD_RUNS = 3
RUNS_OF_A_SMALL_CLUSTER = 9
HISTORY = 20
"""The number of snapshots in the smaller lake."""
AGES = (6, 60)
"""The snapshots in the lakes of `status_history`."""
AGED_RUNS = 2
SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "4g"}
Note = Callable[..., None]
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

_CONFIG = """\
[lake]
root = "{lake}"
[snapshot]
schedule = "1s"
[clusters.bench]
bootstrap_servers = ["{servers}"]
"""


def main() -> int:
    """Measures, prints, and writes docs/benchmarks.md."""
    parts = {
        "waterfall": _waterfall,
        "cold": _cold,
        "lag_job": _lag_job,
        "landing": _landing,
        "analytics": _analytics,
        "status": _status,
        "added": _added,
        "status_history": _status_history,
        "clients": _clients,
        "ledger": _ledger,
        "storage": _storage,
    }
    figures: list[tuple[str, str, str]] = []

    def note(what: str, value: str, target: str = "–") -> None:
        figures.append((what, value, target))
        print(f"{what}: {value} (target: {target})", flush=True)

    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or parts:
        parts[name](note)
    write_page(figures)
    return 0


def _lag_job(note: Note) -> None:
    """The job `lag` in a new process, for a second snapshot. Takes half an hour, most of it for the largest cluster."""
    spark = spark_session("bench", SETTINGS)
    million = None
    for partitions in LAG_JOBS:
        readers = partitions * READERS
        job, copy = lag_job.measure(spark, DIRECTORY / f"lag-job-{time.time_ns()}", partitions)
        what = f"the job `lag` of {readers:,} readers by spark-submit.sh, second snapshot"
        note(f"{what}: time", f"{job.seconds:.1f} s", "≤ 40 s" if readers == MILLION else "–")
        note(f"{what}: CPU time", f"{job.cpu_s:.1f} s", "≤ 70 s" if readers == MILLION else "–")
        note(f"{what}: memory of all its processes", f"{job.memory_mb:,.0f} MB", "≤ 6,144 MB")
        ratio = "CPU time against a process of Spark that only copies these rows of `lag`"
        note(f"{ratio}, {readers:,} readers", f"{job.cpu_s / copy.cpu_s:.2f}", "≤ 2.5")
        if readers == MILLION:
            million = job.seconds
        elif million is not None:
            note(f"how many times as long as {MILLION:,} readers", f"{job.seconds / million:.2f}", "≤ 3.3")
    spark.stop()


def _analytics(note: Note) -> None:
    spark = spark_session("bench", SETTINGS)
    bronze = Bronze(spark, DIRECTORY.absolute() / "bronze")
    bronze.make()
    bronze.prepare_readings()
    whole_s = {members: computed(partial(bronze.lag, members), RUNS) for members in ("groups", "members")}
    note("`lag` of 1,000,000 rows over 100,000 partitions, 20 points each, no members", _spread(whole_s["groups"]))
    note("the same, each row with its member", _spread(whole_s["members"]))
    counted_s = histogram_s(spark, DIRECTORY)
    note("histograms of 1,000,000 rows", _spread(counted_s))
    together_s = statistics.median(whole_s["members"]) + statistics.median(counted_s)
    note("ladder, all units and histograms", f"{together_s:.1f} s", "≤ 12 s")
    note("log index of 100,000 partitions carried on by a snapshot", _spread(computed(bronze.index, RUNS)), "≤ 10 s")
    read_s, duckdb_s = statistics.median(computed(bronze.readings, RUNS)), bronze.duckdb_s()
    note("1,000,000 offsets read on the index, in bytes and time, with errors", f"{read_s:.2f} s")
    note("DuckDB's ASOF join of as many offsets with the points of the index, in memory", f"{duckdb_s:.2f} s")
    note("how many times as long as DuckDB", f"{read_s / duckdb_s:.1f}")
    short_s, long_s = (
        history_s(spark, DIRECTORY / f"history-{time.time_ns()}", snapshots) for snapshots in (HISTORY, 10 * HISTORY)
    )
    note(f"one more snapshot of 20,000 rows in a lake that has {HISTORY}", _spread(short_s))
    note(f"the same in a lake that has {10 * HISTORY}", _spread(long_s))
    note("how many times as long", f"{statistics.median(long_s) / statistics.median(short_s):.2f}", "≤ 1.2")
    spark.stop()


def _status(note: Note) -> None:
    spark = spark_session("bench", SETTINGS)
    judged_s, grouped_s, found_s = status.seconds(spark, DIRECTORY.absolute(), RUNS)
    note("`partition_status` of 1,000,000 rows", _spread(judged_s))
    note("`group_status` of 1,000,000 rows", _spread(grouped_s))
    note("the problems of 1,000,000 readers, of which 100,000 have stopped", _spread(found_s))
    note(
        "the status of 1,000,000 readers and their groups, and their problems",
        f"{sum(map(statistics.median, (judged_s, grouped_s, found_s))):.1f} s",
        "≤ 20 s",
    )
    spark.stop()


def _status_history(note: Note) -> None:
    """Takes half an hour, most of it for the long history: a million rows of each table and snapshot."""
    spark = spark_session("bench", SETTINGS)
    folder = DIRECTORY.absolute() / f"status-history-{time.time_ns()}"
    young_s, old_s = status_history.seconds(spark, folder, AGES, AGED_RUNS)
    what = "status, forecasts, changes of groups and findings of 1,000,000 readers, from and to a lake with"
    note(f"{what} {AGES[0]} snapshots", _spread(young_s))
    note(f"{what} {AGES[1]} snapshots", _spread(old_s))
    note(
        "how many times as long with ten times the snapshots",
        f"{statistics.median(old_s) / statistics.median(young_s):.2f}",
        "≤ 1.1",
    )
    spark.stop()


def _added(note: Note) -> None:
    spark = spark_session("bench", SETTINGS)
    with EmbeddedKafka(DIRECTORY / "kafka-added") as kafka:
        seed_offsets(kafka.bootstrap_servers, TINY)
        config, lake = DIRECTORY / "added.toml", DIRECTORY.absolute() / f"added-{time.time_ns()}"
        config.write_text(_CONFIG.format(lake=lake, servers=kafka.bootstrap_servers))
        whole_s, added_s = added.seconds(config, RUNS_OF_A_SMALL_CLUSTER)
    note("a warm `run` of 9 groups, with its report", _spread(whole_s))
    note("what status, forecasts, changes of groups and findings add to it", _spread(added_s), "≤ 2 s")
    spark.stop()


def _clients(note: Note) -> None:
    spark = spark_session("bench", SETTINGS)
    folder = DIRECTORY.absolute() / "clients"
    cores = spark.sparkContext.defaultParallelism
    samples = clients.samples_per_min(spark, folder) / cores
    note(
        "samples of Prometheus text a minute and core, all that 2,000 JVMs serve, from files to Delta",
        f"{samples:,.0f}",
        "≥ 1,000,000",
    )
    note("lines of two request logs a second", f"{clients.lines_per_s(spark, folder):,.0f}", "≥ 50,000")
    joined_s = computed(clients.joined(spark, folder), RUNS)
    note("1,000,000 readers joined with what clients report of as many partitions", _spread(joined_s), "≤ 8 s")
    spark.stop()


def _ledger(note: Note) -> None:
    """A year of one cluster, with snapshots every ten minutes, and every minute."""
    spark = spark_session("bench", SETTINGS)
    with EmbeddedKafka(DIRECTORY / "kafka-ledger") as kafka:
        seed_offsets(kafka.bootstrap_servers, TINY)
        config = _CONFIG.replace("{servers}", kafka.bootstrap_servers)
        cases: tuple[tuple[ledger.Way, int, int], ...] = (
            ("driver", 50_000, 600_000),
            ("Spark", 50_000, 600_000),
            ("driver", 525_600, 60_000),
        )
        for way, snapshots, step_ms in cases:
            folder = DIRECTORY.absolute() / f"ledger-{time.time_ns()}"
            fresh, old = ledger.measure(config, folder, snapshots, step_ms, way)
            what = f"warm `run` of 27 rows by {way} in a lake with"
            note(f"{what} {ledger.FRESH} snapshots, beside {snapshots:,}", _spread(fresh.seconds))
            note(f"{what} {snapshots:,} snapshots", _spread(old.seconds))
            ratio = statistics.median(old.seconds) / statistics.median(fresh.seconds)
            note(f"how many times as long by {way} with {snapshots:,} snapshots", f"{ratio:.2f}", "≤ 1.2")
            of = f"that a `run` by {way} reads with {snapshots:,} snapshots"
            note(f"files of tables {of}", f"{old.data_files}", f"≤ {fresh.data_files}")
            note(f"files of Delta's logs {of}", f"{old.log_files}", f"≤ {fresh.log_files}")
    spark.stop()


def _storage(note: Note) -> None:
    spark = spark_session("bench", SETTINGS)
    lake = storage.make(spark, DIRECTORY.absolute() / f"storage-{time.time_ns()}")
    targets = {"committed_offsets": "≤ 0.85", "lag": "≤ 8"}
    for table in storage.stored(lake):
        what = f"bytes a row of `{table.table}`, a day of one-minute snapshots of 2,000 readers after `maintain`"
        note(what, f"{table.bytes_per_row:.2f}", targets.get(table.table, "–"))
        note(f"files of `{table.table}` then, of {table.rows:,} rows", f"{table.files}", "≤ 4")
    seconds, files = storage.query_of_a_group(lake)
    note("a query of `lag` for one group over that day", _spread(seconds), "≤ 2 s")
    note("files that it reads", f"{files}", "≤ 10")
    spark.stop()


def _waterfall(_note: Note) -> None:
    """Prints the phases of the first `run` on a lake, and of a later one, in a new process and in a warm one."""
    for name, seeding in (("tiny", TINY), ("small", SMALL)):
        with EmbeddedKafka(DIRECTORY / f"kafka-{name}", heap_mb=2048) as kafka:
            seed_offsets(kafka.bootstrap_servers, seeding)
            config, lake = DIRECTORY / "config.toml", DIRECTORY.absolute() / f"waterfall-{time.time_ns()}"
            config.write_text(_CONFIG.format(lake=lake, servers=kafka.bootstrap_servers))
            for runs in ("1", "4"):
                print(
                    f"\n{name}: {seeding.groups} groups × {seeding.topics * seeding.partitions} partitions", flush=True
                )
                command = [sys.executable, "-m", "benchmarks.waterfall", str(config), str(lake), runs]
                with (DIRECTORY / "waterfall.log").open("ab") as log:
                    subprocess.run(command, check=True, stderr=log)


def _cold(note: Note) -> None:
    """Each `run` is a new process. Between two runs come a process that only appends a row, and Kafka's own tool."""
    for what, seeding, asked in (
        ("9 groups, 27 rows", TINY, "≤ 2.0"),
        ("500 groups, 200,000 rows", SMALL, "≤ 2.5"),
    ):
        with EmbeddedKafka(DIRECTORY / f"kafka-cold-{seeding.groups}", heap_mb=2048) as kafka:
            seed_offsets(kafka.bootstrap_servers, seeding)
            run = partial(_submit, *_run_arguments(kafka.bootstrap_servers))
            run()  # creates the lake
            least = partial(_logged, sys.executable, "-m", "benchmarks.append_one_row", str(DIRECTORY / "one-row"))
            took: dict[str, list[float]] = {"run": [], "least": [], "tool": []}
            for _ in range(COLD_RUNS):
                took["run"].append(timed(run))
                took["least"].append(timed(least))
                took["tool"].append(timed(partial(_describe_all, kafka)))
        note(f"a later `run` in a new process, {what}", _spread(took["run"]))
        note(f"a new process that appends one row to a Delta table, beside {what}", _spread(took["least"]))
        note(f"ConsumerGroupCommand --all-groups, {what}", _spread(took["tool"]))
        run_s, least_s, tool_s = (statistics.median(seconds) for seconds in took.values())
        note(f"`run` against the process that appends one row, {what}", f"{run_s / least_s:.1f}", asked)
        note(f"`run` against ConsumerGroupCommand, {what}", f"{run_s / tool_s:.1f}", "≤ 1.0")


def _landing(note: Note) -> None:
    with EmbeddedKafka(DIRECTORY / "kafka", heap_mb=2048) as kafka:
        _seeded_elsewhere(kafka.bootstrap_servers, SMALL)
        first_s, *later_s = _whole_runs(kafka.bootstrap_servers, 3)
        note("first `run` of 200,000 rows by spark-submit.sh, which makes the lake", f"{first_s:.1f} s", "≤ 45 s")
        note("later `run` by spark-submit.sh, JVM start included", _spread(later_s), "≤ 45 s")
        spark = spark_session("bench", SETTINGS)
        lake = Lake(spark, LakeConfig(root=str(DIRECTORY.absolute() / f"lake-{time.time_ns()}")))
        lake.prepare()
        landed_s = warm(lambda number: _land(lake, kafka.bootstrap_servers, number))
        append_s = warm(lambda number: _append(lake, kafka.bootstrap_servers, number))
        note("`kafka_committed_offsets` into Delta by append, 200,000 rows, warm", _spread(append_s), "≤ 1.2 s")
        note("the same as a snapshot lands it, by replaceWhere", _spread(landed_s))
        tool_s = timed(partial(_describe_all, kafka))
        note("ConsumerGroupCommand --all-groups, the same offsets", f"{tool_s:.1f} s")
        note("how many times faster: appended", f"{tool_s / statistics.median(append_s):.0f}", "≥ 20")
        note("how many times faster: landed", f"{tool_s / statistics.median(landed_s):.0f}")
        gate_s = warm(lambda number: _judge(lake, number + 1))
        note("quality gate of 200,000 rows that look suspect, warm", _spread(gate_s), "≤ 3 s")
        _seeded_elsewhere(kafka.bootstrap_servers, LARGE)
        with PeakMemory() as memory:
            large_s = warm(lambda number: _land(lake, kafka.bootstrap_servers, 1000 + number), runs=3)
        note("1,000,000 rows landed, warm", _spread(large_s), "≤ 7 s")
        note("peak memory: driver's Python", f"{memory.driver_mb:.0f} MB", "< 1,000 MB")
        note("peak memory: largest Python worker", f"{memory.worker_mb:.0f} MB", "< 1,000 MB")
        spark.stop()


def _seeded_elsewhere(servers: str, seeding: Seeding) -> None:
    """Seeds in another process, so that its memory does not count in this one's peak."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(seed_offsets, servers, seeding).result()


def _append(lake: Lake, servers: str, number: int) -> None:
    """Reads all committed offsets once, and appends them without reading the table."""
    rows = _committed(lake.spark, servers, 2000 + number)
    with_instant = rows.withColumn("snapshot_at", F.timestamp_millis("snapshot_id"))
    with_instant.select(COMMITTED_OFFSETS.stored.names).writeTo(lake.identifier(COMMITTED_OFFSETS)).append()


def _land(lake: Lake, servers: str, number: int) -> None:
    """Reads all committed offsets once into the bronze table, as a snapshot does."""
    snapshot_id = number + 1
    lake.replace(COMMITTED_OFFSETS, _committed(lake.spark, servers, snapshot_id), of_snapshots("bench", [snapshot_id]))


def _judge(lake: Lake, snapshot_id: int) -> None:
    rows = lake.rows(COMMITTED_OFFSETS, of_snapshots("bench", [snapshot_id]))
    judge_rows(rows.chosen(COMMITTED_OFFSETS.observed), COMMITTED_OFFSETS)


def _committed(spark: SparkSession, servers: str, snapshot_id: int) -> DataFrame:
    rows = spark.read.format("kafka_committed_offsets").options(bootstrap_servers=servers).load()
    return rows.withColumns(
        {
            "cluster": F.lit("bench"),
            "snapshot_id": F.lit(snapshot_id).cast("bigint"),
            "snapshot_date": F.lit(utc_date(snapshot_id)),
        }
    )


def _whole_runs(servers: str, runs: int) -> list[float]:
    arguments = _run_arguments(servers)
    return [timed(partial(_submit, *arguments)) for _ in range(runs)]


def _run_arguments(servers: str) -> list[str]:
    """The arguments of the job `run` for a new lake."""
    config = DIRECTORY / "config.toml"
    config.write_text(_CONFIG.format(lake=DIRECTORY.absolute() / f"run-{time.time_ns()}", servers=servers))
    return ["run", "--config", str(config), "--output", str(DIRECTORY / "report.html")]


def _submit(*job: str) -> None:
    _logged("./spark-submit.sh", "--master", "local[2]", "--", *job)


def _logged(*command: str) -> None:
    with (DIRECTORY / "run.log").open("ab") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)


def _describe_all(kafka: EmbeddedKafka) -> None:
    kafka.run_tool(TOOL, "--bootstrap-server", kafka.bootstrap_servers, "--describe", "--all-groups", timeout=600)


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s (best {min(seconds):.2f}, worst {max(seconds):.2f})"


if __name__ == "__main__":
    sys.exit(main())
