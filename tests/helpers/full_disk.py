"""A disk that is full, for tests that any user may run, in a container too."""

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE_KB = 256
LIMIT_BYTES = 2_048


@contextmanager
def full_disk(folder: Path, *processes: int) -> Iterator[str]:
    """Leaves no space in a new folder, for this process and for other `processes`; yields the system's word for that.

    The folder is a small disk in memory, and a file fills it. Where the user may not mount one, no process may write a
    file of more than LIMIT_BYTES: the word is another, and the same writes fail.
    """
    folder.mkdir()
    if is_mounted(folder):
        try:
            (folder / "fills the disk").write_bytes(bytes(SIZE_KB * 1024))
            yield os.strerror(errno.ENOSPC)
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        return
    with limited_files(os.getpid(), *processes):
        yield os.strerror(errno.EFBIG)


def is_mounted(folder: Path) -> bool:
    """Whether a small disk could be mounted on the folder."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KB}k", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def limited_files(*processes: int) -> Iterator[None]:
    """Lets no process write a file of more than LIMIT_BYTES. The soft limit is enough, and any user may undo it."""
    before = {process: resource.prlimit(process, resource.RLIMIT_FSIZE) for process in processes}
    try:
        for process, (_, most) in before.items():
            resource.prlimit(process, resource.RLIMIT_FSIZE, (LIMIT_BYTES, most))
        yield
    finally:
        for process, limits in before.items():
            resource.prlimit(process, resource.RLIMIT_FSIZE, limits)
