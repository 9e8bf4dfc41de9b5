"""Fetches Kafka's own jars with the Ivy that is part of pyspark, so neither Maven nor Docker is needed.

The versions are in ivy.xml beside this file. A fetch takes about 30 s and 45 MB, once per checkout.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.errors import JarsError

KAFKA_VERSION = "4.3.0"
IVY_MODULE = Path(__file__).with_name("ivy.xml")
IVY_SETTINGS_VARIABLE = "LAGLAKE_IVY_SETTINGS"
FETCH_TIMEOUT_S = 900


def kafka_jars(directory: Path | None = None) -> Path:
    """The folder with Kafka's jars, which are fetched if necessary. Several processes may call this at once.

    Without `directory` it is `build/jars/kafka-<version>` of this checkout; in an installed package, of the working
    directory.

    Raises:
        JarsError: no Java, no pyspark with Ivy in it, or the repository cannot be reached.
    """
    target = (directory or _default_directory()).absolute()
    if _is_complete(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f".{target.name}.lock")):
        if not _is_complete(target):
            _fetch(target)
    return target


def java() -> str:
    """The path of the Java that runs Ivy, the brokers and their tools: that of $JAVA_HOME, else the first on PATH.

    Raises:
        JarsError: there is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise JarsError("no java found; install a Java 17 runtime, or set JAVA_HOME to one")
    return found


def _default_directory() -> Path:
    checkout = Path(__file__).resolve().parents[2]
    home = checkout if (checkout / "Makefile").exists() else Path()
    return home / "build" / "jars" / f"kafka-{KAFKA_VERSION}"


def _fingerprint() -> str:
    return hashlib.sha256(IVY_MODULE.read_bytes()).hexdigest()


def _is_complete(target: Path) -> bool:
    """Whether `target` has a complete fetch of exactly these versions: the marker is written last."""
    marker = target / ".complete"
    return marker.exists() and marker.read_text() == _fingerprint()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits for the lock on a file, which is created if necessary, and holds it during the block."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        fetched = Path(scratch, "jars")
        _run_ivy(fetched, target.parent)
        (fetched / ".complete").write_text(_fingerprint())
        shutil.rmtree(target, ignore_errors=True)
        fetched.rename(target)


def _run_ivy(fetched: Path, work: Path) -> None:
    log = work / "ivy.log"
    with log.open("w") as output:
        try:
            status = subprocess.run(
                _ivy_command(fetched, work / "ivy-cache"),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise JarsError(f"Ivy took more than {FETCH_TIMEOUT_S} s to fetch Kafka's jars; see {log}") from None
    if status != 0:
        raise JarsError(
            f"Ivy could not fetch Kafka {KAFKA_VERSION}'s jars; see {log}. "
            f"Check the network, or set {IVY_SETTINGS_VARIABLE} to an Ivy settings file that names your mirror."
        )


def _ivy_command(fetched: Path, cache: Path) -> list[str]:
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    return [
        *(java(), "-jar", str(_ivy_jar())),
        *(("-settings", settings) if settings else ("-m2compatible",)),
        *("-ivy", str(IVY_MODULE), "-cache", str(cache), "-confs", "default"),
        *("-retrieve", f"{fetched}/[artifact]-[revision](-[classifier]).[ext]"),
        # OSGi bundles are ordinary jars with another type, for example snappy, jackson and scala-logging.
        *("-types", "jar", "bundle"),
    ]


def _ivy_jar() -> Path:
    homes = [Path(os.environ["SPARK_HOME"])] if "SPARK_HOME" in os.environ else []
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        homes.append(Path(spec.origin).parent)
    for home in homes:
        for jar in sorted(home.glob("jars/ivy-*.jar")):
            return jar
    raise JarsError("no ivy-*.jar in pyspark's jars folder; install pyspark from PyPI, or set SPARK_HOME")
