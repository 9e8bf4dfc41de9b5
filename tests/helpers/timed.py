"""What a reader does to the charts that have a time axis, and what a browser then shows."""

import html
import json
import re
from typing import Any

from pipeline.report.page.page import render
from tests.helpers.browser import Browse, with_script
from tests.helpers.maps import mapped

GROUP = "#group/east/g"
ACT = """
  const wait = () => new Promise((done) => setTimeout(done, 300));
  const fire = (element, type, x, y) => element.dispatchEvent(
    new PointerEvent(type, { clientX: x, clientY: y, bubbles: true, pointerType: "mouse" }));
  const press = (key, element) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  // Where the plot of the lag is: as wide as the lines of the values across it.
  const plot = () => {
    const lines = [...document.querySelectorAll("#history .mark-rule.role-axis-grid line")];
    return lines.map((line) => line.getBoundingClientRect()).reduce((a, b) => a.width > b.width ? a : b);
  };
  const at = (minute) => plot().left + plot().width * minute / 9;
  const drag = async (id, from, to) => {
    const element = document.getElementById(id);
    const [a, b, y] = [at(from), at(to), element.getBoundingClientRect().top + 30];
    fire(element, "pointerdown", a, y);
    fire(element, "pointermove", (a + b) / 2, y);
    fire(element, "pointermove", b, y);
    fire(element, "pointerup", b, y);
    await wait();
  };
  const zoomed = () => document.getElementById("zoom").hidden ? "all" : document.getElementById("zoomed").textContent;
  const choose = async (unit) => {
    const units = document.getElementById("unit");
    units.value = unit;
    units.dispatchEvent(new Event("change"));
    await wait();
  };
  const element = (id) => document.getElementById(id);
  const text = (id) => element(id).textContent;
  const texts = (all) => [...document.querySelectorAll(all)].map((one) => one.textContent);
  const tip = () => element("tip").hidden ? [] : text("tip").split("\\n");
  // Where an element begins and ends, in minutes.
  const ends = (one) => {
    const { left, right } = one.getBoundingClientRect();
    return [left, right].map((x) => (x - plot().left) / plot().width * 9);
  };
"""


def act(browse: Browse, script: str, at: str = GROUP, page: str | None = None) -> Any:
    """What a script with `await` leaves in `seen`, from a page that logs nothing."""
    whole = f"(async () => {{ {ACT} {script} document.body.dataset.seen = JSON.stringify(seen); }})();"
    shown, console = browse(with_script(page or render(mapped()), whole), at)
    assert console == ""
    found = re.search('data-seen="([^"]*)"', shown)
    assert found
    return json.loads(html.unescape(found[1]))
