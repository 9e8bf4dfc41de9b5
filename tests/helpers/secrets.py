"""Makes Spark and laglake print everything they know about a password, and checks whether the password is in it.

As a script, `secrets.py CONFIG`, it does so in a separate process, on stdout and stderr, with all logging on.
"""

import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.config import load_config

USER = "reader"
WRONG_PASSWORD = "wr0ng-pa55"
PASSWORD_VARIABLE = "LAGLAKE_TEST_PASSWORD"
LOGIN = f"""
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "PLAIN"
sasl_plain_username = "{USER}"
sasl_plain_password = "${{env:{PASSWORD_VARIABLE}}}"
"""
# The end of the fixture's password, se"cret\#1, in all ways of escaping, and the wrong password.
LEAK = re.compile(r"cret(?:\\|%5C|&#92;|&bsol;)*(?:#|%23|&#35;)1|wr0ng-pa55", re.IGNORECASE)


def leaks(text: str) -> list[str]:
    """The text around each password in a text."""
    return [text[max(0, m.start() - 120) : m.end() + 20] for m in LEAK.finditer(text)]


def say_everything(spark: SparkSession, options: dict[str, str]) -> list[str]:
    """The plans and errors of a source that works, of one with a wrong password, and of one with a wrong option."""
    source = spark.read.format("kafka_watermarks").options(**options)
    source.load().explain("extended")
    source.load().explain("cost")
    refused = spark.read.format("kafka_watermarks").options(**options | {"sasl_plain_password": WRONG_PASSWORD})
    unknown = spark.read.format("kafka_watermarks").options(**options | {"sasl_password": WRONG_PASSWORD})
    source.load().collect()
    return [
        repr(source.load()),
        error_of(lambda: source.load().select("no_such_column").collect()),
        error_of(lambda: source.load().selectExpr("raise_error(topic)").collect()),
        error_of(lambda: source.load().write.saveAsTable("no_such_catalog.no_such_schema.t")),
        error_of(lambda: refused.load().collect()),
        error_of(lambda: unknown.load().collect()),
    ]


def error_of(action: Callable[[], object]) -> str:
    """The error of an action that must fail, with everything that is attached to it."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 – whatever it is, its text is what matters
        details = [str(error), repr(error), *map(str, error.args)]
        for method in ("getMessageParameters", "getStackTrace", "getQueryContext", "getMessage"):
            with suppress(Exception):
                details.append(str(getattr(error, method)()))
        return "\n".join(details)
    raise AssertionError("it did not fail")


def main(config_file: str) -> None:
    """Runs the job on everything in the config, then prints the rest, with all logging on."""
    from jobs import snapshot
    from pipeline.session import spark_session

    logging.basicConfig(level=logging.DEBUG)
    status = snapshot.main(["--config", config_file])
    logging.getLogger("kafka").setLevel(logging.DEBUG)
    config = load_config(Path(config_file), os.environ)
    spark = spark_session("secrets")
    (cluster,) = config.clusters.values()
    for text in say_everything(spark, cluster.source_options()):
        sys.stdout.write(f"{text}\n")
    sys.stdout.write(f"exit status {status}\n")


if __name__ == "__main__":
    main(sys.argv[1])
