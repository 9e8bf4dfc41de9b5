"""Recordings of real clients, see tests/data/recordings/README.md."""

import csv
import tarfile
from collections.abc import Iterator
from pathlib import Path

from pipeline.client_positions.consumer_metrics import Metric, of_jolokia, of_prometheus

ARCHIVES = Path(__file__).parents[1] / "data" / "recordings"


def unpacked(name: str, folder: Path) -> Path:
    """The folder of a recording, unpacked once."""
    if not (folder / name).exists():
        with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folder / name


def rounds(client: Path) -> Iterator[tuple[int, list[Metric], list[Metric]]]:
    """For each round of sampling: when it began, the values of Jolokia, and those of jmx_exporter just after them."""
    answers, scrapes = (sorted((client / kind).iterdir()) for kind in ("jolokia", "prom"))
    for answer, scrape in zip(answers, scrapes, strict=True):
        yield int(answer.stem), of_jolokia(answer.read_text()), of_prometheus(scrape.read_text())


def table(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with file.open() as lines:
        return list(csv.DictReader(lines))


def by_partition(rows: list[dict[str, str]]) -> dict[tuple[str, int], list[dict[str, str]]]:
    """Rows by topic and partition, in the order of their time."""
    found: dict[tuple[str, int], list[dict[str, str]]] = {}
    for row in sorted(rows, key=lambda row: int(row["ts"])):
        found.setdefault((row["topic"], int(row["partition"])), []).append(row)
    return found
