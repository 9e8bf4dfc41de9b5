"""The files of a log are read in linear time, and nothing of a recorded file that is changed stops the reading."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.log_segments import segment_files
from pipeline.log_segments.log_dirs import PartitionDir
from pipeline.log_segments.source import batch_rows
from tests.helpers.growth import assert_linear
from tests.helpers.segments import batch, index, opened, time_index, write

SIZES = {
    "batches": lambda n: {"0.log": b"".join(batch(i, i, size=61) for i in range(n))},
    "an old message": lambda n: {"0.log": b"\x01" * 61 * n},
    "zeros": lambda n: {"0.log": bytes(61 * n), "0.index": bytes(61 * n), "0.timeindex": bytes(61 * n)},
    "noise": lambda n: {"0.log": b"\xff" * 61 * n, "0.index": b"\xff" * 61 * n, "0.timeindex": b"\xff" * 61 * n},
    "an index that leads nowhere": lambda n: {
        "0.log": batch(0, 2 * n, size=200),
        "0.index": index(*((i, i % 199 + 1) for i in range(1, n))),
        "0.timeindex": time_index(*((i, i) for i in range(1, n))),
    },
    "segments": lambda n: {f"{i}.log": batch(i, i, size=61) for i in range(n // 20)},
}


def read(folder: Path) -> None:
    for _ in batch_rows(PartitionDir(str(folder), "t", 0)):
        pass
    log = opened(folder)
    assert log.newest
    for offset in (0, 5, 2**62):
        log.at(offset)


@pytest.mark.parametrize("case", SIZES)
def test_reading_takes_linear_time(case: str, tmp_path: Path) -> None:
    def made(size: int) -> Path:
        write(tmp_path / str(size), SIZES[case](size))
        return tmp_path / str(size)

    assert_linear(read, made, 2_000)


def test_each_entry_of_a_long_index_is_parsed_only_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse = segment_files.parse_index

    def counted(data: bytes, kind: object) -> object:
        parsed.append(len(data))
        return parse(data, kind)  # type: ignore[arg-type]

    monkeypatch.setattr(segment_files, "parse_index", counted)
    monkeypatch.setattr(segment_files, "MOST_INDEX", 8 * 1024 * 1024)
    entries = index(*((i, 61 * i) for i in range(1, 1_200_000)))
    write(tmp_path, {"0.log": batch(0, 0, size=61), "0.index": entries})
    assert opened(tmp_path).end == (1, 61, None)
    assert len(entries) > max(parsed) == segment_files.MOST_INDEX
    assert sum(parsed) <= 4 * segment_files.MOST_INDEX


@given(data=st.data())
def test_any_change_to_a_recorded_log_is_read_or_an_error(recorded: Path, data: st.DataObject) -> None:
    folder = recorded / data.draw(st.sampled_from(["seg-compact-0", "seg-tx-0", "seg-trimmed-0", "seg-plain-1"]))
    first = min(folder.glob("*.log"))
    changed = data.draw(st.sampled_from([*folder.glob(f"{first.stem}.*"), folder / "partition.metadata"]))
    with tempfile.TemporaryDirectory() as log_dir:
        (Path(log_dir) / "t-0").mkdir()
        for file in (*folder.glob(f"{first.stem}.*"), folder / "partition.metadata"):
            content = file.read_bytes()
            (Path(log_dir) / "t-0" / file.name).write_bytes(data.draw(spoilt(content)) if file == changed else content)
        rows = [*batch_rows(PartitionDir(log_dir, "t", 0))]
        log = opened(Path(log_dir))
        found = [log.at(offset).error for offset in (0, 700, 2**62)] + [log.end.error, log.newest[1]]
    errors = [row[-1] for row in rows]
    assert all(error is None for error in errors[:-1])
    assert all(error is None or error.partition(":")[0].isupper() for error in found + errors)


@st.composite
def spoilt(draw: st.DrawFn, data: bytes) -> bytes:
    """A file of which some bytes are changed, missing or added."""
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(data)))
        data = data[:begin] + draw(st.binary(max_size=12)) + data[begin + draw(st.integers(0, 90)) :]
    return data
