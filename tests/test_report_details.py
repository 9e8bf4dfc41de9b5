"""What the report tells beside the lag of groups: partitions, findings, gauges, brokers; a part of it; one incident."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.analytics.histograms import histograms
from pipeline.report import Frames, details
from pipeline.report.collect import collect
from pipeline.report.incident import moments, write_incident
from pipeline.report.model import Danger, Partition
from pipeline.selection import Selection
from pipeline.tables import CLIENT_DIVERGENCE, COMPUTED, FETCH_POSITIONS, FINDINGS, LAG, SNAPSHOTS
from tests.helpers.reports import MINUTE, NOON, NOW, frame, known, lag_row, snapshot


def at(minute: int) -> datetime:
    return datetime.fromtimestamp(NOON / 1000 + 60 * minute, UTC)


def _in_utc(findings: DataFrame) -> list[Any]:
    """With their times as minutes."""
    minutes = {c: (F.unix_millis(c) - NOON) / MINUTE for c in ("last_seen", "resolved_at")}
    return findings.withColumns(minutes).collect()


class TestDetails:
    def test_the_worst_partitions_of_each_group(self, spark: SparkSession) -> None:
        lag = frame(
            spark,
            LAG,
            lag_row(0, "g", 0, consumer_lag=5, high_watermark=9),
            lag_row(0, "g", 1, consumer_lag=7),
            lag_row(0, "g", 2, consumer_lag=6),
            lag_row(0, "g", 3, offset_status="no_commit"),
            lag_row(0, "g", 5, offset_status="no_watermark"),
            lag_row(0, "h", 0, consumer_lag=0),
            lag_row(0, "other", 0, consumer_lag=99),
            lag_row(0, "g", 4, topic=None, offset_status=None, error="NOT_COORDINATOR"),
        )
        found = [Partition(**r.asDict()) for r in details.partitions(lag, {"g", "h"}, 3).collect()]
        # Without a commit there is no lag, and nothing odd.
        assert [(p.group_id, p.partition) for p in found] == [("g", 5), ("g", 1), ("g", 2), ("h", 0)]

    def test_of_each_group_the_partition_whose_records_are_deleted_first(self, spark: SparkSession) -> None:
        def looks(group: str, partition: int, first: int | None, last: int, lag: int) -> list[dict[str, Any]]:
            return [
                lag_row(0, group, partition, headroom=first, consumer_lag=lag),
                lag_row(10, group, partition, headroom=last, consumer_lag=lag),
            ]

        rows = [
            *looks("g", 0, 400, 300, 9),
            *looks("g", 1, 400, 100, 9),
            *looks("g", 2, 900, 0, 0),  # has read all
            *looks("g", 3, 5, -1, 9),  # is too late
            *looks("g", 4, 5, 5, 9),
            *looks("g", 5, None, 1, 9),
            *looks("later", 0, 1_000_000, 999_999, 9),
            lag_row(10, "new", 0, headroom=1, consumer_lag=9),
        ]
        found = [Danger(**r.asDict()) for r in details.dangers(frame(spark, LAG, *rows), 3_600_000).collect()]
        # 300 offsets in 10 minutes, and 100 are left.
        assert found == [Danger("east", "g", "t", 1, 100, 200_000)]

    def test_open_findings_come_first_then_the_gravest_then_the_newest(self, spark: SparkSession) -> None:
        def found(number: int, severity: str, minute: int, resolved: int | None = None) -> dict[str, Any]:
            first, resolved_at = (None if m is None else at(m) for m in (minute, resolved))
            times = {"first_seen": first, "last_seen": first, "resolved_at": resolved_at}
            named = {
                "finding_id": str(number),
                "kind": "k",
                "cluster": "east",
                "severity": severity,
                "summary": str(number),
            }
            return named | times | {"evidence": '{"a": 1}', "advice": "x"}

        rows = [
            found(1, "warning", 1),
            found(2, "critical", 0),
            found(3, "warning", 2),
            found(4, "critical", 5, resolved=6),
            found(5, "info", 9),
        ]
        listed = details.findings(frame(spark, FINDINGS, *rows), 4).collect()
        assert [r["summary"] for r in listed] == ["2", "3", "1", "5"]
        assert listed[0]["first_seen_ms"] == NOON

    def test_gauges_of_the_clients_that_were_misled_about_most_whatever_their_group(self, spark: SparkSession) -> None:
        def gauge(minute: int, client: str, verdict: str | None, hidden: int | None) -> dict[str, Any]:
            return {
                **lag_row(minute, "g", 0),
                "group_id": None,
                "client_id": client,
                "verdict": verdict,
                "hidden_lag": hidden,
            }

        rows = [
            gauge(0, "honest", "truthful", 900),
            gauge(1, "blind", "truthful", 1),
            gauge(0, "blind", "blind", 9),
            gauge(0, "unknown", None, None),
            gauge(0, "off", "truthful", 901),
        ]
        found = details.gauges(frame(spark, CLIENT_DIVERGENCE, *rows), 2).collect()
        assert [(r["snapshot_id"] - NOON, r["client_id"]) for r in found] in (
            [(0, "blind"), (0, "off"), (MINUTE, "blind")],
            [(0, "off"), (0, "blind"), (MINUTE, "blind")],
        )

    def test_a_distribution_has_the_readers_up_to_each_bucket(self, spark: SparkSession) -> None:
        values = [0, 0, 1, 100, 100, 1_000, None]
        lag = frame(
            spark,
            LAG,
            *(lag_row(0, f"g{n}", 0, leader=1, kip532_bytes=v, kip532_ms=None) for n, v in enumerate(values)),
        )
        computed = frame(spark, COMPUTED, snapshot(0, job="lag"))
        frames = Frames(frame(spark, SNAPSHOTS, snapshot(0)), lag, computed, histograms=histograms(lag))
        found = {d.measure: d for d in collect(frames, NOW, "title").distributions}
        of_bytes = found["kip532_bytes"]
        assert (of_bytes.broker, of_bytes.count, of_bytes.unknown) == (1, 6, 1)
        assert [below for _, below in of_bytes.steps] == [2, 3, 5, 6]
        # Each at the bound of its bucket, at most 9.05 % above the value, the last as it is.
        assert [value for value, _ in of_bytes.steps][::3] == [0, 1_000]
        assert 100 <= of_bytes.steps[2][0] <= 109
        assert (found["kip532_ms"].count, found["kip532_ms"].unknown) == (0, 7)


class TestSelection:
    def test_of_some_groups_topics_clusters_and_a_time(self, spark: SparkSession) -> None:
        snapshots = frame(spark, SNAPSHOTS, *(snapshot(m, cluster=c) for m in range(3) for c in ("east", "west")))
        lag = frame(
            spark,
            LAG,
            *(known(m, g, m, topic=t) for m in range(3) for g, t in (("pay", "a"), ("pay", "b"), ("other", "a"))),
            known(1, "pay", 9, topic="a", cluster="west"),
        )
        found = frame(
            spark,
            FINDINGS,
            *(
                {
                    "cluster": "east",
                    "finding_id": str(n),
                    "group_id": "pay",
                    "topic": topic,
                    "first_seen": a,
                    "last_seen": b,
                }
                for n, (topic, a, b) in enumerate([(None, at(0), at(0)), ("a", at(0), at(2)), ("b", at(1), at(1))])
            ),
        )
        of = Selection(["east"], NOON + MINUTE, NOON + MINUTE, "^pay", "a")
        chosen = Frames(snapshots, lag, findings=found).selected(of)
        assert [tuple(r) for r in chosen.snapshots.select("cluster", "snapshot_id").collect()] == [
            ("east", NOON + MINUTE)
        ]
        assert [(r["group_id"], r["topic"], r["consumer_lag"]) for r in chosen.lag.collect()] == [("pay", "a", 1)]
        assert chosen.findings
        assert [r["finding_id"] for r in chosen.findings.collect()] == ["1"]
        assert str(chosen.selection) == (
            "groups with ^pay, topics with a, from 2026-03-01 12:01:00 UTC, to 2026-03-01 12:01:00 UTC"
        )

    def test_findings_are_as_they_were_then(self, spark: SparkSession) -> None:
        def found(number: int, group: str | None, resolved: int | None) -> dict[str, Any]:
            times = {"first_seen": at(0), "last_seen": at(9), "resolved_at": resolved and at(resolved)}
            return {"cluster": "east", "finding_id": str(number), "group_id": group, **times}

        rows = [found(0, "g", None), found(1, "g", 10), found(2, "g", 4), found(3, None, None)]
        frames = Frames(frame(spark, SNAPSHOTS), frame(spark, LAG), findings=frame(spark, FINDINGS, *rows))
        then = frames.selected(Selection(to_ms=NOON + 5 * MINUTE)).findings
        assert then
        shown = {r["finding_id"]: (r["last_seen"], r["resolved_at"]) for r in _in_utc(then)}
        assert shown == {"0": (5, None), "1": (5, None), "2": (5, 4), "3": (5, None)}
        of_group = frames.selected(Selection(group="g")).findings
        assert of_group
        assert of_group.count() == 3


class TestIncident:
    def test_the_partition_that_its_client_hides_most_of_is_drawn(self, spark: SparkSession, tmp_path: Path) -> None:
        def of_lag(minute: int, number: int, stale_lag: int | None, **more: Any) -> dict[str, Any]:
            plain = {"client_id": "c1", "log_start_offset": 0, "committed_offset": 10, "high_watermark": 110}
            return lag_row(minute, "g", number, stale_lag=stale_lag, consumer_lag=100, **{**plain, **more})

        told = {"consumer_lag_bytes": 5_000, "bytes_error": 20, "consumer_lag_ms": 90_000, "headroom": 10}
        lag = frame(
            spark,
            LAG,
            of_lag(0, 0, 999),
            of_lag(0, 1, None, committed_offset=None, high_watermark=40),
            of_lag(1, 0, 7),
            of_lag(1, 1, 8, **told),
            of_lag(1, 2, None),
        )
        positions = frame(
            spark,
            FETCH_POSITIONS,
            lag_row(0, "g", 1, client_id="c1", reported_lag=3),
            lag_row(1, "g", 1, client_id="c1", reported_lag=2),
            lag_row(1, "g", 0, client_id="c1", reported_lag=50),
            lag_row(1, "g", 1, client_id="other", reported_lag=60),
        )
        rows = moments(lag, positions)
        assert [(r["snapshot_id"] - NOON, r["partition"], r["reported_lag"], r["high_watermark"]) for r in rows] == [
            (0, 1, 3, 40),
            (MINUTE, 1, 2, 110),
        ]
        drawn = write_incident(lag, positions, tmp_path / "new" / "incident.svg")
        assert drawn
        text = drawn.read_text("utf-8")
        assert "behind by 100 records · 5 kB ± 20 B · 1.5 min at the end; 10 records of headroom left" in text
        assert "records-lag of c1" in text
        late = write_incident(lag.withColumn("headroom", -F.col("headroom")), positions, tmp_path / "late.svg")
        assert late
        assert "1.5 min at the end; 10 records were deleted unread" in late.read_text("utf-8")

    def test_without_clients_that_tell_there_is_no_picture(self, spark: SparkSession, tmp_path: Path) -> None:
        output = tmp_path / "incident.svg"
        assert write_incident(frame(spark, LAG, known(0, "g", 5)), frame(spark, FETCH_POSITIONS), output) is None
        assert not output.exists()
