"""The Spark session of a job: created here in this process, or provided by Connect or Databricks."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from weakref import WeakSet

import pyspark
from pyspark.sql import SparkSession

from pipeline import client_positions, kafka, log_segments
from pipeline.common.errors import LakeError
from pipeline.config.databricks import is_databricks
from pipeline.lake.delta import EXTENSION, require_classes
from pipeline.session.delta_package import delta_for
from pipeline.session.package_zip import zip_packages
from pipeline.session.workers import is_local, require_workers, use_own_python

log = logging.getLogger(__name__)

CONF = Path(__file__).resolve().parent
"""The folder with the Spark settings and log configuration that laglake needs. In a checkout they are links to the
files in conf/, which spark-submit.sh uses."""
LOG_STORES = "laglake-log-stores.jar"

PRIVATE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "7d",
}
"""Settings for a session that runs on one machine: no one else can reach it, or kill its jobs in its web UI.

A suspended machine sends itself no heartbeats. After two minutes without any, Spark would take its only executor for
dead, and end the process ten minutes after the machine has woken up.
"""

_ADDRESSES = {"spark.driver.host", "spark.driver.bindAddress"}

_registered: WeakSet[SparkSession] = WeakSet()
"""Sessions that already have the data sources: Spark logs a warning for each one that is registered again."""


def register(spark: SparkSession) -> None:
    """Registers all of laglake's data sources in a session, classic or Connect.

    Raises SessionError if Spark's Python workers cannot run them.
    """
    register_sources(spark)
    require_workers(spark)


def register_sources(spark: SparkSession) -> None:
    """The same for a session of our own, whose workers need not be tried. That takes half a second."""
    use_own_python(spark)
    for package in (kafka, log_segments, client_positions):
        package.register(spark)


def spark_session(app_name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The running session, or a new one, with laglake's data sources registered.

    On Databricks it is the platform's session, whose workers already have the package. If SPARK_REMOTE is set, it is a
    Connect session, and the package is sent to the server's workers. `settings` are for a new classic session.
    Raises LakeError if a new session cannot have Delta, because of an earlier one in this process, or because Delta has
    no build for this Spark; SessionError if the Python workers of a session that was there before cannot run laglake.
    """
    before = None if is_databricks() else SparkSession.getActiveSession()
    if is_databricks():
        spark = SparkSession.builder.getOrCreate()
    elif "SPARK_REMOTE" in os.environ:
        spark = connect_session()
    else:
        spark = classic_session(app_name, settings or {})
    if spark not in _registered:
        if spark is before:
            register(spark)
        else:
            register_sources(spark)
        _registered.add(spark)
    return spark


def classic_session(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """The active session, or a new one in this process, with local[*] unless spark-submit says otherwise."""
    logging.getLogger("py4j").setLevel(logging.WARNING)  # at DEBUG it logs every option, including passwords
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    from pyspark import SparkContext  # pyspark-client, which has only Connect, does not have it

    from pipeline.session.java_classes import keep_classes  # nor py4j

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise spark-submit has already set all of this
        defaults = read_defaults(CONF / "spark-defaults.conf")
        packages = defaults.pop("spark.jars.packages", "")
        home = Path(pyspark.__file__).parent
        if not has_delta(home):
            try:
                defaults["spark.jars.packages"] = delta_for(pyspark.__version__, packages)
            except ValueError as exc:
                raise LakeError(f"{home}: {exc}") from None
            log.info("Delta's jars are not in %s: Spark fetches them from Maven Central, and keeps them", home)
        defaults |= log_stores(home)
        settings = defaults | log_settings(CONF / "log4j2.properties") | dict(settings)
    settings = _private(settings) | dict(settings)
    if EXTENSION in settings.get("spark.sql.extensions", ""):
        own = [value for value in settings.values() if value.startswith("laglake.")]  # log stores
        require_classes(SparkContext._jvm, [EXTENSION, *own])  # noqa: SLF001
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    keep_classes(spark.sparkContext._jvm)  # noqa: SLF001
    return spark


def _private(settings: Mapping[str, str]) -> dict[str, str]:
    """PRIVATE without the settings that are already set; empty if executors are elsewhere."""
    from pyspark import SparkConf, SparkContext  # pyspark-client, which has only Connect, does not have them

    # Only Spark's JVM knows the settings from spark-submit, PYSPARK_SUBMIT_ARGS and spark-defaults.conf.
    SparkContext._ensure_initialized(conf=SparkConf(False).setAll([*settings.items()]))  # noqa: SLF001
    given = dict(SparkConf().getAll()) | dict(settings)
    if not is_local(given.get("spark.master", "local")):
        return {}
    kept = {name for name in PRIVATE if name in given}
    if not kept.isdisjoint(_ADDRESSES):  # the two belong together
        kept |= _ADDRESSES
    return {name: value for name, value in PRIVATE.items() if name not in kept}


def connect_session() -> SparkSession:
    """A Connect session to SPARK_REMOTE. The package is sent along, because data sources are pickled by reference."""
    spark = SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        spark.addArtifacts(str(zip_packages(Path(folder) / "laglake.zip")), pyfile=True)
    return spark


def has_delta(spark_home: Path) -> bool:
    """Whether Delta's jar is among Spark's own (`make jars` puts it there), so that a session need not resolve it."""
    return any((spark_home / "jars").glob("*delta-spark*.jar"))


def log_stores(spark_home: Path, folder: Path = CONF.parent / "lake") -> dict[str, str]:
    """The setting that adds the jar with the log stores; none if Spark has it, or the package does not (a checkout)."""
    jar = folder / LOG_STORES
    return {"spark.jars": str(jar)} if jar.exists() and not (spark_home / "jars" / LOG_STORES).exists() else {}


def log_settings(path: Path) -> dict[str, str]:
    """The settings that give the driver's JVM its log configuration; none if the file is absent."""
    if not path.exists():
        return {}
    return {"spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={path.as_uri()}"}


def read_defaults(path: Path) -> dict[str, str]:
    """The settings in a spark-defaults file, one `name value` per line; none if the file is absent."""
    if not path.exists():
        return {}
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}
