"""Looks up timestamps in partitions' logs (ListOffsets by timestamp), as `TimeSearch` asks for them.

A look-up costs the broker about 0.2 ms, because it reads and decompresses a batch. So the number of look-ups per broker
is limited, a request asks for few partitions, and the widest intervals come first. Only DESCRIBE on the topic is
needed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from kafka.protocol.consumer import ListOffsetsRequest
from pyspark.sql.types import LongType, StructField, StructType

from pipeline.analytics.log_index.ruler_storage import decoded
from pipeline.analytics.log_index.time_search import Ask, TimeSearch
from pipeline.common.arrow_sql import row_numbers
from pipeline.common.data_source import arrow_schema
from pipeline.common.errors import ClusterError
from pipeline.kafka.client import KafkaClient, in_chunks
from pipeline.kafka.failures import Failure
from pipeline.kafka.log_ends import CONSUMER, READ_UNCOMMITTED, parse_offsets
from pipeline.kafka.options import SourceOptions
from pipeline.kafka.partitions import TopicPartition
from pipeline.kafka.source import REQUEST_COLUMNS
from pipeline.tables import LOG_SAMPLES

PARTITIONS_PER_REQUEST = 100
MOST_ROUNDS = 60
LEADERS_AT_ONCE = 16
LOOK_UPS_OF_NEWEST = 15
"""About how many look-ups it takes to find the newest record of a log."""
NO_RECORD = (-1, -1)
"""Kafka's answer if all records are older."""
SOURCE = "list_offsets_by_time"
SAMPLES = StructType([*LOG_SAMPLES.observed.fields, *REQUEST_COLUMNS, StructField("unanswered", LongType())])


def searching(options: Mapping[str, str], budget: int) -> Callable[[pa.Table], pa.Table]:
    """A function that makes the look-ups for all leaders in rows of WANTED, until `read_timeout_ms` from now.

    Each leader is asked about at most `budget` partitions, those whose times are least exact. It returns SAMPLES.
    """
    deadline_ms = SourceOptions.parse(options).deadline_ms()

    def search_all(wanted: pa.Table) -> pa.Table:
        with ThreadPoolExecutor(LEADERS_AT_ONCE) as threads:
            found = threads.map(search, _worst_of_each(wanted, budget))
        return pa.concat_tables([arrow_schema(SAMPLES).empty_table(), *found])

    def search(wanted: pa.Table) -> pa.Table:
        rulers = decoded(wanted["ruler"].combine_chunks())
        searches = {
            TopicPartition(topic, partition): TimeSearch(ruler, tuple(rungs))
            for topic, partition, ruler, rungs in zip(
                *(wanted[name].to_pylist() for name in ("topic", "partition")),
                rulers,
                wanted["rungs"].to_pylist(),
                strict=True,
            )
            if ruler
        }
        leader = wanted["leader"][0].as_py()
        count = {"request_broker": leader, "requests": 0, "unanswered": len(searches)}
        try:
            with KafkaClient(SourceOptions.parse(options).until(deadline_ms)) as client:
                count["unanswered"] = look_up(client, leader, searches, budget)
                count["requests"] = client.requests.total()
        except ClusterError:
            pass  # look-ups only reduce the errors of times, and every time has its error beside it
        return pa.Table.from_pylist([*_rows(searches), count], arrow_schema(SAMPLES))

    return search_all


def _worst_of_each(wanted: pa.Table, budget: int) -> Iterator[pa.Table]:
    """The rows of each leader, at most `budget`: those with the largest excess."""
    # Without the rulers, which may be too large to be put into another order.
    ranked = wanted.select(["leader", "excess_ms", "topic", "partition"]).append_column("number", row_numbers(wanted))
    ranked = ranked.sort_by([("excess_ms", "descending"), ("topic", "ascending"), ("partition", "ascending")])
    for leader in ranked["leader"].unique():
        worst = ranked["number"].filter(pc.equal(ranked["leader"], leader)).slice(0, budget)
        yield wanted.filter(pc.is_in(row_numbers(wanted), worst.combine_chunks()))


def _rows(searches: Mapping[TopicPartition, TimeSearch]) -> list[dict[str, Any]]:
    return [
        {
            "topic": p.topic,
            "partition": p.partition,
            "topic_id": search.ruler.last.topic_id,
            **sample._asdict(),
            "source": SOURCE,
        }
        for p, search in searches.items()
        for sample in search.samples
    ]


def look_up(client: KafkaClient, leader: int, searches: Mapping[TopicPartition, TimeSearch], budget: int) -> int:
    """Continues the searches until each is finished, or `budget` look-ups are made.

    Returns the number of partitions that were not answered, for example because the leader has moved. Their searches
    end early.
    """
    left, going, unanswered = budget, dict(searches), 0
    begun: set[TopicPartition] = set()
    for _ in range(MOST_ROUNDS):
        asks = {p: ask for p, search in going.items() if (ask := search.ask())}
        begun = _begun(asks, begun, left)
        asks = {p: ask for p, ask in asks.items() if not ask.is_for_newest or p in begun}
        worst = sorted(asks, key=lambda p: -asks[p].excess_ms)[:left]
        if not worst:
            break
        left -= len(worst)
        answers = _answers(client, leader, {p: asks[p] for p in worst})
        unanswered += len(worst) - len(answers)
        for p in worst:
            offset, timestamp_ms = answers.get(p, NO_RECORD)
            if offset >= 0:
                going[p].answered(asks[p].timestamp_ms, offset, timestamp_ms)
            elif p in answers:
                going[p].unanswered(asks[p].timestamp_ms)
            else:
                del going[p]
    return unanswered


def _begun(asks: Mapping[TopicPartition, Ask], begun: set[TopicPartition], left: int) -> set[TopicPartition]:
    """The logs whose newest records are searched now: as many as can be finished, so that the next snapshot has them.

    They are chosen at random, so that all logs have the same chance in each snapshot.
    """
    wanting = {p for p, ask in asks.items() if ask.is_for_newest}
    waiting = sorted(wanting - begun)
    room = max(1, left // LOOK_UPS_OF_NEWEST) - len(wanting & begun)
    return begun | set(random.sample(waiting, min(len(waiting), max(0, room))))


def _answers(
    client: KafkaClient, leader: int, asks: Mapping[TopicPartition, Ask]
) -> dict[TopicPartition, tuple[int, int]]:
    """The first record not older than asked for, and its timestamp, or NO_RECORD; absent if there is an error."""
    chunks = in_chunks(asks, PARTITIONS_PER_REQUEST)
    requests = [list_offsets_by_time({p: asks[p].timestamp_ms for p in chunk}) for chunk in chunks]
    found: dict[TopicPartition, tuple[int, int]] = {}
    for answer in client.exchange([(leader, request) for request in requests]):
        rows = {} if isinstance(answer, Failure) else parse_offsets(answer)
        found |= {p: (row.offset, row.timestamp) for p, row in rows.items() if not row.error_code}
    return found


def list_offsets_by_time(timestamps_ms: Mapping[TopicPartition, int]) -> Any:
    """ListOffsets with a separate timestamp for each partition."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition
    by_topic: dict[str, list[Any]] = {}
    for p, timestamp_ms in timestamps_ms.items():
        by_topic.setdefault(p.topic, []).append(partition(partition_index=p.partition, timestamp=timestamp_ms))
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=READ_UNCOMMITTED,
        topics=[topic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
        min_version=1,
    )
