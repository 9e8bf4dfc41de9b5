"""The reader of log directories, with a real broker's files, compared with the output of Kafka's tools; and damage."""

import csv
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.log_segments.log_dirs import OffsetLocation, PartitionLog
from pipeline.log_segments.segment_files import INDEX, TIME_INDEX, parse_index
from tests.conftest import ROOT
from tests.helpers.segments import WHOLE, batch, index, opened, time_index, write

DATA = ROOT / "tests" / "data" / "segments"
TRUTH = list(csv.DictReader((DATA / "truth.csv").read_text().splitlines()))
RECORDED_OFFSETS = list(csv.DictReader((DATA / "offsets.csv").read_text().splitlines()))
OFFSETS = {f"{row['topic']}-{row['partition']}": row for row in RECORDED_OFFSETS}


def expected(row: Mapping[str, str]) -> OffsetLocation:
    """A row of truth.csv. The position counts from the first file, so position + bytes_to_end is the whole length."""
    size = int(OFFSETS[f"{row['topic']}-{row['partition']}"]["log_bytes"])
    left, stamp = int(row["byte_lag"]), row["batch_max_timestamp"]
    return OffsetLocation(size - left, left, int(stamp) if stamp else None)


def assert_true(name: str, log: PartitionLog) -> None:
    """Checks every row of truth.csv and offsets.csv about a partition."""
    rows = [row for row in TRUTH if f"{row['topic']}-{row['partition']}" == name]
    assert len(rows) >= 20
    assert {row["offset"]: log.at(int(row["offset"])) for row in rows} == {r["offset"]: expected(r) for r in rows}
    assert {log.newest} == {(int(row["active_segment_max_timestamp"]), None) for row in rows}
    reported = OFFSETS[name]
    assert log.end == (int(reported["log_end"]), int(reported["log_bytes"]), None)
    assert log.segments[-1].base_offset == int(reported["active_segment_base"])
    assert log.size_bytes == int(reported["log_bytes"])


@pytest.mark.parametrize("name", OFFSETS)
def test_ends_and_sizes_are_those_that_kafkas_own_tools_report(recorded: Path, name: str) -> None:
    assert_true(name, opened(recorded, name))


@pytest.mark.parametrize("name", OFFSETS)
def test_the_first_local_offset_and_the_topic_id_are_read(recorded: Path, name: str) -> None:
    log = opened(recorded, name)
    assert log.first_local_offset == (641 if name == "seg-trimmed-0" else 0)
    assert log.topic_id == (recorded / name / "partition.metadata").read_text().split()[-1]
    assert log.topic_id is not None
    assert len(log.topic_id) == 22


def shifted(by: int) -> Callable[[bytes], bytes]:
    """Changes an index so that all positions are wrong."""
    return lambda data: b"".join(struct.pack(">ii", o, p + by) for o, p in struct.iter_unpack(">ii", data))


def early(data: bytes) -> bytes:
    """Gives each entry the offset of the entry before: each leads to a header, but to that of a later batch."""
    entries = list(struct.iter_unpack(">ii", data))
    return index(*((old[0], new[1]) for old, new in pairwise(entries)))


SPOILT = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "preallocated": lambda data: data + bytes(1_000_000),
    "stale": lambda data: data[: len(data) // 16 * 8],
    "half an entry": lambda data: data[:-3],
    "reversed": lambda data: data[::-1],
    "noise": lambda data: bytes(range(1, 241)) * 20,
    "one byte off": shifted(1),
    "beyond the file": shifted(2_000_000),
    "too far on": early,
    "one offset for all": lambda data: index((0, 1)) + data[8:],
}


FOR_OFFSETS_ONLY = ("one byte off", "beyond the file", "too far on", "one offset for all")


@pytest.mark.parametrize(
    ("how", "suffix"),
    [(how, "index") for how in SPOILT] + [(how, "timeindex") for how in SPOILT if how not in FOR_OFFSETS_ONLY],
)
def test_a_damaged_index_only_takes_more_time(recorded: Path, tmp_path: Path, how: str, suffix: str) -> None:
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob(f"*/*.{suffix}"):
        data = SPOILT[how](file.read_bytes())
        file.unlink() if data is None else file.write_bytes(data)
    for name in OFFSETS:
        assert_true(name, opened(tmp_path, name))


