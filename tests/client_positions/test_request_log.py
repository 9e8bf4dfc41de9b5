"""A broker's request log, compared with what the applications and an independent client saw meanwhile."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pipeline.client_positions import request_log, request_memory
from pipeline.client_positions.position import Position
from pipeline.client_positions.request_log import RequestLog
from tests.helpers.recordings import by_partition, table, unpacked

GROUPS = {
    "shop-agg-1": "shop-aggregator",
    "ledger-rc": "ledger-committed",
    "ledger-ru": "ledger-uncommitted",
}
Seen = dict[tuple[str, str | None, int | None], Position]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("request-log", tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def seen(recording: Path) -> list[Seen]:
    """The positions of the clients after every twentieth line."""
    log, found = RequestLog(), []
    for number, line in enumerate((recording / "request.log").read_text().splitlines()):
        log.read(line)
        if number % 20 == 0:
            found.append({(p.client_id, p.topic, p.partition): p for p in log.positions()})
    return found


def test_the_fetched_offset_is_between_the_applications_position_and_the_high_watermark(
    recording: Path, seen: list[Seen]
) -> None:
    ends = by_partition(table(recording / "truth.csv"))
    positions = table(recording / "positions.csv")
    compared, ahead = 0, 0
    for client in GROUPS:
        for (topic, partition), rows in by_partition([r for r in positions if r["client_id"] == client]).items():
            for p in [at[client, topic, partition] for at in seen if (client, topic, partition) in at]:
                assert p.as_of_ms
                assert p.fetched_offset is not None
                consumed = [int(r["position"]) for r in rows if int(r["ts"]) < p.as_of_ms]
                end = [int(r["high_watermark"]) for r in ends[topic, partition] if int(r["ts"]) >= p.as_of_ms]
                if consumed and end:
                    assert consumed[-1] <= p.fetched_offset <= end[0]
                    compared += 1
                    ahead += p.fetched_offset > consumed[-1]
    assert compared >= 1_500
    assert ahead >= 500


def test_a_paused_partition_is_as_of_when_it_was_last_fetched(seen: list[Seen]) -> None:
    begin_ms, end_ms = 1795255742431, 1795255797442
    others = [at["shop-agg-1", "orders", 0].as_of_ms or 0 for at in seen if ("shop-agg-1", "orders", 0) in at]
    paused = [
        at["shop-agg-1", "clicks", 0]
        for at in seen
        if begin_ms + 1_000 < (at.get(("shop-agg-1", "orders", 0), Position("")).as_of_ms or 0) < end_ms - 1_000
    ]
    assert len(paused) >= 40
    (offset,) = {p.fetched_offset for p in paused}
    (as_of_ms,) = {p.as_of_ms for p in paused}
    assert as_of_ms
    assert offset
    assert begin_ms - 1_000 < as_of_ms < begin_ms + 100
    assert 882 <= offset <= 931  # the application's position then, and the high watermark two seconds later
    assert max(others) - min(others) > 120_000


def test_a_client_has_counters_and_the_group_that_it_commits_for(seen: list[Seen]) -> None:
    clients = {p.client_id: p for p in seen[-1].values() if p.topic is None}
    assert {name: p.group_id for name, p in clients.items()} == GROUPS
    assert {p.group_id for p in seen[-1].values() if p.client_id == "ledger-rc"} == {"ledger-committed"}
    for name in GROUPS:
        requests = [at[name, None, None].requests_total or 0 for at in seen if (name, None, None) in at]
        assert requests == sorted(requests)
        assert requests[-1] > 400


def test_topic_ids_get_their_names_from_metadata_requests(recording: Path) -> None:
    log = RequestLog()
    for line in (recording / "request.log").read_text().splitlines():
        log.read(line)
    expected = {row["topic_id"]: row["topic"] for row in table(recording / "topic_ids.csv") if row["topic"][0] != "_"}
    assert {key: name for key, name in log.memory.topics.items() if name in expected.values()} == expected


def line(api: str, client: str, request: dict[str, Any], response: dict[str, Any], second: int = 0) -> str:
    header = {"clientId": client, "requestApiKeyName": api}
    body = json.dumps(
        {"requestHeader": header, "request": request, "response": response, "totalTimeMs": 0.0}, separators=(",", ":")
    )
    return f"[2026-01-31 12:00:{second:02},000] DEBUG Completed request:{body} (kafka.request.logger)"


def fetch(client: str, session: tuple[int, int], offsets: dict[int, int], second: int = 0, **more: Any) -> str:
    partitions = [{"partition": p, "fetchOffset": o} for p, o in offsets.items()]
    topics = [{"topicId": "id-1", "partitions": partitions}] if offsets else []
    forgotten = [{"topicId": "id-1", "partitions": more.pop("forgotten")}] if "forgotten" in more else []
    request = {"sessionId": session[0], "sessionEpoch": session[1], "topics": topics, "forgottenTopicsData": forgotten}
    return line("FETCH", client, request | more, {"sessionId": 7, "responses": []}, second)


NOON_MS = 1_769_860_800_000


def read(*lines: str) -> dict[tuple[str, str | None, int | None], tuple[int | None, int]]:
    """The offset and the second of each partition, after all lines."""
    log = RequestLog({"id-1": "t"})
    for text in lines:
        log.read(text)
    return {
        (p.client_id, p.topic, p.partition): (p.fetched_offset, ((p.as_of_ms or 0) - NOON_MS) // 1000)
        for p in log.positions()
        if p.topic
    }


def test_a_partition_that_a_session_request_does_not_list_keeps_its_offset() -> None:
    begun = fetch("c", (0, 0), {0: 10, 1: 20}, 1)
    assert read(begun) == {("c", "t", 0): (10, 1), ("c", "t", 1): (20, 1)}
    assert read(begun, fetch("c", (7, 1), {1: 25}, 2)) == {("c", "t", 0): (10, 2), ("c", "t", 1): (25, 2)}
    left = fetch("c", (7, 1), {}, 3, forgotten=[0])
    assert read(begun, left) == {("c", "t", 0): (10, 1), ("c", "t", 1): (20, 3)}
    anew = fetch("c", (7, -1), {1: 30}, 4)
    assert read(begun, anew, fetch("c", (7, 1), {}, 5)) == {("c", "t", 0): (10, 1), ("c", "t", 1): (30, 5)}


def test_two_processes_with_one_client_id_have_separate_sessions() -> None:
    first, second = (
        fetch("c", (0, 0), {0: 10, 1: 20}, 1),
        fetch("c", (8, 0), {0: 500}, 2).replace('"sessionId":7', '"sessionId":8'),
    )
    assert read(first, second, fetch("c", (7, 1), {1: 21}, 3))["c", "t", 0] == (10, 3)
    assert read(first, fetch("other", (7, 1), {0: 11}, 2)).keys() & {("other", "t", 1)} == set()


def at_address(text: str, address: str) -> str:
    connection = f'"connection":"10.0.0.9:9092-{address}:41780-1-5"'
    return text.replace('"totalTimeMs"', f'{connection},"totalTimeMs"')


def test_processes_with_one_client_id_are_distinguished_by_their_addresses() -> None:
    """What each has asked for, its counters and its group; also after a restart from the saved state."""
    lines = [
        at_address(fetch("c", (0, 0), {0: 10}, 1), "10.0.0.1"),
        at_address(fetch("c", (0, 0), {1: 20}, 2).replace('"sessionId":7', '"sessionId":8'), "2001:db8:0:0:0:0:0:2"),
        at_address(line("OFFSET_COMMIT", "c", {"groupId": "g-1"}, {}, 2), "10.0.0.1"),
        at_address(line("OFFSET_COMMIT", "c", {"groupId": "g-2"}, {}, 2), "2001:db8:0:0:0:0:0:2"),
        at_address(fetch("c", (7, 1), {0: 11}, 3), "10.0.0.1"),
    ]
    log = RequestLog({"id-1": "t"})
    for text in lines[:4]:
        log.read(text)
    log = RequestLog.from_state(json.loads(json.dumps(log.state())))
    log.read(lines[4])
    found = {(p.host, p.group_id, p.partition, p.fetched_offset, p.requests_total) for p in log.positions()}
    assert found == {
        ("10.0.0.1", "g-1", None, None, 2),
        ("10.0.0.1", "g-1", 0, 11, None),
        ("2001:db8:0:0:0:0:0:2", "g-2", None, None, 1),
        ("2001:db8:0:0:0:0:0:2", "g-2", 1, 20, None),
    }


def test_a_recreated_topic_has_one_position() -> None:
    again = fetch("c", (0, 0), {0: 5}, 2).replace("id-1", "id-2")
    named = line("METADATA", "c", {}, {"topics": [{"name": "t", "topicId": "id-2"}]})
    assert read(fetch("c", (0, 0), {0: 900}, 1), named, again) == {("c", "t", 0): (5, 2)}


def test_followers_are_ignored() -> None:
    assert read(fetch("broker-2", (0, 0), {0: 10}, replicaId=2)) == {}
    assert read(fetch("broker-2", (0, 0), {0: 10}, replicaState={"replicaId": 2, "replicaEpoch": 1})) == {}


def test_a_client_that_commits_for_several_groups_has_no_group() -> None:
    log = RequestLog({"id-1": "t"})
    log.read(fetch("c", (0, 0), {0: 10}))
    for group in ("g-1", "g-2"):
        log.read(line("OFFSET_COMMIT", "c", {"groupId": group}, {}))
    assert {p.group_id for p in log.positions()} == {None}


@pytest.mark.parametrize(
    "text",
    [
        fetch("c", (0, 0), {0: 10})[:200],
        "FETCH " + fetch("c", (0, 0), {0: 10}),
        line("FETCH", "c", {"topics": 5}, {}),
        line("OFFSET_COMMIT", "c", {}, {}),
        fetch("c", (0, 0), {0: 10}).replace('"fetchOffset":10', '"fetchOffset":"x"'),
        fetch("c", (0, 0), {0: 10}).replace('"totalTimeMs":0.0', '"totalTimeMs":Infinity'),
    ],
)
def test_a_torn_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a line of Kafka's request log"):
        RequestLog().read(text)


def test_a_line_from_the_future_is_refused_and_does_not_advance_the_logs_clock() -> None:
    """It would be the newest of its client for ever, and all others would seem to have been silent for long."""
    log = RequestLog({"id-1": "t"})
    log.latest_ms = NOON_MS + 10_000
    log.read(fetch("c", (0, 0), {0: 10}, 10))
    with pytest.raises(ValueError, match="its time, 2026-01-31T12:00:11Z, is in the future: check the option timezone"):
        log.read(fetch("c", (0, 0), {0: 99}, 11))
    log.read("[2026-01-31 12:00:59,000] INFO Starting (kafka.server)")
    assert log.at_ms == NOON_MS + 10_000
    assert [p.fetched_offset for p in log.positions() if p.topic] == [10]


def test_other_lines_are_ignored() -> None:
    log = RequestLog()
    for text in ("", "[2026-01-31 12:00:00,000] INFO Starting (kafka.server)", line("PRODUCE", "p", {}, {})):
        log.read(text)
    assert log.positions() == []


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for few things: a client, a session and an offset each take 300 bytes and the length of their names."""
    monkeypatch.setattr(request_memory, "MOST_BYTES", 9_500)
    monkeypatch.setattr(request_memory, "MOST_SHARE", 3_000)
    monkeypatch.setattr(request_log, "BYTES_BETWEEN_CHECKS", 5_000)


