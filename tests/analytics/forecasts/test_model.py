"""Many series at once, by numpy, give the same as each series alone in plain Python, whatever happens to them."""

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from pipeline.analytics.arrow_series import NONE
from pipeline.analytics.forecasts.band import REASONS, forecast
from pipeline.analytics.forecasts.memory import SAMPLES, Memory, Sums, after
from pipeline.analytics.forecasts.rates import BYTES_REASONS, SPANS_MS, committed_bytes_per_s, written_bytes_per_s
from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS
from tests.helpers import forecast_model as model

T0 = 1_769_860_800_000
SERIES, SNAPSHOTS = 40, 250


def a_series(chance: random.Random) -> Iterator[model.Seen]:
    """A group that reads, stops, commits rarely, is reset, has other partitions, or cannot be read."""
    at_ms, end, commits, read = T0 + chance.randint(0, 50_000), 1_000_000, 1_000_000, 1_000_000.0
    identity, mood, rate = 1, "steady", chance.choice([0, 0.01, 5, 300])
    starts, start_ms = 0, at_ms - DAY_MS
    every_ms, batch = chance.choice([10_000, MINUTE_MS, 5 * MINUTE_MS]), chance.choice([1, 1, 4])
    for number in range(SNAPSHOTS):
        odd = chance.random()
        if odd < 0.04:
            mood = chance.choice(["steady", "fast", "slow", "stopped", "quiet"])
        gap_ms = every_ms if odd < 0.97 else chance.choice([HOUR_MS, DAY_MS, 3 * DAY_MS])
        at_ms += gap_ms + chance.randint(-2_000, 2_000)
        written = 0 if mood == "quiet" else rate * chance.uniform(0.7, 1.3) * gap_ms / 1000
        end += int(written)
        read = min(end, read + {"fast": 2.5, "slow": 0.6, "stopped": 0}.get(mood, 1.1) * rate * gap_ms / 1000)
        commits = int(read) if number % batch == 0 else commits
        if chance.random() < 0.01:
            read = commits = max(0, commits - 100_000)
        if chance.random() < 0.005:
            identity, end, commits, read, starts = identity + 1, 50, 0, 0.0, 0
        lag = max(end - commits, 0)
        late = -20 * MINUTE_MS if chance.random() < 0.02 else 0
        worst = int(lag * chance.uniform(0.3, 1))
        values: list[int | None] = [at_ms + late, end, at_ms + late + chance.randint(0, 50), commits, worst, lag]
        if chance.random() < 0.03:
            values[chance.randrange(6)] = None
        if chance.random() < 0.1 and end > starts:
            starts += chance.randint(1, end - starts)
            start_ms = min(at_ms, start_ms + chance.choice([HOUR_MS, DAY_MS]))
        sizes = sizes_of(chance, end, commits, int(rate) * number)
        yield model.Seen(*values, identity, *sizes, *retention_of(chance, starts, start_ms))


def sizes_of(chance: random.Random, end: int, commits: int, estimated: int) -> list[int | None]:
    """The values in bytes, some of which are not known."""
    size = chance.choice([100, 100, 103])
    sizes: list[int | None] = [end * size, None, commits * size, chance.choice([0, 0, end * 4])]
    sizes[1] = chance.choice([0, estimated, end * 30])
    if chance.random() < 0.1:
        sizes[0] = sizes[1] = None
    if sizes[0] is None or chance.random() < 0.1:
        sizes[2] = sizes[3] = None
    return sizes


def retention_of(chance: random.Random, starts: int, start_ms: int) -> list[int | None]:
    """The age of the oldest unread record, and the beginning of its log; sometimes not known."""
    if chance.random() < 0.1:
        return [None, chance.choice([None, starts]), None]
    return [chance.randint(0, DAY_MS), starts, start_ms]


def numbers(values: list[int | None]) -> np.ndarray:
    return np.array([NONE if value is None else value for value in values], np.int64)


