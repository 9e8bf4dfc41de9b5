"""The data source `kafka_log_segments` and `locate` in Spark, compared with Kafka's own tools on the same files."""

import csv
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics.lag.lag import lag_table
from pipeline.analytics.log_index.index import rulers
from pipeline.common.errors import ConfigError
from pipeline.log_segments.log_dirs import PartitionDir
from pipeline.log_segments.source import (
    LogSegmentsOptions,
    LogSegmentsSource,
    PartitionDirs,
    bunches,
    locate,
    location_rows,
)
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, LOG_INDEX, LOG_SAMPLES, WATERMARKS
from tests.conftest import ROOT
from tests.helpers.rows import frame

DATA = ROOT / "tests" / "data" / "segments"
TRUTH = list(csv.DictReader((DATA / "truth.csv").read_text().splitlines()))
RECORDED_OFFSETS = list(csv.DictReader((DATA / "offsets.csv").read_text().splitlines()))
MIB = 1024 * 1024
NAMES = [
    *("topic", "topic_id", "partition", "log_dir", "segment_base_offset", "base_offset", "last_offset"),
    *("position_bytes", "batch_bytes", "record_count", "max_timestamp_ms", "timestamp_type", "codec"),
    *("is_transactional", "is_control", "error"),
]
DUMPED = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isTransactional: (\w+) isControl: (\w+) .* "
    r"position: (\d+) CreateTime: (\d+) size: (\d+) magic: 2 compresscodec: (\w+) "
)
OLD_MESSAGE = bytes.fromhex("0000000000000000 00000016 cafef00d 01 00 0000000000000000 ffffffff ffffffff")
"""Offset, size, CRC, magic 1, attributes, timestamp, no key, no value."""

ENDS = "log_start last_stable_offset high_watermark log_end log_bytes"
WATERMARK = "snapshot_id topic partition log_start_offset last_stable_offset high_watermark log_end_offset log_bytes"

Row = tuple[Any, ...]


def dumped(log_dir: Path) -> Iterator[Row]:
    """The expected rows, made only from the output of DumpLogSegments, the files' lengths, and partition.metadata."""
    for text in sorted((log_dir.parent / "dump").iterdir()):
        topic, partition = text.name.removesuffix(".log.txt").rsplit("-", 1)
        folder = log_dir / f"{topic}-{partition}"
        known = (topic, (folder / "partition.metadata").read_text().split()[-1], int(partition), str(log_dir))
        before, size, segment = 0, 0, -1
        for line in text.read_text().splitlines():
            if line.startswith("Dumping "):
                before, size, segment = before + size, (folder / line.split()[1]).stat().st_size, int(line[8:28])
            elif match := DUMPED.match(line):
                base, last, count, tx, control, position, stamp, length, codec = match.groups()
                location = (segment, int(base), int(last), before + int(position), int(length), int(count), int(stamp))
                yield (*known, *location, "CreateTime", codec, tx == "true", control == "true", None)


def batches(spark: SparkSession, *log_dirs: Path | str, **options: str) -> DataFrame:
    dirs = ",".join(map(str, log_dirs))
    return spark.read.format("kafka_log_segments").options(log_dirs=dirs, **options).load()


def read_here(*log_dirs: Path | str, **options: str) -> list[dict[str, Any]]:
    """The rows, read in this process."""
    source = LogSegmentsSource({"log_dirs": ",".join(map(str, log_dirs)), **options})
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for data in reader.read(part) for row in data.to_pylist()]


def located(spark: SparkSession, log_dirs: Sequence[Path | str], *rungs: Row) -> dict[Row, Row]:
    """(topic, partition, offset) → (position, left, timestamp, log end, newest, directory, error)."""
    offsets = spark.createDataFrame(list(rungs), "topic string, partition int, offset bigint")
    return {row[:3]: row[3:-2] for row in map(tuple, locate(offsets, list(map(str, log_dirs))).collect())}


