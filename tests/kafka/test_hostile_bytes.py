"""What members write about themselves into a group: whatever the bytes are, they are quickly read or refused."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kafka.group_members import CONSUMER, _classic_assignment, _classic_subscription

ASSIGNED = b"\0\1" + b"\0\0\0\2" + b"\0\1t\0\0\0\2\0\0\0\0\0\0\0\1" + b"\0\1u\0\0\0\1\0\0\0\5" + b"\xff\xff\xff\xff"
SUBSCRIBED = b"\0\1" + b"\0\0\0\2\0\1t\0\1u" + b"\xff\xff\xff\xff" + b"\0\0\0\0"


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A member's bytes, of which some are changed, missing or added."""
    data = draw(st.sampled_from([ASSIGNED, SUBSCRIBED]))
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(data)))
        data = data[:begin] + draw(st.binary(max_size=6)) + data[begin + draw(st.integers(0, 4)) :]
    return data


def test_valid_bytes_are_parsed() -> None:
    assert _classic_assignment(CONSUMER, ASSIGNED) == ([("t", 0), ("t", 1), ("u", 5)], None)
    assert _classic_subscription(CONSUMER, SUBSCRIBED) == ["t", "u"]


@given(changed() | st.binary(max_size=40))
def test_any_other_bytes_are_parsed_or_refused(data: bytes) -> None:
    assigned, error = _classic_assignment(CONSUMER, data)
    assert error is None or assigned == []
    assert all(topic and isinstance(partition, int) for topic, partition in assigned)
    topics = _classic_subscription(CONSUMER, data)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


@pytest.mark.parametrize(
    "megabyte",
    [
        pytest.param(b"\0\0\x7f\xff\xff\xff" + bytes(1_000_000), id="topics without a name"),
        pytest.param(b"\0\0\0\2\x22\xe0" + b"\0\1t\0\0\0\0" * 140_000, id="topics without partitions"),
        pytest.param(b"\0\0\0\0\0\1\0\1t\x7f\xff\xff\xff" + bytes(1_000_000), id="more partitions than there are"),
        pytest.param(b"\xff" * 1_000_000, id="noise"),
    ],
)
def test_a_megabyte_is_parsed_quickly(megabyte: bytes) -> None:
    before = time.process_time()
    _classic_assignment(CONSUMER, megabyte)
    _classic_subscription(CONSUMER, megabyte)
    assert time.process_time() - before < 10
