"""How fast logs grow and groups commit, in records and in bytes: the growth since an earlier sample."""

from __future__ import annotations

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Floats, Ints
from pipeline.analytics.forecasts.memory import SAMPLES, Memory
from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS

SPANS_MS = {"5m": 5 * MINUTE_MS, "1h": HOUR_MS, "1d": DAY_MS}
"""The times over which rates are given."""
MOST_UNCERTAIN = 0.25
"""A rate in bytes is not given if more than this part of it is uncertain."""
BYTES_REASONS = (None, "not_known", "too_little_history", "too_uncertain")
"""Why rates in bytes are NULL; where several hold, the first."""


def sample_of(read_ms: Ints, span_ms: int) -> tuple[Ints, Bools]:
    """The number of each series' newest sample that is at least `span_ms` old, and whether it is under twice as old."""
    ages = np.where(read_ms != NONE, read_ms[:, -1:] - read_ms, -1)
    is_old = ages >= span_ms
    at = SAMPLES - 1 - np.argmax(is_old[:, ::-1], axis=1)
    return at, is_old.any(axis=1) & (ages[np.arange(len(at)), at] < 2 * span_ms)


def rate_per_s(values: Ints, read_ms: Ints, span_ms: int) -> Floats:
    """How fast a value grows, since the newest sample that is at least `span_ms` old; nan if it is twice as old."""
    return _rate_since(values, read_ms, *sample_of(read_ms, span_ms))


def _rate_since(values: Ints, read_ms: Ints, at: Ints, is_there: Bools) -> Floats:
    """How fast a value grows since a sample; nan where the sample is not there."""
    passed_ms, grown = _since(read_ms, at), _since(values, at)
    return np.where(is_there, grown * 1000.0 / np.where(is_there, passed_ms, 1), np.nan)


def growth_per_s(values: Ints, read_ms: Ints, span_ms: int) -> Floats:
    """How fast a value grows, since the newest sample that is at least `span_ms` old, else since the oldest."""
    ages = np.where(read_ms != NONE, read_ms[:, -1:] - read_ms, -1)
    at, _ = sample_of(read_ms, span_ms)
    at = np.where((ages >= span_ms).any(axis=1), at, np.argmax(ages > 0, axis=1))
    age = np.maximum(ages[np.arange(len(at)), at], 0)
    grown = np.where(age > 0, _since(values, at), 0)
    return np.where(age > 0, grown * 1000.0 / np.maximum(age, 1), 0.0)


def written_bytes_per_s(memory: Memory, span_ms: int) -> tuple[Floats, Ints]:
    """How many bytes were written per second, nan if it is not known; and why not, as an index in BYTES_REASONS.

    What is uncertain is the growth that had to be estimated, because retention removed bytes at the same time.
    """
    at, is_there = sample_of(memory.ends_ms, span_ms)
    uncertain = np.maximum(_since(memory.log_end_error_bytes, at), 0)
    rate = _rate_since(memory.log_end_bytes, memory.ends_ms, at, is_there)
    records = _since(memory.log_ends, at)
    return _if_sure(memory.log_end_bytes, at, is_there, rate, records, uncertain)


def committed_bytes_per_s(memory: Memory, span_ms: int) -> tuple[Floats, Ints]:
    """The same for the bytes that were committed. What is uncertain is, besides, the stated error of both lags."""
    at, is_there = sample_of(memory.commits_ms, span_ms)
    every, errors = np.arange(len(at)), memory.commit_error_bytes
    uncertain = np.maximum(_since(memory.log_end_error_bytes, at), 0) + errors[:, -1] + errors[every, at]
    rate = _rate_since(memory.commit_bytes, memory.commits_ms, at, is_there)
    records = _since(memory.commits, at)
    return _if_sure(memory.commit_bytes, at, is_there, rate, records, uncertain)


def _if_sure(
    positions: Ints, at: Ints, is_there: Bools, rate: Floats, records: Ints, uncertain: Ints
) -> tuple[Floats, Ints]:
    """The rate, unless a position is not known or too much of the growth is uncertain. No records are no bytes."""
    grown, every = _since(positions, at), np.arange(len(at))
    is_idle = is_there & (records == 0)
    rules = {
        "not_known": positions[:, -1] == NONE,
        "too_little_history": positions[every, at] == NONE,
        "too_uncertain": (grown < 0) | (uncertain > MOST_UNCERTAIN * grown),
    }
    reason = np.zeros(len(at), np.int64)
    for name, holds in reversed(rules.items()):
        reason[holds & is_there & ~is_idle] = BYTES_REASONS.index(name)
    known = np.where(is_there & (reason == 0), np.where(is_idle, 0.0, rate), np.nan)
    return known, reason


def first_reason(reasons: list[Ints]) -> Ints:
    """The first of the reasons of several rates that holds, in the order of BYTES_REASONS; 0 if there is none."""
    found = np.stack(reasons)
    return np.asarray(np.where(found > 0, found, len(BYTES_REASONS)).min(axis=0) % len(BYTES_REASONS))


def _since(values: Ints, at: Ints) -> Ints:
    """How much a value has grown since a sample; 0 if one of the two is not known."""
    now, then = values[:, -1], values[np.arange(len(at)), at]
    is_known = (now != NONE) & (then != NONE)
    return np.where(is_known, np.where(is_known, now, 0) - np.where(is_known, then, 0), 0)
