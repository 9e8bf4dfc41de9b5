"""Recordings of real clients, replayed into a lake: rungs, verdicts and findings, compared with independent truth."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs import replay as job
from pipeline.common.errors import ConfigError
from pipeline.lake import Lake, of_cluster
from pipeline.replay import replay
from pipeline.snapshot import take_snapshots
from pipeline.tables import CLIENT_DIVERGENCE, CLIENT_POSITIONS, FINDINGS, LAG, SNAPSHOTS
from tests.helpers.quiet import config
from tests.helpers.recordings import by_partition, table, unpacked

SECOND_MS = 1_000
SAMPLE_MS = 2_000
NOW = datetime(2026, 11, 22, tzinfo=UTC)
Rows = Callable[[Any, str], DataFrame]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replayed")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, folder: Path, few_rows: None) -> Lake:
    return Lake(spark, config(folder, "any", {"any": "127.0.0.1:1"}).lake)


@pytest.fixture(scope="module")
def rows(lake: Lake, folder: Path) -> Rows:
    """The rows of a table for one recording, which is replayed when it is first asked for."""
    replayed = set()

    def rows(table: Any, recording: str) -> DataFrame:
        if recording not in replayed:
            settings = config(folder, "any", {"any": "127.0.0.1:1"})
            assert replay(lake, settings, unpacked(recording, folder), recording, lambda: NOW) > 0
            replayed.add(recording)
        return lake.frame(table, of_cluster(recording))

    return rows


def finding(rows: Rows, recording: str, kind: str) -> Any:
    """The one finding of a kind, with its times in epoch ms."""
    names = ("first_seen", "last_seen", "resolved_at")
    times = {f"{name}_ms": F.unix_millis(name) for name in names}
    (found,) = rows(FINDINGS, recording).where(F.col("kind") == kind).withColumns(times).collect()
    return found


def kinds(rows: Rows, recording: str) -> set[tuple[str, str]]:
    """The findings of clients."""
    return {(r.kind, r.client_id) for r in rows(FINDINGS, recording).where("client_id IS NOT NULL").collect()}


@pytest.mark.thorough
def test_each_round_is_a_snapshot_of_its_own_time(rows: Rows, folder: Path) -> None:
    ledger = rows(SNAPSHOTS, "modern-b").orderBy("snapshot_id").collect()
    rounds = sorted(int(f.stem) for f in (folder / "modern-b" / "aggregator" / "jolokia").iterdir())
    assert [r.snapshot_id for r in ledger] == rounds
    assert {r.status for r in ledger} == {"complete"}
    of_lag = rows(LAG, "modern-b").select("snapshot_id", F.unix_millis("captured_at").alias("at_ms")).distinct()
    assert {(r.snapshot_id, r.at_ms) for r in of_lag.collect()} == {(at_ms, at_ms) for at_ms in rounds}
    reported = rows(SNAPSHOTS, "librdkafka").select("snapshot_id").collect()
    lines = (folder / "librdkafka" / "statistics.jsonl").read_text().splitlines()
    assert {r.snapshot_id for r in reported} == {json.loads(line)["ts"] for line in lines}


@pytest.mark.thorough
def test_a_second_replay_adds_nothing(lake: Lake, rows: Rows, folder: Path) -> None:
    assert rows(LAG, "modern-b").count() > 0
    settings = config(folder, "any", {"any": "127.0.0.1:1"})
    versions = {t.name: lake.spark.sql(f"DESCRIBE HISTORY {lake.identifier(t)}").count() for t in (LAG, FINDINGS)}
    assert replay(lake, settings, folder / "modern-b", "modern-b", lambda: NOW) == 0
    again = {t.name: lake.spark.sql(f"DESCRIBE HISTORY {lake.identifier(t)}").count() for t in (LAG, FINDINGS)}
    assert again == versions


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("recording", "positions", "least"),
    [
        ("modern-b", "aggregator/positions.csv", 0.97),
        ("modern-b", "ledger/positions.csv", 0.97),
        ("modern-b-slow", "worker-1/positions.csv", 0.97),
        ("librdkafka", "positions.csv", 0.97),
    ],
)
def test_the_consumed_offset_equals_the_position_of_the_application(
    rows: Rows, folder: Path, recording: str, positions: str, least: float
) -> None:
    lag = rows(LAG, recording)
    printed = by_partition(table(folder / recording / positions))
    clients = {line["client_id"] for lines in printed.values() for line in lines}
    reported, asked, wrong = 0, 0, []
    for row in lag.where(F.col("client_id").isin(*clients)).collect():
        lines = [line for line in printed[row.topic, row.partition] if line["client_id"] == row.client_id]
        before = [int(r["position"]) for r in lines if int(r["ts"]) <= row.snapshot_id]
        after = [int(r["position"]) for r in lines if int(r["ts"]) >= row.snapshot_id + SECOND_MS]
        if before and after and before[-1] > 0:
            asked += 1
            reported += row.consumed_offset is not None
            if row.consumed_offset is not None and not before[-1] <= row.consumed_offset <= after[0]:
                wrong.append((row.snapshot_id, row.topic, row.partition, row.consumed_offset, before[-1], after[0]))
    assert wrong == []
    assert asked >= 100
    assert reported >= least * asked


@pytest.mark.thorough
def test_stale_lag_names_the_paused_and_the_slow_topic(rows: Rows) -> None:
    def largest(recording: str, client: str) -> dict[str, int]:
        lag = rows(LAG, recording).where(F.col("client_id") == client)
        return {r.topic: r.stale for r in lag.groupBy("topic").agg(F.max("stale_lag").alias("stale")).collect()}

    paused = largest("modern-b", "shop-agg-1")
    # 882 was the position, 1972 the end of clicks-0 in the last round before it was resumed.
    assert paused["clicks"] == 1972 - 882
    assert max(stale for topic, stale in paused.items() if topic != "clicks") < 50
    slow = largest("modern-b-slow", "billing-worker-1")
    assert slow["page_views"] > 1_200


@pytest.mark.thorough
def test_a_reader_behind_an_open_transaction_is_measured_to_what_it_may_read(rows: Rows) -> None:
    stuck = rows(LAG, "modern-b").where("client_id = 'ledger-rc' AND partition = 0 AND snapshot_id > 1795255760000")
    found = stuck.where("snapshot_id < 1795255800000").collect()
    assert len(found) >= 15
    assert {r.last_stable_offset for r in found} == {220}
    assert all(-3 <= r.stale_lag <= 3 and r.high_watermark - r.consumed_offset > 100 for r in found)


def test_a_blocked_connector_is_one_finding_with_its_culprit_and_victims(rows: Rows) -> None:
    asleep_ms = 1795255108265
    found = finding(rows, "legacy-a2-blocked", "blocked_connector")
    assert (found.group_id, found.client_id, found.topic) == ("backend", "backend", "order.events")
    assert asleep_ms < found.first_seen_ms <= asleep_ms + 3 * SAMPLE_MS
    assert found.resolved_at is None
    evidence = json.loads(found.evidence)
    assert evidence["culprit_topic"] == "order.events"
    assert evidence["victim_topics"] == ["mail_queue", "web-clicks"]
    assert "order.events" in found.summary
    assert found.last_seen_ms == rows(SNAPSHOTS, "legacy-a2-blocked").agg(F.max("snapshot_id")).collect()[0][0]


@pytest.mark.thorough
def test_a_topic_that_drains_after_a_stall_is_not_a_second_culprit(rows: Rows, folder: Path) -> None:
    """The recording up to 70 s of the stall; in its last round another topic's queue is full, as when a stall ends."""
    end_ms = 1795255108265 + 70 * SECOND_MS
    whole, part = unpacked("legacy-a2-blocked", folder), folder / "two-culprits"
    (part / "jolokia").mkdir(parents=True)
    shutil.copy(whole / "truth.csv", part)
    kept = [file for file in sorted((whole / "jolokia").iterdir()) if end_ms - 85 * SECOND_MS < int(file.stem) < end_ms]
    for file in kept:
        shutil.copy(file, part / "jolokia")
    queue = "FetchQueueSize,threadId={},topic={},type=ZookeeperConsumerConnector"
    text = kept[-1].read_text()
    for thread, topic, old, new in ((0, "order.events", 2, 1), (0, "web-clicks", 0, 2), (0, "mail_queue", 0, 1)):
        said = f'{queue.format(thread, topic)}":{{"Value":%d}}'
        assert said % old in text
        text = text.replace(said % old, said % new)
    (part / "jolokia" / kept[-1].name).write_text(text)
    blocked = rows(FINDINGS, "two-culprits").where("kind = 'blocked_connector'").orderBy("first_seen").collect()
    assert [(r.topic, r.severity) for r in blocked] == [("order.events", "critical"), ("web-clicks", "warning")]
    first, second = (json.loads(r.evidence) for r in blocked)
    assert (first["culprit_topic"], first["victim_topics"]) == ("order.events", ["mail_queue", "web-clicks"])
    assert (second["culprit_topic"], second["victim_topics"]) == ("web-clicks", [])
    assert "order.events" in blocked[0].summary
    assert blocked[0].worst_at < blocked[1].first_seen


