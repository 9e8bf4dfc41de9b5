"""Makes Spark and laglake print everything they know about a password, and checks whether the password is in it.

As a script, `secrets.py CONFIG`, it does so in a separate process, on stdout and stderr, with all logging on.
"""

import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.config import ClusterConfig, load_config
from tests.helpers.recordings import unpacked
from tests.helpers.s3 import BUCKET, S3

USER = "reader"
WRONG_PASSWORD = "wr0ng-pa55"
PASSWORD_VARIABLE = "LAGLAKE_TEST_PASSWORD"
LOGIN = f"""
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "PLAIN"
sasl_plain_username = "{USER}"
sasl_plain_password = "${{env:{PASSWORD_VARIABLE}}}"
"""
ALL_IS_LOGGED = "debug messages are logged"
# The end of the fixture's password, se"cret\#1, in all ways of escaping, and the wrong password.
LEAK = re.compile(r"cret(?:\\|%5C|&#92;|&bsol;)*(?:#|%23|&#35;)1|wr0ng-pa55", re.IGNORECASE)


def leaks(text: str) -> list[str]:
    """The text around each password in a text."""
    return [text[max(0, m.start() - 120) : m.end() + 20] for m in LEAK.finditer(text)]


def stored(s3: S3, kafka: EmbeddedKafka, prefix: str, folder: Path) -> str:
    """Stores in S3 what clients report, and the logs of a topic; returns the lines of a config that reads them.

    The password is in every URL, and in what an endpoint is asked with.
    """
    put = partial(s3.client().put_object, Bucket=BUCKET)
    put(Key="statistics/one.jsonl", Body=(unpacked("librdkafka", folder) / "statistics.jsonl").read_bytes())
    put(Key="requests/request.log", Body=(unpacked("request-log", folder) / "request.log").read_bytes())
    for log in kafka.directory.rglob(f"{prefix}-orders-*/*.log"):
        put(Key=f"logs/{log.parent.name}/{log.name}", Body=log.read_bytes())

    def url(name: str) -> str:
        location = f"s3://me:{WRONG_PASSWORD}%2Fx@{BUCKET}/{name}"
        return f"{location}?scheme=http&region=us-east-1&endpoint_override=127.0.0.1%3A{s3.port}"

    return f"""
[defaults]
log_dirs = ["{url("logs")}"]
[[clusters.east.positions]]
source = "librdkafka_statistics"
paths = ["{url("statistics")}"]
[[clusters.east.positions]]
source = "kafka_request_log"
paths = ["{url("requests")}", "{url("absent")}"]
state = "{url("state")}"
[[clusters.east.positions]]
source = "kafka_client_metrics"
endpoints = ["http://127.0.0.1:1/metrics?token={WRONG_PASSWORD}"]
user = "me"
password = "{WRONG_PASSWORD}${{env:{PASSWORD_VARIABLE}}}"
"""


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


def say_locations(spark: SparkSession, cluster: ClusterConfig) -> list[str]:
    """The plans, rows and errors of the sources of clients' positions and of logs, with the URLs in their options."""
    sources = [(positions.source, positions.options(snapshot_id=0)) for positions in cluster.positions]
    sources += [("kafka_log_segments", {"log_dirs": ",".join(cluster.log_dirs)})]
    said = []
    for name, options in sources:
        rows = spark.read.format(name).options(**options).load()
        rows.explain("extended")
        said += [repr(rows), str(rows.collect()), error_of(partial(_read_missing, rows))]
    return said


def _read_missing(rows: DataFrame) -> None:
    rows.select("no_such_column").collect()


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
    """Takes a snapshot of everything in the config, then prints the rest, with all logging on."""
    from jobs import snapshot
    from pipeline.session import spark_session

    logging.basicConfig(level=logging.DEBUG)
    status = snapshot.main(["--verbose", "--config", config_file])
    logging.getLogger("kafka").setLevel(logging.DEBUG)
    logging.getLogger("pipeline").debug(ALL_IS_LOGGED)
    config = load_config(Path(config_file), os.environ)
    spark = spark_session("secrets")
    (cluster,) = config.clusters.values()
    for text in say_everything(spark, cluster.source_options()) + say_locations(spark, cluster):
        sys.stdout.write(f"{text}\n")
    sys.stdout.write(f"exit status {status}\n")


if __name__ == "__main__":
    main(sys.argv[1])
