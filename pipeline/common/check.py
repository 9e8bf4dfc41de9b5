"""The checks that the job `doctor` makes: their results, and how it finds out whether a folder can be written."""

import tempfile
from pathlib import Path
from typing import NamedTuple


class Check(NamedTuple):
    """The result of one check. `is_right` is None if what was found may be intended, or if the result is not known.

    `todo` says what to do.
    """

    is_right: bool | None
    what: str
    todo: str | None = None


def write_into(folder: Path) -> Path:
    """Writes an empty file into a folder, or into its nearest parent that exists, and removes the file again.

    Returns the folder that it has written to. Raises OSError if that is not possible.
    """
    existing = next(f for f in (folder, *folder.parents) if f.exists())
    with tempfile.TemporaryFile(dir=existing):
        return existing
