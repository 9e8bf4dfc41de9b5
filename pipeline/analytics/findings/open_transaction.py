"""The words about an open transaction: whose it is, and how it ends."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import command, in_shell, instant, iso, sentence
from pipeline.common.kafka_tools import tool

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
    """What to do. The coordinator ends the transaction of a producer that is gone; only a hanging one needs an abort.

    A transaction of a two-phase commit, as Flink makes them, is committed by its producer after a restart: to abort it
    by hand may lose a part of it (KIP-664, KIP-939).
    """
    return command(
        "Look at the application that writes in transactions. If its producer is gone, Kafka aborts the transaction "
        "after the producer's transaction.timeout.ms, or the application commits it when it is back. Abort it by hand "
        "only if it hangs (KIP-664), in each partition that is listed as hanging: "
        + tool("transactions", "find-hanging --topic %s"),
        in_shell("of_topic", "TOPIC"),
    )


def evidence() -> dict[str, Column]:
    """The figures about the transaction."""
    return {
        "transaction_producer_id": _of("transaction_producer_id"),
        "transaction_start_offset": _of("transaction_start_offset"),
        "transaction_last_written": iso(_written_ms()),
    }
