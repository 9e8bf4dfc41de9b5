"""The output of jobs: a line on stderr for each log event, and tables on stdout."""

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.report.text.names import visible


class _OneLine(logging.Formatter):
    """One line for each event, even if a name or an exception contains line ends or escape codes of a terminal."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def log_format() -> logging.Formatter:
    """One line for each event, with its time in UTC."""
    result = _OneLine("%(asctime)s %(levelname)s %(message)s")
    result.converter = time.gmtime
    return result


def log_to_stderr(level: int = logging.INFO) -> None:
    """Logs laglake's own events from `level` on, and only errors of libraries. An existing log configuration stays."""
    from pyspark.logger import PySparkLogger  # imported late, as Spark takes seconds to load

    handler = logging.StreamHandler()
    handler.setFormatter(log_format())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    for name in ("jobs", "pipeline", "__main__"):
        logging.getLogger(name).setLevel(level)
    # Spark's exceptions are logged when they are raised, even those that are expected.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # kafka-python logs every attempt to reach a broker; the results are in the tables.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def print_table(table: Callable[[bool], str]) -> None:
    """Prints the output of `table` to stdout, in colour if possible; spark-submit.sh provides a file for it instead."""
    is_terminal = sys.stdout.isatty() or "LAGLAKE_STDOUT_IS_A_TERMINAL" in os.environ
    text = table(is_terminal and "NO_COLOR" not in os.environ) + "\n"
    if file := os.environ.get("LAGLAKE_STDOUT"):
        Path(file).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
