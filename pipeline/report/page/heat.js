// The heat map of a group: a row for each partition, a column for each snapshot, on the time axis of the charts above it.
const HEAT_LEVELS = 5;

/** Times that have a short name, from a minute to a month. */
const HEAT_TIMES = [...[1, 2, 5, 10, 20, 30].map((n) => n * 6e4), ...[1, 2, 3, 6, 12].map((n) => n * 36e5), ...[1, 2, 3, 7, 14, 30].map((n) => n * 864e5)];

/** The least values of the levels from 2 on, on a logarithmic scale up to `most`: values that have a short name. */
function heatEdges(most, least, isTime) {
  const edges = [];
  for (let level = 1; level < HEAT_LEVELS; level += 1) {
    const exact = least * (most / least) ** (level / HEAT_LEVELS);
    const power = 10 ** Math.floor(Math.log10(exact));
    const named = [1, 2, 5, 10].map((n) => Number((n * power).toPrecision(1)));
    const choice = isTime ? [...named.filter((n) => n < 6e4), ...HEAT_TIMES] : named;
    const edge = choice.reduce((a, b) => Math.abs(Math.log(b / exact)) < Math.abs(Math.log(a / exact)) ? b : a);
    if (edge > (edges.at(-1) ?? least) && edge <= most) edges.push(edge);
  }
  return edges;
}

const HEAT_KINDS = { u: "unknown", n: "nothing committed", "-": "no such partition" };

/** What a cell shows: a value, or the kind of what is missing. */
const heatState = (row, unit, column) => {
  const state = row.state?.[column] ?? "k";
  return row[unit][column] === null ? state === "k" ? "u" : state : "k";
};

/** The client that has the partition at a column; null if nobody, undefined if not known. */
const heatOwner = ({ owners }, column) => owners.findLast(([from]) => from <= column)?.[1];

/** The rows of a heat map from top to bottom, with a heading above each topic. */
function heatLayout({ rows, others }) {
  const high = rows.length > 30 ? 12 : 16;
  const layout = [];
  let y = 0, topic = null;
  for (const row of rows) {
    if (row.topic !== topic) layout.push({ heading: row.topic, y: y += topic === null ? 0 : 4 }), y += 17;
    topic = row.topic;
    layout.push({ row, label: String(row.partition), y, high });
    y += high;
  }
  if (others) {
    layout.push({ heading: null, y: y += 4 });
    y += 17;
    layout.push({ row: { ...others, owners: [], isRest: true }, label: "others", y, high });
    y += high;
  }
  return { layout, height: y };
}

/** Where each column begins and ends, in time: halfway to its neighbours, or at most half the usual step if one is missing. */
function heatColumns({ columns }, instants) {
  const at = columns.map((i) => instants[i]);
  const steps = at.slice(1).map(([, , ms], i) => ms - at[i][2]).sort((a, b) => a - b);
  const half = (steps[steps.length >> 1] ?? 6e4) / 2;
  const reach = (a, b) => a[1] === b[1] ? (b[2] - a[2]) / 2 : Math.min(half, (b[2] - a[2]) / 2);
  const edge = (a, b, sign) => (sign < 0 ? b : a)[2] + sign * (a && b ? reach(a, b) : half);
  return at.map((one, i) => ({ id: one[0], ms: one[2], from: i ? edge(at[i - 1], one, -1) : one[2] - half, to: i + 1 < at.length ? edge(one, at[i + 1], 1) : one[2] + half }));
}

/** All that a drawing and its words need to know of a group's heat map in a unit. */
function heatOf(group, unit) {
  const { heat } = group;
  const all = [...heat.rows, ...(heat.others ? [heat.others] : [])].flatMap((row) => row[unit]);
  const most = all.reduce((n, value) => Math.max(n, value ?? 0), 0);
  const isTime = unit === "ms" || unit === "age";
  const least = Math.max(most / 1e4, 1); // so that the levels tell large values apart
  const targets = group.targets.filter((target) => target.unit === unit);
  return { ...heat, unit, most, least, edges: most > least ? heatEdges(most, least, isTime) : [], targets, instants: page.instants[group.cluster],
    ...heatLayout(heat), times: heatColumns(heat, page.instants[group.cluster]) };
}

const heatLevel = ({ edges }, value) => value <= 0 ? 0 : 1 + edges.filter((edge) => value >= edge).length;
const heatMisses = ({ targets }, row, value) => row.isRest ? [] : targets.filter(({ most, of_topics }) => value > most && (of_topics?.includes(row.topic) ?? true));

