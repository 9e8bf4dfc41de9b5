"""How the status of groups is judged."""

from typing import Self

from pydantic import Field, model_validator

from pipeline.config.toml_file import Section
from pipeline.config.value_types import DurationMs
from pipeline.epoch import MINUTE_MS


class StatusConfig(Section):
    """How long a group may wait or fall behind before its status says so. A reader is a group at a partition."""

    window_ms: DurationMs = Field(default=30 * MINUTE_MS, alias="window")
    """Lag that grows over this time is a `warning`. A new reader may wait this long before it counts as stopped; a
    reader that has waited before, twice as long as is usual for it."""
    tolerance_ms: DurationMs = Field(default=MINUTE_MS, alias="tolerance")
    """Waits shorter than this do not count, and lag of records younger than this is no `warning`."""

    @model_validator(mode="after")
    def _tolerates_less_than_the_window(self) -> Self:
        if self.tolerance_ms > self.window_ms:
            raise ValueError("tolerance must not be more than window")
        return self
