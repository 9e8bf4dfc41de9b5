"""What a recording has, before it is loaded into a lake."""

from pathlib import Path

from pipeline.replay.recording import Recording

HEAD = "ts,group,topic,partition,log_start,high_watermark,log_end,committed\n"
FETCH = (
    "[2026-11-21 10:00:05,000] DEBUG Completed request:RequestHeader(apiKey=FETCH, apiVersion=4, clientId=c, "
    "correlationId=1) -- {replica_id=-1,topics=[{topic=t,partitions=[{partition=0,fetch_offset=5}]}]},"
    "response:{responses=[]} from connection 10.0.0.1:9092-10.0.0.2:4711-0;totalTime:1.0,x (logger)\n"
)
AT_MS = 1_795_255_200_000  # 10:00:00


def test_a_round_without_positions_and_one_with_a_refused_line_say_why(tmp_path: Path) -> None:
    rounds = (AT_MS, AT_MS + 10_000, AT_MS + 20_000, AT_MS + 30_000)
    (tmp_path / "truth.csv").write_text(HEAD + "".join(f"{at_ms},g,t,0,0,9,9,5\n" for at_ms in rounds))
    unknown = "[2026-11-21 10:00:15,000] DEBUG Completed request:<fetch/>\n"
    last = "[2026-11-21 10:00:25,000] INFO nothing new\n"
    (tmp_path / "request.log").write_text(FETCH + unknown + last)
    found = [(at_ms, logged.error, len(logged.positions)) for at_ms, logged in Recording.of(tmp_path).logged()]
    why = "1 line refused, the first: line 2: not a line of Kafka's request log: "
    assert [(at_ms, positions) for at_ms, _, positions in found] == [*zip(rounds, (0, 2, 2, 2), strict=True)]
    first, second, third, fourth = (error for _, error, _ in found)
    assert first == "has no new line, and no consumer's FETCH is known from earlier ones"
    assert (second, fourth) == (None, None)
    assert (third or "").startswith(why)