def test_a_time_index_whose_last_entry_matches_no_batch_is_not_used(tmp_path: Path) -> None:
    log = batch(0, 3, 900) + batch(4, 7, 700) + batch(8, 9, 800)
    for lie in [(950, 3), (800, 7), (10**15, 1)]:
        write(tmp_path, {"0.log": log, "0.timeindex": time_index(lie)})
        assert opened(tmp_path).newest == (900, None)


def test_entries_of_a_time_index_beyond_the_listed_log_are_not_used(tmp_path: Path) -> None:
    folder = write(tmp_path, {"0.log": batch(0, 3, 900) + batch(4, 7, 700)})
    log = opened(tmp_path)
    with (folder / f"{0:020}.log").open("ab") as file:
        file.write(batch(8, 9, 990))
    write(tmp_path, {"0.timeindex": time_index((900, 3), (990, 9))})
    assert log.newest == (900, None)


class Written(NamedTuple):
    """A batch; whether a segment begins with it, and an index entry is written for it; and what precedes it."""

    hole: int
    records: int
    size: int
    stamp_ms: int
    is_first: bool
    is_indexed: bool


written = st.builds(
    Written,
    st.just(0) | st.integers(0, 9),
    st.integers(1, 9),
    st.integers(61, 300),
    st.integers(-1, 50),
    st.integers(0, 5).map(lambda n: n == 0),
    st.booleans(),
)
lies = st.binary(max_size=60) | st.lists(st.tuples(st.integers(1, 120), st.integers(0, 3_000)), max_size=6).map(
    lambda entries: index(*sorted(entries))
)


class Known(NamedTuple):
    """The truth about a batch in a log that the test wrote."""

    base: int
    last: int
    position: int
    stamp_ms: int


def written_log(folder: Path, history: list[Written]) -> list[list[Known]]:
    """Writes files as Kafka does, and returns their batches by segment."""
    files: dict[str, bytes] = {}
    segments: list[list[Known]] = []
    offset = position = 0
    for item in history:
        if item.is_first or not segments:
            segment, newest = offset, (-1, 0)
            segments.append([])
            files |= {f"{segment}.log": b"", f"{segment}.index": b"", f"{segment}.timeindex": b""}
        base = offset + item.hole
        offset = base + item.records
        segments[-1].append(Known(base, offset - 1, position, item.stamp_ms))
        newest = max(newest, (item.stamp_ms, segment - offset), key=lambda stamp: stamp[0])
        if item.is_indexed and files[f"{segment}.log"]:
            files[f"{segment}.index"] += index((offset - 1 - segment, len(files[f"{segment}.log"])))
            files[f"{segment}.timeindex"] += time_index((newest[0], -newest[1] - 1)) if newest[0] >= 0 else b""
        files[f"{segment}.log"] += batch(base, offset - 1, item.stamp_ms, item.size)
        position += item.size
    write(folder, files)
    return segments


