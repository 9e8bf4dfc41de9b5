"""How the page looks and acts in a real browser."""

import html
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.common.words import group_address
from pipeline.report.model.details import Change, Distribution, Finding, Gauge, Partition
from pipeline.report.model.report import Instant, Point, Report
from pipeline.report.page.page import render
from pipeline.report.text.names import visible
from tests.helpers.browser import Browse, framed, with_script
from tests.helpers.crowded import STATUSES, crowded, points
from tests.helpers.reports import HOSTILE, MINUTE, NOON, NOW, group, partition, report


def names_in_order(document: str) -> list[str]:
    """The first column of the groups table in the document."""
    table = document[document.index('<table id="groups-table"') :]
    table = table[: table.index("</table>")]
    return [html.unescape(name) for name in re.findall(r'<th scope="row".*?<bdi>(.*?)</bdi>', table, re.DOTALL)]


def ladder() -> Partition:
    return partition(
        HOSTILE[0],
        3,
        HOSTILE[1],
        log_start_offset=0,
        committed_offset=100,
        consumed_offset=140,
        high_watermark=200,
        log_end_offset=200,
        consumer_lag=100,
        uncommitted=40,
        consumer_lag_bytes=5_000,
        bytes_error=40,
        consumer_lag_ms=90_000,
        headroom=100,
    )


def gauges(instants: Sequence[Instant]) -> tuple[Gauge, ...]:
    return tuple(
        Gauge("east", at.snapshot_id, None, name, 1, 2, 3 + i, None, "blind" if i else None)
        for i, at in enumerate(instants)
        for name in HOSTILE
    )


