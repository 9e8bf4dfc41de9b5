// The charts. Vega draws them from specifications that contain no data; this script adds the points.
const embed = async (selector, specification, sets, signals = {}, tooltip = false) => {
  const copy = structuredClone(specification);
  // The ends of the axes are set here, because Vega logs a warning for an empty data set.
  const reach = (pick, ...more) => sets.points.reduce(([a, b], point) =>
    [Math.min(a, point[pick]), Math.max(b, point[pick])], more);
  const [low, high] = reach("value", 0, 1);
  const [first, last] = reach("t_ms", Infinity, -Infinity);
  signals = { low, high, first, last, ...signals };
  for (const [name, values] of Object.entries(sets)) {
    copy.data.find((set) => set.name === name).values = values.map((value) => ({ ...value }));
  }
  const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false, tooltip };
  for (const signal of copy.signals) if (signal.name in signals) signal.value = signals[signal.name];
  // In an element of its own, because Vega replaces the role and the label of the element that it draws in.
  const inner = document.createElement("div");
  document.querySelector(selector).replaceChildren(inner);
  return (await vegaEmbed(inner, copy, options)).view;
};

/** Ticks of a logarithmic axis: 0 and the powers of ten on either side, as far as the values go. */
function powers(values) {
  const ticks = [0];
  for (const sign of [1, -1]) {
    const furthest = values.reduce((most, value) => Math.max(most, value * sign), 0);
    for (let tick = 1; tick <= furthest; tick *= 10) ticks.push(sign * tick);
  }
  return ticks.sort((a, b) => a - b);
}

const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";
tip.hidden = true;
/** A tooltip with the lines that `describe` returns for a point. */
const shows = (describe) => (_, event, item, value) => {
  tip.hidden = value === null || value === undefined;
  if (tip.hidden) return;
  tip.textContent = describe(item.datum).join("\n");
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4))}px`;
};

/** The known values at their instants. `line` is the same for values without a gap between them. */
function lines(instants, values) {
  let line = 0;
  return values.flatMap((value, i) => {
    if (!joins(instants, values, i)) line += 1;
    return value === null ? [] : [{ t_ms: instants[i][2], value, line, i }];
  });
}

function cells(row, texts, classes) {
  texts.forEach((text, i) => {
    const cell = row.insertCell();
    cell.textContent = text;
    if (classes[i]) cell.className = classes[i];
  });
}

if (page) {
  drawLag();
  if (page.clients.length) drawGauges();
  if (page.brokers.length) drawBrokers();
  for (const element of document.querySelectorAll(".spark")) drawSpark(element);
}

/** The address of a group on this page, as pipeline/common/words.py writes it. */
function addressOf({ cluster, name }) {
  const quoted = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return `#group/${quoted(cluster)}/${quoted(name)}`;
}

/** The group that an address of this page names. */
function groupAt(address) {
  const found = address.startsWith("#group/") ? page.groups.findIndex((group) => addressOf(group) === address) : -1;
  return found < 0 ? null : found;
}

