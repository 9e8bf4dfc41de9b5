"""Values and texts that are not what a parser expects, for hypothesis."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

NUMBERS = (-1, 0, 1.5, 1e300, -1e300, float("nan"), float("inf"), 2**31, 2**62, 2**63, -(2**63), 10**400)
ODD = st.one_of(
    st.sampled_from([None, True, [], [[]], {}, {"": None}, "", "\ud800", "\x00", "\u2028", "9" * 5_000, *NUMBERS]),
    st.text(max_size=20),
    st.integers(),
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in parsed JSON."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from paths(one, (*at, key))


@st.composite
def changed(draw: st.DrawFn, said: Any) -> Any:
    """The same JSON, but some values or keys are something else."""
    said = copy.deepcopy(said)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([at for at in paths(said) if at] or [("",)]))
        inside = said
        for key in way:
            inside = inside[key]
        if isinstance(inside, dict) and draw(st.booleans()):
            inside[draw(st.sampled_from(["", "x" * 3_000, "\ud800", "a=b,c:d"]))] = inside.pop(last, None)
        elif isinstance(inside, (dict, list)):
            inside[last] = copy.deepcopy(draw(ODD))
    return said


@st.composite
def torn(draw: st.DrawFn, text: str) -> str:
    """A text in which a part is missing, occurs twice, or is something else."""
    begin, end = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    between = draw(st.one_of(st.just(""), st.text(max_size=30), st.just(text[begin:end] * 2)))
    return text[:begin] + between + text[end:]
