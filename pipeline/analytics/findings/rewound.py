"""What the problem `rewound` says about who has moved the commits: a tool or an admin client, or the application.

`pipeline.analytics.status.resets` recognises a reset, and the reason of the status says so.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

LOOKS_LIKE_A_RESET = " This looks like a reset by a tool or an admin client."


def _was_reset() -> Column:
    return F.col("reason").eqNullSafe("offsets_reset")


def by_whom() -> Column:
    """A sentence if it was a reset; else NULL."""
    return F.when(_was_reset(), LOOKS_LIKE_A_RESET)


def advice() -> Column:
    """Whom to look for."""
    by_tool = "Records are processed again. If this was not intended, find out who has reset the offsets."
    by_client = (
        "Records are processed again. If nobody has reset the offsets on purpose, look for a consumer that seeks, or "
        "that started with auto.offset.reset=earliest."
    )
    return F.when(_was_reset(), by_tool).otherwise(by_client)
