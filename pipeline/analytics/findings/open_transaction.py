"""The words about an open transaction: whose it is, and how to end it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import command, in_shell, instant, iso, sentence

TRANSACTION = (
    "transaction_producer_id",
    "transaction_start_offset",
    "transaction_timestamp_ms",
    "transactional_id",
)
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
    """Whose transaction it is: " of producer payments-1 (producer id 7), which last wrote at …". NULL if not known."""
    number = _of("transaction_producer_id").cast("string")
    named = F.concat(_of("transactional_id"), F.lit(" (producer id "), number, F.lit(")"))
    last = F.concat(F.lit(", which last wrote at "), instant(_written_ms()), F.lit(","))
    text = sentence(" of producer ", F.coalesce(named, number), last)
    return F.when(_of("transaction_producer_id").isNotNull(), text)


def advice() -> Column:
    """What to do: the command that ends this transaction, or that finds it if the producer is not known."""
    topic, partition = in_shell("of_topic", "TOPIC"), _of("partition").cast("string")
    start = _of("transaction_start_offset").cast("string")
    abort = command("kafka-transactions abort --topic %s --partition %s --start-offset %s.", topic, partition, start)
    look = command(
        "Look at this producer: it neither commits nor aborts. kafka-transactions describe --transactional-id %s "
        "shows what its coordinator knows. ",
        in_shell("worst.transactional_id", "ID"),
    )
    known = sentence(
        F.when(_of("transactional_id").isNotNull(), look), "If the producer is gone, end its transaction: ", abort
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
        "transactional_id": _of("transactional_id"),
        "transaction_start_offset": _of("transaction_start_offset"),
        "transaction_last_written": iso(_written_ms()),
    }
