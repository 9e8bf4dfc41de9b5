"""Which finding a problem belongs to, in whatever order its snapshots come. Small integers stand for instants."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analytics.findings.spans import Span, assigned

PATIENCE = 3
ALWAYS = tuple(range(1, 21))
Seen = list[tuple[int, str | None]]


def begun(seen: Seen, known: list[Span] | None = None, reported_at: tuple[int, ...] = ALWAYS) -> list[int | None]:
    """The first instant of each problem's finding."""
    return [span and span.first_ms for span in assigned(seen, known or [], reported_at, PATIENCE)]


@pytest.mark.parametrize(
    ("seen", "known", "expected"),
    [
        pytest.param([(1, "t"), (4, "t")], [], [1, 1], id="absent twice it lasts"),
        pytest.param([(1, "t"), (5, "t")], [], [1, 5], id="absent three times it has ended"),
        pytest.param([(1, "t"), (2, "u"), (3, "t")], [], [1, 2, 1], id="another cause is another finding"),
        pytest.param([(1, "t"), (2, "u"), (5, "t")], [], [1, 2, 5], id="one that ended while another lasted"),
        pytest.param([(1, None), (2, "t"), (3, None), (4, "u")], [], [1, 1, 1, 4], id="a cause that becomes known"),
        pytest.param([(1, "t"), (2, "u"), (3, None)], [], [1, 2, 2], id="an unknown cause is that of the last begun"),
        pytest.param([(6, None)], [Span(1, 3, "t", 4)], [6], id="a resolved one is not begun again"),
        pytest.param([(7, "t")], [Span(1, 4, "t")], [1], id="an open one goes on"),
        pytest.param([(2, "t"), (4, "t")], [Span(3, 6, "t")], [None, 3], id="late, before it and within it"),
        pytest.param([(4, "u")], [Span(3, 6, "t")], [None], id="late, of another cause"),
        pytest.param([(5, "t")], [Span(1, 3, "t", 5)], [None], id="late, when it is known to have ended"),
    ],
)
def test_a_problem_belongs_to_the_finding_that_lasts(seen: Seen, known: list[Span], expected: list[int | None]) -> None:
    assert begun(seen, known) == expected


def test_a_finding_lasts_while_its_client_reports_nothing() -> None:
    assert begun([(1, "t"), (20, "t")], reported_at=(1, 2, 19, 20)) == [1, 1]
    assert begun([(1, "t"), (20, "t")], reported_at=(1, 2, 18, 19, 20)) == [1, 20]


def spans_after(seen: Seen, known: list[Span], reported_at: tuple[int, ...]) -> list[Span]:
    """What `findings` has after a batch: the newest topic of each finding, and whether it is resolved."""
    spans = {span.first_ms: span for span in known}
    for (at, topic), span in zip(seen, assigned(seen, known, reported_at, PATIENCE), strict=True):
        if span is not None:
            old = spans.setdefault(span.first_ms, Span(at, at, topic))
            spans[span.first_ms] = Span(old.first_ms, max(old.last_ms, at), old.topic or topic, old.resolved_ms)
    after = {first: [h for h in reported_at if h > span.last_ms] for first, span in spans.items()}
    for first, span in spans.items():
        if span.resolved_ms is None and len(after[first]) >= PATIENCE:
            span.resolved_ms = after[first][0]
    return list(spans.values())


@given(
    st.lists(st.sampled_from([None, "absent", "t", "u"]), min_size=1, max_size=20),
    st.lists(st.integers(1, 19), max_size=6),
)
def test_repeated_batches_assign_the_same_findings_as_one_batch(each: list[str | None], cuts: list[int]) -> None:
    problems: Seen = [(at, topic) for at, topic in enumerate(each, 1) if topic != "absent"]
    at_once = dict(zip(problems, begun(problems, reported_at=ALWAYS[: len(each)]), strict=True))
    known: list[Span] = []
    edges = sorted({0, len(each), *(c for c in cuts if c < len(each))})
    for start, end in pairwise(edges):
        batch = [(at, topic) for at, topic in problems if start < at <= end]
        reported_at = ALWAYS[max(start - 5, 0) : end]
        before = [s for s in known if s.resolved_ms is None or s.resolved_ms > start]
        assert begun(batch, before, reported_at) == [at_once[p] for p in batch]
        known = [*(s for s in known if s not in before), *spans_after(batch, before, reported_at)]
        again = [s for s in known if s.resolved_ms is None or s.resolved_ms > start]
        assert begun(batch, again, reported_at) == [at_once[p] for p in batch]
