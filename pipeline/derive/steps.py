"""The steps that compute the derived tables of a batch, in their order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from pipeline.derive.batch import Batch
from pipeline.derive.clients import keep_clients
from pipeline.derive.findings import keep_findings
from pipeline.derive.forecasts import keep_forecasts
from pipeline.derive.group_changes import keep_group_changes
from pipeline.derive.histograms import keep_histograms
from pipeline.derive.lag import Readers, compute_readers, keep_lag
from pipeline.derive.slo import keep_slo
from pipeline.derive.status import keep_group_status, keep_partition_status
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    FINDING_HISTORY,
    FINDINGS,
    FORECASTS,
    GROUP_CHANGES,
    GROUP_MEMBERS,
    GROUP_STATUS,
    LAG,
    LAG_HISTOGRAMS,
    LOG_INDEX,
    LOG_SAMPLES,
    PARTITION_STATUS,
    SLO,
    SNAPSHOTS,
    WATERMARKS,
    Table,
)

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """How some tables of a batch are computed and written.

    `run` gets the batch, and what was computed of its readers. It writes no other tables than those in `writes`. It
    reads no other tables than those in `reads`: bronze, the ledger, what it or an earlier step has written, and rows of
    other snapshots. Problems that a step has found are in `batch.problems`; the step of findings names the tables that
    they come from.
    """

    run: Callable[[Batch, Readers], None]
    writes: tuple[Table, ...]
    reads: tuple[Table, ...] = ()


READERS_READ = (
    COMMITTED_OFFSETS,
    WATERMARKS,
    GROUP_MEMBERS,
    CLIENT_POSITIONS,
    LOG_INDEX,
    LOG_SAMPLES,
    LAG,
    PARTITION_STATUS,
)
"""What the readers of a batch are computed from: its bronze rows, the log index, and rows of earlier snapshots."""
STEPS = (
    Step(keep_lag, (LAG,)),
    Step(keep_partition_status, (PARTITION_STATUS,)),
    Step(keep_group_status, (GROUP_STATUS,)),
    Step(keep_forecasts, (FORECASTS,), (FORECASTS, GROUP_STATUS)),
    Step(keep_group_changes, (GROUP_CHANGES,), (GROUP_MEMBERS, COMMITTED_OFFSETS, WATERMARKS)),
    Step(keep_histograms, (LAG_HISTOGRAMS,), (LAG_HISTOGRAMS,)),
    Step(keep_slo, (SLO,), (SLO,)),
    Step(keep_clients, (CLIENT_DIVERGENCE,), (CLIENT_POSITIONS, WATERMARKS, LAG, CLIENT_DIVERGENCE)),
    # In this order: a killed run must find the history from which its findings follow.
    Step(
        keep_findings,
        (FINDING_HISTORY, FINDINGS),
        (
            COMMITTED_OFFSETS,
            WATERMARKS,
            GROUP_MEMBERS,
            LAG,
            PARTITION_STATUS,
            GROUP_STATUS,
            GROUP_CHANGES,
            CLIENT_DIVERGENCE,
            SLO,
            FINDING_HISTORY,
            FINDINGS,
            SNAPSHOTS,
        ),
    ),
)
"""All steps. A snapshot is marked in `computed` after them, and the log index is written after the mark: so a run that
repeats them computes the same."""


def run_steps(batch: Batch, *, has_moved: bool) -> None:
    """Computes and writes the derived tables of a batch. `has_moved` is that of Bronze."""
    readers = compute_readers(batch, has_moved=has_moved)
    for step in STEPS:
        began_s = monotonic()
        step.run(batch, readers)
        names = ", ".join(table.name for table in step.writes)
        log.debug("%s: %s: %.1f s", batch.cluster, names, monotonic() - began_s)
