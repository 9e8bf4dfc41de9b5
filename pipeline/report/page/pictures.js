// The pictures that are drawn without Vega: heat strips, sparklines and ladders. `page` is the data from payload.py.
const source = document.getElementById("page-data");
const page = source && JSON.parse(source.textContent);

const utc = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
const count = (n) => n.toLocaleString("en").replace("-", "\u2212");

/** A value in a unit, as the page's tables write it. */
function inUnit(value, unit) {
  if (value === null || value === undefined) return "–";
  const steps = {
    records: [],
    bytes: [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]],
    ms: [["d", 864e5], ["h", 36e5], ["min", 6e4], ["s", 1e3]],
  }[unit === "age" ? "ms" : unit];
  const found = steps.find(([, factor]) => Math.abs(value) >= factor);
  if (found) {
    const scaled = value / found[1];
    return `${count(Math.abs(scaled) >= 100 ? Math.round(scaled) : Number(scaled.toPrecision(3)))} ${found[0]}`;
  }
  return unit === "records" ? count(value) : `${count(Math.round(value))} ${unit === "bytes" ? "B" : "ms"}`;
}

/** An SVG element with attributes and, where given, text. */
function svg(name, attributes = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Whether the value at an instant and the one before it are both known, and no snapshot is missing in between. */
const joins = (instants, values, i) => i > 0 && i < values.length && values[i] !== null && values[i - 1] !== null
  && instants[i][1] === instants[i - 1][1];

/** Fill a strip with a bar for each snapshot of the group's cluster. Its height is relative to the group's own greatest value, its
    colour to the greatest of all groups, on a logarithmic scale. */
function drawStrip(canvas, unit, most) {
  const group = page.groups[canvas.dataset.g];
  const instants = page.instants[group.cluster];
  const values = group[unit];
  const context = canvas.getContext("2d");
  const width = canvas.width / instants.length;
  const colours = [style("--raised"), ...[1, 2, 3, 4, 5].map((n) => style(`--heat-${n}`))];
  const own = values.reduce((n, value) => Math.max(n, Math.abs(value ?? 0)), 1);
  context.clearRect(0, 0, canvas.width, canvas.height);
  values.forEach((value, i) => {
    if (value === null) return;
    const level = value <= 0 ? 0 : Math.min(5, 1 + Math.floor(5 * Math.log1p(value) / Math.log1p(most)));
    const broad = Math.max(width - (width > 4 ? 1 : 0), 1);
    const high = value ? Math.max(2, canvas.height * Math.abs(value) / own) : 0;
    context.fillStyle = colours[0];
    context.fillRect(i * width, 0, broad, canvas.height);
    context.fillStyle = value < 0 ? style("--series-5") : colours[level];
    context.fillRect(i * width, canvas.height - high, broad, high);
  });
  // A hole in the ledger is a gap in the strip.
  context.fillStyle = style("--surface");
  instants.forEach(([, segment], i) => {
    const gap = Math.min(3, width / 2);
    if (i && segment !== instants[i - 1][1]) context.fillRect(i * width - gap / 2, 0, gap, canvas.height);
  });
}

/** Say in words what a strip shows. */
function labelStrip(canvas, unit) {
  const known = page.groups[canvas.dataset.g][unit].filter((value) => value !== null);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", known.length
    ? `from ${inUnit(known[0], unit)} to ${inUnit(known.at(-1), unit)}, at most ${inUnit(Math.max(...known), unit)}`
    : "not known at any snapshot");
  canvas.title = canvas.getAttribute("aria-label");
}

