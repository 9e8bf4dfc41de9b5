"""The hierarchy of errors. Each error that laglake raises on purpose is a `LaglakeError`.

    LaglakeError
    ├── BadValueError
    ├── ConfigError       exit status 2
    ├── ChannelError
    ├── ClusterError
    │   ├── TokenError
    │   ├── TooLateError
    │   └── WrongClusterError
    ├── LakeError
    │   ├── ClaimedError
    │   ├── LagError
    │   ├── NoLakeError
    │   ├── SchemaError
    │   └── SparkNeededError
    └── SessionError

Messages are written for the person who runs a job: they are shown without a traceback.
"""

import errno
import os
import re
from datetime import datetime
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit


class LaglakeError(Exception):
    """Something went wrong that the message explains; the job ends with `exit_status`."""

    exit_status: ClassVar[int] = 1


class BadValueError(LaglakeError):
    """A value in the rows fits no type: the same rows would fail again, so their snapshot is passed over."""


class ConfigError(LaglakeError):
    """The configuration or the command line cannot be used; one line for each mistake."""

    exit_status: ClassVar[int] = 2


class ChannelError(LaglakeError):
    """A channel did not accept a message."""


class ClusterError(LaglakeError):
    """A Kafka cluster could not be reached, or refused to answer. `error` is Kafka's error name, as rows have it."""

    error: ClassVar[str] = "NETWORK_EXCEPTION"


class TokenError(ClusterError):
    """There is no token for a login. The message has neither a secret nor the body of an answer."""


class WrongClusterError(ClusterError):
    """A different Kafka cluster answers than the one that should be read."""

    error = "INCONSISTENT_CLUSTER_ID"


class TooLateError(ClusterError):
    """The cluster could not be read within `limits.read_timeout`."""

    error = "REQUEST_TIMED_OUT"


class LakeError(LaglakeError):
    """A table could not be read or written."""


class SparkNeededError(LakeError):
    """Only Spark can do this, and the job runs without it."""


class SessionError(LaglakeError):
    """Spark's workers cannot run laglake."""


class ClaimedError(LakeError):
    """Another run has claimed the snapshot: `since` when (UTC), and the `status` of the snapshot in the ledger.

    The status is `running` if that run has not finished it. Perhaps that run was killed.
    """

    def __init__(self, run_id: str, status: str, since: datetime) -> None:
        self.status = status
        self.since = since
        if status == "running":
            super().__init__(f"run {run_id} has been taking it since {since:%Y-%m-%d %H:%M:%S} UTC")
        else:
            super().__init__(f"run {run_id} has taken it: {status}")


class LagError(LakeError):
    """The lag of some clusters could not be computed; that of the others was."""


class NoLakeError(LakeError):
    """There is no lake where it should be."""


class SchemaError(LakeError):
    """A table in the lake does not have the columns that this version of laglake writes."""


_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "the disk must be mounted for writing",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.EIO: "check the disk",
}
"""What to do about errors of the operating system that no setting of laglake can prevent."""
_CAUSE = re.compile(r"^[ \t]*(?:\x1b\[\d+m)?↳(?:\x1b\[\d+m)? (.+?)(?: \(os error \d+\))?$", re.MULTILINE)
"""A line in which delta-rs names the cause of the line before. The last of these lines has the cause of all."""


def first_line(error: BaseException) -> str:
    """The first informative line of an error, and its cause if that is in a later line.

    Spark's messages continue with plans and stack traces. What the operating system has refused, such as to write to a
    full disk, is at their end, and the first line says only that a task has failed.
    """
    text = str(error).strip()
    if unseen := unseen_by_executors(text) or lacked_by_workers(text):
        return unseen
    lines = text.splitlines() or [type(error).__name__]
    line = lines[0]
    if line.startswith("An error occurred while calling ") and len(lines) > 1:  # py4j, of a JVM's exception
        line = lines[1].removeprefix(": ")
    if causes := _CAUSE.findall(text):
        line = f"{line}: {causes[-1]}"
    for number, remedy in _REMEDIES.items():
        refused = os.strerror(number)
        if refused in text:
            line = line if refused in line else f"{line}: {refused}"
            return line if remedy in line else f"{line}; {remedy}"
    return line


def remedy_of(error: OSError) -> str | None:
    """What to do about an error of the operating system that no setting of laglake can prevent; None for others."""
    return _REMEDIES.get(error.errno or 0)


_MISSING_LOG = re.compile(
    r"FILE_NOT_EXIST\][^\n]* file (file:/[^\n]*?)(/[^/\n]+/_delta_log/[^/\n]+?\.(?:json|parquet)\b)"
)
"""The folder of a lake in Spark's message that an executor found no file of a table's log, and that file in it."""


def unseen_by_executors(message: str) -> str | None:
    """What is wrong if an executor lacks a lake that the driver has; None if that is not what Spark's message says.

    If the driver does not find the file either, that file is gone, and an executor may be on the same machine.
    """
    found = _MISSING_LOG.search(message)
    if not found:
        return None
    folder, file = (unquote(urlsplit(location).path) for location in (found[1], found[1] + found[2]))
    if not Path(file).exists():
        return None
    return (
        f"{folder}: the driver sees this lake, and an executor does not: with executors on other machines, a lake must "
        "be where all of them see it, such as an object store, HDFS or a folder that all machines mount"
    )


_LACKED = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


def lacked_by_workers(message: str) -> str | None:
    """What is wrong if Spark's Python workers lack a package; None if that is not what Spark's message says."""
    lacked = _LACKED.search(message)
    if not lacked:
        return None
    return (
        f"a Python worker of Spark lacks the package {lacked[1].partition('.')[0]}: install laglake, with all that it "
        "requires, where the executors run"
    )


_VALUE_ERRORS = (
    r"BadValueError|struct\.error|OverflowError|ZeroDivisionError|FloatingPointError|ArrowInvalid|Unicode\w*Error"
)
_OF_VALUES = re.compile(rf"^(?:[\w.]+\.)?(?:{_VALUE_ERRORS})\b.*", re.MULTILINE)
"""The line of a Python traceback that says which value fits no type."""


def is_data_exception(error: BaseException) -> bool:
    """Whether Spark failed because of the data itself, so that the same rows will fail again.

    In its own code (SQLSTATE class 22), or in a Python function that met a value which fits no type.
    """
    is_named = re.search(r"SQLSTATE: 22\w{3}", str(error)) or _OF_VALUES.search(str(error))
    return isinstance(error, BadValueError) or bool(is_named)


def data_exception(error: BaseException) -> str:
    """The line of such an error that says which value is wrong."""
    named = re.search(r"\[[A-Z_.]+\][^\n]*SQLSTATE: 22\w{3}", str(error)) or _OF_VALUES.search(str(error))
    line = named[0] if named else first_line(error)
    return line.removeprefix(f"{BadValueError.__module__}.{BadValueError.__name__}: ")


def unexpected(error: Exception) -> str:
    """One line for an unexpected error, most likely a bug in laglake. The traceback goes to the log."""
    return f"unexpected {type(error).__name__}: {first_line(error)} (--verbose logs where)"
