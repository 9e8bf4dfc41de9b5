"""What brokers have written since a given age, from rulers, compared with simulated logs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analytics.log_index.ruler import Ruler, Sample, begun, continued
from pipeline.analytics.log_index.ruler_storage import Rulers, encoded
from pipeline.analytics.page_cache.write_curves import AGES_MS, Curves, Pieces, pieces, summed
from tests.analytics.log_index.test_ruler import DAY, MINUTE, Step, op, pass_time
from tests.helpers.logsim import Batch, Log


class Remembering(Log):
    """A log that remembers all batches, even deleted ones."""

    def _begin(self) -> None:
        super()._begin()
        self.written: list[Batch] = []

    def append(self, records: int, size: int, timestamp_ms: int | None = None) -> None:
        first = self.log_end
        super().append(records, size, timestamp_ms)
        self.written.append(Batch(first, self.log_end - 1, size, self.timestamps_ms[-1]))

    def written_since(self, age_ms: float) -> int:
        """The bytes of all batches that are younger."""
        return sum(batch.size for batch in self.written if batch.timestamp_ms > self.now_ms - age_ms)


def producing(records: int) -> Step:
    return lambda log: log.append(records, 100 * records)


# Timestamps are in order; otherwise it would depend on the remaining records what a record was written after.
produce = st.builds(producing, st.integers(1, 30))
# All records have the same size, so that estimated growth is within the stated error.
happening = st.one_of(
    st.builds(op, st.sampled_from(["retain", "tier"]), st.integers(1, 4)),
    st.builds(op, st.just("delete_records"), st.integers(0, 300)),
    st.builds(op, st.just("move")),
)
between_observations = st.lists(produce | produce | pass_time | happening, max_size=6)


def ruler_of(log: Log, history: list[list[Step]]) -> Ruler:
    ruler = begun(log.observe())
    for number, steps in enumerate(history):
        ruler = continued(ruler, log.after(steps))
        found = log.first_from(log.now_ms - DAY)
        ruler = ruler.learnt(Sample(log.now_ms - DAY, *found)) if found else ruler
        ruler = ruler.thinned() if number % 5 == 4 else ruler
    return ruler


def curves(of: Pieces, brokers: list[int]) -> Curves:
    """The curves; `brokers` has the broker of each ruler."""
    return summed(of, np.array(brokers, np.int64)[of.ruler], max(brokers) + 1)


@given(st.lists(st.lists(between_observations, max_size=12), min_size=1, max_size=4))
def test_the_true_curve_is_within_its_bounds(histories: list[list[list[Step]]]) -> None:
    logs = [Remembering() for _ in histories]
    rulers = Rulers(encoded([ruler_of(log, history) for log, history in zip(logs, histories, strict=True)]))
    made, known_ms = pieces(rulers)
    reported = curves(made, [number % 2 for number in range(len(logs))])
    for broker in {number % 2 for number in range(len(logs))}:
        own = [number for number in range(len(logs)) if number % 2 == broker]
        for column, age_ms in enumerate(AGES_MS):
            if age_ms > min(known_ms[own]):
                break
            truth = sum(logs[number].written_since(age_ms) for number in own)
            least, written, most = (reported[i][broker, column] for i in (1, 0, 2))
            assert least - 1 <= truth <= most + 1, (age_ms, least, written, most)
            assert least - 1 <= written <= most + 1


def test_the_curve_of_a_steady_partition_is_close_to_the_truth() -> None:
    log = Remembering(segment_bytes=10**9)
    ruler = begun(log.observe())
    for _ in range(600):
        log.append(10, 6_000)
        log.wait(MINUTE)
        ruler = continued(ruler, log.observe())
    made, known_ms = pieces(Rulers(encoded([ruler.thinned()])))
    reported = curves(made, [0])
    assert known_ms[0] > 9 * 60 * MINUTE
    for column, age_ms in enumerate(AGES_MS):
        if 10 * MINUTE < age_ms < known_ms[0]:
            truth = log.written_since(age_ms)
            assert reported.written[0, column] == pytest.approx(truth, rel=0.02, abs=6_000)
            assert reported.most[0, column] - reported.least[0, column] <= 0.2 * truth + 30_000


def test_a_ruler_from_offset_0_or_of_an_empty_log_is_known_to_any_age() -> None:
    young, empty, old = Remembering(), Remembering(), Remembering()
    young.append(1, 100)
    for _ in range(5):
        old.append(5, 500)
        old.wait(MINUTE)
    rulers = [begun(young.observe()), begun(empty.observe()), begun(old.observe())]
    _, known_ms = pieces(Rulers(encoded(rulers)))
    assert known_ms.tolist() == [np.inf, np.inf, MINUTE]


def test_without_rulers_there_is_no_curve() -> None:
    made, known_ms = pieces(Rulers(encoded([None])))
    assert len(made.ruler) == 0
    assert known_ms.tolist() == [np.inf]


@pytest.mark.parametrize("width_ms", [0, 1, 10, 1_000, 60_000])
def test_old_bursts_keep_their_bytes(width_ms: int) -> None:
    bursts, size = 200_000, 1_000_000
    nothing = np.zeros(bursts, np.int64)
    begin = np.random.default_rng(1).integers(0, 60 * DAY, bursts)
    made = Pieces(nothing, begin, begin + width_ms, np.full(bursts, size), nothing, nothing)
    for curve in summed(made, nothing, 1):
        assert curve[0, -1] == pytest.approx(bursts * size, rel=1e-12)
