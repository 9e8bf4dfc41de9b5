"""The example that ships with laglake: a lake that the demo has recorded, and the values of its report.

`make example` packs it (`scripts/pack_example.py`).
"""

import hashlib
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipeline.common.errors import ConfigError, LakeError, first_line

ARCHIVE = Path(__file__).with_name("example.tar.xz")
LAKE, REPORT = "lake", "report.json"
"""The names in the archive: the folder with the tables, and the values of the report."""
_MARKER = ".example"
"""A file beside the unpacked lake, with the digest of the archive that the lake is from."""


@dataclass(frozen=True)
class Example:
    """An unpacked example: the folder with its tables, and the values of its report as `report.saved` writes them."""

    lake: Path
    report: bytes


def unpacked(folder: Path) -> Example:
    """The example in `folder`, which is created if necessary; an earlier example there is replaced.

    Raises:
        ConfigError: `folder` has a lake that is not an example, which stays as it is, or something cannot be written.
        LakeError: the archive is absent or damaged.
    """
    try:
        content = ARCHIVE.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        lake, marker = folder / LAKE, folder / _MARKER
        if lake.exists() and not marker.exists():
            raise ConfigError(f"{folder}: has a lake that is not an example; name another with --output")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-") as unfinished:
            with tarfile.open(ARCHIVE) as archive:
                # Python before 3.11.4 does not have this filter; it needs none, because the archive is our own.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(unfinished)  # noqa: S202
            report = Path(unfinished, REPORT).read_bytes()
            if not marker.exists() or marker.read_text() != digest:
                marker.write_text(digest)
                shutil.rmtree(lake, ignore_errors=True)
            if not lake.exists():
                Path(unfinished, LAKE).rename(lake)
        return Example(lake, report)
    except (tarfile.TarError, EOFError) as error:
        raise LakeError(f"{ARCHIVE}: is damaged: {first_line(error)}") from error
    except OSError as error:
        raise ConfigError(f"{folder}: the example cannot be unpacked there: {first_line(error)}") from error