@pytest.mark.thorough
def test_in_a_stall_the_fetched_offset_stands_still_and_fetcher_lag_grows(rows: Rows) -> None:
    """MaxLag is 0 all the time."""
    stalled = rows(LAG, "legacy-a2-blocked").where("snapshot_id > 1795255115000").orderBy("snapshot_id")
    for topic in ("order.events", "web-clicks", "mail_queue"):
        found = stalled.where((F.col("topic") == topic) & (F.col("partition") == 0)).collect()
        assert len({r.fetched_offset for r in found}) == 1
        assert found[-1].fetcher_lag > 900
        assert all(r.fetched_offset <= r.high_watermark for r in found)
        assert all(r.divergence + r.fetcher_lag == r.consumer_lag for r in found)
    reported = rows(CLIENT_DIVERGENCE, "legacy-a2-blocked").where("snapshot_id > 1795255115000").collect()
    assert {(r.max_lag, r.verdict) for r in reported} == {(0, "stale")}


@pytest.mark.thorough
def test_max_lag_of_default_buffers_is_blind_and_of_small_ones_truthful(rows: Rows) -> None:
    def verdicts(client: str) -> list[Any]:
        found = rows(CLIENT_DIVERGENCE, "legacy-a1-maxlag").where(F.col("client_id") == client)
        return found.orderBy("snapshot_id").collect()

    blind = [r for r in verdicts("mgroup") if r.verdict]
    assert {r.verdict for r in blind} <= {"blind", "stale"}
    assert {r.max_lag for r in blind} == {0}
    assert all(r.max_consumer_lag > 6_500 and r.max_divergence > 6_000 for r in blind)
    truthful = [r for r in verdicts("mgroup-small") if r.verdict]
    assert {r.verdict for r in truthful} == {"truthful"}
    # 40 to 60 records are in its queues, or processed and not committed; a queue hides one chunk of 2048 bytes.
    assert all(r.max_divergence < 100 for r in truthful)
    assert all(10 <= r.queue_records <= 25 for r in truthful if r.queue_records)
    assert len(truthful) > 60


