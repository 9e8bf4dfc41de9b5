"""Writes docs/benchmarks.md: what a user may rely on, which targets are missed by how much and why, and all figures."""

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

DOCUMENT = Path("docs/benchmarks.md")


def write_section(document: Path, heading: str, section: str) -> None:
    """Replaces the section of this second-level heading, or adds it at the end, and prints it."""
    text = document.read_text()
    before, _, rest = text.partition(f"\n{heading}\n")
    _, next_heading, after = rest.partition("\n## ")
    document.write_text(f"{before.rstrip()}\n\n{section.strip()}\n{next_heading}{after}")
    print(section)


_HEAD = """\
# Benchmarks

On two cores, a warm process reads 200,000 committed offsets and lands them in 2 s. A new process computes the lag of
200,000 readers, with all that follows from it, in 18 s, and that of a million in 44 s. You may rely on this: the time
grows with the number of rows, and hardly with the age of the lake.
A `run` in a new process takes as long as a process that starts Spark and appends one row: 9 s for 9 groups, and 16 s
for 500 groups with 200,000 commits. Without Spark (`--local`) it takes 3.3 and 9 s, and 1.3 s for 9 groups in a process
that keeps running. The rows about new processes below are older, as their dates say.
[Design](design-cost.md#what-a-run-costs) says where the time goes and what was tried.

## Targets that are missed

{missed}

Figures of different days differ: a later `run` with 500 groups was measured twice, with 45.36 s and with 52.86 s.

## All figures

`make bench` prints these figures and writes this file.
Machine: {machine}.
There is one embedded broker, and Spark runs as local[2]. The broker has 500 groups with 400 partitions each, or 2,500
groups with 400 each, unless a row says otherwise. The job `lag` reads a lake with generated data, and writes all
tables. Where functions are measured by themselves, their data are read from Parquet, and their results are not
written. Warm: the median after two runs that are not counted. If a target is missed, `×` says by how many times the
figure is too large or too small.

"""
_MISSED_HEAD = "| what | target | measured | missed by | why |\n|---|---|---|---|---|"
_START = "some 24 s are fixed, as a run with 9 groups shows: starting Spark, loading its code, some twenty queries"
_REASONS = {
    "first `run` of 200,000 rows by spark-submit.sh, which makes the lake": f"{_START}; the first run also creates "
    "all tables",
    "later `run` by spark-submit.sh, JVM start included": _START,
    "how many times faster: appended": "Kafka's tool needs only 16.1 s for the same offsets, so laglake would have to "
    "read and append them in 0.8 s; what its 0.97 s consist of was not measured",
    "peak memory: driver's Python": "not known: the benchmark measures the peak, not what is in it",
    "ladder, all units and histograms": "of the 31 s of CPU for the ladder with members, 17 are the JVM's, for "
    "scans, one exchange and the way to Python and back; the function of a bucket needs 7, the curves of brokers 4",
    "1,000,000 readers joined with what clients report of as many partitions": "of 35 s of CPU time, naming the "
    "processes takes 12, finding the groups 6, two windows over each series 10, and the last aggregation 3",
    "`run` against the process that appends one row, 9 groups, 27 rows": "a run loads more of Spark's code and sends "
    "some twenty queries, which take 0.1 to 0.3 s each whatever they read; the other process writes one row",
    "`run` against ConsumerGroupCommand, 9 groups, 27 rows": "Kafka's tool only prints. A process "
    "that starts Spark and appends one row takes 6.78 s, so no Spark job can be as quick",
    "`run` against the process that appends one row, 500 groups, 200,000 rows": "at that time, a run with more "
    "than 50,000 rows left reads and writes to Spark's queries; the other process writes one row",
    "`run` against ConsumerGroupCommand, 500 groups, 200,000 rows": "the tool only prints. A run also writes all "
    "tables, and computes lag, status, histograms and the report",
}
"""Why a target is missed, by the name of the figure. Figures in it are those of this page or of docs/design.md."""


def _met(value: str, target: str) -> str:
    """Whether the number at the beginning of `value` meets `target`, such as "≤ 8 s"; a dash if there is no target.

    If the target is missed, the result also says by which factor.
    """
    limit = re.match(r"[≤<≥] ([\d,.]+)", target)
    if not limit:
        return "–"
    measured, bound = (float(text.replace(",", "")) for text in (value.split(maxsplit=1)[0], limit[1]))
    ratio = bound / measured if target[0] == "≥" else measured / bound
    return "yes" if ratio <= 1 else f"no, {ratio:.2f} ×"


def _missed_by(value: str, target: str) -> str:
    """By how much a target is missed, in its unit and as a factor."""
    measured, *unit = value.replace(",", "").split(" (")[0].split()
    bound = float(re.sub("[^0-9.]", "", target))
    digits = len(measured.partition(".")[2])
    return f"{abs(float(measured) - bound):.{digits}f}{' ' + unit[0] if unit else ''} ({_met(value, target)[4:]})"


def write_page(figures: list[tuple[str, str, str]]) -> None:
    """Writes each figure with its day. Figures that were not measured now stay as they were."""
    kept = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| .+? \| (\d{4}-.+?) \|$", DOCUMENT.read_text(), re.MULTILINE)
    today = datetime.now(UTC).date().isoformat()
    rows = {what: rest for what, *rest in kept} | {what: [value, target, today] for what, value, target in figures}
    missed = "\n".join(
        f"| {what} | {target} | {value.split(' (')[0]} | {_missed_by(value, target)} | {_REASONS.get(what, '–')} |"
        for what, (value, target, _) in rows.items()
        if _met(value, target).startswith("no")
    )
    table = "\n".join(
        f"| {what} | {value} | {target} | {_met(value, target)} | {day} |"
        for what, (value, target, day) in rows.items()
    )
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    head = _HEAD.format(machine=machine, missed=f"{_MISSED_HEAD}\n{missed}")
    DOCUMENT.write_text(f"{head}| what | measured | target | met | on |\n|---|---|---|---|---|\n{table}\n")
    print(f"written to {DOCUMENT}")
