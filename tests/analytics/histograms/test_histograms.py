"""Histograms of lag. Buckets are compared with Python's integers, quantiles with numpy, on the same values."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipeline.analytics.histograms.buckets import MAX_BUCKET, bucket_of
from pipeline.analytics.histograms.lag_histograms import (
    COUNTED,
    MEASURES,
    SCOPES,
    TALLIES,
    histograms,
    merge_histograms,
    rolled_up,
    tally_lag,
)
from pipeline.analytics.histograms.quantiles import KIP532, PERCENTILES, kip532, quantiles, quantiles_function
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import DAY_MS, HOUR_MS
from pipeline.tables import LAG, LAG_HISTOGRAMS
from tests.helpers.rows import frame

NOON_MS = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()) * 1000
MAX_LONG = 2**63 - 1
LAG_ROW = "snapshot_id leader group_id topic partition consumer_lag"
PROBABILITIES = [0.0, 0.001, 0.07, 0.5, 0.75, 0.95, 0.98, 0.99, 0.999, 1.0]
FEW_JOBS = settings(max_examples=2, deadline=None, phases=[Phase.generate])
"""Each example is a Spark job, so each has many cases, and none is shrunk, which would take hundreds of jobs."""

VALUES = st.one_of(
    st.integers(0, 2**62),
    st.integers(0, 20),
    st.floats(0, 62).map(lambda power: int(2**power)),
    st.integers(0, 62).flatmap(lambda k: st.integers(max(0, 2**k - 1), 2**k + 1)),
)
ANY_VALUES = st.one_of(VALUES, st.none(), st.integers(-(2**63), -1))


def is_in_bucket(value: int, bucket: int) -> bool:
    """2^(bucket/8) < value ≤ 2^((bucket+1)/8), with both sides to the eighth power: integers, so without rounding."""
    return value**8 * 2**8 > 2 ** (bucket + 8) and value**8 <= 2 ** (bucket + 1)


def lag_rows(spark: SparkSession, values: dict[str, Sequence[int | None]], snapshot_id: int = NOON_MS) -> DataFrame:
    """One group for each case, whose partitions have the values as their consumer_lag."""
    rows = [(snapshot_id, 1, case, "t", n, v) for case, listed in values.items() for n, v in enumerate(listed)]
    return frame(spark, LAG, LAG_ROW, *rows)


def of_groups(frame: DataFrame, measure: str = "consumer_lag") -> dict[str, Row]:
    rows = frame.where((F.col("scope") == "group") & (F.col("measure") == measure)).collect()
    assert len({r.scope_value for r in rows}) == len(rows)
    return {r.scope_value: r for r in rows}


def counted(row: Row) -> dict[int, int]:
    """Bucket → count, for buckets that are not empty."""
    return {row.bucket_offset + i: n for i, n in enumerate(row.bucket_counts) if n}


# Buckets


def test_every_boundary_and_its_neighbours_are_in_the_right_bucket() -> None:
    with localcontext(prec=60):
        bounds = {int(Decimal(2) ** (Decimal(k) / 8)) for k in range(8 * 63 + 1)}
    near = {bound + step for bound in bounds for step in (-2, -1, 0, 1, 2)}
    values = sorted(v for v in near if 0 < v <= MAX_LONG)
    buckets = bucket_of(np.array(values)).tolist()
    assert [v for v, b in zip(values, buckets, strict=True) if not is_in_bucket(v, b)] == []
    assert (buckets[0], buckets[-1]) == (-1, MAX_BUCKET)


@given(st.integers(1, MAX_LONG))
def test_any_bigint_is_in_the_right_bucket(value: int) -> None:
    assert is_in_bucket(value, int(bucket_of(np.array([value]))[0]))


# Histograms of snapshots


def test_counts_sums_and_extremes_are_those_of_the_values(spark: SparkSession) -> None:
    cases: dict[str, Sequence[int | None]] = {
        "plain": [0, 0, 1, 2, 3, 1000, 1024, 1025],
        "odd": [5, -7, None, 0, -1, None, None],
        "only zeros": [0, 0],
        "only negative": [-3],
        "only NULL": [None, None],
        "great": [MAX_LONG] * 3 + [1],
    }
    rows = of_groups(histograms(lag_rows(spark, cases)))
    totals = {g: (r["count"], r["sum"], r["min"], r["max"]) for g, r in rows.items()}
    assert totals == {
        "plain": (8, 3055, 0, 1025),
        "odd": (2, 5, 0, 5),
        "only zeros": (2, 0, 0, 0),
        "only negative": (0, 0, None, None),
        "only NULL": (0, 0, None, None),
        "great": (4, 3 * Decimal(MAX_LONG) + 1, 1, MAX_LONG),
    }
    apart = {g: (r.zero_count, r.negative_count, r.null_count) for g, r in rows.items()}
    assert apart == {
        "plain": (2, 0, 0),
        "odd": (1, 2, 3),
        "only zeros": (2, 0, 0),
        "only negative": (0, 1, 0),
        "only NULL": (0, 0, 2),
        "great": (0, 0, 0),
    }
    assert counted(rows["plain"]) == {-1: 1, 7: 1, 12: 1, 79: 2, 80: 1}
    assert (rows["plain"].bucket_offset, len(rows["plain"].bucket_counts)) == (-1, 82)
    assert (rows["great"].bucket_counts[0], rows["great"].bucket_counts[-1]) == (1, 3)
    assert {g for g, r in rows.items() if r.bucket_offset is None} == {"only zeros", "only negative", "only NULL"}
    assert all(rows[g].bucket_counts == [] for g in ("only zeros", "only negative", "only NULL"))


def test_scopes_are_cluster_leader_topic_and_group(spark: SparkSession) -> None:
    lag = frame(
        spark,
        LAG,
        LAG_ROW,
        (NOON_MS, 1, "g", "t", 0, 1),
        (NOON_MS, 2, "g", "u", 0, 2),
        (NOON_MS, None, "h", "t", 1, 4),
    )
    found = histograms(lag).where("measure = 'consumer_lag'").collect()
    assert {(r.scope, r.scope_value): (r["count"], r["sum"]) for r in found} == {
        ("cluster", "east"): (3, 7),
        ("broker", "1"): (1, 1),
        ("broker", "2"): (1, 2),
        ("topic", "t"): (2, 5),
        ("topic", "u"): (1, 2),
        ("group", "g"): (2, 3),
        ("group", "h"): (1, 4),
    }


def test_every_measure_counts_its_own_column(spark: SparkSession) -> None:
    names = f"snapshot_id leader group_id topic reuse_method {' '.join(MEASURES)}"
    lag = frame(spark, LAG, names, (NOON_MS, 1, "g", "t", "interpolated", *range(1, 12)))
    found = {r.measure: r["sum"] for r in histograms(lag).where("scope = 'group'").collect()}
    assert found == {measure: value for value, measure in enumerate(MEASURES, 1)}
    assert len(found) == 11


def test_snapshots_and_clusters_do_not_mix(spark: SparkSession) -> None:
    names = f"cluster {LAG_ROW}"
    later_ms = NOON_MS + DAY_MS
    lag = frame(
        spark,
        LAG,
        names,
        ("east", NOON_MS, 1, "g", "t", 0, 1),
        ("west", NOON_MS, 1, "g", "t", 0, 2),
        ("east", later_ms, 1, "g", "t", 0, 4),
        ("west", later_ms, 1, "h", "t", 0, 8),
    )
    found = histograms(lag).where("measure = 'consumer_lag' AND scope = 'group'").collect()
    days = (date(2026, 1, 31), date(2026, 2, 1))
    assert {(r.cluster, r.scope_value, r.snapshot_date, r.window_ms, int(r["sum"])) for r in found} == {
        ("east", "g", days[0], 0, 1),
        ("west", "g", days[0], 0, 2),
        ("east", "g", days[1], 0, 4),
        ("west", "h", days[1], 0, 8),
    }
    starts = histograms(lag).select(F.unix_millis("window_start").alias("ms")).distinct().collect()
    assert {r.ms for r in starts} == {NOON_MS, later_ms}


def test_the_frame_has_the_columns_of_the_table(spark: SparkSession) -> None:
    made = histograms(lag_rows(spark, {}))
    for rows in (made, rolled_up(made, HOUR_MS)):
        assert [(f.name, f.dataType) for f in rows.schema] == [(f.name, f.dataType) for f in LAG_HISTOGRAMS.schema]
    assert {r.scale for r in histograms(lag_rows(spark, {"g": [1]})).select("scale").collect()} == {3}


# Quantiles

LOG_NORMAL = np.exp(np.random.default_rng(7).normal(12, 3, 20_000)).astype(np.int64)


@given(st.lists(st.lists(VALUES, min_size=1, max_size=40), min_size=60, max_size=60))
@FEW_JOBS
def test_quantiles_are_numpys_within_half_a_bucket(spark: SparkSession, lists: list[list[int]]) -> None:
    cases = {str(n): values for n, values in enumerate([*lists, LOG_NORMAL.tolist()])}
    made = of_groups(histograms(lag_rows(spark, cases)).withColumn("q", quantiles(PROBABILITIES)))
    for case, values in cases.items():
        exact = np.quantile(np.array(values, dtype=np.int64), PROBABILITIES, method="inverted_cdf")
        assert made[case].q == pytest.approx(exact.tolist(), rel=0.0433, abs=0), values
        assert float(min(values)) <= min(made[case].q)
        assert max(made[case].q) <= float(max(values))


def test_a_quantile_of_zero_is_exact_and_an_empty_histogram_has_none(spark: SparkSession) -> None:
    cases = {"half": [0, 0, 9, 9], "zeros": [0], "none": [None, -4], "one": [1000]}
    made = of_groups(histograms(lag_rows(spark, cases)).withColumn("q", quantiles([0.0, 0.5, 0.51, 1.0])))
    assert made["half"].q[:2] == [0.0, 0.0]
    assert made["half"].q[2:] == pytest.approx([9.0, 9.0], abs=0)
    assert (made["zeros"].q, made["none"].q, made["one"].q) == ([0.0] * 4, None, [1000.0] * 4)


@pytest.mark.parametrize("probability", [-0.01, 1.01, float("nan")])
def test_a_number_that_is_not_a_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="probabilities must be from 0 to 1"):
        quantiles([0.5, probability])


def test_the_sql_function_gives_the_same_as_the_column(spark: SparkSession) -> None:
    cases = {"many": LOG_NORMAL[:500].tolist(), "zeros": [0, 0, 3], "none": [None]}
    histograms(lag_rows(spark, cases)).createOrReplaceTempView("some_histograms")
    spark.sql(quantiles_function())
    spark.sql(quantiles_function())  # creating it again raises no error
    by_sql = spark.sql(
        "SELECT h.*, quantiles(struct(h.*), array(0.5, 0.99, NULL, 1.5)) AS q FROM some_histograms h "
        "WHERE scope = 'group'"
    )
    found = {group: row.q for group, row in of_groups(by_sql).items()}
    frame = spark.table("some_histograms").select(F.struct("*").alias("h"))
    by_column = frame.select("h.*", quantiles([0.5, 0.99], "h").alias("q"))
    expected = {g: row.q and [*row.q, None, None] for g, row in of_groups(by_column).items()}
    assert found == expected
    exact = np.quantile(LOG_NORMAL[:500], [0.5, 0.99], method="inverted_cdf")
    assert found["many"][:2] == pytest.approx(exact.tolist(), rel=0.0433)
    assert found["zeros"][0] == 0.0
    assert found["none"] is None


# Merging


@given(st.lists(st.tuples(ANY_VALUES, st.integers(0, 9), st.integers(0, 3)), min_size=300, max_size=300))
@FEW_JOBS
def test_histograms_merge_to_the_same_result_in_any_order(
    spark: SparkSession, drawn: list[tuple[int | None, int, int]]
) -> None:
    """Each value is in one of ten groups and one of four snapshots, within three seconds of one hour."""
    whole = frame(spark, LAG, LAG_ROW, *((NOON_MS, 1, str(g), "t", n, v) for n, (v, g, _) in enumerate(drawn)))
    parts = histograms(
        frame(spark, LAG, LAG_ROW, *((NOON_MS + 700 * n, 1, str(g), "t", i, v) for i, (v, g, n) in enumerate(drawn)))
    )
    content = [c for c in LAG_HISTOGRAMS.columns if c != "window_ms"]
    expected = {(r.scope, r.scope_value, r.measure): r for r in histograms(whole).select(content).collect()}
    at_once = rolled_up(parts, HOUR_MS)
    by_seconds_backwards = rolled_up(rolled_up(parts, 1000).orderBy(F.desc("window_start")), HOUR_MS, from_ms=1000)
    for merged in (at_once, by_seconds_backwards):
        rows = merged.select(content).collect()
        assert {(r.scope, r.scope_value, r.measure): r for r in rows} == expected
        assert len(rows) == len(expected)
    for (_, group, _), row in [(k, r) for k, r in expected.items() if (k[0], k[2]) == ("group", "consumer_lag")]:
        values = [v for v, g, _ in drawn if str(g) == group]
        assert row["sum"] == sum(v for v in values if v is not None and v >= 0)
        assert row.null_count == values.count(None)
        assert row.negative_count == sum(1 for v in values if v is not None and v < 0)
        positive = [v for v in values if v is not None and v > 0]
        assert counted(row) == dict(Counter(bucket_of(np.array(positive, dtype=np.int64)).tolist()))


def test_rows_in_several_tasks_and_batches_are_counted_once(spark: SparkSession) -> None:
    values = [int(2 ** (n / 9)) for n in range(400)]
    row = of_groups(histograms(lag_rows(spark, {"g": values}).repartition(7)))["g"]
    assert (row["count"], row["sum"], sum(row.bucket_counts)) == (400, sum(values), 400)
    assert is_in_bucket(min(values), row.bucket_offset)
    assert is_in_bucket(max(values), max(counted(row)))


def rows_of_lag(*rows: dict[str, Any]) -> pa.Table:
    """Rows of `lag` with the columns that are counted, without Spark."""
    schema = arrow_schema(COUNTED)
    plain = {"cluster": "east", "snapshot_id": NOON_MS, "leader": 1, "topic": "t", "group_id": "g"}
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | plain | row for row in rows], schema)


def part(**columns: Any) -> dict[str, Any]:
    """A row of TALLIES: an empty histogram, but for the columns that are given."""
    counts = dict.fromkeys(["zero_count", "negative_count", "null_count", "count"], 0)
    known = {"cluster": "east", "window_start": datetime(2026, 1, 31, 12, tzinfo=UTC), "measure": "consumer_lag"}
    named = {"scope": "group", "scope_value": "g", "sum": Decimal(0), "bucket_counts": []}
    return dict.fromkeys(TALLIES.names) | counts | known | named | columns


def merged_parts(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return merge_histograms(pa.Table.from_pylist([*parts], arrow_schema(TALLIES)), window_ms=0).to_pylist()


ROWS_OF_LAG = st.builds(
    dict,
    cluster=st.sampled_from(["east", "west"]),
    snapshot_id=st.sampled_from([NOON_MS, NOON_MS + 1]),
    group_id=st.sampled_from(["", "g", "it's"]),
    leader=st.sampled_from([None, -1, 2**31 - 1]),
    consumer_lag=st.one_of(ANY_VALUES, st.just(MAX_LONG)),
)


@given(st.lists(ROWS_OF_LAG), st.integers(1, 5), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_histograms_of_buckets_merge_to_those_of_all_rows(rows: list[dict[str, Any]], buckets: int, mix: Any) -> None:
    """Each scope is counted in a pass of its own, and the parts come in any order."""
    parts = pa.concat_tables(
        tally_lag(rows_of_lag(*rows[n::buckets]), [scope]) for scope in SCOPES for n in range(buckets)
    )
    order = [*range(len(parts))]
    mix.shuffle(order)
    merged = merge_histograms(parts.take(pa.array(order, pa.int64())), window_ms=0)
    merged = merged.filter(pc.equal(merged["measure"], "consumer_lag"))
    found = {(r["cluster"], r["window_start"], r["scope"], r["scope_value"]): r for r in merged.to_pylist()}
    assert len(found) == len(merged)
    expected: dict[tuple[Any, ...], list[int | None]] = {}
    for row in rows:
        values = {"cluster": row["cluster"], "broker": row["leader"], "topic": "t", "group": row["group_id"]}
        at = datetime.fromtimestamp(row["snapshot_id"] / 1000, UTC)
        for scope, value in values.items():
            if value is not None:
                expected.setdefault((row["cluster"], at, scope, str(value)), []).append(row["consumer_lag"])
    assert found.keys() == expected.keys()
    for key, values_of_key in expected.items():
        assert_counts(found[key], values_of_key)


def assert_counts(histogram: dict[str, Any], values: list[int | None]) -> None:
    """That a histogram is the one of the values, which are counted with Python's integers."""
    known = [v for v in values if v is not None and v >= 0]
    positive = [v for v in known if v > 0]
    assert histogram["null_count"] == values.count(None)
    assert histogram["negative_count"] == len([v for v in values if v is not None and v < 0])
    assert histogram["zero_count"] == known.count(0)
    assert (histogram["count"], histogram["sum"]) == (len(known), sum(known))
    assert (histogram["min"], histogram["max"]) == (min(known, default=None), max(known, default=None))
    assert sum(histogram["bucket_counts"]) == len(positive)
    below = 0
    for place, count in enumerate(histogram["bucket_counts"]):
        below += count
        # All values up to the bucket's upper bound are in it or in one before it.
        bound = 2 ** (histogram["bucket_offset"] + place + 1)
        assert below == len([v for v in positive if v**8 <= bound])
    assert (histogram["bucket_offset"] is None) == (not positive)
    assert not positive or (histogram["bucket_counts"][0] and histogram["bucket_counts"][-1])