/** How many partitions a value of the other partitions leaves out. */
const heatLacking = ({ unit }, row, column) => row.isRest ? row.unknown[unit][column] ?? 0 : 0;

function heatPaint(context, map, span, plot, width) {
  const colour = Object.fromEntries(["surface", "raised", "rule", "soft", "ink", "series-2", "series-5", ...[1, 2, 3, 4, 5].map((n) => `heat-${n}`)].map((name) => [name, style(`--${name}`)]));
  const at = placeIn(plot, span);
  const end = plot.left + plot.width;
  context.clearRect(0, 0, width, map.height);
  for (const { row, y, high } of map.layout) {
    if (!row) continue;
    map.times.forEach(({ from, to }, column) => {
      const [x, right] = [Math.max(at(from), plot.left), Math.min(at(to), end)];
      if (right <= x) return;
      const gap = right - x > 5 ? 1 : 0;
      const [w, h] = [right - x - gap, high - 1];
      const kind = heatState(row, map.unit, column);
      const value = row[map.unit][column];
      if (kind === "-") return;
      context.fillStyle = kind !== "k" ? colour.surface : value < 0 ? colour["series-5"] : value ? colour[`heat-${heatLevel(map, value)}`] : colour.raised;
      context.fillRect(x, y, w, h);
      if (kind === "u" || kind === "n") heatMissing(context, kind, colour.soft, x, y, w, h);
      else if (heatLacking(map, row, column)) heatMissing(context, "u", colour.soft, x, y, w, h);
      if (kind === "k" && heatMisses(map, row, value).length) {
        context.fillStyle = heatLevel(map, value) > 2 ? colour.surface : colour.ink;
        context.fillRect(x + w / 2 - 1, y + h / 2 - 1, Math.min(2, w), 2);
      }
    });
    for (const [column] of row.owners) {
      const x = at(map.times[column].from);
      if (!column || x < plot.left || x > end) continue;
      context.fillStyle = colour["series-2"];
      context.fillRect(x - 1, y, 2, high - 1);
    }
  }
}

/** Diagonal lines where a value is not known, a dash where nothing is committed. */
function heatMissing(context, kind, colour, x, y, w, h) {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.strokeStyle = colour;
  context.beginPath();
  if (kind === "u") for (let from = Math.floor((x - h) / 4) * 4; from < x + w; from += 4) { context.moveTo(from, y + h); context.lineTo(from + h, y); }
  else { context.moveTo(x, y + h / 2); context.lineTo(x + w, y + h / 2); }
  context.stroke();
  context.restore();
}