function drawLag() {
  const FEW = 60; // Up to this many instants, every point is a dot; with more, only those that a line would hide.
  const redrawStrips = keepStrips();
  let picked = null, unit = "records", view = null;

  const isGrey = (i) => page.groups[i].colour === null || page.groups[i].colour.includes("other");

  /** The known points of a group in the unit. Points without a gap between them form one line. */
  function points(number) {
    const group = page.groups[number];
    const instants = page.instants[group.cluster];
    const colour = group.colour ?? "var(--series-other)";
    return lines(instants, group[unit]).map(({ t_ms, value, line, i }) => {
      const unknown = group.unknown[unit][i] ?? 0;
      const isAlone = !joins(instants, group[unit], i) && !joins(instants, group[unit], i + 1);
      return {
        group: number, t_ms, value, unknown, line: `${number}.${line}`, colour,
        fill: unknown ? "var(--surface)" : colour,
        is_coloured: !isGrey(number),
        is_drawn: instants.length <= FEW || unknown > 0 || isAlone,
      };
    });
  }

  const describe = shows(({ group, t_ms, value, unknown }) => [
    page.groups[group].name, page.groups[group].cluster, `${utc(t_ms)} UTC`, `${unit === "age" ? "age" : "lag"} ${inUnit(value, unit)}`,
    ...(unknown ? [`${count(unknown)} partitions unknown`] : []),
  ]);

  async function draw() {
    const charted = page.groups.map((_, i) => i).filter((i) => page.groups[i].colour !== null || i === picked);
    // Grey lines come first, so that the coloured ones are drawn over them.
    const all = [...charted.filter(isGrey), ...charted.filter((i) => !isGrey(i))].flatMap(points);
    const specification = document.getElementById("log").checked ? page.charts.log_lag : page.charts.lag;
    const ticks = powers(all.map((point) => point.value));
    view = await embed("#drawing", specification, { points: all }, { picked, unit: unit === "age" ? "ms" : unit, ticks }, describe);
  }

  function pick(number) {
    const hadLine = number === null || page.groups[number].colour !== null;
    picked = number;
    if (hadLine && view) view.signal("picked", picked).runAsync();
    else draw();
    choice.value = picked === null ? "" : String(picked);
    for (const button of document.querySelectorAll(".pick")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.g) === picked));
    }
    // Without an entry in the browser's history: going back leaves the page.
    const address = picked === null ? location.hash : addressOf(page.groups[picked]);
    if (location.hash !== address) location.replace(address);
    showGroup(picked, unit);
  }

  const choice = document.getElementById("pick");
  choice.append(...page.groups.map(({ name, cluster }, i) => new Option(`${name} · ${cluster}`, i)));
  choice.addEventListener("change", (event) =>
    pick(event.target.value === "" ? null : Number(event.target.value)));
  document.getElementById("unit").addEventListener("change", (event) => {
    unit = event.target.value;
    redrawStrips(unit);
    draw();
    if (picked !== null) showHistory(page.groups[picked], unit);
  });
  document.getElementById("log").addEventListener("change", draw);
  for (const button of document.querySelectorAll(".pick")) {
    button.addEventListener("click", () => {
      const number = Number(button.dataset.g);
      pick(number === picked ? null : number);
      if (picked !== null && button.closest("table")) document.getElementById("group").scrollIntoView();
    });
  }
  for (const link of document.querySelectorAll('a[data-g]')) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      pick(Number(link.dataset.g));
      document.getElementById("group").scrollIntoView();
    });
  }
  draw();
  const follow = () => {
    const number = groupAt(location.hash);
    if (number === null || number === picked) return;
    pick(number);
    document.getElementById("group").scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
  if (picked === null && page.picked !== null) pick(page.picked);
}

/** Shows one group: its ladders, its rates and its values. If `number` is null, hides them. */
function showGroup(number, unit) {
  const section = document.getElementById("group");
  section.hidden = number === null;
  if (number === null) return;
  const group = page.groups[number];
  const instants = page.instants[group.cluster];
  document.getElementById("group-title").textContent = group.name;
  const facts = [`Cluster ${group.cluster}.`, ...(group.owner ? [`Owner: ${group.owner}.`] : []),
    ...(group.outlook ? [`Forecast: ${group.outlook}.`] : []), ...(group.objectives ?? [])];
  const of = group.partitions.length;
  if (of && group.left_out > 0) facts.push(`The worst ${of} of its ${count(of + group.left_out)} partitions:`);
  else if (!of && group.colour === null) facts.push("This page has the partitions of the worst groups only.");
  document.getElementById("group-facts").textContent = facts.join(" ");
  document.getElementById("ladders").replaceChildren(...group.partitions.map(ladderOf));
  showHistory(group, unit);
  showRates(group, instants);

  const table = document.querySelector("#values table");
  table.caption.textContent = `${group.name}, cluster ${group.cluster}, newest first.`;
  table.tBodies[0].replaceChildren();
  const classes = ["", "n", "n", "n", "n", "n"];
  for (let i = instants.length - 1; i >= 0; i -= 1) {
    if (group.records[i] === null) continue;
    const row = ["records", "bytes", "ms", "age"].map((unit) => inUnit(group[unit][i], unit));
    cells(table.tBodies[0].insertRow(), [utc(instants[i][0]), ...row, count(group.unknown.records[i] ?? 0)], classes);
    if (i && !joins(instants, group.records, i)) cells(table.tBodies[0].insertRow(), ["a gap", "", "", "", "", ""], classes);
  }
}

