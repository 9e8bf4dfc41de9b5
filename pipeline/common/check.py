"""The checks that the job `doctor` makes: their results, and how it finds out whether a folder can be written."""

import errno
import os
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


TRIED_BYTES = 2**20
"""How much is written: about as much as the first run. On a full disk, an empty file can still be made."""


def write_into(folder: Path) -> Path:
    """Writes a file into a folder, or into its nearest parent that exists, reads it back, and removes it again.

    Returns the folder that it has written to. Raises OSError if that is not possible.
    """
    existing = next(f for f in (folder, *folder.parents) if f.exists())
    written = os.urandom(TRIED_BYTES)  # some disks store zeros without using any space
    with tempfile.TemporaryFile(dir=existing) as file:
        file.write(written)
        file.flush()
        os.fsync(file.fileno())  # a network file system may refuse only now what was over the quota
        file.seek(0)
        if file.read() != written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    return existing