def test_every_batch_is_as_kafkas_own_tool_dumps_it(spark: SparkSession, recorded: Path) -> None:
    frame = batches(spark, recorded)
    rows = sorted(map(tuple, frame.collect()), key=lambda row: (row[0], row[2], row[7]))
    assert frame.columns == NAMES
    assert len(rows) == 1_713
    assert rows == list(dumped(recorded))


def test_every_recorded_offset_is_located(spark: SparkSession, recorded: Path) -> None:
    reported = {(row["topic"], int(row["partition"])): row for row in RECORDED_OFFSETS}
    expected = {}
    for row in TRUTH:
        name, left, stamp = (row["topic"], int(row["partition"])), int(row["byte_lag"]), row["batch_max_timestamp"]
        location = (int(reported[name]["log_bytes"]) - left, left, int(stamp) if stamp else None)
        log = (int(reported[name]["log_end"]), int(row["active_segment_max_timestamp"]), str(recorded), None)
        expected[*name, int(row["offset"])] = location + log
    assert len(expected) == 197
    assert located(spark, [recorded], *expected) == expected


def test_kip_532_time_lag_follows_from_the_timestamps(spark: SparkSession, recorded: Path) -> None:
    reported = {(r["topic"], int(r["partition"]), int(r["offset"])): int(r["time_lag_ms"]) for r in TRUTH}
    found = located(spark, [recorded], *reported)
    # At the log end there is no batch, and no lag.
    lags = {key: newest - (newest if left == 0 else stamp) for key, (_, left, stamp, _, newest, _, _) in found.items()}
    assert lags == reported


