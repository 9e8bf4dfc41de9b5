"""The map of a group's partitions over time: what is read for it, and what the page's script gets."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.charts import heat
from pipeline.report.charts.heat import CELLS, PARTITIONS, ROWS_READ, heat_of, plan
from pipeline.report.model.heat import Missed, OtherPartitions
from pipeline.report.model.report import Instant, Point
from pipeline.report.model.selection import Selection
from pipeline.report.page.payload import payload
from pipeline.report.read import heat as heat_rows
from pipeline.report.read.collect import collect
from pipeline.report.read.excerpt import Excerpt
from pipeline.report.read.objects import made
from pipeline.tables import LAG, SLO
from tests.helpers.maps import ids, mapped, objective, others, series
from tests.helpers.reports import MINUTE, NOON, NOW, group, known, lag_row, lake_of, report, snapshot, table_of

ALL = Selection()


def instants(number: int, cluster: str = "east") -> list[Instant]:
    return [Instant(cluster, NOON + n * MINUTE, 0, number) for n in range(number)]


class TestPlan:
    @pytest.mark.parametrize(("partitions", "has_others"), [(1, False), (60, False), (61, True), (5_000, True)])
    def test_partitions_without_a_row_are_read_together(self, partitions: int, has_others: bool) -> None:
        found = plan([group(partitions=partitions)], instants(30), {"east": partitions}, ALL)
        assert (found.groups, found.has_others) == ({"east": ["g"]}, has_others)
        assert found.columns == {"east": list(ids(*range(30)))}

    def test_one_group_is_shown_at_many_snapshots_always_with_the_newest(self) -> None:
        (columns,) = plan([group()], instants(300), {"east": 10}, ALL).columns.values()
        assert len(columns) == 120
        assert columns[-1] == NOON + 299 * MINUTE
        assert max(b - a for a, b in pairwise(columns)) == 3 * MINUTE

    @pytest.mark.parametrize(
        ("groups", "shown", "snapshots"), [(3, 3, 120), (4, 4, 98), (8, 8, 49), (9, 8, 48), (50, 8, 48)]
    )
    def test_large_groups_are_shown_as_far_as_there_is_room(self, groups: int, shown: int, snapshots: int) -> None:
        large = [group(f"g{n}", partitions=5_000) for n in range(groups)]
        found = plan(large, instants(300), {"east": 1_000}, ALL)
        assert found.groups == {"east": [f"g{n}" for n in range(shown)]}
        assert len(found.columns["east"]) == snapshots
        assert shown * (PARTITIONS + 1) * snapshots <= CELLS

    def test_small_groups_after_a_large_one_that_has_no_room_are_shown(self) -> None:
        large = [group(f"g{n}", partitions=61) for n in range(9)]
        found = plan([*large, group("small")], instants(300), {"east": 1_000}, ALL)
        assert found.groups["east"] == [*(f"g{n}" for n in range(8)), "small"]

    @pytest.mark.parametrize(
        ("rows", "snapshots"), [(ROWS_READ // 120, 120), (ROWS_READ // 12, 12), (ROWS_READ // 12 + 1, 0)]
    )
    def test_little_is_read_of_a_large_cluster(self, rows: int, snapshots: int) -> None:
        found = plan([group()], instants(300), {"east": rows}, ALL)
        assert [len(columns) for columns in found.columns.values()] == [snapshots] * bool(snapshots)

    @pytest.mark.parametrize("selection", [Selection(group="g"), Selection(group_ids=("g",))])
    def test_more_is_read_if_groups_are_selected(self, selection: Selection) -> None:
        assert len(plan([group()], instants(300), {"east": ROWS_READ}, selection).columns["east"]) == 120

    def test_few_snapshots_of_a_large_cluster_are_read(self) -> None:
        assert len(plan([group()], instants(2), {"east": ROWS_READ // 2}, ALL).columns["east"]) == 2

    def test_clusters_are_counted_apart(self) -> None:
        both = [group(), group(cluster="west")]
        found = plan(both, [*instants(20), *instants(20, "west")], {"east": 1, "west": ROWS_READ}, ALL)
        assert (found.groups, list(found.columns)) == ({"east": ["g"]}, ["east"])


def read(minute: int, number: int, lag: int | None, **more: Any) -> dict[str, Any]:
    member = {"member_id": "m1", "client_id": "app", "host": "/10.0.0.1"}
    return lag_row(minute, "g", number, consumer_lag=lag, **member | more)


class TestRows:
    """Four partitions at two snapshots. By lag, 2 is the worst; 3 has few records, but the oldest."""

    def rows(self) -> Any:
        return table_of(
            LAG,
            *(read(1, 2, 700, consumer_lag_bytes=7_000), read(0, 2, 90, member_id="m2", client_id="b", host="/::1")),
            *(read(0, 3, 1, consumer_age_ms=9_000), read(1, 3, 1, consumer_age_ms=9_000)),
            *(read(0, 0, 80, consumer_age_ms=10), read(1, 0, None, offset_status="unknown")),
            *(read(0, 1, 60, consumer_age_ms=30, consumer_lag_ms=5), read(1, 1, 50, consumer_age_ms=20)),
            lag_row(0, "g", 0, topic=None),
        )

    def test_the_worst_by_lag_and_by_age_have_rows(self) -> None:
        found = heat_rows.partitions(self.rows(), 2).to_pylist()
        assert [(r["partition"], r["total"]) for r in found] == [(2, 4), (3, 4)]
        two = found[0]
        assert two["snapshot_ids"] == list(ids(0, 1))
        assert (two["records"], two["bytes"], two["age"]) == ([90, 700], [None, 7_000], [None, None])
        assert (two["member"], two["client"]) == (["m2", "m1"], ["b at ::1", "app at 10.0.0.1"])
        assert two["status"] == ["ok", "ok"]

    def test_partitions_without_lag_are_the_last(self) -> None:
        """Of 2, 1 and 4, the age is not known; 0 and 3 have none, and 5 is not known at all."""
        lags = {0: (0, 0), 1: (5, None), 2: (9, None), 3: (0, 0), 4: (1, None), 5: (None, None)}
        rows = (read(0, n, lag, consumer_age_ms=age) for n, (lag, age) in lags.items())
        found = heat_rows.partitions(table_of(LAG, *rows), 6)
        assert found["partition"].to_pylist() == [2, 1, 4, 0, 3, 5]

    def test_a_commit_beyond_the_end_hides_no_backlog_of_the_others(self) -> None:
        lags = {0: 900, 1: 5, 2: 7 - 2**63, 3: None}
        rows = (read(0, n, lag, consumer_lag_bytes=lag) for n, lag in lags.items())
        (row,) = made(OtherPartitions, heat_rows.others(table_of(LAG, *rows), 1))
        assert (row.records, row.bytes, row.records_unknown) == ((5,), (5,), (1,))

    def test_the_others_are_summed_up_with_what_is_unknown(self) -> None:
        (row,) = heat_rows.others(self.rows(), 2).to_pylist()
        assert row == {
            "cluster": "east",
            "group_id": "g",
            "snapshot_ids": list(ids(0, 1)),
            "partitions": [2, 2],
            "records": [140, 50],
            "bytes": [None, None],
            "ms": [5, None],
            "age": [30, 20],
            "records_unknown": [0, 1],
            "bytes_unknown": [2, 2],
            "ms_unknown": [1, 2],
            "age_unknown": [0, 1],
        }

    def test_objectives_are_missed_or_unknown_or_met(self) -> None:
        met = {0: True, 1: False, 2: None, 3: False}
        rows = [{**lag_row(m, "g", 0), "slo": "fresh", "is_met": is_met} for m, is_met in met.items()]
        rows.append({**lag_row(0, "healthy", 0), "slo": "fresh", "is_met": True})
        found = made(Missed, heat_rows.missed(table_of(SLO, *rows)))
        assert found == (Missed("east", "g", "fresh", ids(1, 3), ids(2)),)

    def test_a_report_has_them(self, tmp_path: Path) -> None:
        """The cluster `west` has too many rows for a map, but a group of the same name."""
        partitions = PARTITIONS + 5
        lag = [read(m, n, n) for m in range(3) for n in range(partitions)]
        lag += [known(m, "g", 1, cluster="west") for m in range(3)]
        slo = [{**lag_row(1, name, 0), "slo": "fresh", "is_met": False} for name in ("g", "elsewhere")]
        snapshots = [snapshot(m, groups=1, partitions=partitions) for m in range(3)]
        snapshots += [snapshot(m, cluster="west", rows={"watermarks": ROWS_READ}) for m in range(3)]
        found = collect(Excerpt(lake_of(tmp_path, snapshots=snapshots, lag=lag, slo=slo)), NOW, "title")
        assert {s.cluster for s in found.partition_series} == {"east"}
        assert [s.partition for s in found.partition_series] == list(range(partitions - 1, 4, -1))
        (rest,) = found.other_partitions
        assert (rest.partitions, rest.records) == ((5,) * 3, (0 + 1 + 2 + 3 + 4,) * 3)
        assert found.missed == (Missed("east", "g", "fresh", ids(1), ()),)


class TestOnThePage:
    def test_topics_are_in_the_order_of_their_worst_partition(self) -> None:
        rows = (series(1, (9,), "b"), series(1, (8,), "a"), series(0, (7,), "b"))
        found = heat_of(report(group(), partition_series=rows), group())
        assert found
        assert [(row["topic"], row["partition"]) for row in found["rows"]] == [("b", 1), ("b", 0), ("a", 1)]

    def test_zero_unknown_no_commit_and_absent_are_different(self) -> None:
        rows = (
            series(0, (0, None, None), status=("ok", "no_commit", "unknown"), snapshot_ids=ids(0, 1, 3)),
            series(1, (1, 2, 3, 4)),
        )
        found = heat_of(report(group(), partition_series=rows, instants=tuple(instants(4))), group())
        assert found
        assert found["columns"] == [0, 1, 2, 3]
        assert [row["records"] for row in found["rows"]] == [[0, None, None, None], [1, 2, 3, 4]]
        assert [row.get("state") for row in found["rows"]] == ["kn-u", None]

    def test_values_have_three_digits(self) -> None:
        found = heat_of(report(group(), partition_series=(series(0, (1_234_567,)),)), group())
        assert found
        assert [found["rows"][0][unit] for unit in heat.UNITS] == [
            [1_230_000],
            [12_300_000],
            [123_000_000],
            [1_230_000_000],
        ]

    @pytest.mark.parametrize(
        ("text", "value", "shown"),
        [
            ("consumer_lag <= 500000", 500_400, 500_400),
            ("consumer_lag < 500000", 499_600, 499_600),
            ("consumer_lag <= 500000", 499_600, 500_000),
            ("consumer_lag <= 500000", 501_400, 501_000),
            ("consumer_lag_bytes <= 500000", 500_400, 500_000),
        ],
    )
    def test_a_value_is_not_rounded_over_a_limit(self, text: str, value: int, shown: int) -> None:
        of = report(group(), partition_series=(series(0, (value,)),), objectives=(objective(text),))
        found = heat_of(of, group())
        assert found
        assert found["rows"][0]["records"] == [shown]

    def test_cells_do_not_reach_into_a_time_without_the_group(self) -> None:
        """It is there at the minutes 2, 3 and 8, of ten. Its map has the snapshots next to these, without rows."""
        there = (2, 3, 8)
        of = report(
            group(),
            instants=tuple(instants(10)),
            partition_series=(series(0, (5, 6, 7), snapshot_ids=ids(*there)),),
        )
        points = {id_: Point("east", id_, "g", 1, 0) for id_ in ids(*there)}
        empty = Point("east", NOON + 9 * MINUTE, "g", None, 0, partitions=0)
        found = heat_of(of, group(), points | {empty.snapshot_id: empty})
        assert found
        assert found["columns"] == [1, 2, 3, 4, 7, 8, 9]
        assert found["rows"][0]["records"] == [None, 5, 6, None, None, 7, None]
        assert found["rows"][0]["state"] == "-kk--k-"

    def test_the_others_are_absent_where_all_partitions_have_rows(self) -> None:
        rest = others((5, None), 40, records_unknown=(0, 40), snapshot_ids=ids(1, 2))
        rows = (series(0, (1, 2, 3)),)
        of = report(group(), partition_series=rows, other_partitions=(rest,), instants=tuple(instants(3)))
        found = heat_of(of, group())
        assert found
        assert (found["others"]["records"], found["others"]["state"]) == ([None, 5, None], "-kk")

    def test_a_member_that_takes_a_partition_is_marked(self) -> None:
        """m1, then another process with the same name, then nobody, then a client that commits without a group."""
        row = series(
            0,
            (1, 2, 3, 4, 5),
            member=("m1", "m1", "m2", None, None),
            client=("app", "app", "app", None, "tool"),
        )
        found = heat_of(report(group(), partition_series=(row,), instants=tuple(instants(5))), group())
        assert found
        assert (found["rows"][0]["owners"], found["clients"]) == (
            [(0, 0), (2, 1), (3, None), (4, 2)],
            ["app", "app", "tool"],
        )

    def test_the_others_say_of_how_many_partitions_a_part_is_missing(self) -> None:
        rest = others((5, None), 40, records_unknown=(0, 40), bytes_unknown=(1, 40))
        found = heat_of(
            report(
                group(), partition_series=(series(0, (1, 2)),), other_partitions=(rest,), instants=tuple(instants(2))
            ),
            group(),
        )
        assert found
        assert (found["others"]["partitions"], found["others"]["records"]) == (40, [5, None])
        assert found["others"]["unknown"] == {"records": {1: 40}, "bytes": {0: 1, 1: 40}, "ms": {}, "age": {}}

    def test_a_page_with_as_many_cells_as_fit_stays_small(self) -> None:
        """Eight groups of 5,000 partitions with lags of ten digits."""
        worst = (9_876_543_210,) * 49
        rows = [series(n, worst, group_id=f"g{g}", total=5_000) for g in range(8) for n in range(PARTITIONS)]
        rest = [others(worst, 4_940, group_id=f"g{g}") for g in range(8)]
        groups = tuple(group(f"g{g}", 1, partitions=5_000) for g in range(8))
        found = payload(
            report(*groups, partition_series=tuple(rows), other_partitions=tuple(rest), instants=tuple(instants(49))),
            groups,
        )
        assert found
        assert sum(len(g["heat"]["rows"]) + 1 for g in found["groups"]) * 49 <= CELLS
        assert len(json.dumps([g["heat"] for g in found["groups"]], separators=(",", ":"))) < 1_500_000

    def test_only_groups_that_were_read_have_a_map(self) -> None:
        found = payload(mapped(), mapped().groups)
        assert found
        assert [g["heat"] is None for g in found["groups"]] == [False, True]
