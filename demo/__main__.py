"""Run laglake on a real Kafka, end to end: `make demo` or `laglake demo`.

A Kafka with a workload is started in another process. Then the job `snapshot` is called several times, as a scheduler
would do, and at last the job `run`, all in one Spark session. Everything is under build/demo. All processes are stopped
at the end, also after Ctrl-C or a failure; with KEEP=1, Kafka and its workload keep running.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.lake import Lake

DIRECTORY = Path("build/demo")
CONFIG = DIRECTORY / "config.toml"
REPORT = DIRECTORY / "report.html"
INCIDENT = DIRECTORY / "incident.svg"
SNAPSHOTS = 6
EVERY_S = 8.0
KAFKA_START_S = 120.0
KAFKA_STOP_S = 15.0

_CONFIG_TEXT = """\
[lake]
root = "lake"
{settings}
[clusters.demo]
bootstrap_servers = ["{servers}"]
[[clusters.demo.positions]]
source = "kafka_client_metrics"
endpoints = ["{endpoint}"]
[[clusters.demo.positions]]
source = "kafka_client_metrics"
paths = ["{positions}"]
"""


_QUERY = """\
{python} -c "
from laglake import spark_session
spark_session('sql').sql('''
  SELECT group_id, topic, partition, consumer_lag, offset_status FROM delta.\\`{lake}/lag\\`
  ORDER BY snapshot_id DESC, consumer_lag DESC
''').show(30, False)"
"""


class Progress:
    """One line for each step, with the seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        """Prints the line."""
        print(f"[{time.monotonic() - self._started:5.1f} s] {text}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    ArgumentParser("laglake demo", description=__doc__, formatter_class=RawDescriptionHelpFormatter).parse_args(argv)
    keep = bool(os.environ.get("KEEP"))
    say = Progress()
    # In the lake of an earlier demo, the topics of a new Kafka would look recreated.
    shutil.rmtree(DIRECTORY / "lake", ignore_errors=True)
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kafka = start_kafka(keep)
    done = False
    try:
        say("Kafka and its workload are starting; the jars are fetched first where they are absent")
        servers = wait_for_kafka(kafka, say)
        status = run_jobs(servers, say)
        done = True
        return status
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        if keep and done:
            say(f"Kafka and its workload go on (KEEP=1); stop them with: kill {kafka.pid}")
        else:
            stop(kafka)
            say("Kafka and its workload are stopped")


def start_kafka(keep: bool) -> subprocess.Popen[bytes]:
    """Starts `python -m demo.serve` in the background. Unless `keep`, it ends with this process."""
    bootstrap_file().unlink(missing_ok=True)
    command = [sys.executable, "-m", "demo.serve", "--directory", str(DIRECTORY / "kafka")]
    command += [] if keep else ["--with-parent"]
    with (DIRECTORY / "kafka.log").open("wb") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # only this process gets Ctrl-C, and stops Kafka in order
        )


def bootstrap_file() -> Path:
    """The file with Kafka's address, which is written when Kafka is up."""
    return DIRECTORY / "kafka" / "bootstrap-servers"


def wait_for_kafka(kafka: subprocess.Popen[bytes], say: Callable[[str], None]) -> str:
    """Kafka's bootstrap servers. Raises SystemExit with the end of its log if it does not start."""
    deadline = time.monotonic() + KAFKA_START_S
    while not bootstrap_file().exists():
        if kafka.poll() is not None or time.monotonic() > deadline:
            log = DIRECTORY / "kafka.log"
            tail = "\n".join(log.read_text().splitlines()[-5:])
            raise SystemExit(f"Kafka did not start, see {log}:\n{tail}")
        time.sleep(0.2)
    servers = bootstrap_file().read_text()
    say(f"Kafka is up at {servers}, with 8 groups that behave differently")
    return servers


def stop(kafka: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM, and SIGKILL if that does not help."""
    kafka.terminate()
    with suppress(subprocess.TimeoutExpired):
        kafka.wait(KAFKA_STOP_S)
        return
    kafka.kill()
    kafka.wait()


def run_jobs(servers: str, say: Callable[[str], None]) -> int:
    """Takes the snapshots, computes lag, writes the report, prints the groups; returns the exit status."""
    # Spark is imported here, because Kafka starts meanwhile.
    from jobs.terminal import log_to_stderr
    from pipeline.config import load_config
    from pipeline.lake import Lake
    from pipeline.session import spark_session

    write_config(servers)
    log_to_stderr()
    say("Spark is starting")
    spark = spark_session("laglake demo")
    status = take_snapshots(say)
    print_results(Lake(spark, load_config(CONFIG, os.environ).lake))
    return status


def write_config(servers: str) -> None:
    """Writes the pipeline's config for the running Kafka."""
    from demo.workload.workload import endpoint_file, positions_folder
    from jobs.example import SETTINGS

    kafka = (DIRECTORY / "kafka").absolute()
    CONFIG.write_text(
        _CONFIG_TEXT.format(
            settings=SETTINGS.rstrip(),
            servers=servers,
            endpoint=endpoint_file(kafka).read_text(),
            positions=positions_folder(kafka),
        )
    )


def take_snapshots(say: Callable[[str], None]) -> int:
    """Takes the last snapshot with the job `run`, the others with `snapshot`; returns the worst exit status."""
    from jobs import run, snapshot

    options = ["--config", str(CONFIG)]
    status = 0
    for number in range(1, SNAPSHOTS):
        due = time.monotonic() + EVERY_S
        status = max(status, snapshot.main(options))
        say(f"snapshot {number} of {SNAPSHOTS}")
        time.sleep(max(0.0, due - time.monotonic()))
    status = max(status, run.main([*options, "--output", str(REPORT)]))
    say(f"snapshot {SNAPSHOTS} of {SNAPSHOTS}, the lag of all, and the report")
    return status


def print_results(lake: Lake) -> None:
    """Prints the groups, the open findings, and where everything is; also draws the picture of an incident."""
    from demo.incident import write_incident
    from pipeline.report.formats.terminal import GROUPS_LEGEND, format_groups
    from pipeline.report.model.selection import Selection
    from pipeline.report.read.excerpt import Excerpt
    from pipeline.report.write import groups_table
    from pipeline.tables import CLIENT_POSITIONS, FINDINGS, LAG

    print(f"\n{format_groups(groups_table(Excerpt(lake, Selection())))}\n{GROUPS_LEGEND}\n")
    still_there = lake.query(
        "SELECT * FROM {findings} WHERE resolved_at IS NULL ORDER BY severity, group_id, kind LIMIT 20", FINDINGS
    )
    for finding in still_there:
        about = finding["group_id"] or finding["client_id"] or finding["topic"] or finding["cluster"]
        print(f"{finding['severity']}: {about}: {finding['kind']}: {finding['summary']}")
    lag, positions = (lake.rows(table).collected_table() for table in (LAG, CLIENT_POSITIONS))
    picture = write_incident(lag, positions, INCIDENT)
    if picture:
        print(f"\nWhat a client's own metric does not show: {picture}")
    print(f"\nThe report: {REPORT} (open it in a browser). The tables: {DIRECTORY / 'lake'}, as Delta.")
    print(f"To query them with SQL:\n\n{_QUERY.format(python=sys.executable, lake=DIRECTORY.absolute() / 'lake')}")


if __name__ == "__main__":
    sys.exit(main())