def test_only_the_scopes_that_are_asked_for_are_counted_with_all_measures() -> None:
    tallied = tally_lag(rows_of_lag({"leader": None, "consumer_lag": 5}), ["broker", "group"]).to_pylist()
    assert [(r["scope"], r["measure"]) for r in tallied] == [("group", measure) for measure in MEASURES]
    assert [r["null_count"] for r in tallied] == [0] + [1] * 10


def test_a_distance_that_is_only_a_lower_bound_counts_as_unknown() -> None:
    known = ["interpolated", "at_least", None]
    rows = rows_of_lag(*({"reuse_bytes": 9, "reuse_method": method} for method in known))
    (found,) = [r for r in tally_lag(rows, ["group"]).to_pylist() if r["measure"] == "reuse_bytes"]
    assert (found["count"], found["null_count"], found["sum"]) == (1, 2, 9)


def test_no_rows_have_no_histograms() -> None:
    assert tally_lag(rows_of_lag()).num_rows == 0
    assert merged_parts() == []


def test_a_total_is_null_if_its_column_cannot_hold_it_or_if_a_part_is_not_known() -> None:
    most = Decimal(10**38 - 1)
    (held,) = merged_parts(part(count=MAX_LONG - 1, sum=Decimal(10**38 - 2)), part(count=1, sum=Decimal(1)))
    assert (held["count"], held["sum"]) == (MAX_LONG, most)
    (beyond,) = merged_parts(part(count=MAX_LONG, sum=most), part(count=1, sum=Decimal(1)))
    assert (beyond["count"], beyond["sum"], beyond["zero_count"]) == (None, None, 0)
    (unknown,) = merged_parts(part(count=None, sum=None), part(count=1, sum=Decimal(1)))
    assert (unknown["count"], unknown["sum"]) == (None, None)


