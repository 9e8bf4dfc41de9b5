"""The example that ships with laglake: a lake that the demo has recorded, and the values of its report.

`make example` packs it (`scripts/pack_example.py`).
"""

import hashlib
import os
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
DEFAULT_FOLDER = Path("build/try")
CONFIG, PAGE = "config.toml", "report.html"
"""What is written beside the lake."""
SETTINGS = """\
# The demo takes a snapshot every few seconds for a minute, so a group must be judged within seconds, not an hour.
[snapshot]
schedule = "1s"
[status]
window = "30s"
tolerance = "1s"
# Findings have these owners. The group audit-rewound has none: no rule matches.
[[owners]]
group = "^(billing|ledger|payments)-"
owner = "finance"
tier = "1"
[[owners]]
topic = "^(archive|searches|ledger)$"
owner = "platform"
"""
"""The settings with which the demo records, as TOML: those beside the lake and the cluster."""


@dataclass(frozen=True)
class Example:
    """An unpacked example: the folder with its tables, and the values of its report as `report.saved` writes them."""

    lake: Path
    report: bytes


def unpacked(folder: Path) -> Example:
    """The example in `folder`, which is created if necessary; an earlier example there is replaced.

    Raises:
        ConfigError: `folder` cannot be written, or has files of something else, which stay as they are.
        LakeError: the archive is absent or damaged.
    """
    try:
        content = ARCHIVE.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        lake, marker = folder / LAKE, folder / _MARKER
        if not marker.exists():
            _refuse_others(folder)
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
        reason = error.strerror or first_line(error)
        raise ConfigError(f"{folder}: the example cannot be unpacked there: {reason}") from error


def _refuse_others(folder: Path) -> None:
    """Raises ConfigError if there is a file instead of the folder, or if it has something that would be overwritten."""
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path}: is a file; name a new or empty folder with --output")
    if found := [name for name in (LAKE, CONFIG, PAGE) if os.path.lexists(folder / name)]:
        names = " and ".join(found)
        raise ConfigError(f"{folder}: has {names} of something else; name a new or empty folder with --output")
