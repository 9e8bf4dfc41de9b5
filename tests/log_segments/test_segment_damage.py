"""Log files that are cut off, damaged or in an old format: the intact part is read, and the rest is reported."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.log_segments.log_dirs import OffsetLocation, PartitionDir
from pipeline.log_segments.source import LogSegmentsOptions, LogSegmentsReader, PartitionDirs
from tests.helpers.segments import WHOLE, batch, index, old_message, opened, time_index, write

AFTER_WHOLE = OffsetLocation(200, 0)


@pytest.mark.parametrize(
    "torn",
    [
        pytest.param(batch(10, 12)[:8], id="an offset"),
        pytest.param(batch(10, 12)[:16], id="before the magic"),
        pytest.param(batch(10, 12)[:17], id="after the magic"),
        pytest.param(batch(10, 12)[:60], id="a header but for a byte"),
        pytest.param(batch(10, 12)[:61], id="a header"),
        pytest.param(batch(10, 12)[:99], id="a batch but for a byte"),
        pytest.param(batch(10, 12)[:12] + bytes(88), id="a header written in part"),
        pytest.param(batch(12, 10), id="last before first"),
        pytest.param(batch(10, 12, magic=3), id="an unknown magic"),
        pytest.param(batch(10, 12, magic=1), id="magic 1"),
        pytest.param(old_message(1, 10), id="an old message after a new one"),
        pytest.param(batch(10, 12)[:23] + b"\xff" * 4 + batch(10, 12)[27:], id="a negative delta"),
        pytest.param(batch(10, 12)[:57] + b"\xff" * 4 + batch(10, 12)[61:], id="a negative count"),
        pytest.param(batch(10, 12)[:8] + (48).to_bytes(4, "big") + batch(10, 12)[12:], id="a length below a header's"),
        pytest.param(
            batch(10, 12)[:8] + (-5).to_bytes(4, "big", signed=True) + batch(10, 12)[12:], id="negative length"
        ),
        pytest.param(batch(2**63 - 3, 2**63 - 1), id="an offset that no log has"),
        pytest.param(b"\xff" * 100, id="noise"),
    ],
)
@pytest.mark.parametrize(
    "entries", [b"", index((9, 100)), index((9, 100), (12, 200))], ids=["bare", "indexed", "beyond"]
)
def test_a_torn_tail_is_an_error_and_the_intact_part_is_kept(tmp_path: Path, torn: bytes, entries: bytes) -> None:
    write(tmp_path, {"0.log": WHOLE + torn, "0.index": entries, "0.timeindex": time_index((900, 3))})
    log = opened(tmp_path)
    assert log.at(5) == (100, 100, 700, None)
    assert log.at(10) == AFTER_WHOLE
    assert log.newest[0] == 900
    for error in (log.end.error, log.newest[1]):
        assert error is not None
        assert error.startswith(f"CORRUPT_MESSAGE: {0:020}.log has ")
        assert f"at byte 200 of {200 + len(torn)}" in error
    assert log.end[:2] == (10, 200)
    assert log.at(11).error == "OFFSET_OUT_OF_RANGE: local offsets go from 0 to 10"


def test_a_batch_whose_offsets_overlap_earlier_ones_is_damage(tmp_path: Path) -> None:
    write(tmp_path, {"0.log": WHOLE + batch(9, 12)})
    end = opened(tmp_path).end
    assert end[:2] == (10, 200)
    assert str(end.error).startswith("CORRUPT_MESSAGE")


def test_a_partly_written_first_header_is_damage_and_not_an_old_format(tmp_path: Path) -> None:
    write(tmp_path, {"7.log": batch(7, 9)[:12] + bytes(88)})
    end = opened(tmp_path).end
    assert end[:2] == (7, 0)
    assert end.error is not None
    assert end.error.startswith("CORRUPT_MESSAGE")


@pytest.mark.parametrize("zeros", [1, 60, 61, 5_000_000])
def test_a_preallocated_tail_is_not_part_of_the_log(tmp_path: Path, zeros: int) -> None:
    write(tmp_path, {"0.log": WHOLE + bytes(zeros), "0.index": bytes(800), "0.timeindex": bytes(1_200)})
    log = opened(tmp_path)
    assert (log.at(0), log.at(10)) == ((0, 200, 900, None), AFTER_WHOLE)
    assert (log.end, log.newest) == ((10, 200, None), (900, None))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_with_kafkas_error_name(tmp_path: Path, magic: int) -> None:
    write(tmp_path, {"0.log": old_message(magic) + old_message(magic, 1)})
    log = opened(tmp_path)
    refusal = f"UNSUPPORTED_FOR_MESSAGE_FORMAT: {0:020}.log has messages of before Kafka 0.11 (magic 0 or 1)"
    assert log.at(0) == OffsetLocation(error=refusal)
    assert (log.end, log.newest) == ((None, None, refusal), (None, refusal))


def test_segments_after_those_of_an_old_format_are_read(tmp_path: Path) -> None:
    write(tmp_path, {"0.log": old_message(1), "1.log": batch(1, 4)})
    log = opened(tmp_path)
    assert log.at(1) == (len(old_message(1)), 100, 5_000, None)
    assert str(log.at(0).error).startswith("UNSUPPORTED_FOR_MESSAGE_FORMAT")


def test_damage_in_an_older_segment_hides_only_the_rest_of_that_segment(tmp_path: Path) -> None:
    write(tmp_path, {"0.log": batch(0, 4) + b"\xff" * 100 + batch(8, 9), "10.log": batch(10, 12)})
    log = opened(tmp_path)
    assert (log.at(4), log.at(10)) == ((0, 400, 5_000, None), (300, 100, 5_000, None))
    assert [str(log.at(offset).error)[:15] for offset in (5, 8)] == ["CORRUPT_MESSAGE"] * 2


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A file of three batches, of which some bytes are changed, missing or added."""
    data = WHOLE + batch(10, 12)
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(data)))
        data = data[:begin] + draw(st.binary(max_size=12)) + data[begin + draw(st.integers(0, 90)) :]
    return data


@given(data=spoilt() | st.binary(max_size=200), entries=st.binary(max_size=40))
def test_any_bytes_are_read_or_an_error(data: bytes, entries: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), {"0.log": data, "0.index": entries, "0.timeindex": entries})
        reader = LogSegmentsReader(LogSegmentsOptions.parse({"log_dirs": folder}))
        task = PartitionDirs([PartitionDir(folder, "t", 0)])
        rows = [row for found in reader.read(task) for row in found.to_pylist()]
        log = opened(Path(folder))
        locations = [log.at(offset) for offset in (0, 5, 11, 2**62)]
    batches = [row for row in rows if row["error"] is None]
    assert len(rows) - len(batches) <= 1
    assert sum(row["batch_bytes"] for row in batches) <= len(data)
    least = 0
    for row in batches:
        assert least <= row["base_offset"] <= row["last_offset"]
        least = row["last_offset"] + 1
    assert log.end.offset in (least, None)
    errors = (
        [row["error"] for row in rows] + [location.error for location in locations] + [log.end.error, log.newest[1]]
    )
    assert all(error is None or error.partition(":")[0].isupper() for error in errors)
