"""How a reader of the page chooses a time, in a real browser."""

import re
from pathlib import Path

import pytest

from pipeline.report.page.page import render
from tests.helpers.browser import Browse, framed, with_script
from tests.helpers.maps import mapped
from tests.helpers.timed import GROUP, act

FROM_3_TO_6 = "@2026-03-01T12:03:00Z/2026-03-01T12:06:00Z"


def minutes(address: str) -> list[int]:
    """The minutes of the time in an address, to the nearest one."""
    times = re.findall(r"T12:(\d\d):(\d\d)", address)
    return [round(int(minute) + int(second) / 60) for minute, second in times]


@pytest.mark.tool
class TestInChromium:
    @pytest.mark.parametrize("chart", ["history", "changes", "heat", "rates"])
    def test_dragging_over_a_chart_shows_a_time_in_all_of_them(self, browse: Browse, chart: str) -> None:
        script = f"""
          await drag("{chart}", 6, 3);
          const labels = (id) => [...document.querySelectorAll(`#${{id}} text`)].map((text) => text.textContent)
            .filter((text) => /^12:0\\d/.test(text)).map((text) => text.slice(0, 5));
          const seen = [location.hash, ["drawing", "history", "rates"].map((id) => [...new Set(labels(id))])];
        """
        address, labels = act(browse, script)
        assert address.startswith(f"{GROUP}@")
        assert minutes(address) == [3, 6]
        for of_chart in labels:
            assert {"12:04", "12:05"} <= {*of_chart} <= {"12:03", "12:04", "12:05", "12:06"}

    @pytest.mark.parametrize(
        "reset",
        [
            'press("Escape", document.body)',
            'document.getElementById("unzoom").click()',
            'document.getElementById("heat").dispatchEvent(new MouseEvent("dblclick", { bubbles: true }))',
        ],
    )
    def test_the_whole_time_is_shown_again(self, browse: Browse, reset: str) -> None:
        seen = act(
            browse,
            f"const before = zoomed(); {reset}; await wait(); const seen = [before, zoomed(), location.hash];",
            GROUP + FROM_3_TO_6,
        )
        assert seen == ["2026-03-01 12:03:00 to 12:06:00 UTC", "all", GROUP]

    @pytest.mark.parametrize(
        ("address", "shown"),
        [
            (f"#{FROM_3_TO_6}", "2026-03-01 12:03:00 to 12:06:00 UTC"),
            ("#@2026-02-28T23:00:00Z/2026-03-01T12:06:00Z", "2026-02-28 23:00:00 to 2026-03-01 12:06:00 UTC"),
            (f"{GROUP}@2026-03-01T12:06:00Z/2026-03-01T12:03:00Z", "all"),
            (f"{GROUP}@2025-03-01T12:03:00Z/2025-03-01T12:06:00Z", "all"),
            (f"{GROUP}@now/then", "all"),
            (GROUP, "all"),
        ],
    )
    def test_an_address_shows_its_time(self, browse: Browse, address: str, shown: str) -> None:
        assert act(browse, "const seen = zoomed();", address) == shown

    def test_another_group_is_shown_at_the_same_time(self, browse: Browse) -> None:
        script = """
          document.querySelectorAll(".legend .pick")[1].click();
          await wait();
          const seen = [location.hash, zoomed(), document.getElementById("no-heat").hidden];
        """
        assert act(browse, script, GROUP + FROM_3_TO_6) == [
            f"#group/east/other{FROM_3_TO_6}",
            "2026-03-01 12:03:00 to 12:06:00 UTC",
            False,
        ]

    def test_keys_zoom_and_move(self, browse: Browse) -> None:
        script = """
          const history = document.getElementById("history");
          const seen = [];
          for (const key of ["ArrowLeft", "+", "ArrowRight", "-"]) {
            press(key, history);
            await wait();
            seen.push(location.hash);
          }
        """
        seen = act(browse, script)
        assert seen[0] == GROUP
        assert [re.findall(r"12:\d\d:\d\d", address) for address in seen[1:]] == [
            ["12:02:15", "12:06:45"],
            ["12:03:23", "12:07:53"],
            ["12:02:16", "12:09:01"],
        ]

    def test_a_click_selects_nothing(self, browse: Browse) -> None:
        assert act(browse, 'await drag("history", 4, 4); const seen = [zoomed(), location.hash];') == ["all", GROUP]

    def test_the_line_under_the_pointer_is_in_all_charts(self, browse: Browse) -> None:
        script = """
          const heat = document.getElementById("heat");
          fire(heat, "pointermove", at(5), heat.getBoundingClientRect().top + 30);
          const lines = ["drawing", "history", "changes", "heat", "rates"]
            .map((id) => element(id).querySelector(".cursor"));
          const seen = lines.map((line) => line.hidden ? null : Math.round(line.getBoundingClientRect().left - at(5)));
          fire(heat, "pointerleave", 0, 0);
          seen.push(lines.every((line) => line.hidden));
        """
        *places, is_hidden = act(browse, script)
        assert [abs(place) <= 6 for place in places] == [True] * 5
        assert is_hidden

    def test_a_drawing_that_was_replaced_draws_nothing_below_the_chart(self, browse: Browse) -> None:
        """The drawing of the group before is resized with the window, too."""
        script = """
          document.querySelectorAll(".legend .pick")[1].click();
          await wait();
          dispatchEvent(new Event("resize"));
          await wait();
          const seen = [element("group-title").textContent, element("heat-part").hidden, element("no-heat").hidden];
        """
        assert act(browse, script) == ["other", True, False]

    def test_a_page_that_may_not_change_its_address_shows_a_time(self, browse: Browse) -> None:
        script = """
          history.replaceState = () => { throw new DOMException("too often", "SecurityError"); };
          await drag("history", 3, 6);
          const seen = [zoomed() !== "all", location.hash, ends(document.querySelector("#changes .missed"))[0] < 3.1];
        """
        assert act(browse, script) == [True, GROUP, True]

    @pytest.mark.parametrize("width", [400, 1400])
    def test_nothing_is_cut(self, browse: Browse, tmp_path: Path, width: int) -> None:
        script = """
          location.hash = "#group/east/g@2026-03-01T12:03:00Z/2026-03-01T12:06:00Z";
          setTimeout(() => {
            const names = "#changes text, .heat-names text, #heat canvas, #zoom, #heat-legend li";
            const drawn = [...document.querySelectorAll(names)];
            const isCut = ({ left, right, width }) => width && (left < 0 || right > innerWidth);
            parent.postMessage(JSON.stringify({
              page: document.documentElement.scrollWidth <= innerWidth,
              cut: drawn.filter((one) => isCut(one.getBoundingClientRect())).map((one) => one.textContent),
              drawn: drawn.length > 15,
            }), "*");
          }, 1500);
        """
        seen = framed(browse, tmp_path, with_script(render(mapped()), script), width)
        assert seen == {"page": True, "cut": [], "drawn": True}