/** Draw the map below the chart whose plot is `plot`, in pixels of the element. */
function drawHeat(element, map, span, plot, width) {
  const canvas = document.createElement("canvas");
  const scale = Math.max(devicePixelRatio, 2); // also for paper
  Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(map.height * scale) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${map.height}px` });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  heatPaint(context, map, span, plot, width);
  const names = svg("svg", { viewBox: `0 0 ${width} ${map.height}`, width, height: map.height, class: "heat-names", "aria-hidden": "true" });
  const cursor = svg("rect", { class: "heat-cursor", visibility: "hidden" });
  for (const { row, heading, label, y, high } of map.layout) {
    if (row) names.append(svg("text", { x: plot.left - 8, y: y + high - 3, "text-anchor": "end", class: "heat-label" }, label));
    else {
      const { others, unit } = map;
      const kind = unit === "records" || unit === "bytes" ? "together" : "the one that is furthest behind";
      const text = heading ?? `${plural(others.partitions, "other partition")}, ${kind}`;
      names.append(svg("text", { x: 0, y: y + 13, class: "heat-topic" }, shortened(text, width - 8)));
    }
  }
  names.append(cursor);
  element.replaceChildren(canvas, names);
  const first = map.layout.find(({ row }) => row);
  return { top: first.y, height: map.height - first.y, cursor };
}

/** The lines of the tooltip of a cell. */
function heatDescribe(map, { row }, column) {
  const { unit, times } = map;
  const value = row[unit][column];
  const kind = heatState(row, unit, column);
  const name = unit === "age" ? "age" : "lag";
  const about = unit === "records" && Math.abs(value) >= 1000 ? "about " : "";
  const known = `${name} ${about}${inUnit(value, unit)}${unit === "records" ? ` offset${value === 1 ? "" : "s"}` : ""}`;
  const owner = heatOwner(row, column);
  const lacking = heatLacking(map, row, column);
  return [row.isRest ? plural(row.partitions, "other partition") : `${row.topic} ${row.partition}`, `${utc(times[column].ms)} UTC`,
    kind === "k" ? known : kind === "u" ? `${name} unknown` : HEAT_KINDS[kind],
    ...(lacking ? [`${plural(lacking, "partition")} not known`] : []),
    ...heatMisses(map, row, value).map((target) => `misses ${target.name} (${target.objective})`),
    ...(row.isRest || kind === "-" || owner === undefined ? [] : [owner === null ? "no member has it" : `read by ${map.clients[owner]}`]),
    ...(row.owners.some(([from]) => from && from === column) ? ["the member has changed here"] : [])];
}

/** A sentence about the worst snapshot in the span: how many partitions make up the lag, and who reads them. */
function heatSummary(map, [first, last]) {
  const isSum = map.unit === "records" || map.unit === "bytes";
  const named = map.layout.filter(({ row }) => row && !row.isRest).map(({ row }) => row);
  const rest = map.others?.[map.unit];
  const seen = map.times.map((time, column) => ({ ...time, column })).filter(({ ms }) => ms >= first && ms <= last);
  const merged = (column) => {
    const values = [...named.map((row) => row[map.unit][column] ?? 0), rest?.[column] ?? 0].map((value) => Math.max(value, 0));
    return isSum ? values.reduce((a, b) => a + b, 0) : Math.max(...values);
  };
  const worst = seen.reduce((a, one) => merged(one.column) > (a ? merged(a.column) : 0) ? one : a, null);
  const isThinned = map.times.length < map.instants.length; // the chart above may have a greater value in between
  if (!worst) return seen.length ? `No partition is known to have had any lag ${isThinned ? "at these snapshots" : "in this time"}.` : "There is no snapshot in this time.";
  const { column, ms } = worst;
  const all = merged(column);
  const sorted = named.filter((row) => row[map.unit][column] > 0).sort((a, b) => b[map.unit][column] - a[map.unit][column]);
  let sum = 0;
  const behind = isSum ? sorted.filter((row) => sum < 0.9 * all && (sum += row[map.unit][column])) : sorted.filter((row) => row[map.unit][column] >= all / 2);
  const when = `At ${utc(ms)} UTC, the ${map.unit === "age" ? "age" : "lag"} was the greatest ${isThinned ? "of these snapshots" : "in this time"}: ${inUnit(all, map.unit)}${map.unit === "records" ? " offsets" : ""}.`;
  if (isSum && sum < 0.9 * all) return `${when} It was spread over more partitions than have a row here.`;
  const owners = [...new Set(behind.map((row) => heatOwner(row, column)).filter((owner) => owner !== null && owner !== undefined))];
  const names = `${behind.slice(0, 3).map((row) => `${row.topic} ${row.partition}`).join(", ")}${behind.length > 3 ? ", …" : ""}`;
  const what = isSum ? "had at least 90 % of it" : "had at least half of that";
  const of = `${count(behind.length)} of ${plural(map.total, "partition")}`;
  const by = !owners.length ? "" : owners.length === 1 ? ` ${behind.length === 1 ? "It was" : "All of them were"} read by ${map.clients[owners[0]]}.` : ` They were read by ${count(owners.length)} members.`;
  return isSum && map.total > 2 && 2 * behind.length > map.total ? `${when} It was spread over ${of}.${by}` : `${when} ${of} ${what} (${names}).${by}`;
}

/** What the colours mean, with the values at which they begin. */
function heatLegend(map) {
  const { unit, edges, least, most, layout, targets } = map;
  const rows = layout.filter(({ row }) => row).map(({ row }) => row);
  const kinds = new Set(rows.flatMap((row) => map.times.map((_, column) => heatState(row, unit, column))));
  const lacks = rows.some((row) => row.isRest && Object.keys(row.unknown[unit]).length);
  const value = (n) => inUnit(n, unit);
  const starts = most > 0 ? [null, ...edges] : [];
  const levels = starts.map((edge, i) => [`heat-${i + 1}`, edge === null ? edges.length ? `less than ${value(edges[0])}` : `up to ${value(most)}` : edges[i] === undefined ? `${value(edge)} and more` : `from ${value(edge)}`]);
  const more = [
    ...(rows.some((row) => row[unit].some((n) => n < 0)) ? [["series-5", "negative"]] : []),
    ...(kinds.has("u") || lacks ? [["unknown", lacks ? "unknown, or unknown in part" : "unknown"]] : []), ...(kinds.has("n") ? [["no-commit", "nothing committed"]] : []),
    ...(kinds.has("-") ? [["none", "blank: no such row"]] : []),
    ...(rows.some((row) => row.owners.some(([column]) => column)) ? [["owner", "another member from here on"]] : []),
    ...targets.map(({ name, objective }) => ["missed", `dot: misses ${name} (${objective})`]),
  ];
  return [["zero", "0"], ...levels, ...more].map(([kind, text]) => {
    const item = document.createElement("li");
    const swatch = item.appendChild(document.createElement("i"));
    swatch.className = kind;
    if (/^(heat|series)-/.test(kind)) swatch.style.background = `var(--${kind})`;
    item.append(text);
    return item;
  });
}

/** The rows as a table, for those who do not see the map. */
function heatTable(table, map, [first, last]) {
  table.tBodies[0].replaceChildren();
  const seen = map.times.map((time, column) => ({ ...time, column })).filter(({ ms }) => ms >= first && ms <= last);
  for (const { row } of map.layout) {
    if (!row) continue;
    const known = seen.filter(({ column }) => row[map.unit][column] !== null);
    const worst = known.reduce((a, one) => a === null || row[map.unit][one.column] > row[map.unit][a.column] ? one : a, null);
    const newest = seen.at(-1);
    const owner = worst && heatOwner(row, worst.column);
    const kinds = seen.map(({ column }) => heatState(row, map.unit, column));
    const lacking = ["u", "n"].find((kind) => kinds.includes(kind));
    cells(table.tBodies[0].insertRow(), [
      row.isRest ? plural(row.partitions, "other partition") : `${row.topic} ${row.partition}`, worst ? inUnit(row[map.unit][worst.column], map.unit) : HEAT_KINDS[lacking] ?? "–",
      worst ? utc(worst.ms) : "–", newest ? inUnit(row[map.unit][newest.column], map.unit) : "–", count(kinds.filter((kind) => kind === "u").length),
      owner === undefined || owner === null || row.isRest ? "–" : map.clients[owner]], ["name", "n", "nowrap", "n", "n", "name"]);
  }
}

/** The pointer and the arrow keys lead from cell to cell; the tooltip says what the cell shows. */
function followHeat(element, map, span, plot, cursor) {
  const at = placeIn(plot, span);
  const rows = map.layout.filter(({ row }) => row);
  const place = (column) => [Math.max(at(map.times[column].from), plot.left), Math.min(at(map.times[column].to), plot.left + plot.width)];
  const columns = map.times.map((_, column) => column).filter((column) => place(column)[1] > place(column)[0]);
  let [row, column] = [0, columns.at(-1)];
  const show = (event) => {
    const { y, high } = rows[row];
    const [left, right] = place(column);
    for (const [name, value] of Object.entries({ x: left, y, width: Math.max(right - left, 1), height: high - 1, visibility: "visible" })) cursor.setAttribute(name, value);
    const around = element.getBoundingClientRect();
    tipAt(event ?? { clientX: around.left + right, clientY: around.top + y + high }, heatDescribe(map, rows[row], column));
  };
  const hide = () => {
    cursor.setAttribute("visibility", "hidden");
    tipAt(null, []);
  };
  element.onpointermove = element.onpointerdown = (event) => {
    const around = element.getBoundingClientRect();
    const [x, y] = [event.clientX - around.left, event.clientY - around.top];
    const found = rows.findIndex((one) => y >= one.y && y < one.y + one.high);
    const under = columns.find((one) => x >= place(one)[0] && x < place(one)[1]);
    if (found < 0 || under === undefined) return hide();
    [row, column] = [found, under];
    return show(event);
  };
  element.onpointerleave = (event) => event.pointerType === "touch" || hide(); // a finger leaves at once
  element.onblur = hide;
  element.onkeydown = (event) => {
    const nth = columns.indexOf(column);
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!moves || nth < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    row = Math.min(Math.max(row + moves[0], 0), rows.length - 1);
    column = columns[Math.min(Math.max(nth + moves[1], 0), columns.length - 1)];
    show();
    cursor.scrollIntoView({ block: "nearest", behavior: "instant" });
    show(); // where the cell is now
    document.getElementById("heat-cell").textContent = heatDescribe(map, rows[row], column).join(", ");
  };
}