BEGIN_MS = NOON_MS - NOON_MS % DAY_MS
WINDOWS = {
    "the last ms of the day before": (BEGIN_MS - 1, BEGIN_MS - HOUR_MS, BEGIN_MS - DAY_MS),
    "the day's first": (BEGIN_MS, BEGIN_MS, BEGIN_MS),
    "the first hour's last ms": (BEGIN_MS + HOUR_MS - 1, BEGIN_MS, BEGIN_MS),
    "the second hour's first": (BEGIN_MS + HOUR_MS, BEGIN_MS + HOUR_MS, BEGIN_MS),
    "the day's last ms": (BEGIN_MS + DAY_MS - 1, BEGIN_MS + 23 * HOUR_MS, BEGIN_MS),
}


def test_a_snapshot_at_a_boundary_is_in_the_window_that_begins_there(spark: SparkSession) -> None:
    lag = frame(spark, LAG, LAG_ROW, *((at, 1, case, "t", 0, 1) for case, (at, _, _) in WINDOWS.items()))
    snapshots = histograms(lag)
    for window_ms, begins in ((HOUR_MS, 1), (DAY_MS, 2)):
        made = rolled_up(snapshots, window_ms).withColumn("start_ms", F.unix_millis("window_start"))
        found = of_groups(made)
        assert {g: row.start_ms for g, row in found.items()} == {case: at[begins] for case, at in WINDOWS.items()}
        assert {row.window_ms for row in found.values()} == {window_ms}
        assert {row.snapshot_date for row in found.values()} == {date(2026, 1, 30), date(2026, 1, 31)}
        assert found["the last ms of the day before"].snapshot_date == date(2026, 1, 30)


