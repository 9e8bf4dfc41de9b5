"""How a reader finds a group and its card in a real browser, how old the page is, and what is printed of it."""

import html
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.model.details import Finding, Names
from pipeline.report.page.page import render
from tests.helpers.browser import Browse, framed, with_script
from tests.helpers.crowded import crowded
from tests.helpers.reports import HOSTILE, NOON, group, report

A4_LANDSCAPE = 1047
"""The width in pixels of what a sheet has between its margins."""


def finding(group_id: str | None, topic: str, **evidence: Any) -> Finding:
    about = (
        "no_progress",
        "east",
        group_id,
        None,
        topic,
        (0,),
        "critical",
        NOON,
        NOON,
        None,
        "It is.",
        evidence,
        "Do.",
    )
    return Finding(*about)


def page(**more: Any) -> str:
    """Three groups, of which two have cards, and a topic with a card that names the third."""
    names = (
        Names("east", "payments", ("orders",), ("pay-app",), ("/10.0.0.7",), is_cut=False),
        Names("east", "search", ("clicks", "ordinary"), ("crawler",), ("/10.0.0.8",), is_cut=True),
        Names("east", "audit", ("orders",), (), (), is_cut=False),
    )
    groups = (group("payments", owner="Team Blue"), group("search", client_id="crawler"), group("audit"))
    found = (finding("payments", "orders"), finding("search", "clicks"), finding(None, "ledger", groups=["audit"]))
    return render(report(*groups, names=names, findings=found, findings_open=3, **more))


def act(browse: Browse, document: str, script: str) -> Any:
    """What a script leaves in `seen`, from a page that logs nothing."""
    shown, console = browse(with_script(document, f"{script} document.body.dataset.seen = JSON.stringify(seen);"))
    assert console == ""
    found = re.search('data-seen="([^"]*)"', shown)
    assert found
    return json.loads(html.unescape(found[1]))


SEARCH = """
  const field = document.querySelector("#find");
  const search = (text) => {
    field.value = text;
    field.dispatchEvent(new Event("input"));
    const shown = (all, part) => [...document.querySelectorAll(all)].filter((one) => !one.hidden)
      .map((one) => one.querySelector(part).textContent);
    return {
      rows: shown("#groups-table tbody tr", "th bdi"), cards: shown(".card", "h3"),
      found: document.querySelector("#found").textContent, none: !document.querySelector("#no-groups").hidden,
    };
  };
"""


