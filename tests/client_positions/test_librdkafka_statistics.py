"""librdkafka's statistics, compared with what the application and an independent client saw."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.client_positions.librdkafka_statistics import of_parsed, parsed
from pipeline.client_positions.position import Position
from tests.helpers.recordings import by_partition, table, unpacked

PAUSED_MS = (1795258605516, 1795258640689)
Reported = list[tuple[int, dict[tuple[str | None, int | None], Position]]]


def of_statistics(line: str) -> list[Position]:
    return of_parsed(parsed(line))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("librdkafka", tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def reported(recording: Path) -> Reported:
    lines = [json.loads(line) for line in (recording / "statistics.jsonl").read_text().splitlines()]
    return [
        (
            line["ts"],
            {(p.topic, p.partition): p for p in of_parsed(line["statistics"]) if not p.fetcher},
        )
        for line in lines
    ]


def test_the_consumed_offset_is_the_applications_position(recording: Path, reported: Reported) -> None:
    compared = 0
    for (topic, partition), rows in by_partition(table(recording / "positions.csv")).items():
        for at_ms, positions in reported:
            before = [int(r["position"]) for r in rows if int(r["ts"]) <= at_ms]
            after = [int(r["position"]) for r in rows if int(r["ts"]) >= at_ms]
            consumed = positions[topic, partition].consumed_offset
            if before and after and consumed is not None:
                assert before[-1] <= consumed <= after[0]
                compared += 1
    assert compared >= 300


def test_between_two_reports_the_consumed_offset_is_that_of_the_earlier_one(
    recording: Path, reported: Reported
) -> None:
    """As docs/accuracy.md says, at the instants of the independent client it is up to 2 s old."""
    instants = sorted({int(r["ts"]) for r in table(recording / "truth.csv")})
    asked, behind = 0, []
    for (topic, partition), rows in by_partition(table(recording / "positions.csv")).items():
        for instant in instants:
            before = [int(r["position"]) for r in rows if int(r["ts"]) <= instant]
            after = [int(r["position"]) for r in rows if int(r["ts"]) >= instant]
            consumed = [
                positions[topic, partition].consumed_offset for at_ms, positions in reported if at_ms <= instant
            ]
            if before and after and consumed and consumed[-1] is not None:
                asked += 1
                assert consumed[-1] <= after[0]
                behind += [before[-1] - consumed[-1]] if consumed[-1] < before[-1] else []
    assert (asked, len(behind), min(behind), max(behind)) == (343, 7, 1, 6)


def test_the_fetched_offset_is_from_consumed_to_the_high_watermark(recording: Path, reported: Reported) -> None:
    buffered = 0
    for (topic, partition), rows in by_partition(table(recording / "truth.csv")).items():
        for at_ms, positions in reported:
            p = positions[topic, partition]
            after = [int(r["high_watermark"]) for r in rows if int(r["ts"]) >= at_ms]
            if after and p.fetched_offset is not None and p.consumed_offset is not None:
                assert p.consumed_offset <= p.fetched_offset <= after[0]
                buffered += p.fetched_offset > p.consumed_offset
    assert buffered >= 50


def test_pausing_discards_fetched_records(reported: Reported) -> None:
    paused = [
        positions["shop-paused", 0] for at_ms, positions in reported if PAUSED_MS[0] + 2_000 < at_ms < PAUSED_MS[1]
    ]
    assert len(paused) >= 15
    assert {(p.fetched_offset, p.consumed_offset, p.reported_lag) for p in paused} == {(474, 474, 109)}


def test_the_shared_queue_is_reported_once_for_the_client(reported: Reported) -> None:
    at_ms, positions = max(reported, key=lambda one: one[1][None, None].buffered_bytes or 0)
    assert PAUSED_MS[0] < at_ms < PAUSED_MS[1]
    assert (positions[None, None].buffered_bytes or 0) > 256 * 1024  # queued.max.messages.kbytes = 256
    assert {p.buffered_bytes for (topic, _), p in positions.items() if topic} == {None}


def test_a_client_reports_only_partitions_that_it_has_and_offsets_that_it_knows(tmp_path: Path) -> None:
    """A client gives partition 1 to another one and gets it back later.

    Meanwhile librdkafka lists it with the offset that was fetched last (272), `desired` false and `fetch_state`
    stopped; before a client knows where to begin, it lists partitions with 0.
    """
    lines = (unpacked("rebalance", tmp_path) / "statistics.jsonl").read_text().splitlines()
    found = []
    for line in lines:
        positions = of_parsed(json.loads(line)["statistics"])
        found.append({p.partition: (p.fetched_offset, p.consumed_offset) for p in positions if p.topic})
    begun, has_both, without, other, reading, regained = found
    assert begun == {0: (None, None), 1: (None, None)}
    assert has_both == {0: (97, 97), 1: (97, 97)}
    assert without == {0: (468, 468)}
    assert other == {1: (467, 467)}
    # Here librdkafka has not yet updated next_offset, 612. What the application got had been fetched.
    assert reading == {1: (613, 613)}
    assert regained == {0: (721, 721), 1: (721, 721)}


def test_a_partition_that_is_given_up_or_not_begun_is_not_the_clients() -> None:
    """Versions differ in when `desired` becomes false, and the oldest do not have it."""
    for state in ("none", "stopping", "stopped"):
        assert [p.topic for p in of_statistics(of_one(fetch_state=state))] == [None]
        assert [p.topic for p in of_statistics(of_one(fetch_state=state, desired=True))] == [None]
    assert [p.topic for p in of_statistics(of_one(desired=False))] == [None]


def test_while_an_offset_is_looked_up_only_what_was_consumed_is_known() -> None:
    for state in ("offset-query", "offset-wait", "validate-epoch-wait"):
        position = of_statistics(of_one(fetch_state=state, next_offset=70, app_offset=60))[1]
        assert (position.fetched_offset, position.consumed_offset) == (None, 60)


def test_the_fewest_fields_give_a_position() -> None:
    assert [p.fetched_offset for p in of_statistics(of_one())] == [None, 1]


def test_the_ends_that_the_client_knows_are_those_of_its_lag(recording: Path, reported: Reported) -> None:
    """This version counts its lag from the committed offset, and reads only committed records."""
    compared = 0
    for number, line in enumerate((recording / "statistics.jsonl").read_text().splitlines()):
        for name, topic in json.loads(line)["statistics"]["topics"].items():
            for p in topic["partitions"].values():
                if p["consumer_lag"] >= 0 and (name, p["partition"]) in reported[number][1]:
                    seen = reported[number][1][name, p["partition"]]
                    assert seen.reported_stable_end == p["committed_offset"] + p["consumer_lag"]
                    assert seen.reported_end == p["hi_offset"]
                    compared += 1
    assert compared >= 300


def test_the_ends_are_the_same_whichever_offset_a_version_counts_its_lag_from() -> None:
    """At position 90 and committed offset 20, version 1.6 counts 10 records to the last stable offset, 1.7 80."""
    known = {"app_offset": 90, "committed_offset": 20, "hi_offset": 130, "ls_offset": 100}
    for lag in (10, 80):
        position = of_statistics(of_one(**known, consumer_lag=lag))[1]
        assert (position.reported_lag, position.reported_stable_end, position.reported_end) == (lag, 100, 130)


def test_ends_are_not_known_before_the_first_fetch() -> None:
    position = of_statistics(of_one(hi_offset=-1001, ls_offset=-1001, consumer_lag=-1))[1]
    assert (position.reported_lag, position.reported_stable_end, position.reported_end) == (None, None, None)


def test_a_producer_has_no_positions() -> None:
    assert of_statistics('{"client_id": "p", "type": "producer"}') == []


def of_one(**partition: Any) -> str:
    known = {"partition": 0, "fetch_state": "active", "fetchq_size": 0, "next_offset": 1, "app_offset": 1}
    partitions = {"0": known | {"consumer_lag": 0, "rxbytes": 0} | partition}
    topics = {"t": {"partitions": partitions}}
    return json.dumps({"client_id": "c", "type": "consumer", "rxmsg_bytes": 0, "brokers": {}, "topics": topics})


OF_0_11 = {
    "name": "billing#eu#consumer-1",
    "type": "consumer",
    "ts": 22941906481,
    "time": 1513716844,
    "brokers": {
        "kafka-1:9092/0": {"name": "kafka-1:9092/0", "nodeid": 0, "state": "UP", "rx": 66, "rxbytes": 8307431},
        "kafka-1:9092/bootstrap": {"name": "kafka-1:9092/bootstrap", "nodeid": -1, "state": "UP", "rx": 1},
    },
    "topics": {
        "orders": {
            "topic": "orders",
            "partitions": {
                "0": {
                    "partition": 0,
                    "leader": 0,
                    "desired": True,
                    "fetch_state": "active",
                    "msgs": 0,
                    "fetchq_size": 12,
                    "next_offset": 50,
                    "app_offset": 42,
                    "hi_offset": 60,
                    "consumer_lag": 18,
                }
            },
        }
    },
}
"""Version 0.11.3: client_id and rxmsg_bytes came with 0.11.5, nodename and req with 1.0."""


def test_a_version_without_counters_gives_its_offsets() -> None:
    client, fetcher, partition = of_parsed(OF_0_11)
    assert client == Position("billing#eu", buffered_bytes=12)
    assert fetcher == Position("billing#eu", fetcher="kafka-1:9092")
    expected = {"fetched_offset": 50, "consumed_offset": 42, "reported_lag": 18, "reported_end": 60}
    assert partition == Position("billing#eu", topic="orders", partition=0, **expected)


def test_statistics_without_any_name_of_the_client_are_refused() -> None:
    for name in ("billing", None):
        with pytest.raises(ValueError, match="not librdkafka's statistics: "):
            of_parsed(OF_0_11 | {"name": name})


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", '{"client_id": "c", "type": "consumer", "topics": 5}', "[" * 100_000),
        *(of_one(partition=2.5), of_one(app_offset=float("inf")), of_one(fetchq_size="a"), of_one(next_offset=True)),
    ],
)
def test_text_that_is_not_statistics_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not librdkafka's statistics|Expecting"):
        of_statistics(text)