@given(st.lists(written, min_size=1, max_size=40), st.none() | lies, st.none() | st.binary(max_size=60))
def test_each_offset_of_any_log_is_found(history: list[Written], lie: bytes | None, time_lie: bytes | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        segments = written_log(Path(name), history)
        for suffix, data in (("index", lie), ("timeindex", time_lie)):
            for file in Path(name).glob(f"t-0/*.{suffix}") if data is not None else ():
                file.write_bytes(data or b"")
        log = opened(Path(name))
        size, batches = sum(h.size for h in history), [known for segment in segments for known in segment]
        for offset in range(batches[-1].last + 1):
            found = next(known for known in batches if known.last >= offset)
            stamp = found.stamp_ms if found.stamp_ms > 0 else None
            assert log.at(offset) == (found.position, size - found.position, stamp, None)
        assert log.end == (batches[-1].last + 1, size, None)
        stamps = [[known.stamp_ms for known in segment if known.stamp_ms > 0] for segment in segments]
        assert log.newest == (next((max(s) for s in reversed(stamps) if s), None), None)


def test_a_header_has_all_fields_of_a_batch(tmp_path: Path) -> None:
    attributes = [0, 1, 2, 3, 4, 7, 8, 16, 32]
    write(tmp_path, {"0.log": b"".join(batch(i, i, attributes=a) for i, a in enumerate(attributes))})
    batches = list(opened(tmp_path).segments[0].scan())
    assert [b.codec for b in batches[:6]] == ["none", "gzip", "snappy", "lz4", "zstd", None]
    assert [b.timestamp_type for b in batches] == ["CreateTime"] * 6 + ["LogAppendTime"] + ["CreateTime"] * 2
    assert [b.is_transactional for b in batches] == [False] * 7 + [True, False]
    assert [b.is_control for b in batches] == [False] * 8 + [True]
    second = batches[1]
    assert (second.base_offset, second.last_offset, second.position) == (1, 1, 100)
    assert (second.size, second.record_count, second.max_timestamp_ms) == (100, 1, 5_000)


@pytest.mark.parametrize(
    "within",
    [
        pytest.param(bytes(300), id="zeros"),
        pytest.param(batch(9, 9, size=300), id="too far on"),
        pytest.param(batch(4, 4, size=100) + b"\xff" * 200, id="too far back"),
        pytest.param(batch(4, 4, size=301), id="beyond the end"),
    ],
)
def test_an_index_that_points_into_records_is_not_used(tmp_path: Path, within: bytes) -> None:
    """Records may contain anything, also bytes that look like a batch."""
    holder = batch(4, 9, 700, size=400)[:100] + within[:300]
    write(tmp_path, {"0.log": WHOLE[:100] + holder, "0.index": index((5, 200))})
    log = opened(tmp_path)
    assert (log.at(5), log.newest, log.end) == ((100, 400, 700, None), (900, None), (10, 500, None))


def test_an_index_is_read_as_long_as_its_entries_increase() -> None:
    def read(*entries: tuple[int, int]) -> list[tuple[int, int]]:
        return [tuple(entry) for entry in parse_index(index(*entries), INDEX).tolist()]

    assert read((5, 100), (9, 200), (0, 0), (12, 300)) == [(5, 100), (9, 200)]
    assert read((5, 100), (5, 200)) == read((5, 100), (9, 100)) == read((5, 100)) == [(5, 100)]
    assert read((-5, 100)) == read((5, -100)) == read((0, 0), (5, 100)) == read() == []
    stamps = parse_index(time_index((900, 0), (950, 3), (940, 9)) + b"half", TIME_INDEX)
    assert stamps.tolist() == [(900, 0), (950, 3)]


def test_an_offset_that_compaction_removed_is_located_at_the_next_batch_even_in_another_segment(tmp_path: Path) -> None:
    emptied = bytearray(batch(20, 29, 1_000))
    emptied[57:61] = bytes(4)  # all its records were removed; the batch is kept for its producer's sequence number
    write(tmp_path, {"0.log": batch(3, 5, 500), "10.log": b"", "20.log": bytes(emptied) + batch(40, 41, 2_000)})
    log = opened(tmp_path)
    assert log.at(0) == log.at(5) == (0, 300, 500, None)
    assert log.at(6) == log.at(15) == log.at(29) == (100, 200, 1_000, None)
    assert log.at(30) == (200, 100, 2_000, None)


def test_with_an_empty_active_segment_the_newest_timestamp_is_that_of_the_segment_before(tmp_path: Path) -> None:
    write(tmp_path, {"0.log": batch(0, 4, 900), "5.log": bytes(1_000), "5.index": bytes(80)})
    log = opened(tmp_path)
    assert (log.end, log.newest) == ((5, 100, None), (900, None))
    assert (log.at(4), log.at(5)) == ((0, 100, 900, None), (100, 0, None, None))


def test_a_partition_without_a_record_has_an_end_and_no_timestamp(tmp_path: Path) -> None:
    write(tmp_path, {"7.log": b""})
    log = opened(tmp_path)
    assert (log.end, log.newest, log.at(7)) == ((7, 0, None), (None, None), (0, 0, None, None))
    assert log.at(6).error == log.at(8).error == "OFFSET_OUT_OF_RANGE: local offsets go from 7 to 7"


def test_a_timestamp_that_no_producer_set_is_null(tmp_path: Path) -> None:
    write(tmp_path, {"0.log": batch(0, 4, -1)})
    log = opened(tmp_path)
    assert (log.at(2), log.newest) == ((0, 100, None, None), (None, None))
