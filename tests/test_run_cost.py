"""What a `run` of a small cluster costs, in queries: it follows from the code alone, and is the same on any machine."""

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.waterfall import Waterfall, one_run
from pipeline.local.broker import EmbeddedKafka
from tests.helpers.quiet import seed, write_config

PREFIX = "cost"
EXECUTIONS, JOBS, COMMITS = 121, 100, 8
"""Of a later run of two groups. Fewer is better: then write the new number here."""
SPARE = 4
"""Delta reads its log anew now and then."""


def test_a_later_run_of_a_small_cluster_costs_as_many_queries_as_before(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    seed(kafka, PREFIX)
    config = write_config(tmp_path, PREFIX, {"small": kafka.bootstrap_servers})
    waterfall = Waterfall(spark, tmp_path / "lake")
    one_run(config, tmp_path / "report.html")
    cost = waterfall.run(lambda: one_run(config, tmp_path / "report.html"))
    assert EXECUTIONS - SPARE <= cost.executions <= EXECUTIONS + SPARE, waterfall
    assert JOBS - SPARE <= cost.jobs <= JOBS + SPARE, waterfall
    assert cost.commits == COMMITS, waterfall