/** A partition's name, reader and ladder. */
function ladderOf(partition) {
  const figure = document.createElement("figure");
  const caption = figure.appendChild(document.createElement("figcaption"));
  const title = caption.appendChild(document.createElement("b"));
  title.textContent = `${partition.topic} ${partition.partition}`;
  const parts = [`offsets: ${partition.offset_status ?? "unknown"}`];
  if (partition.client_id) parts.unshift(`read by ${partition.client_id}${partition.host ? ` at ${partition.host}` : ""}`);
  if (partition.headroom !== undefined) {
    const more = [partition.headroom_bytes !== undefined && inUnit(partition.headroom_bytes, "bytes"),
      partition.headroom_ms !== undefined && inUnit(partition.headroom_ms, "ms")].filter(Boolean);
    parts.push(`headroom ${count(partition.headroom)} offsets${more.length ? ` (${more.join(", ")})` : ""}`);
  }
  if (partition.consumer_age_ms !== undefined && partition.consumer_lag > 0) {
    parts.push(`the oldest record that is not committed is ${inUnit(partition.consumer_age_ms, "ms")} old`);
  }
  if (partition.offset_status === "no_commit" && partition.log_start_offset !== undefined) {
    const most = partition.high_watermark - Math.max(partition.log_start_offset, partition.consumed_offset ?? 0);
    parts.push(`not committed yet: up to ${count(Math.max(most, 0))} offsets`);
  }
  if (partition.stale_lag !== undefined) parts.push(`${count(partition.stale_lag)} offsets that the client's own lag does not see`);
  caption.append(` · ${parts.join(" · ")}`);
  const drawing = ladder(partition);
  if (drawing) figure.append(drawing);
  return figure;
}

/** The bands behind a group's charts: how long its findings last, and a narrow one at each other event. */
function bandsOf(group, instants) {
  const [first, last] = [instants[0][2], instants.at(-1)[2]];
  const read = new Map(instants.map(([id, , at]) => [id, at]));
  const at = (id) => Math.min(Math.max(read.get(id) ?? id, first), last);
  const narrow = Math.max((last - first) / 300, 1);
  const spans = group.spans.filter(([begin, end]) => end >= instants[0][0] && begin <= instants.at(-1)[0])
    .map(([begin, end, severity]) => ({
      t_ms: at(begin), end_ms: Math.max(at(end), at(begin) + narrow), colour: severity === "critical" ? "var(--bad)" : "var(--warn)" }));
  const changes = group.events.filter(([id, level]) => level === "plain" && id >= instants[0][0])
    .map(([id]) => ({ t_ms: at(id), end_ms: at(id) + narrow, colour: "var(--series-2)" }));
  return [...spans, ...changes];
}

/** The group's lag over what happened to it, and a table of what happened, newest first. */
function showHistory(group, unit) {
  const part = document.getElementById("happened");
  part.hidden = !group.events;
  if (part.hidden) return;
  const instants = page.instants[group.cluster];
  const name = { records: "lag in offsets", bytes: "lag in bytes", ms: "lag in time", age: "age" }[unit];
  const points = lines(instants, group[unit]).map((point) => ({ ...point, colour: "var(--series-1)" }));
  const describe = shows(({ t_ms, value }) => value === undefined ? [] : [`${utc(t_ms)} UTC`, `${name} ${inUnit(value, unit)}`]);
  const span = { first: instants[0][2], last: Math.max(instants.at(-1)[2], instants[0][2] + 1) };
  embed("#history", page.charts.series, { points, bands: bandsOf(group, instants) }, { unit: unit === "age" ? "ms" : unit, ...span }, describe);
  const table = document.getElementById("events");
  table.tBodies[0].replaceChildren();
  for (const [at, level, sentence] of [...group.events].reverse()) {
    const row = table.tBodies[0].insertRow();
    row.className = level;
    cells(row, [utc(at), sentence], ["nowrap", ""]);
  }
  table.closest(".scroll").hidden = group.events.length === 0;
}

function showRates(group, instants) {
  const part = document.getElementById("rates-part");
  part.hidden = !group.produced?.some((value) => value !== null);
  if (part.hidden) return;
  const named = [["written", group.produced, "var(--series-2)"], ["committed", group.consumed, "var(--series-4)"]];
  const points = named.flatMap(([name, values, colour]) => lines(instants, values).map((point) => ({ ...point, name, colour, line: name + point.line })));
  const describe = shows(({ t_ms, value, name }) => [`${utc(t_ms)} UTC`, `${count(value)} offsets ${name} a second`]);
  const span = { first: instants[0][2], last: Math.max(instants.at(-1)[2], instants[0][2] + 1) };
  embed("#rates", page.charts.series, { points, bands: bandsOf(group, instants) }, span, describe);
  const table = document.getElementById("rates-table");
  table.hidden = !group.rates?.length;
  table.tBodies[0].replaceChildren();
  for (const texts of group.rates ?? []) cells(table.tBodies[0].insertRow(), texts, ["", "n", "n"]);
  document.getElementById("rates-bytes").textContent = group.why_no_bytes ?? "";
}