@pytest.mark.thorough
def test_a_message_that_is_too_large_is_another_kind_than_a_blocked_connector(rows: Rows) -> None:
    assert ("too_large_message", "mgroup-ten") in kinds(rows, "legacy-a1-maxlag")
    assert ("blocked_connector", "mgroup-ten") not in kinds(rows, "legacy-a1-maxlag")
    assert "fetch.message.max.bytes" in finding(rows, "legacy-a1-maxlag", "too_large_message").summary


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("recording", "topic", "from_ms", "to_ms"),
    [
        ("modern-b", "clicks", 1795255742431, 1795255797442),
        ("librdkafka", "shop-paused", 1795258605516, 1795258640689),
    ],
)
def test_paused_partitions_are_one_finding_that_is_resolved(
    rows: Rows, recording: str, topic: str, from_ms: int, to_ms: int
) -> None:
    found = finding(rows, recording, "paused_partition")
    assert (found.topic, found.partitions) == (topic, [0, 1])
    assert from_ms < found.first_seen_ms
    # After it is resumed, it continues with what is in its queue.
    assert to_ms - 2 * SAMPLE_MS <= found.last_seen_ms < found.resolved_at_ms <= to_ms + 4 * SAMPLE_MS


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("recording", "client", "topic"),
    [("modern-b-slow", "billing-worker-1", "invoices"), ("librdkafka", "shop.client-1", "shop.slow")],
)
def test_the_slow_topic_of_a_poll_loop_is_named(rows: Rows, recording: str, client: str, topic: str) -> None:
    found = finding(rows, recording, "slow_consumer")
    assert (found.client_id, found.topic) == (client, topic)


