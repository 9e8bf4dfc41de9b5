"""The parts of a report, with simple defaults; and what its page shows."""

import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.config import LakeConfig
from pipeline.lake import Lake
from pipeline.lake.driver_tables import DriverTables, arrow_rows
from pipeline.report.model.details import Finding, Partition
from pipeline.report.model.ledger import Cluster
from pipeline.report.model.report import Group, Instant, Point, Report, Totals, names_of
from pipeline.report.read.collect import GROUPS_CHARTED
from pipeline.tables import BRONZE, TABLES, Table

NOON = 1_772_366_400_000  # 2026-03-01T12:00:00Z
MINUTE = 60_000
NOW = datetime(2026, 3, 1, 13, tzinfo=UTC)
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "\"quotes\" & 'apostrophes'",
    "two\nlines",
    "back\r=1+1",
    "\x1b[31mred\u202egnp",
    "x" * 249,
    "группа-日本語-ü",
    "{{ 7 * 7 }}",
)


def frame(spark: SparkSession, table: Table, *rows: dict[str, Any]) -> DataFrame:
    """The rows as a DataFrame of the table; columns that a row does not name are NULL."""
    return spark.createDataFrame([tuple(row.get(c) for c in table.columns) for row in rows], table.schema)


def table_of(table: Table, *rows: dict[str, Any]) -> pa.Table:
    """The same rows as an Arrow table."""
    return arrow_rows(table, ([row.get(name) for name in table.columns] for row in rows))


def lake_of(folder: Path, **rows: Sequence[dict[str, Any]] | pa.Table) -> Lake:
    """A lake with these rows of the tables of these names, without Spark: it can only be read.

    If no rows of `computed` are given, it says that the snapshots with rows in `lag` are computed.
    """
    lag = {(row["cluster"], row["snapshot_id"]): {**row, "job": "lag"} for row in rows.get("lag", ())}
    driver = DriverTables(folder)
    for table in TABLES:
        if table not in BRONZE:
            driver.create(table, {})
            some = {"computed": [*lag.values()], **rows}.get(table.name, ())
            if len(some):
                driver.overwrite(table, some if isinstance(some, pa.Table) else table_of(table, *some), "true")
    return Lake(None, LakeConfig(root=str(folder)))


def at(minute: int, seconds: int = 0) -> datetime:
    """The instant this long after NOON."""
    return datetime.fromtimestamp(NOON / 1000 + 60 * minute + seconds, UTC)


def snapshot(minute: int, status: str = "complete", cluster: str = "east", **more: Any) -> dict[str, Any]:
    named = {"cluster": cluster, "snapshot_id": NOON + minute * MINUTE, "snapshot_date": date(2026, 3, 1)}
    finished_at = None if status == "running" else at(minute)
    timed = {"started_at": at(minute), "finished_at": finished_at, "schedule_ms": MINUTE}
    return {**named, **timed, "status": status, "run_id": "r", **more}


def lag_row(minute: int, group_id: str, partition: int, **more: Any) -> dict[str, Any]:
    return {
        "cluster": "east",
        "snapshot_id": NOON + minute * MINUTE,
        "snapshot_date": date(2026, 3, 1),
        "group_id": group_id,
        "topic": "t",
        "partition": partition,
        "offset_status": "ok",
        **more,
    }


def known(minute: int, group_id: str, lag: int, **more: Any) -> dict[str, Any]:
    return lag_row(minute, group_id, 0, **{"consumer_lag": lag, "consumer_lag_stable": lag, **more})


def group(group_id: str = "g", lag: int | None = 5, **more: Any) -> Group:
    plain = Group(
        cluster="east",
        snapshot_id=NOON,
        group_id=group_id,
        partitions=1,
        partitions_unknown=0,
        consumer_lag=lag,
        max_consumer_lag=lag,
        consumer_lag_stable=lag,
        stable_unknown=0,
        transaction_lag=0,
        min_headroom=100,
        unread_offsets=None,
        statuses={"ok": 1},
        group_state="Stable",
        group_type="classic",
        members=1,
        clients=1,
        client_id="client",
        rows_with_error=0,
        error=None,
    )
    return replace(plain, **more)


