"""Zips the packages, so that Spark can send them to workers: `python pipeline/session/package_zip.py FILE.zip`.

The same files give the same bytes, and the zip file is replaced atomically, so simultaneous runs may share it.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("jobs", "laglake", "pipeline")


def zip_packages(target: Path) -> Path:
    """Writes all files of the packages, including data files, to the zip `target`, and returns `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        unfinished = Path(folder, target.name)
        with ZipFile(unfinished, "w") as archive:
            for path in _files():
                # ZipInfo's default date, 1980, instead of the file's, so that equal files make an equal zip.
                archive.writestr(ZipInfo(path.relative_to(ROOT).as_posix()), path.read_bytes(), ZIP_DEFLATED)
        return unfinished.replace(target)


def _files() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                yield path


if __name__ == "__main__":
    zip_packages(Path(sys.argv[1]))