@pytest.mark.thorough
def test_healthy_clients_have_no_findings(rows: Rows) -> None:
    assert kinds(rows, "modern-b") == {("paused_partition", "shop-agg-1"), ("blind_gauge", "shop-agg-1")}
    # The topics that the slow one delays have their turn too seldom to be judged as paused.
    assert "paused_partition" not in {kind for kind, _ in kinds(rows, "modern-b-slow")}
    assert {client for _, client in kinds(rows, "legacy-a1-maxlag")} >= {"mgroup", "mgroup-ten"}
    assert ("blind_gauge", "mgroup-small") not in kinds(rows, "legacy-a1-maxlag")


def test_endpoints_are_relative_to_the_recording(rows: Rows) -> None:
    endpoints = {r.endpoint for r in rows(CLIENT_POSITIONS, "modern-b").select("endpoint").distinct().collect()}
    assert "aggregator/jolokia/1795255699058.json" in endpoints
    assert not any(endpoint.startswith("/") for endpoint in endpoints)


def test_a_folder_without_a_recording_is_refused(lake: Lake, folder: Path, tmp_path: Path) -> None:
    settings = config(folder, "any", {"any": "127.0.0.1:1"})
    with pytest.raises(ConfigError, match="holds no recording"):
        replay(lake, settings, tmp_path, "x", lambda: NOW)
    with pytest.raises(ConfigError, match="is not a folder"):
        replay(lake, settings, tmp_path / "absent", "x", lambda: NOW)
    (tmp_path / "jolokia").mkdir()
    (tmp_path / "jolokia" / "1795255699058.json").write_text("{")
    (tmp_path / "truth.csv").write_text("ts,group,topic,partition,log_start,high_watermark,committed\n1,g,t,x,0,0,0\n")
    with pytest.raises(ConfigError, match=r"truth.csv: line 2"):
        replay(lake, settings, tmp_path, "x", lambda: NOW)


def test_a_recording_is_not_mixed_with_snapshots_of_a_cluster(lake: Lake, rows: Rows, folder: Path) -> None:
    recording = folder / "modern-b"
    assert rows(SNAPSHOTS, "modern-b").count() > 0
    with pytest.raises(ConfigError, match="--cluster any: is a cluster of the config"):
        replay(lake, config(folder, "any", {"any": "127.0.0.1:1"}), recording, "any", lambda: NOW)
    take_snapshots(lake.spark, config(folder, "any", {"taken": "127.0.0.1:1"}), ["taken"], None, lambda: NOW)
    with pytest.raises(ConfigError, match="--cluster taken: the lake has snapshots that were taken of that cluster"):
        replay(lake, config(folder, "any", {"any": "127.0.0.1:1"}), recording, "taken", lambda: NOW)


def test_the_job_asks_for_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        job.main(["--config", "conf/local.toml"])
    assert "--recording" in capsys.readouterr().err