def partition(topic: str, number: int, group_id: str = "g", **more: Any) -> Partition:
    """A partition of which only the given values are known."""
    unknown = dict.fromkeys(names_of(Partition))
    named = {"cluster": "east", "snapshot_id": NOON, "group_id": group_id, "topic": topic, "partition": number}
    named["offset_status"] = "ok"
    return Partition(**{**unknown, **named, **more})


def cluster(name: str = "east", status: str = "complete", **more: Any) -> Cluster:
    plain = Cluster(
        cluster=name,
        snapshot_id=NOON,
        status=status,
        error=None,
        groups=1,
        partitions=1,
        expected={"groups": 1},
        first_snapshot_id=NOON,
        last_snapshot_id=NOON,
        lag_snapshot_id=NOON,
        snapshots=1,
        complete=int(status == "complete"),
        partial=int(status == "partial"),
        failed=int(status == "failed"),
        running=int(status == "running"),
    )
    return replace(plain, **more)


def finding(kind: str = "no_progress", severity: str | None = "critical", **more: Any) -> Finding:
    """An open finding of the group payments in topic orders, seen at NOON only."""
    plain = Finding(
        kind=kind,
        cluster="east",
        group_id="payments",
        client_id=None,
        topic="orders",
        partitions=(0,),
        severity=severity,
        first_seen_ms=NOON,
        last_seen_ms=NOON,
        resolved_ms=None,
        summary="So it is.",
        evidence={},
        advice="Do that.",
    )
    return replace(plain, **more)


def report(*groups: Group, clusters: tuple[Cluster, ...] = (), **more: Any) -> Report:
    """A report on one snapshot of the groups, all of which are charted."""
    plain = Report(
        "Kafka consumer lag",
        NOW,
        clusters=clusters or (cluster(),),
        groups=groups,
        totals={"east": Totals("east", len(groups), 0, 0)},
        instants=(Instant("east", NOON, 0, 1),),
        points=tuple(Point("east", NOON, g.group_id, g.consumer_lag, g.partitions_unknown) for g in groups),
        charted=groups[:GROUPS_CHARTED],
    )
    return replace(plain, **more)


def page_data(page: str) -> dict[str, Any]:
    """The data of the page's script, as a browser finds it: up to the first end tag of a script element."""
    start = r'<script type="application/json" id="page-data">'
    found = re.search(start + "(.*?)</script", page, re.DOTALL | re.IGNORECASE)
    assert found
    parsed: dict[str, Any] = json.loads(found[1])
    return parsed


def text_of(page: str) -> str:
    """The text that a reader of the page sees, without the scripts."""
    body = re.sub(r"<script.*?</script>", "", page[page.index("<body>") :], flags=re.DOTALL)
    body = re.sub(r"</?(bdi|b|wbr)>", "", body)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def cards_of(page: str) -> dict[str, dict[str, str]]:
    """The cards of a page by their title: the answer to each question, the causes and the commands, as text."""
    found = {}
    for card in re.findall(r'<article[^>]* class="card.*?</article>', page, re.DOTALL):
        answers = dict(re.findall(r"<dt>([^<]*)</dt><dd>(.*?)</dd>", card, re.DOTALL))
        answers["causes"] = " | ".join(re.findall(r"<li><span class=\"pill [a-z]+\">(.*?)</li>", card))
        answers["commands"] = "\n".join(re.findall(r"<pre><code>(.*?)</code></pre>", card))
        (title,) = re.findall(r"<h3[^>]*>(.*?)</h3>\s*<small>", card)
        (of,) = re.findall(r"</h3>\s*<small>(.*?)</small>", card)
        plain = {html.unescape(question): _plain(answer) for question, answer in {**answers, "of": of}.items()}
        found[_plain(title)] = {**plain, "commands": html.unescape(answers["commands"])}
    return found


def _plain(text: str) -> str:
    """The text without tags, with single blanks."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split())
