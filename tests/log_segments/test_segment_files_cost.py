"""The cost of reading log directories: how much of a segment of a gigabyte is read, and with how many requests."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tests.helpers.segments import batch, index, opened, time_index, write


class Counting:
    """A file system that counts what is read."""

    def __init__(self) -> None:
        self.files = fs.LocalFileSystem()
        self.reads: list[int] = []

    def open_input_file(self, path: str) -> Any:
        return CountedFile(self.files.open_input_file(path), self.reads)

    def get_file_info(self, path: str) -> Any:
        return self.files.get_file_info(path)


class CountedFile:
    def __init__(self, file: Any, reads: list[int]) -> None:
        self.file, self.reads = file, reads

    def __enter__(self) -> "CountedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def read_at(self, size: int, position: int) -> bytes:
        self.reads.append(size)
        data: bytes = self.file.read_at(size, position)
        return data


SIZE, BATCH_SIZE, RECORDS = 1 << 30, 1 << 20, 10


@pytest.fixture(scope="module")
def gigabyte(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A segment of 1 GiB with its indexes. Its batches of 1 MiB are holes on the disk, except their headers."""
    folder = tmp_path_factory.mktemp("gigabyte")
    positions = list(accumulate([BATCH_SIZE] * (SIZE // BATCH_SIZE - 1), initial=0))
    path = write(folder, {"0.log": b""})
    with (path / f"{0:020}.log").open("wb") as file:
        file.truncate(SIZE)
        for n, position in enumerate(positions):
            file.seek(position)
            file.write(batch(n * RECORDS, n * RECORDS + 9, 1_000 + n, BATCH_SIZE)[:61])
    write(folder, {"0.index": index(*((n * RECORDS + 9, p) for n, p in enumerate(positions) if n % 2))})
    stamps = time_index(*((1_000 + n, n * RECORDS + 9) for n in range(1, len(positions), 2)))
    write(folder, {"0.timeindex": stamps + bytes(10_000_000)})
    yield folder
    shutil.rmtree(folder)


def test_an_offset_in_a_gigabyte_is_found_without_reading_it(gigabyte: Path) -> None:
    counting = Counting()
    log = opened(gigabyte)
    log = replace(log, segments=(replace(log.segments[0], files=counting),))
    assert log.at(5_005) == (500 * BATCH_SIZE, SIZE - 500 * BATCH_SIZE, 1_500, None)
    assert log.newest == (1_000 + SIZE // BATCH_SIZE - 1, None)
    assert sum(counting.reads) < 3_000_000
    assert len(counting.reads) < 20


def test_a_scan_of_a_gigabyte_makes_few_requests(gigabyte: Path) -> None:
    counting = Counting()
    segment = replace(opened(gigabyte).segments[0], files=counting)
    assert sum(1 for _ in segment.scan()) == SIZE // BATCH_SIZE
    assert len(counting.reads) < 270
