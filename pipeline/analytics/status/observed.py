"""What rows of `lag` show of readers, as numpy arrays: the input of the rules."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analytics.arrow_series import NONE, Bools, Ints, instants_ms, numbers
from pipeline.analytics.keys import READER

WITHOUT_MEMBERS = ("Empty", "Dead")
OBSERVED_LAG = (
    *(*READER, "snapshot_id", "snapshot_date", "committed_captured_at", "topic_id", "group_state", "offset_status"),
    *("error", "committed_offset", "high_watermark", "consumer_lag", "consumer_lag_stable", "consumer_age_ms"),
    *("committed_at", "verified_epoch", "log_start_offset", "high_watermark_bytes", "high_watermark_error_bytes"),
    *("consumer_lag_bytes", "bytes_error", "unread_markers"),
)
"""The columns of `lag` that are needed to judge its rows."""
_ANOTHER_LOG = ("recreated", "truncated", "beyond_end")
"""The values of offset_status of a commit that belongs to another log than before."""


def observed(lag: pa.Table) -> dict[str, Any]:
    """The fields of `Observation` but has_epoch, and what else the rules need, from the columns OBSERVED_LAG."""
    state = lag["group_state"]
    is_empty = _is_in(state, WITHOUT_MEMBERS)
    at_ms, snapshot_id = instants_ms(lag, "committed_captured_at"), numbers(lag, "snapshot_id")
    end_bytes, drift = numbers(lag, "high_watermark_bytes"), numbers(lag, "high_watermark_error_bytes")
    # What the records were that are deleted is not known.
    is_in_log = numbers(lag, "committed_offset") >= numbers(lag, "log_start_offset")
    unread_bytes, error = numbers(lag, "consumer_lag_bytes"), numbers(lag, "bytes_error")
    return {
        "at_ms": np.where(at_ms != NONE, at_ms, snapshot_id),
        "topic": _hashes(lag["topic_id"]),
        "committed": numbers(lag, "committed_offset"),
        "end": numbers(lag, "high_watermark"),
        "lag": numbers(lag, "consumer_lag"),
        "stable_lag": numbers(lag, "consumer_lag_stable"),
        "age_ms": numbers(lag, "consumer_age_ms"),
        "has_members": np.where(state.is_null().to_numpy(), NONE, ~is_empty),
        "committed_at_ms": instants_ms(lag, "committed_at"),
        "is_new": _is_in(lag["offset_status"], _ANOTHER_LOG),
        "is_not_committed": _is_in(lag["offset_status"], ("no_commit",)),
        "verified_epoch": numbers(lag, "verified_epoch"),
        "log_start": numbers(lag, "log_start_offset"),
        "position_bytes": _if_all(end_bytes - unread_bytes, is_empty, end_bytes, unread_bytes),
        "error_since": _if_all(error - drift, is_empty, error, drift),
        "error_until": _if_all(error + drift, is_empty, error, drift),
        "unread_markers": np.where(is_in_log, numbers(lag, "unread_markers"), NONE),
    }


def why_unknown(lag: pa.Table) -> pa.ChunkedArray:
    """Why the lag of a row is not known, if it is not."""
    return pc.coalesce(lag["error"], lag["offset_status"])


def _is_in(column: pa.ChunkedArray, values: tuple[str, ...]) -> Bools:
    return np.asarray(pc.is_in(column, pa.array(values)).to_numpy())


def _if_all(values: Ints, is_empty: Bools, *needed: Ints) -> Ints:
    """The values of groups without members, where all that they are computed from is known; else NONE."""
    is_known = np.logical_and.reduce([is_empty, *(one != NONE for one in needed)])
    return np.where(is_known, values, NONE)


def _hashes(topic_ids: pa.ChunkedArray) -> Ints:
    """A hash of each topic's id; NONE if it is not known. It is stored, so it must stay the same."""
    encoded = topic_ids.combine_chunks().dictionary_encode()
    found = [_hash(topic_id) for topic_id in encoded.dictionary.to_pylist()]
    return np.asarray(np.array([*found, NONE], np.int64)[encoded.indices.fill_null(len(found)).to_numpy()])


def _hash(topic_id: str) -> int:
    return int.from_bytes(blake2b(topic_id.encode(), digest_size=8).digest(), "big", signed=True)