@pytest.mark.tool
class TestInChromium:
    def test_a_search_finds_groups_and_cards_by_topic_client_host_and_owner(self, browse: Browse) -> None:
        """Of `search`, not all names are on the page."""
        asked = ["ORDERS", "crawler", "10.0.0.7", "blue team", "ordinary", "audit", "ledger", "nowhere", ""]
        script = f"{SEARCH} const seen = Object.fromEntries({json.dumps(asked)}.map((text) => [text, search(text)]));"
        seen = act(browse, page(), script)
        assert {text: (sorted(found["rows"]), found["cards"]) for text, found in seen.items()} == {
            "ORDERS": (["audit", "payments"], ["payments"]),
            "crawler": (["search"], ["search"]),
            "10.0.0.7": (["payments"], ["payments"]),
            "blue team": (["payments"], ["payments"]),
            "ordinary": (["search"], ["search"]),
            "audit": (["audit"], ["ledger"]),
            "ledger": ([], ["ledger"]),
            "nowhere": ([], []),
            "": (["audit", "payments", "search"], ["payments", "search", "ledger"]),
        }
        more = "Not all names of 1 group can be searched."
        assert seen["ORDERS"]["found"] == f"2 of 3 groups, 1 of 3 cards. {more}"
        assert seen["nowhere"]["found"] == (
            f"Nothing found: no name, cluster, topic, client, host or owner of a group contains this. {more}"
        )
        assert seen[""]["found"] == ""
        assert {text for text, found in seen.items() if found["none"]} == {"ledger", "nowhere"}

    def test_hostile_names_are_searched_as_they_are_shown(self, browse: Browse) -> None:
        names = tuple(Names("east", name, (name,), (name,), (name,), is_cut=False) for name in HOSTILE)
        document = render(report(*map(group, HOSTILE), names=names))
        seen = act(browse, document, f"{SEARCH} const seen = search('onerror=alert(2)');")
        assert seen["rows"] == ["</script><img src=x onerror=alert(2)>"]

    def test_a_key_leads_to_the_search_and_another_ends_it(self, browse: Browse) -> None:
        script = f"""{SEARCH}
          const press = (key, at) => at.dispatchEvent(new KeyboardEvent("keydown", {{ key, bubbles: true }}));
          const before = document.activeElement === field;
          press("/", document.body);
          const seen = [before, document.activeElement === field];
          search("orders");
          press("Escape", field);
          seen.push(field.value, [...document.querySelectorAll("#groups-table tbody tr")].some((row) => row.hidden));
        """
        assert act(browse, page(), script) == [False, True, "", False]

    @pytest.mark.parametrize(
        ("before", "words"),
        [
            (timedelta(hours=3, minutes=20), "; this page is 3 h old"),
            (timedelta(days=3, hours=20), "; this page is 3 d old"),
            (timedelta(days=-1), "; this page was made in the future, by the clock here"),
        ],
    )
    def test_the_page_says_how_old_it_is_by_the_readers_clock(
        self, browse: Browse, before: timedelta, words: str
    ) -> None:
        made = datetime.now(UTC) - before
        assert act(browse, page(generated_at=made), "const seen = document.querySelector('#age').textContent;") == words

    def test_all_details_are_printed_and_closed_again(self, browse: Browse) -> None:
        script = """
          const closed = () => document.querySelectorAll("details:not([open])").length;
          const seen = [closed() > 2];
          dispatchEvent(new Event("beforeprint"));
          seen.push(closed());
          dispatchEvent(new Event("afterprint"));
          seen.push(closed() > 2);
        """
        assert act(browse, page(), script) == [True, 0, True]

    def test_nothing_is_cut_on_paper(self, browse: Browse, tmp_path: Path) -> None:
        script = """
          for (const rule of document.styleSheets[0].cssRules) {
            if (rule.media?.mediaText === "print") rule.media.mediaText = "all";
          }
          dispatchEvent(new Event("beforeprint"));
          const cut = (one) => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight + 1;
          const isDrawn = (canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
            .data.some(Boolean);
          parent.postMessage(JSON.stringify({
            width: document.documentElement.scrollWidth <= innerWidth,
            cut: [...document.querySelectorAll(".scroll, figure, .card")].filter(cut).map((one) => one.className),
            hidden: document.querySelectorAll("details:not([open])").length,
            strips: [...document.querySelectorAll("canvas.strip")].filter((one) => !isDrawn(one)).length,
            search: getComputedStyle(document.querySelector("#find").parentElement).display,
          }), "*");
        """
        seen = framed(browse, tmp_path, with_script(crowded(), script), A4_LANDSCAPE)
        assert seen == {"width": True, "cut": [], "hidden": 0, "strips": 0, "search": "none"}

    @pytest.mark.parametrize("width", [400, 1400])
    def test_cards_are_not_cut(self, browse: Browse, tmp_path: Path, width: int) -> None:
        script = """
          for (const details of document.querySelectorAll(".card details")) details.open = true;
          const parts = [...document.querySelectorAll(".card, .card *")].filter((one) => !one.closest("svg"));
          const isBlock = (one) => getComputedStyle(one).display !== "inline";
          const cut = parts.filter((one) => one.scrollWidth > one.clientWidth && isBlock(one));
          const beyond = parts.filter((one) => one.getBoundingClientRect().right > innerWidth);
          parent.postMessage(JSON.stringify({
            cards: document.querySelectorAll(".card").length,
            page: document.documentElement.scrollWidth <= innerWidth,
            cut: [...cut, ...beyond].map((one) => one.outerHTML.slice(0, 80)),
          }), "*");
        """
        seen = framed(browse, tmp_path, with_script(crowded(), script), width)
        assert seen == {"cards": 11, "page": True, "cut": []}
