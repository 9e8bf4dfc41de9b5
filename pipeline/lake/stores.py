"""Where a lake is stored, and whether Delta's commits are safe there: only one of two writers of a version may succeed.

Delta relies on a log store for that, one for each URI scheme (`spark.delta.logStore.SCHEME.impl`).
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.config.databricks import is_databricks

log = logging.getLogger(__name__)

SAFE_SCHEMES = {"hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "gs"}
"""Schemes for which Delta's own log stores commit safely, by its documentation; no test of laglake runs them."""
UNSAFE_STORES = {"S3SingleDriverLogStore", "HDFSLogStore", "AzureLogStore", "LocalLogStore"}
"""Delta's log stores that, elsewhere, lose commits as soon as a second process writes."""
OWN_STORES = {
    "file": "laglake.FolderLogStore",
    "s3": "laglake.S3LogStore",
    "s3a": "laglake.S3LogStore",
    "s3n": "laglake.S3LogStore",
}
"""laglake's log stores by scheme. They are classes of Spark's JVM (`*.scala` in this folder)."""
_WITH_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def scheme_and_path(spark: SparkSession | None, location: str) -> tuple[str | None, str]:
    """The scheme of a location, as Spark's driver understands it, and its path. An unknown scheme is None."""
    named = _WITH_SCHEME.fullmatch(location)
    if named:
        return named[1].lower(), "/" + named[2].lstrip("/")
    if spark is None:
        return "file", location
    try:
        # Only Spark's JVM knows which file system a path without a scheme is in.
        file_system = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")  # noqa: SLF001
    except (AttributeError, PySparkException):  # pyspark-client, or a Connect session, has no JVM
        return None, location
    return file_system.partition(":")[0].lower(), location


def local_folder(spark: SparkSession | None, root: str | None) -> Path | None:
    """The local folder that `root` is for Spark's driver; None if it is not a local folder, or that is not known.

    Without Spark, a path without a scheme is a local folder.
    """
    if root is None or is_databricks() or (spark is not None and not is_classic(spark)):
        return None
    scheme, path = scheme_and_path(spark, root)
    return Path(path) if scheme == "file" else None


def has_links(folder: Path) -> bool:
    """Whether the folder's file system has hard links, by which delta-rs commits. The folder need not exist yet.

    True also if nothing can be written there: the first write will then report why.
    """
    with suppress(OSError):
        above = next((f for f in (folder, *folder.parents) if f.is_dir()), folder)
        with NamedTemporaryFile(dir=above, prefix="_laglake_") as file:
            linked = Path(f"{file.name}_linked")
            try:
                linked.hardlink_to(file.name)
            except OSError as exc:
                log.debug("%s: has no links, so Spark writes there: %s", above, exc)
                return False
            linked.unlink()
    return True


def is_classic(spark: SparkSession) -> bool:
    """Whether Spark's driver runs on this machine, which is not so with a Connect session."""
    try:
        return spark.sparkContext is not None
    except (AttributeError, PySparkException):
        return False


def _setting(spark: SparkSession, name: str) -> str | None:
    """A setting as Delta's log stores read it: that of the process, even if the session has changed it since."""
    try:
        settings = spark.sparkContext._conf  # noqa: SLF001 – `getConf` copies all settings, one call to the JVM for each
    except (AttributeError, PySparkException):  # a Connect session
        spark.sql(f"RESET {name}")  # gives the session the server's own value
        return spark.conf.get(name, None)
    return settings.get(name) or settings.get(name.removeprefix("spark."))


def why_unsafe(spark: SparkSession, location: str) -> str | None:
    """Why two jobs that write to a location at once would lose rows; None if they would not, or that is not known."""
    if is_databricks():  # it has log stores of its own; in S3, they are safe within one workspace
        return None
    scheme, _ = scheme_and_path(spark, location)
    if scheme is None or scheme in SAFE_SCHEMES:
        return None
    setting = f"spark.delta.logStore.{scheme}.impl"
    store = _setting(spark, setting) or _setting(spark, "spark.delta.logStore.class")
    if store and store.rpartition(".")[2] not in UNSAFE_STORES:
        return None
    place, whose = "a local folder" if scheme == "file" else f"{scheme}://", store or "its own"
    loses = f"{location}: Delta's log store for {place} ({whose}) loses commits when two jobs write at once"
    if own := OWN_STORES.get(scheme):
        return f"{loses}: set {setting} to {own}, which conf/spark-defaults.conf does, before Spark starts"
    return f"{loses}: set {setting} to one that does not, before Spark starts"


def is_known(spark: SparkSession, location: str) -> bool:
    """Whether the scheme of a location is known: with Connect, only the server knows that of a path without one."""
    return scheme_and_path(spark, location)[0] is not None
