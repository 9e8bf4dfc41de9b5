"""The settings by which the status of groups is judged."""

from typing import Self

from pydantic import Field, model_validator

from pipeline.common.epoch import DAY_MS, MINUTE_MS
from pipeline.config.toml_file import Section
from pipeline.config.value_types import DurationMs


class StatusConfig(Section):
    """How long a group may wait or fall behind before its status says so. A reader is a group at a partition."""

    window_ms: DurationMs = Field(default=30 * MINUTE_MS, alias="window")
    """How long a new reader may wait before it counts as stopped, or get older unread records before that is a
    `warning`. A reader that has been observed is compared with what is usual for it: a rise of the age by a whole
    `window` is never usual, and shares of it say how long a rise must last. `rewound` lasts for one `window`."""
    tolerance_ms: DurationMs = Field(default=MINUTE_MS, alias="tolerance")
    """Waits shorter than this do not count. Nor does an age that exceeds the usual one by less than this."""
    markers: int = Field(default=1, ge=0)
    """How many transaction markers may be at the end of a log, where `log_dirs` does not show how many there are: a
    reader that is no further behind there, while nothing is written, is `ok`, although up to this many records may be
    unread. Raise it if several transactional producers write to a partition and clients do not commit behind the
    markers. A lag of no more than this can make a service-level objective unknown, but never missed: set it to 0 if no
    producer uses transactions. Where the number is known, this setting does not count: the records of an aborted
    transaction, and offsets that compaction has removed, are then unread like any other."""

    data_loss_within_ms: DurationMs = Field(default=DAY_MS, alias="data_loss_within")
    """How long before retention may delete unread records, and how long before Kafka may remove commits, there is a
    finding."""

    @property
    def together_ms(self) -> int:
        """How far apart groups may stop, so that they have stopped together."""
        return self.window_ms // 3

    @model_validator(mode="after")
    def _tolerates_less_than_the_window(self) -> Self:
        if self.tolerance_ms > self.window_ms:
            raise ValueError("tolerance must not be more than window")
        return self