def forgotten(log: RequestLog) -> dict[str, int]:
    return {what: number for what, number in log.memory.forgotten.items() if number}


def begun(client: str, session: int, offsets: dict[int, int], second: int = 0) -> str:
    """The line of a request that begins a session."""
    return fetch(client, (0, 0), offsets, second).replace(
        '"response":{"sessionId":7', f'"response":{{"sessionId":{session}'
    )


@pytest.mark.usefixtures("bounded")
def test_clients_with_ever_new_names_use_bounded_memory() -> None:
    log = RequestLog({"id-1": "t"})
    for n in range(100):
        log.read(begun(f"new-{n:02}", n + 1, {0: n}, n // 2))
        assert len({p.client_id for p in log.positions()}) <= 10 + 5_000 // 250
    log.forget()
    # Each takes 306 bytes, its session 300, and its offset 304.
    assert {p.client_id: p.fetched_offset for p in log.positions() if p.topic} == {
        f"new-{n}": n for n in range(90, 100)
    }
    assert forgotten(log) == {"clients": 90}


@pytest.mark.usefixtures("bounded")
def test_a_client_with_ever_new_partitions_sessions_and_groups_displaces_only_its_own_oldest_offsets() -> None:
    log = RequestLog({"id-1": "t"})
    log.read(begun("quiet", 1_000, {0: 5}))
    for n in range(1, 101):
        log.read(begun("c", n, {n: 10 * n}, n // 2))
        log.read(line("OFFSET_COMMIT", "c", {"groupId": f"g-{n}"}, {}, n // 2))
        assert len(log.state()["sessions"]) <= 10 + 5_000 // 250
    log.forget()
    (client,) = (client for client in log.state()["clients"] if client["who"] == ["c", None])
    assert len(client["groups"]) == 2
    # An offset takes 304 bytes.
    assert {(p.client_id, p.partition): p.fetched_offset for p in log.positions() if p.topic} == {
        ("quiet", 0): 5,
        **{("c", n): 10 * n for n in range(92, 101)},
    }
    assert forgotten(log) == {"offsets": 91}


@pytest.mark.usefixtures("bounded")
def test_offsets_of_a_request_for_too_many_partitions_are_dropped_and_the_session_continues() -> None:
    log = RequestLog({"id-1": "t"})
    log.read(begun("c", 7, {n: n for n in range(1_000)}, 1))
    log.forget()
    assert len(log.state()["sessions"]) == 0
    log.read(fetch("c", (7, 1), {5: 55}, 2))
    log.forget()
    assert {p.partition: p.fetched_offset for p in log.positions() if p.topic} == {n: n for n in range(9)} | {5: 55}
    assert forgotten(log) == {"offsets": 991}


@pytest.mark.usefixtures("bounded")
def test_a_new_session_of_a_client_keeps_the_offsets_of_the_previous_one() -> None:
    log = RequestLog({"id-1": "t"})
    for n in range(1, 101):
        log.read(begun("c", n, {0: n, 1: 2 * n}, n // 2))
    log.forget()
    assert {p.partition: p.fetched_offset for p in log.positions() if p.topic} == {0: 100, 1: 200}
    assert [key for key, *_ in log.state()["sessions"]] == [100]
    assert forgotten(log) == {}


@pytest.mark.usefixtures("bounded")
def test_ever_new_topics_use_bounded_memory_even_in_refused_lines() -> None:
    log = RequestLog()
    known = [{"name": f"topic-{n:02}", "topicId": f"id-{n:02}"} for n in range(50)]
    log.read(line("METADATA", "c", {}, {"topics": known}))
    log.forget()
    assert [*log.memory.topics.values()] == [f"topic-{n}" for n in range(41, 50)]  # each takes 313 bytes
    log.read(line("METADATA", "c", {}, {"topics": [{"name": "renewed", "topicId": "id-41"}]}))
    for n in range(100, 500):
        named: list[dict[str, Any]] = [{"name": f"topic-{n}", "topicId": f"id-{n}"}, {"name": 5, "topicId": "id"}]
        with pytest.raises(ValueError, match="int instead of a text"):
            log.read(line("METADATA", "c", {}, {"topics": named}))
        assert len(log.memory.topics) <= 9 + 5_000 // 250
    log.forget()
    assert [*log.memory.topics] == [f"id-{n}" for n in range(491, 500)]


@pytest.mark.usefixtures("bounded")
def test_topic_names_from_a_file_are_not_part_of_the_state() -> None:
    given = {f"id-{n}": f"topic-{n}" for n in range(100)}
    log = RequestLog(given)
    log.read(line("METADATA", "c", {}, {"topics": [{"name": name, "topicId": key} for key, name in given.items()]}))
    log.read(line("METADATA", "c", {}, {"topics": [{"name": "other", "topicId": "id-other"}]}))
    for key in ("id-1", "id-99", "id-other"):
        log.read(fetch("c", (0, 0), {0: 5}).replace('"id-1"', f'"{key}"'))
    log.forget()
    assert forgotten(log) == {}
    assert log.state()["topics"] == {"id-other": "other"}
    for read in (log, RequestLog.from_state(log.state(), given)):
        assert {p.topic for p in read.positions() if p.topic} == {"topic-1", "topic-99", "other"}
    # Names that were kept before the file was given need not be any more.
    again = RequestLog.from_state(log.state() | {"topics": given}, given)
    again.forget()
    assert (forgotten(again), again.state()["topics"]) == ({}, {})


def test_a_client_without_requests_for_a_day_is_forgotten() -> None:
    log = RequestLog({"id-1": "t"})
    log.read(begun("c", 1, {0: 1}))
    log.read(fetch("d", (0, 0), {0: 1}).replace("[2026-01-31", "[2026-02-02"))
    log.forget()
    assert [(key, who) for key, who, *_ in log.state()["sessions"]] == [(7, ["d", None])]
    assert {p.client_id for p in log.positions()} == {"d"}
    assert forgotten(log) == {}


def test_a_name_that_is_too_long_is_refused() -> None:
    refused = pytest.raises(ValueError, match="a name of 1001 characters, more than 1000")
    for name, expected in (("n" * 1_000, nullcontext()), ("n" * 1_001, refused)):
        for text in (
            fetch(name, (0, 0), {0: 10}),
            fetch("c", (0, 0), {0: 10}).replace("id-1", name),
            line("OFFSET_COMMIT", "c", {"groupId": name}, {}),
            line("METADATA", "c", {}, {"topics": [{"name": name, "topicId": "id-1"}]}),
        ):
            with expected:
                RequestLog().read(text)