/** Draw each strip when it comes into view or is printed, and draw these again when the unit or the colours change. */
function keepStrips() {
  const most = {};
  for (const unit of ["records", "bytes", "ms", "age"]) {
    most[unit] = page.groups.reduce((n, g) => g[unit].reduce((m, v) => Math.max(m, v ?? 0), n), 1);
  }
  let unit = "records";
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting || seen.has(target)) continue;
      seen.add(target);
      drawStrip(target, unit, most[unit]);
    }
  }, { rootMargin: "1000px 0px" });
  const strips = document.querySelectorAll("canvas.strip");
  const again = () => {
    seen.forEach((canvas) => drawStrip(canvas, unit, most[unit]));
    strips.forEach((canvas) => labelStrip(canvas, unit));
  };
  strips.forEach((canvas) => watch.observe(canvas));
  again();
  addEventListener("beforeprint", () => {
    strips.forEach((canvas) => seen.add(canvas));
    again();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  return (changed) => { unit = changed; again(); };
}

/** Draw the group's lag as a line, with gaps where it is not known, and a mark at an instant. */
function drawSpark(element) {
  const group = page.groups[element.dataset.g];
  const instants = page.instants[group.cluster];
  const [width, height] = [140, 32];
  const [first, last] = [instants[0][2], instants.at(-1)[2]];
  const known = group.records.filter((value) => value !== null);
  const most = Math.max(1, ...known);
  const x = (ms) => last > first ? 2 + (width - 4) * (ms - first) / (last - first) : width / 2;
  const y = (lag) => height - 2 - (height - 4) * Math.max(lag, 0) / most;
  let path = "";
  group.records.forEach((lag, i) => {
    if (lag === null) return;
    const at = `${x(instants[i][2]).toFixed(1)},${y(lag).toFixed(1)}`;
    // A point without neighbours is drawn as a dot: a line that is as long as it is wide.
    path += joins(instants, group.records, i) ? `L${at}` : `M${at}h.01`;
  });
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": known.length ? `lag over time, at most ${count(Math.max(...known))} offsets` : "lag is not known" });
  const since = Number(element.dataset.since);
  if (since) {
    const at = x(Math.min(Math.max(since, first), last));
    drawing.append(svg("path", { d: `M${at},0V${height}`, class: "mark" }));
  }
  drawing.append(svg("path", { d: path, class: "line" }));
  element.replaceChildren(drawing);
}

const RUNGS = [
  ["log_start_offset", "log start"], ["committed_offset", "committed"], ["consumed_offset", "consumed"],
  ["fetched_offset", "fetched"], ["last_stable_offset", "last stable"], ["high_watermark", "high watermark"],
  ["log_end_offset", "log end"],
];
const GAPS = [
  ["consumer_lag", "committed_offset", "high_watermark"], ["uncommitted", "committed_offset", "consumed_offset"],
  ["buffered", "consumed_offset", "fetched_offset"], ["divergence", "committed_offset", "fetched_offset"],
  ["fetcher_lag", "fetched_offset", "high_watermark"], ["transaction_lag", "last_stable_offset", "high_watermark"],
  ["headroom", "log_start_offset", "committed_offset"],
];

/** The ladder of one partition, to scale: the whole log at the top, and below it the unread part, magnified. */
function ladder(partition) {
  const known = RUNGS.filter(([name]) => partition[name] !== undefined)
    .map(([name, label]) => ({ name, label, offset: partition[name] }));
  if (known.length < 2) return null;
  const offsets = known.map((rung) => rung.offset);
  const [low, high] = [Math.min(...offsets), Math.max(...offsets)];
  const readers = known.filter(({ name }) => name !== "log_start_offset").map((rung) => rung.offset);
  const [near, far] = [Math.min(...readers), Math.max(...readers, Math.min(...readers) + 1)];
  const [width, left, right] = [960, 8, 360]; // The names of the gaps are on the right.
  const scale = (from, to) => (offset) => left + (width - left - right) * (offset - from) / Math.max(to - from, 1);
  const whole = scale(low, high), unread = scale(near, far);
  const drawing = svg("svg", { role: "img", class: "ladder",
    "aria-label": `${partition.topic} ${partition.partition}: ${known.map((r) => `${r.label} ${count(r.offset)}`).join(", ")}` });
  // The whole log, and which part of it is shown below.
  drawing.append(
    svg("rect", { x: whole(low), y: 6, width: Math.max(whole(high) - whole(low), 1), height: 8, class: "log" }),
    svg("rect", { x: whole(near), y: 6, width: Math.max(whole(far) - whole(near), 1), height: 8, class: "unread" }),
    svg("path", { d: `M${whole(near)},14L${unread(near)},34M${whole(far)},14L${unread(far)},34`, class: "lens" }),
    svg("text", { x: width - right + 12, y: 14 }, wholeLog(partition)),
    svg("path", { d: `M${unread(near)},34H${unread(far)}`, class: "axis" }),
  );
  // Rungs at one offset share a tick; labels that would touch go to the next line.
  const ticks = new Map();
  for (const rung of known) {
    if (rung.offset < near) continue;
    ticks.set(rung.offset, [...(ticks.get(rung.offset) ?? []), rung.label]);
  }
  const ends = [];
  let bottom = 34;
  for (const [offset, labels] of [...ticks].sort(([a], [b]) => a - b)) {
    const text = `${labels.join(" = ")} ${count(offset)}`;
    const at = unread(offset);
    const begin = Math.max(left, Math.min(at, width - right - text.length * 6.4));
    let line = ends.findIndex((end) => end < begin - 8);
    if (line < 0) line = ends.length;
    ends[line] = begin + text.length * 6.4;
    const y = 52 + 15 * line;
    drawing.append(svg("path", { d: `M${at},30V${y - 10}`, class: "tick" }), svg("text", { x: begin, y }, text));
    bottom = Math.max(bottom, y);
  }
  let y = bottom + 20;
  for (const [name, from, to] of GAPS) {
    const value = partition[name];
    const isEmpty = value === 0 && name !== "consumer_lag";
    if (value === undefined || isEmpty || partition[from] < near || partition[to] < near) continue;
    const [a, b] = [unread(partition[from]), unread(partition[to])].sort((m, n) => m - n);
    drawing.append(
      svg("path", { d: `M${a},${y - 4}V${y + 4}M${a},${y}H${Math.max(b, a + 1)}M${b},${y - 4}V${y + 4}`, class: "gap" }),
      svg("text", { x: width - right + 12, y: y + 4, class: "gap-label" }, gapLabel(partition, name)),
    );
    y += 17;
  }
  drawing.setAttribute("viewBox", `0 0 ${width} ${y - 6}`);
  return drawing;
}

function wholeLog({ log_start_offset: start, log_end_offset: end }) {
  return start === undefined || end === undefined ? "the length of the log is not known" : `the whole log: ${count(end - start)} offsets`;
}

/** The name of a gap and its width. The width of consumer lag is in every known unit. */
function gapLabel(partition, name) {
  const label = `${name.replaceAll("_", " ")} ${count(partition[name])}`;
  return name === "consumer_lag" && partition.in_units ? `${label} · ${partition.in_units}` : label;
}
