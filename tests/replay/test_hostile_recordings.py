"""Recordings come from elsewhere: whatever their files contain is read, or refused with one line."""

import gzip
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipeline.client_positions.position import TOO_LARGE, refused
from pipeline.common.epoch import utc
from pipeline.common.errors import ConfigError
from pipeline.replay.recording import Recording

FETCH = (
    b'[2026-11-21 10:00:00,000] DEBUG Completed request:{"requestHeader":{"requestApiKeyName":"FETCH","clientId":"c"},'
    b'"request":{"topics":[{"topic":"t","partitions":[{"partition":0,"fetchOffset":5}]}]},"response":{"responses":[]},'
    b'"connection":"10.0.0.1:9092-10.0.0.2:4711-0","totalTimeMs":1} (kafka.request.logger)\n'
)
FILES = {
    "truth.csv": b"ts,group,topic,partition,log_start,high_watermark,log_end,committed\n1795255699058,g,t,0,0,9,9,5\n",
    "consumer.properties": b"client.id=c\ngroup.id=g\nfetch.max.bytes=1024\n",
    "consumer.json": b'{"client.id": "c", "group.id": "g", "fetch.max.bytes": 1024}',
    "consumer_groups_members_1795255699058.txt": (
        b"GROUP CONSUMER-ID HOST      CLIENT-ID #PARTITIONS ASSIGNMENT\n"
        b"g     m-1         /10.0.0.2 c         3           t:0,1;u:5\n"
    ),
    "topic_ids.csv": b"topic,topic_id\nt,AAAAAAAAAAAAAAAAAAAAAA\n",
    "request.log": FETCH,
    "request.log.gz": gzip.compress(FETCH, mtime=0),
    "statistics.jsonl": b'{"ts": 1795255699058, "statistics": {}}\n',
    "statistics.jsonl.gz": gzip.compress(b'{"ts": 1795255699058, "statistics": {}}\n', mtime=0),
}
ODD = st.sampled_from(
    [b"\xff", b"\0", b'"', b",,", b"\r", b"\xc2\xb2", b"9" * 30, b"9" * 5_000, b"-1", b"Infinity", b"[]"]
)


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """A file of which some bytes are changed, missing or added."""
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(data)))
        data = data[:begin] + draw(ODD | st.binary(max_size=6)) + data[begin + draw(st.integers(0, 12)) :]
    return data


@given(name=st.sampled_from([*FILES]), data=st.data())
def test_any_file_content_is_read_or_refused(name: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if not name.startswith("statistics"):
            (folder / "prom").mkdir()
            (folder / "prom" / "1795255699058.prom").touch()
        if name == "topic_ids.csv":
            (folder / "request.log").write_bytes(FETCH)
        (folder / name).write_bytes(data.draw(changed(FILES[name])))
        with suppress(ConfigError):
            recording = Recording.of(folder)
            for at_ms in (*recording.rounds, *recording.ends, *recording.commits, *recording.members):
                utc(at_ms)
            offsets = [
                offset for ends in recording.ends.values() for rungs in ends.values() for offset in rungs.values()
            ]
            assert all(offset is None or abs(offset) < TOO_LARGE for offset in offsets)
            assert {refused(position) for _, found in recording.logged() for position in found.positions} <= {None}


def test_an_error_names_the_file_that_is_damaged(tmp_path: Path) -> None:
    def why(name: str, data: bytes) -> str:
        (tmp_path / name).write_bytes(data)
        try:
            [*Recording.of(tmp_path).logged()]
        except ConfigError as error:
            return str(error).removeprefix(f"{tmp_path}/")
        return "nothing"

    assert (
        why("statistics.jsonl.gz", FILES["statistics.jsonl.gz"][:-9]) == "statistics.jsonl.gz: cannot be read: EOFError"
    )
    assert why("statistics.jsonl.gz", FILES["statistics.jsonl.gz"]) == "nothing"
    assert why("request.log", FETCH) == "nothing"
    assert why("topic_ids.csv", b"name,id\nt,A\n") == "topic_ids.csv: KeyError('topic_id') is missing or wrong"
    assert why("topic_ids.csv", FILES["topic_ids.csv"]) == "nothing"
    members = "consumer_groups_members_1795255699058.txt"
    assert why(members, FILES[members]) == "nothing"
    assert why(members, FILES[members] + b"x y z\n") == f"{members}: line 3: does not fit the columns of its table"
    (tmp_path / members).unlink()
    assert why("truth.csv", FILES["truth.csv"].replace(b",0,0,9", b",0,0," + b"9" * 19)).startswith(
        "truth.csv: line 2: "
    )
