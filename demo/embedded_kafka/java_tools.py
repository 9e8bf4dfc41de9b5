"""The command line and the log configuration of Kafka's Java programs."""

from dataclasses import dataclass
from pathlib import Path

from demo.embedded_kafka.jars import java

# Kafka's default log4j configuration writes to the console, which these processes do not have.
LOG4J = """\
status = error
# Otherwise log4j closes the file before the broker has logged its shutdown.
shutdownHook = disable
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:laglake.log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p [%t] %c{1}: %m%n
rootLogger.level = ${sys:laglake.level}
rootLogger.appenderRef.file.ref = file
"""
# Kafka processes here run for minutes on shared cores. With the quick compiler and the simple garbage collector, they
# start in less CPU time (2.4 instead of 3.9 s for a broker).
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
# If an archive does not fit, Java complains on standard output, in the middle of a tool's output.
QUIET = ("-Xlog:disable", "-XX:+ExitOnOutOfMemoryError")
ARCHIVE = "classes.jsa"


@dataclass(frozen=True)
class JavaTools:
    """Builds the commands of one folder's Java processes. `marker` is the argument that identifies them."""

    jars: Path
    directory: Path
    marker: str
    archive_to_write: Path | None = None

    def write_log_configuration(self) -> None:
        """Writes the log4j configuration that all commands use."""
        self._log4j.write_text(LOG4J)

    def command(
        self,
        main_class: str,
        *arguments: str,
        agent: str | None = None,
        log: Path | None = None,
        level: str = "WARN",
        heap_mb: int = 256,
    ) -> list[str]:
        """The command line that runs `main_class`, logging to `log` (default: tools.log of the folder).

        `agent` is the value of `-javaagent:` for one of the jars: its file, and after an equals sign its own options.
        """
        return [
            *(java(), f"-Xmx{heap_mb}m", *QUICK_START, *QUIET, *self._sharing(), self.marker),
            *([f"-javaagent:{self.jars}/{agent}"] if agent else ()),
            f"-Dlog4j2.configurationFile={self._log4j}",
            f"-Dlaglake.log={log or self.directory / 'tools.log'}",
            f"-Dlaglake.level={level}",
            *("-cp", f"{self.jars}/*", main_class, *arguments),
        ]

    def _sharing(self) -> list[str]:
        """Options for class data sharing, which halves the start again; without an archive, Java's own one is used."""
        if self.archive_to_write is not None:
            return [f"-XX:ArchiveClassesAtExit={self.archive_to_write}"]
        archive = self.jars / ARCHIVE
        return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []

    @property
    def _log4j(self) -> Path:
        return self.directory / "log4j2.properties"


def tail(*files: Path, lines: int = 25) -> str:
    """The last lines of each file that exists, for an error message."""
    kept: list[str] = []
    for file in files:
        if file.exists():
            kept += file.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join(kept)
