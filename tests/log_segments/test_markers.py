"""How many transaction markers are from an offset to the log's end, in recorded logs and in logs made by hand."""

import csv
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.log_segments import source
from pipeline.log_segments.source import location_rows
from tests.conftest import ROOT
from tests.helpers.segments import WHOLE, batch, write

RECORDED = list(csv.DictReader((ROOT / "tests" / "data" / "segments" / "offsets.csv").read_text().splitlines()))
DUMPED = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) .* isControl: (\w+) ")
CONTROL = 0b11_0000


def counts(log_dir: Path, offsets: Sequence[int], name: str = "t-0") -> list[int | None]:
    """The column markers_to_end of these offsets."""
    topic, _, partition = name.rpartition("-")
    return [row[-1] for row in location_rows(topic, int(partition), offsets, [str(log_dir)])]


def marker(offset: int, size: int = 78) -> bytes:
    return batch(offset, offset, size=size, attributes=CONTROL)


@pytest.mark.parametrize("log", RECORDED, ids=lambda log: f"{log['topic']}-{log['partition']}")
def test_markers_are_those_that_kafkas_own_tool_dumps(recorded: Path, log: dict[str, str]) -> None:
    name = f"{log['topic']}-{log['partition']}"
    text = (recorded.parent / "dump" / f"{name}.log.txt").read_text()
    batches = [(int(base), int(last), kind == "true") for base, last, kind in DUMPED.findall(text)]
    offsets = range(batches[0][0], int(log["log_end"]) + 1)
    expected = [sum(last >= offset for _, last, is_control in batches if is_control) for offset in offsets]
    assert counts(recorded, offsets, name) == expected
    assert (max(expected) > 0) == (name == "seg-tx-0")


def test_batches_that_hold_an_offset_count_only_if_they_are_markers(tmp_path: Path) -> None:
    """A commit may be in the middle of a batch, or where compaction has removed everything."""
    log = [batch(0, 3), marker(4), batch(10, 19), marker(20), marker(25)]
    write(tmp_path, {"0.log": b"".join(log)})
    assert counts(tmp_path, [0, 2, 3, 4, 5, 9, 10, 15, 19, 20, 21, 24, 25, 26]) == [
        *(3, 3, 3, 3),
        *(2, 2, 2, 2, 2, 2),
        *(1, 1, 1, 0),
    ]
    assert counts(tmp_path, [-1, 27]) == [None, None]


def test_a_marker_whose_record_compaction_has_removed_is_still_an_offset_that_no_reader_gets(tmp_path: Path) -> None:
    empty = bytearray(marker(4))
    empty[57:61] = bytes(4)
    write(tmp_path, {"0.log": batch(0, 3) + bytes(empty)})
    assert counts(tmp_path, [3, 4, 5]) == [1, 1, 0]


def test_markers_are_counted_in_several_segments_also_empty_ones(tmp_path: Path) -> None:
    write(tmp_path, {"0.log": WHOLE + marker(10), "11.log": b"", "12.log": batch(12, 14) + marker(15), "16.log": b""})
    assert counts(tmp_path, [0, 9, 10, 11, 12, 15, 16]) == [2, 2, 2, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("bytes_to_end", "expected"), [(278, [1, 1, 1]), (277, [None, 1, 1]), (77, [None, None, None])]
)
def test_markers_are_counted_only_near_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_to_end: int, expected: list[int | None]
) -> None:
    monkeypatch.setattr(source, "MARKERS_WITHIN_BYTES", bytes_to_end)
    write(tmp_path, {"0.log": WHOLE + marker(10)})
    assert counts(tmp_path, [3, 4, 10]) == expected


def test_as_much_as_is_counted_is_read_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    scan = source.PartitionLog.markers_from
    monkeypatch.setattr(source.PartitionLog, "markers_from", lambda log, at: reads.append(at) or scan(log, at))
    mib = 1024 * 1024
    write(tmp_path, {"0.log": batch(0, 0, size=5 * mib) + batch(1, 1, size=mib - 78) + marker(2)})
    assert counts(tmp_path, [0, 1, 2, 3, 0]) == [None, 1, 1, 0, None]
    assert reads == [5 * mib], "one scan for all offsets, from the first that is near enough"


def test_a_marker_behind_a_damaged_part_is_not_counted(tmp_path: Path) -> None:
    """The damage may have been records. What is behind it is not counted either: the log ends at the damage."""
    write(tmp_path / "newest", {"0.log": WHOLE + b"\xff" * 100 + marker(11)})
    assert counts(tmp_path / "newest", [0, 9, 10, 11]) == [0, 0, 0, None]
    write(tmp_path / "earlier", {"0.log": WHOLE + b"\xff" * 100, "11.log": batch(11, 12) + marker(13)})
    assert counts(tmp_path / "earlier", [0, 9, 11, 13, 14]) == [None] * 5
    assert counts(tmp_path / "earlier", [11, 13, 14]) == [1, 1, 0]


def test_a_log_that_ends_in_the_middle_of_a_marker_does_not_have_it(tmp_path: Path) -> None:
    write(tmp_path, {"0.log": WHOLE + marker(10) + marker(11)[:70]})
    assert counts(tmp_path, [9, 10, 11, 12]) == [1, 1, 0, None]


@pytest.mark.parametrize("change", ["cut", "deleted", "written"])
def test_markers_of_a_log_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """What is written later does not count. If something was cut off or deleted, the number is not known."""
    folder = write(tmp_path, {"0.log": WHOLE + marker(10), "11.log": batch(11, 12) + marker(13)})
    first, active = sorted(folder.glob("*.log"))
    scan = source.PartitionLog.markers_from

    def changed(log: source.PartitionLog, position: int) -> list[int] | None:
        if change == "cut":
            os.truncate(active, 100)
        elif change == "deleted":
            first.unlink()
        else:
            active.write_bytes(active.read_bytes() + marker(14))
        return scan(log, position)

    monkeypatch.setattr(source.PartitionLog, "markers_from", changed)
    assert counts(tmp_path, [9, 12, 14]) == ([2, 1, 0] if change == "written" else [None] * 3)


def test_a_log_with_a_preallocated_rest_is_counted_to_its_end(tmp_path: Path) -> None:
    write(tmp_path, {"0.log": WHOLE + marker(10) + bytes(1_000)})
    assert counts(tmp_path, [9, 11]) == [1, 0]


def test_a_partition_that_is_nowhere_has_no_count(recorded: Path, tmp_path: Path) -> None:
    assert counts(recorded, [0, 5], "nowhere-0") == [None, None]
    shutil.copytree(recorded / "seg-tx-0", tmp_path / "seg-tx-0")
    assert counts(tmp_path, [940], "seg-tx-0") == [0]
