"""How the page looks and acts in a real browser."""

import html
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.report.model import Instant, Point, Report
from pipeline.report.names import visible
from pipeline.report.page import render
from tests.helpers.reports import HOSTILE, MINUTE, NOON, NOW, group, report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

Browse = Callable[[str], tuple[str, str]]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open a page from a file in headless Chromium: the document as it is in the end, and what the console said."""

    def browse(page: str) -> tuple[str, str]:
        path = tmp_path / "report.html"
        path.write_text(page, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
        options += ["--window-size=1400,1000", "--virtual-time-budget=10000"]
        done = subprocess.run(
            [str(CHROMIUM), *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()],
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=True,
        )
        return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)

    return browse


def with_script(page: str, script: str) -> str:
    """The page with a script that acts as its reader would; the page's own policy would refuse it."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    end = page.rindex("</body>")
    act = f"addEventListener('load', () => setTimeout(() => {{ {script} }}, 1000))"
    return f"{page[:end]}<script>{act}</script>{page[end:]}"


def names_in_order(document: str) -> list[str]:
    """The first column of the groups table as it stands in the document."""
    table = document[document.index('<table id="groups-table"') :]
    table = table[: table.index("</table>")]
    return [html.unescape(name) for name in re.findall(r'<th scope="row".*?<bdi>(.*?)</bdi>', table, re.DOTALL)]


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH; Debian's package is called chromium")
class TestInChromium:
    def page(self, instants_shown: int = 10) -> str:
        groups = [group(name, 10 - i, min_headroom=i * 7 % 5) for i, name in enumerate(HOSTILE)]
        instants = tuple(Instant("east", NOON + i * MINUTE, int(i > 4), instants_shown) for i in range(instants_shown))
        points = tuple(
            Point("east", at.snapshot_id, g.group_id, n * 100 + i, int(i == 2))
            for n, g in enumerate(groups)
            for i, at in enumerate(instants)
        )
        return render(report(*groups, instants=instants, points=points))

    def test_rows_and_lines_are_shown_without_a_word_on_the_console(self, browse: Browse) -> None:
        document, console = browse(self.page())
        assert console == ""
        assert names_in_order(document) == [visible(name) for name in HOSTILE]
        drawing = document[document.index('<div id="drawing"') : document.index('<ul class="legend"')]
        # A line's path has no arcs, a dot's has. One hole makes two lines of each group's ten points.
        for number in range(1, 9):
            strokes = re.findall(rf'<path[^>]*\bd="(M[^"]*)"[^>]*stroke="var\(--series-{number}\)"[^>]*>', drawing)
            assert sum("A" not in path for path in strokes) == 2
            assert sum("A" in path for path in strokes) == 10

    def test_a_click_on_a_heading_sorts(self, browse: Browse) -> None:
        click = "document.querySelectorAll('#groups-table thead button')[5].click();"
        document, console = browse(with_script(self.page(), click + click))
        ascending = sorted(range(len(HOSTILE)), key=lambda i: i * 7 % 5)
        assert console == ""
        assert names_in_order(document) == [visible(HOSTILE[i]) for i in ascending]

    def test_highlighting_a_group_lists_its_values_with_the_gap(self, browse: Browse) -> None:
        pick = "document.querySelector('#log').click(); document.querySelectorAll('.legend .pick')[1].click();"
        document, console = browse(with_script(self.page(), pick))
        values = document[document.index('<details id="values"') :]
        rows = re.findall(r"<tr><td>(.*?)</td><td class=\"n\">(.*?)</td><td class=\"n\">(.*?)</td></tr>", values)
        assert console == ""
        newest = [(f"2026-03-01 12:0{m}:00", str(100 + m), "0") for m in (9, 8, 7, 6, 5)]
        assert rows[:6] == [*newest, ("a gap", "", "")]
        assert rows[8] == ("2026-03-01 12:02:00", "102", "1")
        # In the legend and in the table.
        assert len(re.findall(r'<button [^>]*aria-pressed="true"', document)) == 2

    def test_the_page_lets_no_other_script_run(self, browse: Browse) -> None:
        page = self.page()
        foreign = '<script>document.title = "owned"</script><img src="https://example.invalid/x.png">'
        document, console = browse(page.replace("<main>", f"<main>{foreign}", 1))
        assert "<title>Kafka consumer lag</title>" in document
        assert console.count("Content Security Policy") == 2

    @pytest.mark.parametrize("instants_shown", [1, 61])
    def test_few_and_many_instants_say_nothing_on_the_console(self, browse: Browse, instants_shown: int) -> None:
        document, console = browse(self.page(instants_shown))
        assert console == ""
        assert "<svg" in document

    def test_an_empty_lake_says_nothing_on_the_console(self, browse: Browse) -> None:
        document, console = browse(render(Report("Kafka consumer lag", NOW)))
        assert console == ""
        assert "There are no snapshots yet" in document
