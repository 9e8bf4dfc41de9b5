"""The words about an open transaction: whose it is, and how to end it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import command, in_shell, instant, iso, sentence

TRANSACTION = ("transaction_producer_id", "transaction_start_offset", "transaction_timestamp_ms")
"""The columns of WATERMARKS about the transaction that holds back a partition's last stable offset."""


LAST_MS = 253_402_300_800_000
"""The end of the year 9999. A producer may write any timestamp, but Spark cannot show a later one."""


def _of(name: str) -> Column:
    return F.col(f"worst.{name}")


def _written_ms() -> Column:
    """When the producer last wrote; NULL if its timestamp is not one of the years 1970 to 9999."""
    at_ms = _of("transaction_timestamp_ms")
    return F.when((at_ms >= 0) & (at_ms < LAST_MS), at_ms)


def producer() -> Column:
    """Whose transaction it is: " of the producer with id 7, which last wrote at …". NULL if it is not known."""
    number = _of("transaction_producer_id").cast("string")
    last = F.concat(F.lit(", which last wrote at "), instant(_written_ms()), F.lit(","))
    return F.when(number.isNotNull(), sentence(" of the producer with id ", number, last))


def advice() -> Column:
    """What to do: the command that ends this transaction, or that finds it if the producer is not known."""
    topic, partition = in_shell("of_topic", "TOPIC"), _of("partition").cast("string")
    start = _of("transaction_start_offset").cast("string")
    known = command(
        "kafka-transactions list shows the transactional.id of producer %s. If this producer is gone, end its "
        "transaction: kafka-transactions abort --topic %s --partition %s --start-offset %s.",
        _of("transaction_producer_id").cast("string"),
        topic,
        partition,
        start,
    )
    find = command(
        "Find the producer: kafka-transactions find-hanging --topic %s --partition %s. If it is gone, abort its "
        "transaction: kafka-transactions abort.",
        topic,
        partition,
    )
    return F.when(start.isNotNull(), known).otherwise(find)


def evidence() -> dict[str, Column]:
    """The figures about the transaction."""
    return {
        "transaction_producer_id": _of("transaction_producer_id"),
        "transaction_start_offset": _of("transaction_start_offset"),
        "transaction_last_written": iso(_written_ms()),
    }
