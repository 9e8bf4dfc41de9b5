// One time axis for the charts of the page: dragging over one of them zooms all, and they share the line under the pointer.
const times = (() => {
  const charts = new Map(); // by element: { span, box, draw }
  const bar = document.getElementById("zoom");
  const LEAST_MS = 100, LEAST_PX = 8;
  let span = null, from = null;

  const part = (name) => {
    const element = document.createElement("div");
    element.className = name;
    element.hidden = true;
    return element;
  };

  /** The time under a place of the window, and the place of a time, in one chart. */
  const timeAt = ({ span, box }, x) => {
    const { left, width } = box();
    const [first, last] = span();
    return first + (last - first) * Math.min(Math.max((x - left) / width, 0), 1);
  };
  const placeOf = ({ span, box }, ms) => {
    const [first, last] = span();
    return box().left + box().width * (ms - first) / (last - first);
  };

  /** Show the line at an instant in every chart; null hides it. */
  function point(ms) {
    for (const [element, chart] of charts) {
      if (!element.isConnected || element.offsetParent === null) continue;
      const [first, last] = chart.span();
      chart.line.hidden = ms === null || ms < first || ms > last;
      if (chart.line.hidden) continue;
      const { top, height } = chart.box();
      const around = element.getBoundingClientRect();
      chart.line.style.left = `${placeOf(chart, ms) - around.left}px`;
      chart.line.style.top = `${top - around.top}px`;
      chart.line.style.height = `${height}px`;
    }
  }

  function select(element, chart, x) {
    const { left, width, top, height } = chart.box();
    const around = element.getBoundingClientRect();
    const [a, b] = [from.x, Math.min(Math.max(x, left), left + width)].sort((m, n) => m - n);
    chart.selection.hidden = b - a < LEAST_PX;
    Object.assign(chart.selection.style, { left: `${a - around.left}px`, width: `${b - a}px`, top: `${top - around.top}px`, height: `${height}px` });
    return [timeAt(chart, a), timeAt(chart, b), b - a];
  }

  function listen(element) {
    const chart = () => charts.get(element);
    const drag = (event) => from?.element === element && select(element, chart(), event.clientX);
    const end = (event) => {
      removeEventListener("pointermove", drag);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      if (from?.element !== element) return;
      const [first, last, wide] = select(element, chart(), event.clientX);
      from = null;
      chart().selection.hidden = true;
      if (event.type === "pointerup" && wide >= LEAST_PX) zoom([first, last]);
    };
    element.addEventListener("pointerdown", (event) => {
      const { left, width, top, height } = chart().box();
      const isIn = event.clientX >= left && event.clientX <= left + width && event.clientY >= top && event.clientY <= top + height;
      if (!isIn || event.button !== 0) return;
      from = { x: event.clientX, element };
      addEventListener("pointermove", drag); // also outside of the chart
      addEventListener("pointerup", end);
      addEventListener("pointercancel", end);
      if (event.pointerType === "mouse") event.preventDefault(); // so that no text is selected
      element.focus({ preventScroll: true });
    });
    element.addEventListener("pointermove", (event) => point(timeAt(chart(), event.clientX)));
    element.addEventListener("pointerleave", () => point(null));
    element.addEventListener("dblclick", () => zoom(null));
    element.addEventListener("keydown", (event) => {
      const [first, last] = chart().span();
      const by = (last - first) / 4;
      const moved = { "+": [first + by, last - by], "-": [first - by, last + by], ArrowLeft: [first - by, last - by], ArrowRight: [first + by, last + by] }[event.key];
      if (!moved || event.ctrlKey || event.metaKey || event.altKey || chart().hasCursor && event.key.startsWith("Arrow")) return;
      if (span === null && event.key !== "+") return;
      event.preventDefault();
      zoom(moved);
    });
  }

  /** The time of all snapshots of the page. */
  function whole() {
    const all = Object.values(page.instants).flat().map(([, , at]) => at);
    const [first, last] = [Math.min(...all), Math.max(...all)];
    return last > first ? [first, last] : [first - 3e4, last + 3e4];
  }

  /** A time that can be shown: in order, not too short, and with a part in which a chart has something; else null. */
  function valid(wanted) {
    if (!wanted?.every(Number.isFinite)) return null;
    const [first, last] = whole();
    const middle = (wanted[0] + wanted[1]) / 2;
    const half = Math.max(wanted[1] - wanted[0], LEAST_MS) / 2;
    const ends = [Math.round(middle - half), Math.round(middle + half)];
    const isAll = ends[0] <= first && ends[1] >= Math.max(last, ...[...charts.values()].map((chart) => chart.natural[1]));
    return wanted[1] <= wanted[0] || ends[1] <= first || ends[0] >= last + (last - first) || isAll ? null : ends;
  }

  const iso = (ms) => new Date(ms).toISOString().replace(".000Z", "Z");
  /** The part of the page's address that names the time. A name in an address has no @. */
  const suffix = () => span ? `@${span.map(iso).join("/")}` : "";
  const inAddress = () => {
    const found = /@([^/@]+)\/([^/@]+)$/.exec(location.hash);
    return found ? valid([Date.parse(found[1]), Date.parse(found[2])]) : null;
  };

  /** The charts do not depend on the address: a page in a frame cannot change it, and browsers limit how often others do. */
  function write(address) {
    try { history.replaceState(null, "", address); } catch { /* the old address stays */ }
  }

  function zoom(wanted, writes = true) {
    const before = String(span);
    span = valid(wanted);
    if (span && span[1] - span[0] >= 1e4) span = span.map((ms) => Math.round(ms / 1e3) * 1e3);
    if (before === String(span)) return;
    bar.hidden = span === null;
    const [first, last] = (span ?? []).map(utc);
    document.getElementById("zoomed").textContent = span ? `${first} to ${last.startsWith(first.slice(0, 11)) ? last.slice(11) : last} UTC` : "";
    point(null);
    if (writes) {
      const address = location.hash.replace(/@[^@]*$/, "");
      const isOther = address && !address.startsWith("#group/");
      const found = `${isOther && span ? "" : address}${suffix()}`;
      if (location.hash.slice(1) !== found.replace(/^#/, "")) write(found.startsWith("#") || !found ? found || location.pathname + location.search : `#${found}`);
    }
    drawAll();
  }

  const drawAll = () => { for (const [element, chart] of charts) if (element.isConnected) chart.draw(); };

  if (bar) {
    document.getElementById("unzoom").addEventListener("click", () => zoom(null));
    addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.target.closest?.("input, select") || (!span && !from)) return;
      if (from) charts.get(from.element).selection.hidden = true;
      else zoom(null);
      from = null;
    });
    addEventListener("hashchange", () => { if (inAddress()) zoom(inAddress(), false); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll); // a canvas does not follow the style sheet
    zoom(inAddress(), false);
  }

  return {
    whole,
    suffix,
    /** The chosen time, or what a chart shows without one. */
    within: (natural) => span ?? natural,
    zoom,
    /** A chart was drawn into an element. `natural` is its time without a zoom, `box` where its plot is in the window, `draw` draws it again. */
    add(element, chart) {
      const known = charts.get(element);
      const { line, selection } = known ?? { line: part("cursor"), selection: part("selection") };
      charts.set(element, { ...chart, line, selection, span: () => span ?? chart.natural });
      element.append(line, selection);
      if (!known) listen(element);
    },
  };
})();