def test_a_day_merged_from_hours_equals_one_merged_from_snapshots(spark: SparkSession) -> None:
    values = [*LOG_NORMAL[:50].tolist(), None, -1, 0]
    lag = frame(
        spark, LAG, LAG_ROW, *((BEGIN_MS + n * 1_700_000, 1, "g", "t", n, v) for n, v in enumerate(values[-48:]))
    )
    snapshots = histograms(lag)
    hours = rolled_up(snapshots, HOUR_MS)
    all_rows = snapshots.unionByName(hours)
    by_snapshots, by_hours = rolled_up(all_rows, DAY_MS), rolled_up(all_rows, DAY_MS, from_ms=HOUR_MS)
    assert sorted(map(str, by_hours.collect())) == sorted(map(str, by_snapshots.collect()))
    assert of_groups(by_snapshots)["g"]["count"] == 46


@pytest.mark.parametrize(
    ("window_ms", "from_ms"),
    [(0, 0), (-1, 0), (HOUR_MS - 1, 0), (2 * DAY_MS, 0), (HOUR_MS, HOUR_MS), (DAY_MS, 5 * HOUR_MS)],
)
def test_windows_that_do_not_fit_are_refused(spark: SparkSession, window_ms: int, from_ms: int) -> None:
    with pytest.raises(ValueError, match="must be a multiple of"):
        rolled_up(frame(spark, LAG_HISTOGRAMS, "measure"), window_ms, from_ms)


