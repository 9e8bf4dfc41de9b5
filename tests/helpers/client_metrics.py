"""Reads clients' positions without Spark, as on an executor."""

from typing import Any

from pipeline.client_positions.metrics_source import (
    PositionsOptions,
    PositionsReader,
    PositionsSource,
)

SCRAPE = 'kafka_server_fetcherlagmetrics_consumerlag{clientId="c",partition="0",topic="t"} 7.0\n'


def rows_of(source: type[PositionsSource], path: str) -> list[dict[str, Any]]:
    """What a source reads from an endpoint or a file, as on an executor."""
    reader = PositionsReader(source.name(), source.reported, PositionsOptions.parse({"path": path}))
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
