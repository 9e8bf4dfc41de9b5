"""What the report shows besides the lag of groups: partitions, findings, gauges, brokers; a selection; one incident."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo.incident import moments, write_incident
from pipeline.analytics.histograms.lag_histograms import histograms_of_snapshots
from pipeline.common.epoch import to_epoch_ms
from pipeline.common.rows import Rows
from pipeline.report.model.details import Change, Partition
from pipeline.report.model.selection import Selection
from pipeline.report.read import details
from pipeline.report.read.collect import collect
from pipeline.report.read.excerpt import Excerpt
from pipeline.report.read.objects import findings, made
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    CLIENT_POSITIONS,
    FINDINGS,
    GROUP_CHANGES,
    LAG,
)
from tests.helpers.reports import MINUTE, NOON, NOW, at, known, lag_row, lake_of, snapshot, table_of


def minute(instant: datetime | None) -> float | None:
    return None if instant is None else (to_epoch_ms(instant) - NOON) / MINUTE


def lasting(number: int, last: int, group: str | None = "g", **ended: int) -> dict[str, Any]:
    times = {"first_seen": at(0), "last_seen": at(last), **{name: at(m) for name, m in ended.items()}}
    return {"cluster": "east", "finding_id": str(number), "group_id": group, "summary": "of now", **times}


def then(number: int, minute: int, magnitude: int, topic: str | None = None) -> dict[str, Any]:
    reported = {"severity": "warning", "magnitude": float(magnitude), "summary": f"of {minute}", "topic": topic}
    return {**lag_row(minute, "g", 0), **reported, "finding_id": str(number)}


def incident(**late: Any) -> tuple[pa.Table, pa.Table]:
    """The lag and the positions of a client whose own gauge hides most of the lag in partition 1.

    `late` are other values of each row of `lag`.
    """

    def of_lag(minute: int, number: int, stale_lag: int | None, **more: Any) -> dict[str, Any]:
        plain = {"client_id": "c1", "log_start_offset": 0, "committed_offset": 10, "high_watermark": 110}
        return lag_row(minute, "g", number, stale_lag=stale_lag, consumer_lag=100, **{**plain, **more, **late})

    reported = {"consumer_lag_bytes": 5_000, "bytes_error": 20, "consumer_lag_ms": 90_000, "headroom": 10}
    lag = table_of(
        LAG,
        of_lag(0, 0, 999),
        of_lag(0, 1, None, committed_offset=None, high_watermark=40),
        of_lag(1, 0, 7),
        of_lag(1, 1, 8, **reported),
        of_lag(1, 2, None),
    )
    positions = table_of(
        CLIENT_POSITIONS,
        lag_row(0, "g", 1, client_id="c1", reported_lag=3),
        lag_row(1, "g", 1, client_id="c1", reported_lag=2),
        lag_row(1, "g", 0, client_id="c1", reported_lag=50),
        lag_row(1, "g", 1, client_id="other", reported_lag=60),
    )
    return lag, positions


class TestDetails:
    def test_the_worst_partitions_of_each_group(self) -> None:
        lag = table_of(
            LAG,
            lag_row(0, "g", 0, consumer_lag=5, high_watermark=9),
            lag_row(0, "g", 1, consumer_lag=7),
            lag_row(0, "g", 2, consumer_lag=6),
            lag_row(0, "g", 3, offset_status="no_commit"),
            lag_row(0, "g", 5, offset_status="no_watermark"),
            lag_row(0, "h", 0, consumer_lag=0),
            lag_row(0, "g", 4, topic=None, offset_status=None, error="NOT_COORDINATOR"),
        )
        found = made(Partition, details.partitions(lag, 3))
        # Without a commit there is no lag, and nothing unusual.
        assert [(p.group_id, p.partition) for p in found] == [("g", 5), ("g", 1), ("g", 2), ("h", 0)]

    def test_open_findings_come_first_then_the_gravest_then_the_newest(self) -> None:
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
        known = table_of(FINDINGS, *rows)
        known = known.append_column("silenced", pa.nulls(len(known), pa.string()))
        listed = findings(details.findings(known, 4))
        assert [f.summary for f in listed] == ["2", "3", "1", "5"]
        assert (listed[0].first_seen_ms, listed[0].evidence) == (NOON, {"a": 1})
        (chosen,) = findings(details.findings(known, 1, "4"))
        assert chosen.summary == "4"

    def test_the_most_misleading_gauges_are_shown_for_any_group(self) -> None:
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
        found = details.gauges(table_of(CLIENT_DIVERGENCE, *rows), 2).to_pylist()
        assert [(r["snapshot_id"] - NOON, r["client_id"]) for r in found] == [
            (0, "blind"),
            (0, "off"),
            (MINUTE, "blind"),
        ]

    def test_a_distribution_has_the_readers_up_to_each_bucket(self, tmp_path: Path) -> None:
        values = [0, 0, 1, 100, 100, 1_000, None]
        lag = [lag_row(0, f"g{n}", 0, leader=1, kip532_bytes=v, kip532_ms=None) for n, v in enumerate(values)]
        counted = histograms_of_snapshots(Rows(table_of(LAG, *lag))).collected()
        lake = lake_of(tmp_path, snapshots=[snapshot(0)], lag=lag, lag_histograms=counted)
        found = {d.measure: d for d in collect(Excerpt(lake), NOW, "title").distributions}
        of_bytes = found["kip532_bytes"]
        assert (of_bytes.broker, of_bytes.count, of_bytes.unknown) == (1, 6, 1)
        assert [below for _, below in of_bytes.steps] == [2, 3, 5, 6]
        # Each is at the upper bound of its bucket, at most 9.05 % above the value; the last one is exact.
        assert [value for value, _ in of_bytes.steps][::3] == [0, 1_000]
        assert 100 <= of_bytes.steps[2][0] <= 109
        assert (found["kip532_ms"].count, found["kip532_ms"].unknown) == (0, 7)


class TestSelection:
    def test_a_selection_limits_groups_topics_clusters_and_time(self, tmp_path: Path) -> None:
        lag = [
            *(known(m, g, m, topic=t) for m in range(3) for g, t in (("pay", "a"), ("pay", "b"), ("other", "a"))),
            known(1, "pay", 9, topic="a", cluster="west"),
        ]
        found = [
            {
                "cluster": "east",
                "finding_id": str(n),
                "group_id": "pay",
                "topic": topic,
                "first_seen": a,
                "last_seen": b,
            }
            for n, (topic, a, b) in enumerate([(None, at(0), at(0)), ("a", at(0), at(2)), ("b", at(1), at(1))])
        ]
        snapshots = [snapshot(m, cluster=c) for m in range(3) for c in ("east", "west")]
        of = Selection(["east"], NOON + MINUTE, NOON + MINUTE, "^pay", "a")
        chosen = Excerpt(lake_of(tmp_path, snapshots=snapshots, lag=lag, findings=found), of)
        assert [(r["cluster"], r["snapshot_id"]) for r in chosen.ledger().to_pylist()] == [("east", NOON + MINUTE)]
        read = chosen.at(LAG, {"east": [NOON + MINUTE]}).collected()
        assert [(r["group_id"], r["topic"], r["consumer_lag"]) for r in read] == [("pay", "a", 1)]
        assert chosen.findings()["finding_id"].to_pylist() == ["1"]
        assert str(chosen.selection) == (
            "groups with ^pay, topics with a, from 2026-03-01 12:01:00 UTC, to 2026-03-01 12:01:00 UTC"
        )

    def test_findings_are_shown_as_they_were_at_the_selected_time(self, tmp_path: Path) -> None:
        rows = [
            lasting(0, 9),
            lasting(1, 9, resolved_at=10, resolution_confirmed_at=12),
            lasting(2, 3, resolved_at=4, resolution_confirmed_at=5),
            lasting(3, 3, None, resolved_at=4, resolution_confirmed_at=6),
            lasting(4, 3, resolved_at=4),  # from a laglake that did not keep more about it
            lasting(5, 9) | {"first_seen": at(6)},
        ]
        seen = [then(0, 0, 1), then(0, 2, 7, "a"), then(0, 4, 3), then(0, 9, 9, "b"), then(1, 1, 1), then(1, 9, 1)]
        lake = lake_of(tmp_path, findings=rows, finding_history=seen)

        def shown(selection: Selection) -> dict[str, tuple[Any, ...]]:
            times = ("last_seen", "resolved_at", "worst_at")
            found = Excerpt(lake, selection).findings().to_pylist()
            return {r["finding_id"]: (*(minute(r[name]) for name in times), r["summary"], r["topic"]) for r in found}

        until = shown(Selection(to_ms=NOON + 5 * MINUTE))
        assert until == {
            "0": (4, None, 2, "of 2", "a"),
            "1": (1, None, 1, "of 1", None),
            "2": (3, 4, None, "of now", None),
            "3": (3, None, None, "of now", None),
            "4": (3, 4, None, "of now", None),
        }
        # Its worst moment may be before the selected time; it was last seen within it.
        window = {"from_ms": NOON + 4 * MINUTE, "to_ms": NOON + 5 * MINUTE}
        assert shown(Selection(**window)) == {"0": until["0"]}
        assert set(shown(Selection(**window, topic="a"))) == {"0"}
        assert not shown(Selection(**window, topic="b"))
        assert set(shown(Selection(group="g"))) == {"0", "1", "2", "3", "4", "5"}

    def test_findings_of_topics_and_clusters_are_shown_if_they_may_concern_a_selected_group(
        self, tmp_path: Path
    ) -> None:
        named = [(["pay", "web"], 2), (["web", "x"], 2), (["web", "x"], 30), (None, None)]
        rows = [
            lasting(number, 9, None) | {"evidence": json.dumps({"groups": groups, "groups_affected": affected})}
            for number, (groups, affected) in enumerate(named)
        ]
        rows += [lasting(4, 9, None) | {"client_id": "app"}, lasting(5, 9, "web"), lasting(6, 9, "pay")]
        found = Excerpt(lake_of(tmp_path, findings=rows), Selection(group="^pay$")).findings()
        assert sorted(found["finding_id"].to_pylist()) == ["0", "2", "3", "6"]


class TestIncident:
    def test_the_partition_that_its_client_hides_most_of_is_drawn(self, tmp_path: Path) -> None:
        lag, positions = incident()
        rows = moments(lag, positions)
        assert [(r["snapshot_id"] - NOON, r["partition"], r["reported_lag"], r["high_watermark"]) for r in rows] == [
            (0, 1, 3, 40),
            (MINUTE, 1, 2, 110),
        ]
        drawn = write_incident(lag, positions, tmp_path / "new" / "incident.svg")
        assert drawn
        text = drawn.read_text("utf-8")
        assert "behind by 100 records · 5 kB ± 20 B · 1.5 min at the end; 10 records of headroom left" in text
        assert "records-lag: c1" in text

    def test_the_picture_says_how_many_records_were_deleted(self, tmp_path: Path) -> None:
        for status, consumed, words in (
            ("deleted_unread", None, "10 records were deleted unread"),
            ("deleted_unread", 14, "6 records were deleted unread"),
            ("deleted_uncommitted", 20, "10 records after the commit were deleted"),
        ):
            late = {"headroom": -10, "log_start_offset": 20, "offset_status": status, "consumed_offset": consumed}
            drawn = write_incident(*incident(**late), tmp_path / "late.svg")
            assert drawn
            assert f"1.5 min at the end; {words}" in drawn.read_text("utf-8")

    def test_without_reporting_clients_there_is_no_picture(self, tmp_path: Path) -> None:
        output = tmp_path / "incident.svg"
        assert write_incident(table_of(LAG, known(0, "g", 5)), table_of(CLIENT_POSITIONS), output) is None
        assert not output.exists()

    def test_changes_are_summed_up_by_snapshot(self) -> None:
        def change(minute: int, what: str, group_id: str = "g", **more: Any) -> dict[str, Any]:
            return {**lag_row(minute, group_id, 0), "topic": None, "change": what, **more}

        rows = table_of(
            GROUP_CHANGES,
            change(0, "joined", client_id="oldest"),
            *(change(1, "joined", client_id=f"c{n}", after=f"m{n}") for n in (3, 1, 4, 2)),
            change(1, "moved", partitions=[0, 1]),
            change(1, "moved", partitions=[5]),
            change(2, "state", before="Stable", after="Empty"),
            change(0, "vanished", "h", cluster="west"),
        )
        assert made(Change, details.changes(rows, 2)) == (
            Change(
                "east",
                NOON + MINUTE,
                "g",
                "joined",
                4,
                0,
                None,
                "m4",
                (
                    "c1",
                    "c2",
                    "c3",
                    "c4",
                ),
            ),
            Change("east", NOON + MINUTE, "g", "moved", 2, 3, None, None, ()),
            Change("east", NOON + 2 * MINUTE, "g", "state", 1, 0, "Stable", "Empty", ()),
            Change("west", NOON, "h", "vanished", 1, 0, None, None, ()),
        )
