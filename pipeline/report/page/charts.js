// The charts. Vega draws them from specifications that contain no data; this script adds the points.
/** A limit is drawn if it is at most this many times the greatest value, so that it does not make the chart flat. */
const LIMIT_REACH = 3;
// `natural` is the time that a chart shows without a zoom; without it, the chart has no time axis. `after` runs after each drawing.
const embed = async (selector, specification, sets, signals = {}, tooltip = false, natural = null, after = () => {}) => {
  const copy = structuredClone(specification);
  const element = document.querySelector(selector);
  // The ends of the axes are set here, because Vega logs a warning for an empty data set.
  const ends = () => {
    if (!natural) return { low: 0, high: Math.max(1, ...sets.points.map(({ value }) => value)), first: 0, last: 1 };
    const [first, last] = times.within(natural);
    const isSeen = ({ t_ms }) => t_ms >= first && t_ms <= last;
    const values = [...sets.points.filter(isSeen).map(({ value }) => value), ...(sets.ahead ?? []).filter(isSeen).map((one) => one.high)];
    const most = values.reduce((a, b) => Math.max(a, b), 1);
    const high = (sets.limits ?? []).reduce((a, { value }) => value <= LIMIT_REACH * most ? Math.max(a, value) : a, most);
    return { low: values.reduce((a, b) => Math.min(a, b), 0), high, first, last, caption: `UTC, ${utc(first).slice(0, 16)} to ${utc(last).slice(0, 16)}` };
  };
  signals = { ...signals, ...ends() };
  for (const [name, values] of Object.entries(sets)) {
    copy.data.find((set) => set.name === name).values = values.map((value) => ({ ...value }));
  }
  const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false, tooltip };
  for (const signal of copy.signals) if (signal.name in signals) signal.value = signals[signal.name];
  // In an element of its own, because Vega replaces the role and the label of the element that it draws in.
  const inner = document.createElement("div");
  element.replaceChildren(inner);
  const { view } = await vegaEmbed(inner, copy, options);
  if (!natural || !inner.isConnected) return view;
  const draw = async () => {
    for (const [name, value] of Object.entries(ends())) view.signal(name, value);
    await view.runAsync();
    if (inner.isConnected) after(view);
  };
  times.add(element, { natural, draw, box: () => {
    const { left, top } = inner.querySelector("svg").getBoundingClientRect();
    const [x, y] = originOf(view);
    return { left: left + x, top: top + y, width: view.width(), height: view.height() };
  } });
  // A drawing that was replaced is still resized. What is below the chart is no longer about its group.
  view.addResizeListener(() => requestAnimationFrame(() => inner.isConnected && after(view)));
  if (String(times.within(natural)) === String([signals.first, signals.last])) after(view);
  else await draw();
  return view;
};

/** Where in its drawing the plot of a chart begins. */
function originOf(view) {
  const { left, top } = view.padding();
  return [view.origin()[0] + left, view.origin()[1] + top];
}

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
addEventListener("pointerdown", () => { tip.hidden = true; }, true);
/** A tooltip with the lines that `describe` returns for a point. */
const shows = (describe) => (_, event, item, value) =>
  tipAt(event, value === null || value === undefined ? [] : describe(item.datum));
/** The tooltip with these lines at a place of the window; without lines, none. */
function tipAt(event, texts) {
  tip.hidden = texts.length === 0;
  if (tip.hidden) return;
  tip.textContent = texts.join("\n");
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4))}px`;
}

function hovers(element, texts) {
  for (const type of ["pointermove", "pointerdown"]) element.addEventListener(type, (event) => tipAt(event, texts()));
  element.addEventListener("pointerleave", (event) => event.pointerType === "touch" || tipAt(event, []));
}

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
function groupAt(hash) {
  const address = hash.replace(/@[^@]*$/, "");
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
    view = await embed("#drawing", specification, { points: all }, { picked, unit: unit === "age" ? "ms" : unit, ticks }, describe, times.whole());
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
    const address = picked === null ? location.hash : addressOf(page.groups[picked]) + times.suffix();
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
    const [begin, end] = [0, -1].map((i) => instants.at(i)?.[2] ?? rows.at(i)[0]);
    embed("#gauge", page.charts.series, { points, bands }, {}, describe, [begin, Math.max(end, begin + 1)]);
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