def test_topics_are_filtered(spark: SparkSession, recorded: Path) -> None:
    frame = batches(spark, recorded, topics_allow="^seg-(tx|plain)", topics_deny="x$")
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {"seg-plain"}
    assert read_here(recorded, topics_allow="nothing") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "option 'log_dirs' is missing", id="none"),
        pytest.param({"log_dirs": " , "}, "option 'log_dirs' is missing", id="empty"),
        pytest.param({"log_dirs": "a", "log_dir": "b"}, "unknown option 'log_dir'; options are log_dirs, ", id="typo"),
        pytest.param({"log_dirs": "a", "path": "b"}, "unknown option 'path'", id="load with a path"),
        pytest.param({"log_dirs": "a", "topics_deny": "("}, r"bad regular expression '\('", id="half a group"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LogSegmentsSource(options).reader(LogSegmentsSource(options).schema())


def test_several_directories_may_be_given(recorded: Path) -> None:
    options = LogSegmentsOptions.parse({"log_dirs": " a, s3://k:secret@b ,"})
    assert options.log_dirs == ("a", "s3://k:secret@b")
    assert "secret" not in repr(options)
    with pytest.raises(ConfigError, match="log directory '/no/such/folder' cannot be listed"):
        read_here(recorded, "/no/such/folder")


def test_spark_shows_the_error_of_a_wrong_option(spark: SparkSession, recorded: Path) -> None:
    with pytest.raises(Exception, match="unknown option 'topics_alow'"):
        batches(spark, recorded, topics_alow="x").collect()


def copied(recorded: Path, folder: Path, *names: str) -> Path:
    for name in names:
        shutil.copytree(recorded / name, folder / name)
    return folder


def test_damage_is_a_separate_row_after_the_intact_part(spark: SparkSession, recorded: Path, tmp_path: Path) -> None:
    log_dir = copied(recorded, tmp_path, "seg-trimmed-0")
    active = log_dir / "seg-trimmed-0" / f"{1262:020}.log"
    os.truncate(active, 12_000)
    good = [(*row[:3], str(log_dir), *row[4:]) for row in dumped(recorded) if row[0] == "seg-trimmed"][:-1]
    *rows, damage = sorted(map(tuple, batches(spark, log_dir).collect()), key=lambda row: row[7])
    assert rows == good
    where = "a batch that goes on beyond the end at byte 9745 of 12000"
    error = f"CORRUPT_MESSAGE: {active.name} has {where}: torn, or being written"
    assert damage == (*good[0][:4], 1262, None, None, 101_327 + 101_099 + 9_745, *[None] * 7, error)
    # The log ends before the batch of 1292 to 1299; the newest before it is that of the batch of 1282 to 1291.
    assert located(spark, [log_dir], ("seg-trimmed", 0, 777), ("seg-trimmed", 0, 1292), ("seg-trimmed", 0, 1293)) == {
        ("seg-trimmed", 0, 777): (45_843, 166_328, 1795084337304, 1_292, 1795085099304, str(log_dir), error),
        ("seg-trimmed", 0, 1292): (212_171, 0, None, 1_292, 1795085099304, str(log_dir), error),
        ("seg-trimmed", 0, 1293): (
            *(None, None, None, 1_292, 1795085099304, str(log_dir)),
            "OFFSET_OUT_OF_RANGE: local offsets go from 641 to 1292",
        ),
    }


def test_what_cannot_be_located_is_null_with_the_reason(spark: SparkSession, recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "old-0").mkdir()
    (tmp_path / "old-0" / f"{0:020}.log").write_bytes(OLD_MESSAGE)
    known = ("seg-trimmed", 0)
    nothing = (None,) * 6
    trimmed = (
        None,
        None,
        None,
        1_300,
        1795085111304,
        str(recorded),
        "OFFSET_OUT_OF_RANGE: local offsets go from 641 to 1300",
    )
    refusal = f"UNSUPPORTED_FOR_MESSAGE_FORMAT: {0:020}.log has messages of before Kafka 0.11 (magic 0 or 1)"
    absent = f"UNKNOWN_TOPIC_OR_PARTITION: not in {recorded}, {tmp_path}"
    expected = {
        (*known, 640): trimmed,
        (*known, 641): (0, 214_586, None, 1_300, 1795085111304, str(recorded), None),
        (*known, 1_300): (214_586, 0, None, 1_300, 1795085111304, str(recorded), None),
        (*known, 1_301): trimmed,
        (*known, -1): trimmed,
        (*known, None): (*trimmed[:6], "no offset"),
        ("seg-trimmed", 1, 0): (*nothing, absent),
        ("../seg-trimmed", 0, 777): (*nothing, absent),
        ("seg-trimmed", None, 777): (*nothing, absent),
        (None, 0, 777): (*nothing, absent),
        ("old", 0, 0): (None, None, None, None, None, str(tmp_path), refusal),
    }
    found = located(spark, [recorded, tmp_path], *expected)
    first_batch = next(row[10] for row in dumped(recorded) if row[0] == "seg-trimmed")
    expected[*known, 641] = (0, 214_586, first_batch, 1_300, 1795085111304, str(recorded), None)
    assert found == expected


def test_a_null_topic_is_not_a_name(tmp_path: Path) -> None:
    (tmp_path / "None-0").mkdir()
    (tmp_path / "None-0" / f"{0:020}.log").touch()
    (row,) = location_rows(None, 0, [0], [str(tmp_path)])
    assert row == (None, 0, 0, *(None,) * 6, f"UNKNOWN_TOPIC_OR_PARTITION: not in {tmp_path}", None, None)


def test_locate_without_a_log_directory_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no log directory is given"):
        located(spark, [], ("t", 0, 0))


def test_the_longer_of_two_brokers_logs_is_used_and_named(recorded: Path, tmp_path: Path) -> None:
    behind, broken = (copied(recorded, tmp_path / name, "seg-compact-0") for name in ("behind", "broken"))
    (behind / "seg-compact-0" / f"{2397:020}.log").unlink()  # ends at 2397 then
    (broken / "seg-compact-0" / f"{2397:020}.log").write_bytes(OLD_MESSAGE)
    for dirs in ([behind, recorded, broken], [broken, recorded, behind]):
        (row,) = location_rows("seg-compact", 0, [0], [str(d) for d in dirs])
        assert row[3:-2] == (0, 79_479, 1795083185804, 2_400, 1795084362304, str(recorded), None)
        assert f"topic_id: {row[-2]}" in (recorded / "seg-compact-0" / "partition.metadata").read_text()
    (row,) = location_rows("seg-compact", 0, [0], [str(broken), str(behind)])
    assert row[6:9] == (2_397, 1795084360804, str(behind))
    twin = copied(recorded, tmp_path / "twin", "seg-compact-0")
    for first, second in ((twin, recorded), (recorded, twin)):
        (row,) = location_rows("seg-compact", 0, [0], [str(first), str(second)])
        assert row[8] == str(first)


def test_batches_of_two_brokers_are_distinguished_by_log_dir(
    spark: SparkSession, recorded: Path, tmp_path: Path
) -> None:
    other = copied(recorded, tmp_path / "other", "seg-compact-0")
    frame = batches(spark, recorded, other, topics_allow="compact")
    counted = {(row["log_dir"], row["count"]) for row in frame.groupBy("log_dir").count().collect()}
    assert counted == {(str(recorded), 127), (str(other), 127)}


def test_a_partition_that_is_deleted_after_planning_is_an_error_row(recorded: Path, tmp_path: Path) -> None:
    log_dir = copied(recorded, tmp_path, "seg-compact-0", "seg-tx-0", "seg-plain-1")
    source = LogSegmentsSource({"log_dirs": str(log_dir)})
    reader = source.reader(source.schema())
    planned = reader.partitions()
    (log_dir / "seg-compact-0").rename(log_dir / "seg-compact-0.00112233445566778899aabbccddeeff-delete")
    for file in (log_dir / "seg-tx-0").glob("*.log"):
        file.rename(f"{file}.deleted")
    rows = [row for part in planned for data in reader.read(part) for row in data.to_pylist()]
    errors = {row["topic"]: row["error"] for row in rows if row["error"]}
    assert errors == {
        "seg-compact": "UNKNOWN_TOPIC_OR_PARTITION: it was deleted while the log directory was read",
        "seg-tx": "KAFKA_STORAGE_ERROR: no segment",
    }
    assert len(rows) == 2 + 208


def test_no_row_shows_the_secrets_of_a_uri(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "s3://key:secret@bucket/logs"
    monkeypatch.setattr(
        "pipeline.log_segments.log_dirs.open_filesystem", lambda log_dir: (fs.LocalFileSystem(), str(recorded))
    )
    rows = read_here(secret) + [dict(enumerate(row)) for row in location_rows("seg-tx", 0, [5], [secret])]
    rows += [dict(enumerate(row)) for row in location_rows("seg-tx", 9, [5], [secret])]
    assert len(rows) == 1_713 + 2
    assert "secret" not in repr(rows)
    assert {row["log_dir"] for row in rows[:1_713]} == {rows[-2][8]} == {"s3://bucket/logs"}


def test_an_empty_log_has_no_row(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").touch()
    assert read_here(tmp_path) == []


def test_a_task_reads_one_big_partition_or_many_small_ones() -> None:
    sizes = [300, 300, 100, 100, 56, 1, 255, 1]
    items = [PartitionDir("d", "t", n) for n in range(len(sizes))]
    bunched = bunches(items, [size * MIB for size in sizes])
    assert [[item.partition for item in bunch] for bunch in bunched] == [[0], [1], [2, 3, 4], [5, 6], [7]]
    many = bunches([PartitionDir("d", "t", n) for n in range(201)], [0] * 201)
    assert [len(bunch) for bunch in many] == [100, 100, 1]
    assert bunches([], []) == []


def test_a_task_yields_batches_of_bounded_length(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.log_segments.source.MAX_BATCH_ROWS", 100)
    source = LogSegmentsSource({"log_dirs": str(recorded)})
    reader = source.reader(source.schema())
    item = PartitionDir(str(recorded), "seg-tx", 0)
    assert [data.num_rows for data in reader.read(PartitionDirs([item]))] == [100, 100, 44]


def test_locating_spreads_over_tasks_with_one_shuffle(spark: SparkSession, recorded: Path) -> None:
    offsets = spark.createDataFrame([("seg-tx", n, 0) for n in range(3)], "topic string, partition int, offset bigint")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        frame = locate(offsets, [str(recorded)])
        plan = frame._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
        assert plan.count("Exchange") == 1
        assert re.search(r"Exchange hashpartitioning\(topic#\d+, partition#\d+, 3\)", plan)
        assert frame.rdd.getNumPartitions() == 3
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "1")


def test_lag_of_a_cluster_with_log_dirs_is_kip_532_s_to_the_byte_and_millisecond(
    spark: SparkSession, recorded: Path
) -> None:
    ends = [
        (1, row["topic"], int(row["partition"]), *(int(row[name]) for name in ENDS.split())) for row in RECORDED_OFFSETS
    ]
    commits = [(1, f"at {r['offset']}", r["topic"], int(r["partition"]), int(r["offset"])) for r in TRUTH]
    watermarks = frame(spark, WATERMARKS, WATERMARK, *ends)
    lag = lag_table(
        frame(spark, COMMITTED_OFFSETS, "snapshot_id group_id topic partition committed_offset", *commits),
        watermarks,
        frame(spark, GROUP_MEMBERS, "snapshot_id"),
        frame(spark, LAG, "snapshot_id"),
        rulers(frame(spark, LOG_INDEX, "topic"), watermarks, frame(spark, LOG_SAMPLES, "topic"), asked_from=0),
        partial(locate, log_dirs=[str(recorded)]),
    )
    found = {(r.topic, r.partition, r.committed_offset): r for r in lag.collect()}
    assert len(found) == len(TRUTH)
    for r in TRUTH:
        row = found[r["topic"], int(r["partition"]), int(r["offset"])]
        assert (row.kip532_bytes, row.kip532_ms) == (int(r["byte_lag"]), int(r["time_lag_ms"])), r
        assert (row.bytes_method, row.time_method, row.bytes_error, row.time_error_ms) == ("exact", "exact", 0, 0)


@pytest.mark.parametrize(("is_same", "method"), [(True, "exact"), (False, None)])
def test_files_of_a_recreated_topic_do_not_apply_to_the_previous_log(
    spark: SparkSession, recorded: Path, is_same: bool, method: str | None
) -> None:
    """The lag of an older snapshot is computed, or its log was read before the topic was deleted."""
    row = next(r for r in RECORDED_OFFSETS if r["topic"] == "seg-trimmed")
    metadata = (recorded / f"seg-trimmed-{row['partition']}" / "partition.metadata").read_text()
    topic_id = metadata.split()[-1] if is_same else "another"
    end = (row["topic"], int(row["partition"]), topic_id, *(int(row[name]) for name in ENDS.split()))
    watermarks = frame(spark, WATERMARKS, WATERMARK.replace("partition", "partition topic_id"), (1, *end))
    commit = (1, "g", *end[:2], int(row["log_start"]))
    lag = lag_table(
        frame(spark, COMMITTED_OFFSETS, "snapshot_id group_id topic partition committed_offset", commit),
        watermarks,
        frame(spark, GROUP_MEMBERS, "snapshot_id"),
        frame(spark, LAG, "snapshot_id"),
        rulers(frame(spark, LOG_INDEX, "topic"), watermarks, frame(spark, LOG_SAMPLES, "topic"), asked_from=0),
        partial(locate, log_dirs=[str(recorded)]),
    )
    assert [r.bytes_method for r in lag.collect()] == [method]
