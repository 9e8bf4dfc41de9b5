"""unread_markers of `lag`: from the commit to the high watermark of the reader, which is below the end of the files."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.lag.lag import lag_table
from pipeline.analytics.log_index.index import rulers
from pipeline.log_segments.source import locate
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, LOG_INDEX, LOG_SAMPLES, WATERMARKS
from tests.helpers.rows import frame
from tests.helpers.segments import batch, write

MARKER = 0b11_0000
LOG = [
    *(batch(0, 3), batch(4, 4, size=78, attributes=MARKER), batch(5, 9)),
    *(batch(n, n, size=78, attributes=MARKER) for n in (10, 11)),
    *(batch(12, 14), batch(15, 15, size=78, attributes=MARKER)),
]
"""Markers are at 4, 10, 11 and 15; the log ends at 16."""
READERS: dict[str, tuple[int | None, int | None, int | None, tuple[Any, ...]]] = {
    # The commit, and the high watermark and log start that were read with it. If NULL, those of the partition count: 12
    # and 2. Then unread_markers, and whether a record is unread by its age.
    "after the last record": (10, None, None, (2, False)),
    "after its first marker": (11, None, None, (1, False)),
    "at the last record": (9, None, None, (2, True)),
    "in the middle of a batch": (7, None, None, (2, True)),
    "far behind": (3, None, None, (3, True)),
    "at the end": (12, None, None, (0, False)),
    "an earlier end": (10, 11, None, (1, False)),
    "a later end": (10, 16, None, (3, True)),
    "the later end": (15, 16, None, (1, False)),
    "below log start": (1, None, None, (3, True)),
    "below a later log start": (1, None, 10, (2, True)),
    "beyond the end of the files": (20, 20, None, (None, False)),
    "no commit": (None, None, None, (None, None)),
}


@pytest.mark.parametrize("has_files", [True, False])
def test_markers_are_counted_up_to_the_high_watermark(spark: SparkSession, tmp_path: Path, has_files: bool) -> None:
    write(tmp_path, {"0.log": b"".join(LOG)})
    commits = [(1, group, "t", 0, commit, end, start) for group, (commit, end, start, _) in READERS.items()]
    names = "snapshot_id group_id topic partition committed_offset high_watermark log_start_offset"
    ends = "snapshot_id captured_at topic partition log_start_offset high_watermark log_end_offset"
    watermarks = frame(spark, WATERMARKS, ends, (1, datetime(2026, 1, 31, tzinfo=UTC), "t", 0, 2, 12, 16))
    lag = lag_table(
        frame(spark, COMMITTED_OFFSETS, names, *commits),
        watermarks,
        frame(spark, GROUP_MEMBERS, "snapshot_id"),
        None,
        rulers(frame(spark, LOG_INDEX, "topic"), watermarks, frame(spark, LOG_SAMPLES, "topic"), asked_from=0),
        partial(locate, log_dirs=[str(tmp_path)]) if has_files else None,
    )
    found = {row["group_id"]: row for row in lag.select("group_id", "unread_markers", "consumer_age_ms").collect()}
    if has_files:
        expected = {group: values[-1] for group, values in READERS.items()}
        assert {
            group: (row["unread_markers"], has_age(row["consumer_age_ms"])) for group, row in found.items()
        } == expected
    else:
        assert {row["unread_markers"] for row in found.values()} == {None}


def has_age(age_ms: int | None) -> bool | None:
    return None if age_ms is None else age_ms != 0
