"""The lake that is kept for tests: a history of six snapshots of the demo.

It is of the oldest schema version that this laglake upgrades. If that is raised, `scripts.pack_example.derive_anew`
makes it again from what the snapshots have recorded.
"""

import tarfile
from pathlib import Path

from pipeline.tables import OLDEST_VERSION
from tests.conftest import ROOT

CLUSTER = "demo"


def kept_lake(folder: Path) -> Path:
    """The kept lake, unpacked in `folder`."""
    with tarfile.open(ROOT / "tests" / "data" / f"lake-{OLDEST_VERSION}.tar.xz") as file:
        file.extractall(folder, filter="data")
    return folder / "lake"