@pytest.mark.tool
class TestInChromium:
    def page(self, instants_shown: int = 10) -> str:
        groups = [group(name, 10 - i, min_headroom=i * 7 % 5) for i, name in enumerate(HOSTILE)]
        instants = tuple(Instant("east", NOON + i * MINUTE, int(i > 4), instants_shown) for i in range(instants_shown))
        return render(
            report(
                *groups,
                instants=instants,
                points=points(groups, instants),
                partitions=(ladder(),),
                changes=(Change("east", NOON + 3 * MINUTE, HOSTILE[1], "left", 1, 0, "m", None, (HOSTILE[1],)),),
                gauges=gauges(instants),
                distributions=(
                    Distribution("east", 1, "kip532_bytes", 4, 1, ((0, 1), (1_000, 4))),
                    Distribution("east", 1, "reuse_bytes", 0, 5, ()),
                ),
                findings=tuple(
                    Finding("blind_gauge", "east", name, name, name, (0,), "warning", NOON, NOON, None, name, {}, name)
                    for name in HOSTILE
                ),
            )
        )

    def test_rows_and_lines_are_shown_without_console_messages(self, browse: Browse) -> None:
        document, console = browse(self.page())
        assert console == ""
        assert names_in_order(document) == [visible(name) for name in HOSTILE]
        drawing = document[document.index('<div id="drawing"') : document.index('<ul class="legend"')]
        # A line's path has no arcs, a dot's has. One hole makes two lines of each group's ten points.
        for number in range(1, 9):
            strokes = re.findall(rf'<path[^>]*\bd="(M[^"]*)"[^>]*stroke="var\(--series-{number}\)"[^>]*>', drawing)
            assert sum("A" not in path for path in strokes) == 2
            assert sum("A" in path for path in strokes) == 10

    def test_the_bars_of_a_strip_are_as_high_as_the_lag_was(self, browse: Browse) -> None:
        instants = tuple(Instant("east", NOON + i * MINUTE, 0, 3) for i in range(3))
        points = tuple(
            Point("east", at.snapshot_id, "g", lag, 0) for at, lag in zip(instants, (1, 50, 99), strict=True)
        )
        measure = """
            const strip = document.querySelector("canvas.strip");
            const { width, height } = strip;
            const pixels = new Uint32Array(strip.getContext("2d").getImageData(0, 0, width, height).data.buffer);
            const heights = [0, 1, 2].map((n) => {
              const x = Math.floor((n + 0.5) * width / 3);
              const column = Array.from({ length: height }, (_, y) => pixels[y * width + x]);
              return column.filter((pixel) => pixel === column.at(-1)).length;
            });
            document.body.dataset.heights = heights.join();
        """
        page = render(report(group("g", 100), instants=instants, points=points))
        document, console = browse(with_script(page, measure))
        assert console == ""
        assert 'data-heights="2,9,18"' in document

    def test_a_measure_that_is_not_known_says_why(self, browse: Browse) -> None:
        measure = "const m = document.querySelector('#measure');"
        choose = f"{measure} m.value = 'reuse_bytes'; m.dispatchEvent(new Event('change'));"
        for script, reason in (("", ""), (choose, "Not known for any reader at this snapshot")):
            document, console = browse(with_script(self.page(), script))
            assert console == ""
            shown = re.findall(r'<p id="distribution-empty" role="status">([^<]*)</p>', document)
            assert [text.partition(":")[0] for text in shown] == [reason]

    @pytest.mark.parametrize(
        ("width", "seen"),
        [
            (400, ["Group", "Lag", "Status", "Clients"]),
            (
                1400,
                [
                    *("Group", "Lag", "Status", "Clients", "Offsets", "Over time", "Age", "In time", "In bytes"),
                    *("Least headroom", "Largest partition", "Stable lag", "Partitions"),
                ],
            ),
        ],
    )
    def test_columns_that_show_the_cause_are_not_cut(
        self, browse: Browse, tmp_path: Path, width: int, seen: list[str]
    ) -> None:
        """In a frame, because a window of Chromium cannot be narrower than 500 px."""
        measure = """
            const table = document.querySelector("#groups-table");
            const scroll = table.closest(".scroll");
            const page = document.documentElement;
            const edge = scroll.getBoundingClientRect().left + scroll.clientLeft + scroll.clientWidth;
            const columns = [...table.tHead.rows[0].cells].map((heading) => heading.textContent.trim());
            const rows = [...table.rows].map((row) => [...row.cells]);
            const fits = (cell) => cell.getBoundingClientRect().right <= edge + 0.5
              && [cell, ...cell.querySelectorAll("*")].every((part) => part.scrollWidth <= part.clientWidth
                || getComputedStyle(part).display === "inline");
            parent.postMessage(JSON.stringify({
              whole: columns.filter((_, i) => rows.every((cells) => fits(cells[i]))),
              rows: rows.length,
              scrolls: scroll.scrollWidth > scroll.clientWidth,
              page_scrolls: page.scrollWidth > page.clientWidth,
            }), "*");
        """
        measured = framed(browse, tmp_path, with_script(crowded(), measure), width)
        assert measured["rows"] == 1 + len(STATUSES) + 2
        assert [column for column in seen if column not in measured["whole"]] == []
        assert not measured["page_scrolls"]
        if width == 1400:
            assert not measured["scrolls"]

    def test_a_click_on_a_heading_sorts(self, browse: Browse) -> None:
        heading = "[...document.querySelectorAll('thead button')].find((b) => b.textContent === 'Least headroom')"
        click = f"{heading}.click();"
        document, console = browse(with_script(self.page(), click + click))
        ascending = sorted(range(len(HOSTILE)), key=lambda i: i * 7 % 5)
        assert console == ""
        assert names_in_order(document) == [visible(HOSTILE[i]) for i in ascending]

    def test_highlighting_a_group_lists_its_values_with_the_gap(self, browse: Browse) -> None:
        pick = "document.querySelector('#log').click(); document.querySelectorAll('.legend .pick')[1].click();"
        document, console = browse(with_script(self.page(), pick))
        values = document[document.index('<details id="values"') :]
        values = values[: values.index("</table>")]
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(<td.*?)</tr>", values)]
        assert console == ""
        newest = [
            [f"2026-03-01 12:0{m}:00", str(100 + m), f"{2 * m} kB", "1.5 min", "2 min", "0"] for m in (9, 8, 7, 6, 5)
        ]
        assert rows[:6] == [*newest, ["a gap", "", "", "", "", ""]]
        assert rows[8] == ["2026-03-01 12:02:00", "102", "4 kB", "1.5 min", "2 min", "1"]
        # In the legend and in the table.
        assert len(re.findall(r'<button [^>]*aria-pressed="true"', document)) == 2

    def test_a_group_shows_what_happened_to_it_newest_first(self, browse: Browse) -> None:
        document, console = browse(with_script(self.page(), "document.querySelectorAll('.legend .pick')[1].click();"))
        assert console == ""
        table = document[document.index('<table id="events"') :]
        rows = re.findall(r'<tr class="(\w+)">(.*?)</tr>', table[: table.index("</table>")])
        texts = [
            [level, *(html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row))] for level, row in rows
        ]
        name = visible(HOSTILE[1])
        assert texts == [
            ["plain", "2026-03-01 12:03:00", f"1 member left ({name})"],
            ["warn", "2026-03-01 12:00:00", f"blind gauge at its worst: {name}"],
            ["warn", "2026-03-01 12:00:00", "blind gauge begins"],
        ]
        assert '<div id="happened">' in document
        drawing = document[document.index('<div id="history"') : document.index('<div class="scroll events"')]
        assert drawing.count("<path") > 10
        assert "--warn" in drawing, "the band of the finding"

    @pytest.mark.parametrize("number", range(len(HOSTILE)))
    def test_a_group_has_an_address(self, browse: Browse, number: int) -> None:
        name = HOSTILE[number]
        document, console = browse(self.page(), group_address("east", name))
        assert console == ""
        title = re.search(r'<h3 id="group-title">(.*?)</h3>', document)
        assert title is not None
        assert html.unescape(title[1]) == visible(name)

    def test_choosing_a_group_writes_its_address(self, browse: Browse) -> None:
        show = "document.title = location.hash"
        click = f"document.querySelectorAll('.legend .pick')[0].click(); {show}"
        document, console = browse(with_script(self.page(), click))
        assert console == ""
        assert f"<title>{group_address('east', HOSTILE[0])}</title>" in document

    def test_a_page_about_one_group_shows_it_at_once(self, browse: Browse) -> None:
        document, console = browse(render(report(group("alone", 5))))
        assert console == ""
        assert '<h3 id="group-title">alone</h3>' in document
        assert '<section id="group" aria-labelledby="group-title">' in document

    def test_a_group_shows_its_ladder_with_the_gaps_named(self, browse: Browse) -> None:
        document, console = browse(with_script(self.page(), "document.querySelectorAll('.legend .pick')[1].click();"))
        assert console == ""
        shown = document[document.index('<div id="ladders"') : document.index('<details id="values"')]
        texts = [html.unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", shown)]
        assert texts == [
            "the whole log: 200 offsets",
            "committed 100",
            "consumed 140",
            "high watermark = log end 200",
            "consumer lag 100 · 5 kB ± 40 B · 1.5 min",
            "uncommitted 40",
        ]
        # To scale: from committed to log end, and two fifths of it uncommitted.
        gaps = [
            [float(x) for x in re.findall(r"[MH]([\d.]+)", path)[:3:2]]
            for path in re.findall(r'd="([^"]*)" class="gap"', shown)
        ]
        (whole_from, whole_to), (part_from, part_to) = gaps
        assert part_from == whole_from
        assert (part_to - part_from) / (whole_to - whole_from) == pytest.approx(0.4)
        assert html.escape(HOSTILE[0]) in shown

    @pytest.mark.parametrize(("unit", "reported"), [("ms", "1.5 min"), ("age", "2 min")])
    def test_another_unit_is_drawn(self, browse: Browse, unit: str, reported: str) -> None:
        choose = f"const u = document.querySelector('#unit'); u.value = '{unit}'; u.dispatchEvent(new Event('change'));"
        document, console = browse(with_script(self.page(), choose))
        assert console == ""
        drawing = document[document.index('<div id="drawing"') : document.index('<ul class="legend"')]
        assert re.search(r">[\d.]+ (s|min)</text>", drawing)
        assert f'aria-label="from {reported} to {reported}, at most {reported}"' in document

    def test_a_gauge_and_what_is_true_are_lines_with_a_verdict(self, browse: Browse) -> None:
        document, console = browse(self.page())
        assert console == ""
        assert "At 2026-03-01 12:09:00 UTC, when it was last reported, the gauge is blind." in document
        drawing = document[document.index('<div id="gauge"') : document.index('<p id="gauge-verdict"')]
        for number in (1, 2, 3):  # consumer lag, fetcher lag, gauge: each in two parts, before and after the hole
            strokes = re.findall(rf'<path[^>]*\bd="(M[^"]*)"[^>]*stroke="var\(--series-{number}\)"[^>]*>', drawing)
            assert sum("A" not in path for path in strokes) == 2
        values = document[document.index('<table id="gauge-values"') :]
        first_row = re.findall(r"<td[^>]*>(.*?)</td>", values)[:6]
        assert first_row == ["2026-03-01 12:09:00", "1", "2", "12", "–", "blind"]

    def test_brokers_have_their_quantiles(self, browse: Browse) -> None:
        document, console = browse(self.page())
        assert console == ""
        values = document[document.index('<table id="broker-values"') :]
        assert re.findall(r"<td[^>]*>(.*?)</td>", values)[:8] == [
            "east 1",
            "5",
            "1",
            "1",
            "1 kB",
            "–",
            "–",
            "–",
        ]

    def test_the_page_lets_no_other_script_run(self, browse: Browse) -> None:
        page = self.page()
        foreign = '<script>document.title = "owned"</script><img src="https://example.invalid/x.png">'
        document, console = browse(page.replace("<main>", f"<main>{foreign}", 1))
        assert "<title>Kafka consumer lag</title>" in document
        assert console.count("Content Security Policy") == 2

    @pytest.mark.parametrize("instants_shown", [1, 61])
    def test_few_and_many_instants_cause_no_console_messages(self, browse: Browse, instants_shown: int) -> None:
        document, console = browse(self.page(instants_shown))
        assert console == ""
        assert "<svg" in document

    def test_an_empty_lake_causes_no_console_messages(self, browse: Browse) -> None:
        document, console = browse(render(Report("Kafka consumer lag", NOW)))
        assert console == ""
        assert "There are no snapshots yet" in document
