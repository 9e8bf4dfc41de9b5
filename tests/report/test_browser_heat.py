"""What the charts below the lag of a group show: its partitions, its changes, its objectives, in a real browser."""

import pytest

from pipeline.report.model.heat import Missed
from pipeline.report.model.report import Instant
from pipeline.report.page.page import render
from tests.helpers.browser import Browse
from tests.helpers.crowded import points
from tests.helpers.maps import ids, objective, series
from tests.helpers.reports import MINUTE, NOON, group, report
from tests.helpers.timed import act


@pytest.mark.tool
class TestInChromium:
    def test_a_cell_says_what_it_is(self, browse: Browse) -> None:
        script = """
          const heat = document.getElementById("heat");
          const top = heat.getBoundingClientRect().top;
          const cell = (row, minute) => {
            const y = [...heat.querySelectorAll(".heat-label")][row].getBoundingClientRect();
            fire(heat, "pointermove", at(minute), y.top + y.height / 2);
            return tip();
          };
          const seen = [cell(0, 3), cell(0, 4), cell(0, 8), cell(1, 2), cell(2, 0.1), cell(3, 5)];
        """
        seen = act(browse, script)
        assert seen == [
            ["orders 7", "2026-03-01 12:03:00 UTC", "lag 0 offsets", "read by app at 10.0.0.1"],
            [
                "orders 7",
                "2026-03-01 12:04:00 UTC",
                "lag 200 offsets",
                "read by slow at 10.0.0.2",
                "the member has changed here",
            ],
            [
                "orders 7",
                "2026-03-01 12:08:00 UTC",
                "lag about 1,230,000 offsets",
                "misses small (consumer_lag <= 500)",
                "read by slow at 10.0.0.2",
            ],
            ["orders 8", "2026-03-01 12:02:00 UTC", "lag unknown", "read by app at 10.0.0.1"],
            ["refunds 0", "2026-03-01 12:00:00 UTC", "lag 0 offsets", "read by app at 10.0.0.1"],
            ["49 other partitions", "2026-03-01 12:05:00 UTC", "lag 5 offsets"],
        ]

    def test_zero_unknown_and_much_look_different(self, browse: Browse) -> None:
        """The colours in the middle of cells, and how many colours a cell has: a hatched one has several."""
        script = """
          const canvas = document.querySelector("#heat canvas");
          const around = canvas.getBoundingClientRect();
          const scale = canvas.width / around.width;
          const copy = document.createElement("canvas");
          Object.assign(copy, { width: canvas.width, height: canvas.height });
          copy.getContext("2d", { willReadFrequently: true }).drawImage(canvas, 0, 0);
          const colours = (row, minute) => {
            const y = [...document.querySelectorAll(".heat-label")][row].getBoundingClientRect();
            const [left, top, side] = [at(minute) - around.left - 12, y.top + 3 - around.top, 9].map((n) => n * scale);
            const { data } = copy.getContext("2d").getImageData(left, top, side, side);
            return [...new Set(new Uint32Array(data.buffer))];
          };
          const seen = [colours(0, 3), colours(0, 6), colours(1, 2)];
        """
        zero, much, unknown = act(browse, script)
        assert (len(zero), len(much)) == (1, 1)
        assert zero != much
        assert len(unknown) > 3

    def test_the_legend_states_its_numbers(self, browse: Browse) -> None:
        script = """
          const legend = () => [...document.querySelectorAll("#heat-legend li")].map((one) => one.textContent);
          const seen = [legend()];
          await choose("age");
          seen.push(legend());
        """
        records, age = act(browse, script)
        more = ["unknown", "another member from here on"]
        missed = "dot: misses small (consumer_lag <= 500)"
        levels = ["0", "less than 1,000", "from 1,000", "from 5,000", "from 20,000", "200,000 and more"]
        assert records == [*levels, *more, missed]
        missed = "dot: misses fresh (consumer_age_ms < 200000)"
        levels = ["0", "less than 10 min", "from 10 min", "from 1 h", "from 12 h", "2 d and more"]
        assert age == [*levels, *more, missed]

    def test_it_is_said_which_partitions_are_behind_and_who_reads_them(self, browse: Browse) -> None:
        script = """
          const said = () => document.getElementById("heat-summary").textContent;
          const seen = [said()];
          await drag("heat", 0, 2.5);
          seen.push(said());
          seen.push(document.getElementById("heat").getAttribute("aria-label"));
        """
        whole, first, label = act(browse, script)
        assert whole == (
            "At 2026-03-01 12:08:00 UTC, the lag was the greatest in this time: 1,230,008 offsets. "
            "1 of 3 partitions had at least 90 % of it (orders 7). It was read by slow at 10.0.0.2."
        )
        assert first == (
            "At 2026-03-01 12:00:00 UTC, the lag was the greatest in this time: 8 offsets. "
            "It was spread over more partitions than have a row here."
        )
        assert first in label

    def test_a_lag_of_most_partitions_is_spread_over_them(self, browse: Browse) -> None:
        rows = tuple(series(n, (n + 10,), member=(f"m{n % 2}",), client=(f"app-{n % 2}",), total=4) for n in range(4))
        page = render(report(group("g", 46, partitions=4), partition_series=rows))
        script = 'const seen = [text("heat-summary")]; await choose("age"); seen.push(text("heat-summary"));'
        at = "At 2026-03-01 12:00:00 UTC, the"
        assert act(browse, script, page=page) == [
            (
                f"{at} lag was the greatest in this time: 46 offsets. It was spread over 4 of 4 partitions. "
                "They were read by 2 members."
            ),
            (
                f"{at} age was the greatest in this time: 13 s. 4 of 4 partitions had at least half of that "
                "(orders 3, orders 2, orders 1, …). They were read by 2 members."
            ),
        ]

    @pytest.mark.parametrize(("lag", "said"), [(0, "at these snapshots."), (7, "of these snapshots: 7 offsets.")])
    def test_a_map_of_some_snapshots_says_nothing_of_the_others(self, browse: Browse, lag: int, said: str) -> None:
        instants = tuple(Instant("east", NOON + n * MINUTE, 0, 3) for n in range(3))
        of = group("g", 7)
        page = render(
            report(of, instants=instants, points=points([of], instants), partition_series=(series(0, (lag,) * 2),))
        )
        assert said in act(browse, 'const seen = text("heat-summary");', page=page)

    def test_an_objective_of_some_topics_concerns_their_rows_only(self, browse: Browse) -> None:
        """The map of a group that was not there from minute 2 to minute 4, in which another topic is as far behind."""
        instants = tuple(Instant("east", NOON + n * MINUTE, 0, 7) for n in range(7))
        there = (0, 1, 5, 6)
        rows = [series(0, (9,) * 4, topic, snapshot_ids=ids(*there), total=2) for topic in ("orders", "refunds")]
        of = group("g", 18, partitions=2)
        page = render(
            report(
                of,
                instants=instants,
                points=points([of], [instants[n] for n in there]),
                partition_series=tuple(rows),
                objectives=(objective("consumer_lag < 5", "small", topics="^orders$"),),
            )
        )
        script = """
          const heat = document.getElementById("heat");
          const cell = (row, minute) => {
            const y = [...heat.querySelectorAll(".heat-label")][row].getBoundingClientRect();
            fire(heat, "pointermove", at(minute * 9 / 6), y.top + y.height / 2);
            return tip().slice(1);
          };
          const seen = [cell(0, 1.4), cell(1, 1.4), cell(0, 2.4), cell(0, 2.8), texts("#heat-values td:nth-child(5)")];
        """
        seen = act(browse, script, page=page)
        missed, read, gone = "misses small (consumer_lag < 5)", "read by app at 10.0.0.1", "no such partition"
        assert seen == [
            ["2026-03-01 12:01:00 UTC", "lag 9 offsets", missed, read],
            ["2026-03-01 12:01:00 UTC", "lag 9 offsets", read],
            ["2026-03-01 12:02:00 UTC", gone],
            ["2026-03-01 12:02:00 UTC", gone],
            ["0", "0"],
        ]

    def test_arrow_keys_lead_from_cell_to_cell(self, browse: Browse) -> None:
        script = """
          const heat = document.getElementById("heat");
          const seen = ["ArrowLeft", "ArrowDown"].map((key) => {
            press(key, heat);
            return document.getElementById("heat-cell").textContent;
          });
          seen.push(zoomed());
        """
        misses = "misses small (consumer_lag <= 500)"
        assert act(browse, script) == [
            f"orders 7, 2026-03-01 12:08:00 UTC, lag about 1,230,000 offsets, {misses}, read by slow at 10.0.0.2",
            "orders 8, 2026-03-01 12:08:00 UTC, lag 3 offsets, read by app at 10.0.0.1",
            "all",
        ]

    def test_the_rows_are_also_a_table(self, browse: Browse) -> None:
        script = """
          const rows = [...document.querySelectorAll("#heat-values tbody tr")];
          const seen = rows.map((row) => [...row.cells].map((cell) => cell.textContent));
        """
        assert act(browse, script) == [
            ["orders 7", "1,230,000", "2026-03-01 12:08:00", "0", "0", "slow at 10.0.0.2"],
            ["orders 8", "3", "2026-03-01 12:00:00", "3", "1", "app at 10.0.0.1"],
            ["refunds 0", "0", "2026-03-01 12:00:00", "0", "0", "app at 10.0.0.1"],
            ["49 other partitions", "5", "2026-03-01 12:00:00", "5", "0", "–"],
        ]

    def test_changes_and_missed_objectives_are_on_the_time_axis(self, browse: Browse) -> None:
        script = """
          const place = (one) => ends(one).reduce((a, b) => Math.round((a + b) * 5) / 10);
          const marks = [...document.querySelectorAll("#changes .mark")];
          fire(marks.at(-1), "pointermove", 10, 10);
          const bars = [...document.querySelectorAll("#changes rect:not(.hit)")];
          const seen = {
            marks: marks.map((mark) => [mark.textContent, place(mark.querySelector(".hit"))]), tip: tip(),
            bars: bars.map((bar) => [bar.getAttribute("class"), ...ends(bar).map(Math.round)]),
            label: element("changes").getAttribute("aria-label"),
          };
        """
        assert act(browse, script) == {
            "marks": [["▼", 6], ["●100", 4], ["■12", 4]],
            "tip": [
                "12 partitions moved, assigned or unassigned",
                "2026-03-01 12:04:00 UTC: 100 members restarted (app); 12 partitions moved to another member",
            ],
            "bars": [["missed", 3, 6], ["unknown", 7, 8]],
            "label": "What changed in the group over time: 1 member left; 100 members restarted; 12 partitions moved, "
            "assigned or unassigned; objective fresh was missed 1 time; objective small was not missed. "
            "The table below has each change.",
        }

    def test_a_limit_is_a_line_with_its_name_in_its_own_unit(self, browse: Browse) -> None:
        script = """
          const seen = {};
          for (const unit of ["records", "bytes", "ms", "age"]) {
            await choose(unit);
            const lines = document.querySelectorAll("#history .mark-rule.role-mark line").length;
            const names = texts("#history text").filter((name) => /: /.test(name));
            seen[unit] = [names, lines, text("limit-facts").split(".")[0]];
          }
        """
        assert act(browse, script) == {
            "records": [[], 0, "Objective small (consumer_lag <= 500) limits each partition"],
            "bytes": [[], 0, ""],
            "ms": [[], 0, ""],
            "age": [["fresh: 3.33 min"], 1, ""],
        }

    def test_long_names_of_objectives_stay_in_their_charts(self, browse: Browse) -> None:
        instants = tuple(Instant("east", NOON + n * MINUTE, 0, 2) for n in range(2))
        of, slo = group("g", 7), "name-of-an-objective-" * 15
        page = render(
            report(
                of,
                instants=instants,
                points=points([of], instants),
                partition_series=(series(0, (7, 7)),),
                objectives=(objective("consumer_age_ms < 200000", slo),),
                missed=(Missed("east", "g", slo, ids(1), ()),),
            )
        )
        script = """
          await choose("age");
          const isCut = (one) => {
            const [name, all] = [one, one.closest("svg")].map((part) => part.getBoundingClientRect());
            return name.width && (name.left < all.left || name.right > all.right);
          };
          const named = [...document.querySelectorAll("#changes text, #history text")]
            .filter((one) => one.textContent.includes("name-of"));
          const seen = named.map((one) => [one.textContent.endsWith("…"), isCut(one)]);
        """
        assert act(browse, script, page=page) == [[True, False]] * 2