HEADS = (
    *("identity", "waiting_ms", "longest_ms", "second_ms", "waits_ms", "log_starts", "start_ms", "since_ms"),
    *("least_age_ms", "most_age_ms", "least_age_before_ms", "most_age_before_ms"),
)


def remembered(memory: Memory, number: int) -> tuple[list[int | None], list[model.Sample]]:
    """One series of a memory: HEADS, and the samples as the model has them."""
    heads = [None if (v := getattr(memory, name)[number]) == NONE else int(v) for name in HEADS]
    there = memory.ends_ms[number] != NONE
    columns = [
        [None if v == NONE else v for v in getattr(memory, name)[number][there].tolist()]
        for name in model.Sample._fields
    ]
    return heads, [model.Sample(*s) for s in zip(*columns, strict=True)]


def known_of(one: model.Known) -> tuple[list[int | None], list[model.Sample]]:
    heads = [one.identity, one.waiting_ms, one.longest_ms, one.second_ms, one.waits_ms, one.log_starts, one.start_ms]
    return [*heads, *one.deleted_ages], one.samples


@pytest.mark.parametrize("seed", range(3))
def test_each_series_is_remembered_and_forecast_as_by_the_model(seed: int) -> None:
    chance = random.Random(seed)
    series = [list(a_series(chance)) for _ in range(SERIES)]
    memory, known = Memory.empty(SERIES), [model.Known()] * SERIES
    markers: list[int | None] = [chance.choice([0, 1, 12]) for _ in series]
    reasons: Counter[str | None] = Counter()
    for number in range(SNAPSHOTS):
        seen = [one[number] for one in series]
        memory = after(memory, Sums(*(numbers(list(values)) for values in zip(*seen, strict=True))))
        assert np.array_equal(Memory.of_rows(memory.rows()).rows(), memory.rows())
        known = [was.after(one) for was, one in zip(known, seen, strict=True)]
        assert [remembered(memory, which) for which in range(SERIES)] == [known_of(one) for one in known]
        lags = [None if None in one[:6] else one.lag for one in seen]
        found = forecast(memory, numbers(lags), numbers(markers), MINUTE_MS, 30 * MINUTE_MS)
        for which, lag in enumerate(lags):
            reason, *times = model.forecast(known[which], lag, markers[which])
            assert REASONS[found.reason[which]] == reason, (which, number)
            assert [found.in_s[which], found.low_s[which], found.high_s[which]] == pytest.approx(
                times, rel=1e-6, abs=1e-6
            )
            reasons[reason if lag is None or times[0] else "caught up"] += 1
    assert {*reasons} == {*REASONS, "caught up"}, reasons
    assert max(len(one.samples) for one in known) < SAMPLES


@pytest.mark.parametrize("seed", range(3))
def test_rates_in_bytes_are_those_of_the_model(seed: int) -> None:
    chance = random.Random(seed)
    series = [list(a_series(chance)) for _ in range(SERIES)]
    memory, known = Memory.empty(SERIES), [model.Known()] * SERIES
    found: Counter[str] = Counter()
    for number in range(SNAPSHOTS):
        seen = [one[number] for one in series]
        memory = after(memory, Sums(*(numbers(list(values)) for values in zip(*seen, strict=True))))
        known = [was.after(one) for was, one in zip(known, seen, strict=True)]
        for of, rates in (("written", written_bytes_per_s), ("committed", committed_bytes_per_s)):
            for span_ms in SPANS_MS.values():
                values, reasons = rates(memory, span_ms)
                for which, one in enumerate(known):
                    expected = model.byte_rate(one.samples, span_ms, of) if one.samples else None
                    assert BYTES_REASONS[reasons[which]] == (expected if isinstance(expected, str) else None)
                    if isinstance(expected, float):
                        assert values[which] == pytest.approx(expected)
                    else:
                        assert np.isnan(values[which])
                    found[expected if isinstance(expected, str) else str(type(expected))] += 1
    assert len(found) == 5, found