# KIP-532


def test_kip532_has_the_names_of_the_kip_and_of_kafkas_histograms(spark: SparkSession) -> None:
    names = "snapshot_id leader group_id topic partition kip532_bytes kip532_ms consumer_lag_bytes"
    rows: list[tuple[Any, ...]] = [(NOON_MS, 1, "g", "t", n, 1000 * (n + 1), None, 1) for n in range(1000)]
    rows += [(NOON_MS, 2, "g", "t", n, None, 5 * n, 1) for n in range(3)]
    made = kip532(histograms(frame(spark, LAG, names, *rows)))
    assert made.columns[4:] == [
        *("broker", "metric", "Count", "Min", "Max", "Mean", "50thPercentile", "75thPercentile"),
        *("95thPercentile", "98thPercentile", "99thPercentile", "999thPercentile"),
    ]
    found = {(r.broker, r.metric): r for r in made.collect()}
    assert set(found) == {(b, m) for b in (1, 2) for m in ("ConsumerFetchLagTimeInMs", "ConsumerFetchLagBytes")}
    size = found[1, "ConsumerFetchLagBytes"]
    assert (size["Count"], size["Min"], size["Max"], size["Mean"]) == (1000, 1000, 1_000_000, 500_500.0)
    exact = [500_000, 750_000, 950_000, 980_000, 990_000, 999_000]
    assert [size[name] for name in PERCENTILES] == pytest.approx(exact, rel=0.0433)
    time = found[2, "ConsumerFetchLagTimeInMs"]
    assert (time["Count"], time["Min"], time["Max"], time["Mean"]) == (3, 0, 10, 5.0)
    nothing = found[2, "ConsumerFetchLagBytes"]
    assert nothing["Count"] == 0
    assert {nothing[c] for c in made.columns[7:]} == {None}
    assert set(KIP532) == {"kip532_bytes", "kip532_ms"}