function drawGauges() {
  const choice = document.getElementById("client");
  page.clients.forEach((client, i) => choice.append(new Option(
    `${client.client}${client.group && client.group !== client.client ? ` · ${client.group}` : ""} · ${client.cluster}`, i)));
  function draw() {
    const { cluster, rows } = page.clients[choice.value];
    const instants = page.instants[cluster] ?? [];
    const known = new Map(rows.map((row) => [row[0], row]));
    const all = instants.map(([at]) => known.get(at) ?? [at, null, null, null, null, null]);
    const named = [["consumer lag", 3, "var(--series-1)"], ["fetcher lag", 2, "var(--series-2)"], ["gauge", 1, "var(--series-3)"]];
    const points = named.flatMap(([name, column, colour]) => lines(instants, all.map((row) => row[column]))
      .map((point) => ({ ...point, name, colour, line: name + point.line })));
    const bands = all.flatMap((row, i) => {
      if (!["blind", "stale"].includes(row[5])) return [];
      const isNext = i && instants[i][1] === instants[i - 1][1] && known.has(all[i - 1][0]);
      return [{ t_ms: instants[isNext ? i - 1 : i][2], end_ms: instants[i][2], colour: "var(--bad)" }];
    });
    const describe = shows(({ t_ms, value, name }) => [`${utc(t_ms)} UTC`, `${name} ${count(value)}`]);
    embed("#gauge", page.charts.series, { points, bands }, {}, describe);
    const last = rows.at(-1);
    document.getElementById("gauge-verdict").textContent = last[5] === null
      ? `Whether the gauge is right is not known at ${utc(last[0])} UTC, when it was last reported.`
      : `At ${utc(last[0])} UTC, when it was last reported, the gauge is ${last[5]}.`;
    const table = document.getElementById("gauge-values");
    table.tBodies[0].replaceChildren();
    for (const row of [...rows].reverse()) {
      const texts = [utc(row[0]), ...row.slice(1, 5).map((value) => inUnit(value, "records")), row[5] ?? "unknown"];
      cells(table.tBodies[0].insertRow(), texts, ["", "n", "n", "n", "n", ""]);
    }
  }
  choice.addEventListener("change", draw);
  draw();
}

function drawBrokers() {
  const choice = document.getElementById("measure");
  const value = ({ steps, count: known, unknown }, part) => steps.find(([, below]) => below >= part * (known + unknown))?.[0];
  function draw() {
    const unit = choice.value === "kip532_ms" ? "ms" : "bytes";
    const brokers = page.brokers.filter((broker) => broker.measure === choice.value);
    const colour = (i) => i < 8 ? `var(--series-${i + 1})` : "var(--series-other)";
    const name = ({ cluster, broker }) => `${cluster} ${broker}`;
    const points = brokers.flatMap((broker, i) => [[0, 0], ...broker.steps].map(([at, below]) => (
      { value: at, share: broker.count ? below / (broker.count + broker.unknown) : 0, name: name(broker), colour: colour(i), line: i })));
    const describe = shows((point) => [point.name, `${Math.round(point.share * 100)} % have at most ${inUnit(point.value, unit)}`]);
    const ticks = powers(points.map((point) => point.value)).filter((tick, i, all) => all.length < 9 || i % 2 === 0);
    document.getElementById("distribution-empty").textContent = brokers.some((broker) => broker.count) ? ""
      : "Not known for any reader at this snapshot: too few snapshots have seen these logs grow. Each snapshot adds to what is known.";
    embed("#distribution", page.charts.steps, { points }, { unit, ticks }, describe);
    const table = document.getElementById("broker-values");
    table.tBodies[0].replaceChildren();
    brokers.forEach((broker, i) => {
      const row = table.tBodies[0].insertRow();
      const atEnd = broker.steps.length && broker.steps[0][0] === 0 ? broker.steps[0][1] : 0;
      const quantiles = [0.5, 0.9, 0.99, 1].map((part) => inUnit(value(broker, part), unit));
      cells(row, [name(broker), count(broker.count + broker.unknown), count(broker.unknown), count(atEnd), ...quantiles],
        ["", "n", "n", "n", "n", "n", "n", "n"]);
      row.cells[0].style.boxShadow = `inset 4px 0 ${colour(i)}`;
    });
  }
  choice.addEventListener("change", draw);
  draw();
}
