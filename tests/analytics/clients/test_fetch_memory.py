"""The memory of a consumer's fetches, compared with values calculated by hand and with what a client had buffered."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analytics.clients.buffer_bound import (
    Kind,
    answers_bytes,
    buffer_bound,
    consumer_settings,
    limited_bytes,
)
from pipeline.analytics.clients.fetch_memory import FetchMemory, allowed_fetches, fetch_memory
from pipeline.client_positions.librdkafka_statistics import of_parsed, parsed
from tests.helpers.recordings import unpacked

MIB = 1_048_576
KINDS: dict[Kind, tuple[str, ...]] = {
    "java": ("fetch.max.bytes", "max.partition.fetch.bytes"),
    "scala": ("threads", "queued.max.message.chunks", "fetch.message.max.bytes"),
    "librdkafka": (
        "queued.max.messages.kbytes",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "message.max.bytes",
    ),
}


def scala(config: dict[str, Any], threads: int | None = None, **wishes: Any) -> FetchMemory:
    return fetch_memory(config, 6, 3, kind="scala", threads=threads, **wishes)


def test_few_partitions_bound_a_java_consumer() -> None:
    found = fetch_memory({}, 30, 3)
    # 30 × 1 MiB, below 3 × 50 MiB = 150 MiB.
    assert (found.bound_bytes, found.in_flight_bytes) == (31_457_280, 0)
    assert found.bound_by == "partitions × max.partition.fetch.bytes"


def test_few_brokers_bound_a_java_consumer() -> None:
    found = fetch_memory({}, 300, 3)
    # 3 × 50 MiB, below 300 × 1 MiB.
    assert found.bound_bytes == 157_286_400
    assert found.bound_by == "brokers × fetch.max.bytes"


def test_a_batch_above_the_limit_replaces_the_limit() -> None:
    config = {"fetch.max.bytes": "4000000", "max.partition.fetch.bytes": "1000"}
    found = fetch_memory(config, 5, 2, largest_batch_bytes=900_000)
    # 5 × 900,000, below 2 × 4,000,000.
    assert found.bound_bytes == 4_500_000
    assert found.bound_by == "partitions × the largest batch"
    # 2 × 5,000,000, below 5 × 5,000,000.
    assert fetch_memory(config, 5, 2, largest_batch_bytes=5_000_000).bound_bytes == 10_000_000


def test_queues_bound_an_old_consumer_and_answers_in_flight_are_separate() -> None:
    found = scala({}, threads=4)
    # 4 threads × 2 chunks × 1 MiB; 6 partitions × 1 MiB on their way.
    assert (found.bound_bytes, found.in_flight_bytes) == (8_388_608, 6_291_456)


def test_the_old_consumers_of_the_maxlag_recording() -> None:
    """Three streams each, with the consumer.properties of small-buffers and ten-bytes."""
    small = {"fetch.message.max.bytes": "2048", "queued.max.message.chunks": "1", "auto.offset.reset": "smallest"}
    ten = {"fetch.message.max.bytes": "10", "queued.max.message.chunks": "1"}
    assert scala({}, threads=3).bound_bytes == 6_291_456  # 3 × 2 × 1 MiB
    assert scala(small, threads=3).bound_bytes == 6_144  # 3 × 1 × 2,048
    assert scala({**ten, "threads": "3"}).bound_bytes == 30  # 3 × 1 × 10


def test_librdkafkas_queue_is_exceeded_by_an_answer_of_each_broker() -> None:
    def bound(config: dict[str, int], partitions: int, brokers: int) -> int:
        return fetch_memory(config, partitions, brokers, kind="librdkafka").bound_bytes

    # 64 MiB + 10 × 1 MiB, below 2 × 50 MiB.
    assert bound({}, 10, 2) == 77_594_624
    # 1 MiB + 10 × 100,000, by the other name.
    assert bound({"queued.max.messages.kbytes": 1_024, "max.partition.fetch.bytes": 100_000}, 10, 2) == 2_048_576
    # 2 MiB + 2 × 2 MiB: answers are made no larger than the queue.
    assert bound({"queued.max.messages.kbytes": 2_048}, 10, 2) == 6_291_456
    # 256 KiB + 2 × message.max.bytes, 1,000,000: answers are made no smaller than a message.
    assert bound({"queued.max.messages.kbytes": 256}, 10, 2) == 2_262_144
    # 256 KiB + 2 × 5,000,000: or as they are set.
    assert bound({"queued.max.messages.kbytes": 256, "fetch.max.bytes": 5_000_000}, 100, 2) == 10_262_144


def test_a_real_librdkafka_exceeds_its_queue_but_not_its_bound(tmp_path: Path) -> None:
    recording = unpacked("librdkafka", tmp_path)
    lines = [json.loads(line) for line in (recording / "statistics.jsonl").read_text().splitlines()]
    positions = (p for line in lines for p in of_parsed(parsed(json.dumps(line["statistics"]))))
    observed = [p.buffered_bytes for p in positions if p.buffered_bytes is not None]
    # consumer.json; 7 partitions, one broker. The queue is at most 262,144, one answer 1,000,000.
    found = fetch_memory({"queued.max.messages.kbytes": 256}, 7, 1, kind="librdkafka", observed=observed)
    assert found.bound_bytes == 1_262_144
    assert 262_144 < max(observed) <= found.bound_bytes
    assert found.likely_bytes == np.quantile(np.array(observed), 0.95, method="inverted_cdf")
    assert not any("More was observed" in note for note in found.notes)


def test_likely_bytes_are_the_95th_percentile_of_the_observed_values() -> None:
    # 40 known values: the 38th, as 38 / 40 = 95 %. Unknown and negative ones are not counted.
    observed = [None, float("nan"), *range(40, 0, -1), *range(-20, 0)]
    assert fetch_memory({}, 1, 1, observed=observed).likely_bytes == 38
    assert fetch_memory({}, 1, 1, observed=[7]).likely_bytes == 7
    assert fetch_memory({}, 1, 1, observed=[None]).likely_bytes is None
    assert fetch_memory({}, 1, 1).likely_bytes is None


def test_a_note_says_if_more_was_observed_than_the_bound() -> None:
    assert any("More was observed" in note for note in fetch_memory({}, 1, 1, observed=[2 * MIB]).notes)


def test_the_share_of_the_heap_counts_what_is_in_flight() -> None:
    # 30 of 240 MiB; (8 + 6) of 56 MiB.
    assert fetch_memory({}, 30, 3, heap_bytes=240 * MIB).heap_share == 0.125
    assert scala({}, threads=4, heap_bytes=56 * MIB).heap_share == 0.25
    assert fetch_memory({}, 30, 3).heap_share is None


def test_kip_81_divides_what_is_not_used_by_the_size_of_a_fetch() -> None:
    # (200 − 0) / 50 = 4; (200 − 1) / 50 = 3.98; (200 − 201) / 50 < 0.
    found = [fetch_memory({}, 300, 3, buffer_memory=200 * MIB, observed=[used]) for used in (None, MIB, 201 * MIB)]
    assert [memory.kip81_fetches for memory in found] == [4, 3, 0]
    assert all(any("no released Kafka" in note for note in memory.notes) for memory in found)
    assert allowed_fetches(200, 0, 0) is None
    assert fetch_memory({}, 300, 3).kip81_fetches is None


def test_advice_lowers_the_setting_of_the_term_that_bounds() -> None:
    # 12 MiB / 30 partitions = 419,430.4; 12 MiB / 3 brokers = 4 MiB.
    by_partition = fetch_memory({}, 30, 3, wanted_bytes=12 * MIB).advice
    by_broker = fetch_memory({}, 300, 3, wanted_bytes=12 * MIB).advice
    assert by_partition is not None
    assert by_partition[:2] == ("max.partition.fetch.bytes", 419_430)
    assert by_broker is not None
    assert by_broker[:2] == ("fetch.max.bytes", 4_194_304)


def test_advice_takes_the_other_setting_where_a_batch_is_in_the_way() -> None:
    # 30 × 1 MiB whatever max.partition.fetch.bytes is, but 3 × 4 MiB.
    advice = fetch_memory({}, 30, 3, wanted_bytes=12 * MIB, largest_batch_bytes=MIB).advice
    assert advice is not None
    assert advice[:2] == ("fetch.max.bytes", 4_194_304)


def test_advice_says_if_no_setting_is_enough_or_none_is_needed() -> None:
    # A batch of each of 3 brokers: 3 MiB at least.
    found = fetch_memory({}, 30, 3, wanted_bytes=2 * MIB, largest_batch_bytes=MIB)
    assert found.advice is not None
    assert found.advice[:2] == (None, None)
    assert "no setting alone" in str(found.advice)
    assert "3,145,728 bytes (3.0 MiB)" in str(found.advice)
    assert any("does not lower the bound" in note for note in found.notes)
    enough = fetch_memory({}, 30, 3, wanted_bytes=30 * MIB).advice
    assert enough is not None
    assert enough[:2] == (None, None)
    assert "nothing needs to be lowered" in str(enough)
    assert fetch_memory({}, 30, 3).advice is None


def test_advice_for_an_old_consumer_keeps_chunks_large_enough_for_a_batch() -> None:
    # 3 MiB / (4 × 2) = 393,216. Too small for batches of 500,000, and one chunk each of 4 threads is 4 MiB.
    advice = [
        scala({}, threads=4, wanted_bytes=3 * MIB).advice,
        scala({}, threads=4, wanted_bytes=3 * MIB, largest_batch_bytes=500_000).advice,
        scala({}, threads=4, wanted_bytes=4 * MIB, largest_batch_bytes=MIB).advice,
    ]
    assert [found and found[:2] for found in advice] == [
        ("fetch.message.max.bytes", 393_216),
        (None, None),
        ("queued.max.message.chunks", 1),
    ]


def test_advice_for_librdkafka_lowers_the_queue_that_its_answers_follow() -> None:
    # k KiB of queue + 3 answers of k KiB = 64 MiB where k = 16,384.
    advice = fetch_memory({}, 100, 3, kind="librdkafka", wanted_bytes=64 * MIB).advice
    assert advice is not None
    assert advice[:2] == ("queued.max.messages.kbytes", 16_384)


def test_advice_gives_only_what_a_client_accepts() -> None:
    def advice(wanted: int) -> Any:
        config = {"queued.max.messages.kbytes": 1, "fetch.max.bytes": 5_000_000}
        return fetch_memory(config, 100, 2, kind="librdkafka", wanted_bytes=wanted).advice

    # 1,024 + 2 × 1,500,000; 1,024 + 100 × 10,000, as 2 × 500,000 are below message.max.bytes, 1,000,000.
    assert advice(3_001_024)[:2] == ("fetch.max.bytes", 1_500_000)
    assert advice(1_001_024)[:2] == ("fetch.message.max.bytes", 10_000)
    # More than 32 bits: the largest setting there is.
    huge = fetch_memory({"fetch.max.bytes": 10**17}, 10**12, 1, wanted_bytes=10**16).advice
    assert huge is not None
    assert huge[:2] == ("fetch.max.bytes", 2_147_483_647)


@pytest.mark.parametrize("value", ["", "x", "-1", -1, 1.5, "1e6", "1_000", True, None, float("nan"), float("inf")])
def test_a_setting_that_is_not_a_whole_number_is_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"^fetch\.max\.bytes must be a whole number"):
        fetch_memory({"fetch.max.bytes": value}, 1, 1)


def test_numbers_may_be_text_or_whole_floats_and_other_settings_are_ignored() -> None:
    config = {"fetch.max.bytes": " 2000000\n", "max.partition.fetch.bytes": 1000.0, "group.id": "x", "threads": "none"}
    assert fetch_memory(config, 5, 1).bound_bytes == 5_000


def test_other_bad_arguments_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^partitions must be"):
        fetch_memory({}, -1, 1)
    with pytest.raises(ValueError, match=r"^heap_bytes must be"):
        fetch_memory({}, 1, 1, heap_bytes=0)
    with pytest.raises(ValueError, match=r"^threads must be given"):
        scala({})
    with pytest.raises(ValueError, match=r"^threads must be a whole number"):
        scala({"threads": "many"})
    with pytest.raises(ValueError, match=r"^buffer_memory is proposed for the java consumer"):
        scala({}, threads=1, buffer_memory=1)
    with pytest.raises(ValueError, match=r"^kind must be one of java, scala, librdkafka"):
        consumer_settings({}, "ruby")  # type: ignore[arg-type]


def test_the_result_prints_as_readable_text() -> None:
    text = str(fetch_memory({}, 30, 3, heap_bytes=240 * MIB, wanted_bytes=12 * MIB, buffer_memory=100 * MIB))
    assert text.splitlines()[:5] == [
        "java consumer, partitions: 30, brokers: 3",
        "buffered at most: 31,457,280 bytes (30.0 MiB) = partitions × max.partition.fetch.bytes",
        "of the heap: 12.5%",
        "likely: not observed",
        "fetches that KIP-81 would allow: 2",
    ]
    advice = "lower max.partition.fetch.bytes from 1,048,576 to 419,430 to buffer at most 12,582,900 bytes (12.0 MiB)"
    assert f"advice: {advice}" in text
    assert "max.poll.records" in text
    assert "paused partitions" in text
    assert "in flight beyond that, at most: 6,291,456 bytes (6.0 MiB)" in str(scala({}, threads=4))


def test_the_arithmetic_takes_plain_numbers() -> None:
    assert limited_bytes(3 * 2, MIB) == 6_291_456
    assert answers_bytes(30, 3, 50 * MIB, MIB) == 31_457_280


sizes = st.integers(0, 100 * MIB) | st.integers(0, 10)
counts = st.integers(0, 500)


@st.composite
def consumers(draw: st.DrawFn) -> tuple[Kind, dict[str, int], int, int, int]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    names = draw(st.sets(st.sampled_from(KINDS[kind])))
    config = {name: draw(sizes) for name in KINDS[kind] if name in names}
    if kind == "scala":
        config["threads"] = draw(counts)
    return kind, config, draw(counts), draw(counts), draw(sizes)


@given(consumers(), sizes)
def test_the_bound_grows_with_everything(consumer: tuple[Kind, dict[str, int], int, int, int], more: int) -> None:
    kind, config, partitions, brokers, largest = consumer

    def bound(given: dict[str, int], partitions: int, brokers: int, largest: int) -> int:
        return buffer_bound(kind, consumer_settings(given, kind), partitions, brokers, largest).bound_bytes

    least = bound(config, partitions, brokers, largest)
    assert bound(config, partitions + more, brokers, largest) >= least
    assert bound(config, partitions, brokers + more, largest) >= least
    assert bound(config, partitions, brokers, largest + more) >= least
    for name in config:
        assert bound({**config, name: config[name] + more}, partitions, brokers, largest) >= least


@given(consumers(), st.integers(0, 200 * MIB) | st.integers(0, 100))
def test_advice_gives_the_wanted_bound_and_no_less_than_needed(
    consumer: tuple[Kind, dict[str, int], int, int, int], wanted: int
) -> None:
    kind, config, partitions, brokers, largest = consumer

    def found(given: dict[str, int]) -> FetchMemory:
        return fetch_memory(given, partitions, brokers, kind=kind, largest_batch_bytes=largest, wanted_bytes=wanted)

    before = found(config)
    advice = before.advice
    assert advice is not None
    if advice.setting is None or advice.value is None:
        assert (before.bound_bytes <= wanted) == ("nothing needs to be lowered" in advice.text)
        if before.bound_bytes > wanted:
            floors = {
                "threads": config.get("threads", 0),
                "fetch.max.bytes": config.get("message.max.bytes", 1_000_000),
            }
            for name in set(before.settings) - {"threads", "message.max.bytes"}:
                lowest = min(before.settings[name], floors.get(name, 1) if kind == "librdkafka" else 1)
                assert found({**config, name: lowest}).bound_bytes > wanted
    else:
        assert 1 <= advice.value < before.settings[advice.setting]
        assert found({**config, advice.setting: advice.value}).bound_bytes <= wanted
        assert found({**config, advice.setting: advice.value + 1}).bound_bytes > wanted
