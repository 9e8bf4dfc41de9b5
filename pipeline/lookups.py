"""Looks up in the cluster what the log index does not know well enough of its readers' rungs, into `log_samples`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from pipeline.analytics.log_index import wanted_times
from pipeline.analytics.ruler_binary import decoded
from pipeline.analytics.time_search import TimeSearch
from pipeline.errors import ClusterError
from pipeline.index import Index
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.lookups import look_up
from pipeline.kafka.options import SourceOptions
from pipeline.kafka.partitions import TopicPartition
from pipeline.kafka.source import REQUEST_COLUMNS
from pipeline.lake import Lake
from pipeline.tables import COMMITTED_OFFSETS, LOG_SAMPLES

SOURCE = "list_offsets_by_time"
SAMPLES = StructType([*LOG_SAMPLES.observed.fields, *REQUEST_COLUMNS, StructField("unanswered", LongType())])


def learnt_samples(
    lake: Lake, cluster: str, snapshot_id: int, options: Mapping[str, str], *, budget: int, with_tiered: bool
) -> DataFrame:
    """The look-ups of a snapshot whose bronze rows have landed: rows of `log_samples`, and one for each broker.

    That one counts the requests, and the partitions that were not answered.

    Each action makes them anew. A broker is asked `budget` times at most, about the widest brackets first.
    """
    index = Index.while_running(lake, cluster, snapshot_id)
    seen = index.watermarks([snapshot_id])
    wanted = wanted_times(
        # A look that was made later may be of an earlier snapshot: it has a ruler, too.
        index.rulers([snapshot_id], seen).where(F.col("snapshot_id") == snapshot_id),
        seen.where(F.col("snapshot_id") == snapshot_id),
        lake.read_snapshots(COMMITTED_OFFSETS, cluster, [snapshot_id]),
        most=budget,
        with_tiered=with_tiered,
    )
    return wanted.groupBy("leader").applyInArrow(_searching(dict(options), budget), SAMPLES)


def _searching(options: Mapping[str, str], budget: int) -> Callable[[pa.Table], pa.Table]:
    """What an executor does for the partitions of one leader."""

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
            with KafkaClient(SourceOptions.parse(options)) as client:
                count["unanswered"] = look_up(client, leader, searches, budget)
                count["requests"] = client.requests.total()
        except ClusterError:
            pass  # the watermarks have been read; times that are not known so well are told with their error
        return pa.Table.from_pylist([*_rows(searches), count], to_arrow_schema(SAMPLES))

    return search


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
