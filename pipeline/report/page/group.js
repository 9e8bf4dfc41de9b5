// The section about one group: its lag with what happened and what is ahead, its rates and its partitions.
/** Shows one group: its ladders, its rates and its values. If `number` is null, hides them. */
function showGroup(number, unit) {
  const section = document.getElementById("group");
  section.hidden = number === null;
  if (number === null) return;
  const group = page.groups[number];
  const instants = page.instants[group.cluster];
  document.getElementById("group-title").textContent = group.name;
  const facts = [`Cluster ${group.cluster}.`, ...(group.owner ? [`Owner: ${group.owner}.`] : []),
    ...(group.channel ? [`Messages go to channel ${group.channel}.`] : []),
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
  if (partition.consumer_age_ms > 0 && partition.consumer_lag > 0) {
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

/** The group's forecast, in offsets, or in bytes by what an offset takes now. In time nothing is forecast. */
function aheadOf(group, instants, unit) {
  const [offsets, now] = [group.records.at(-1), group[unit].at(-1)];
  if (!["records", "bytes"].includes(unit) || !offsets || !now) return [];
  return group.ahead.map(([t_ms, ...lags]) => {
    const [low, middle, high] = lags.map((lag) => lag * now / offsets);
    return { t_ms: Math.max(t_ms, instants.at(-1)[2]), low, middle, high, colour: "var(--soft)" };
  });
}

/** The time that a group's charts show without a zoom: its snapshots, and what is ahead. */
function spanOf(group, unit) {
  const instants = page.instants[group.cluster];
  return [instants[0][2], Math.max(instants.at(-1)[2], instants[0][2] + 1, aheadOf(group, instants, unit).at(-1)?.t_ms ?? 0)];
}

/** The objectives whose limit is a line in the chart of the group's lag. */
const limitsOf = (group, unit) => group.targets.filter((target) => target.unit === unit && !target.is_of_sum)
  .map(({ name, limit, topics }) => ({ value: limit, name: `${name}: ${inUnit(limit, unit)}${topics ? ` (topics ${topics})` : ""}` }));

/** Which objectives have no line in the chart, and why. */
function limitFacts(group, unit, high) {
  const texts = group.targets.filter((target) => target.unit === unit).flatMap(({ name, limit, is_of_sum, objective }) => is_of_sum
    ? [`Objective ${name} (${objective}) limits each partition. This chart shows the sum of all partitions, so it has no line for it; the lag by partition below marks what misses it.`]
    : limit > high ? [`The limit of objective ${name}, ${inUnit(limit, unit)}, is far above the values of this chart.`] : []);
  document.getElementById("limit-facts").textContent = texts.join(" ");
}

/** The group's lag over what happened to it, with its changes and its partitions below, and a table of what happened. */
function showHistory(group, unit) {
  const part = document.getElementById("happened");
  part.hidden = !group.events;
  if (part.hidden) return;
  const instants = page.instants[group.cluster];
  const name = { records: "lag in offsets", bytes: "lag in bytes", ms: "lag in time", age: "age" }[unit];
  const points = lines(instants, group[unit]).map((point) => ({ ...point, colour: "var(--series-1)" }));
  const describe = shows(({ t_ms, value }) => value === undefined ? [] : [`${utc(t_ms)} UTC`, `${name} ${inUnit(value, unit)}`]);
  const ahead = aheadOf(group, instants, unit);
  for (const key of document.querySelectorAll(".ahead")) key.hidden = ahead.length === 0;
  const limits = limitsOf(group, unit);
  document.querySelector(".limit").hidden = limits.length === 0;
  const below = (view) => {
    limitFacts(group, unit, view.signal("high"));
    showBelow(group, unit, view);
  };
  embed("#history", page.charts.series, { points, bands: bandsOf(group, instants), ahead, limits }, { unit: unit === "age" ? "ms" : unit },
    describe, spanOf(group, unit), below);
  const table = document.getElementById("events");
  table.tBodies[0].replaceChildren();
  for (const [at, level, sentence] of [...group.events].reverse()) {
    const row = table.tBodies[0].insertRow();
    row.className = level;
    cells(row, [utc(at), sentence], ["nowrap", ""]);
  }
  table.closest(".scroll").hidden = group.events.length === 0;
}

/** What is drawn below the chart of the lag, with the plot at the same place: the group's changes, and its partitions. */
function showBelow(group, unit, view) {
  const natural = spanOf(group, unit);
  const span = times.within(natural);
  const [[left], width, whole] = [originOf(view), view.width(), document.getElementById("history").clientWidth];
  const put = (element, drawn) => times.add(element, { natural, draw: () => {}, hasCursor: drawn.cursor !== undefined, box: () => {
    const around = element.getBoundingClientRect();
    return { left: around.left + left, top: around.top + drawn.top, width, height: drawn.height };
  } });
  const strip = document.getElementById("changes");
  const drawn = drawChanges(strip, group, span, { left, width }, whole);
  if (!strip.hidden) put(strip, drawn);
  const part = document.getElementById("heat-part");
  part.hidden = !group.heat;
  document.getElementById("no-heat").hidden = Boolean(group.heat) || !(group.partitions.length + group.left_out);
  if (part.hidden) return;
  const map = heatOf(group, unit);
  const element = document.getElementById("heat");
  const heat = drawHeat(element, map, span, { left, width }, whole);
  put(element, heat);
  followHeat(element, map, span, { left, width }, heat.cursor);
  const { rows, others, columns, total } = group.heat;
  const hidden = total - rows.length;
  const rest = !hidden ? "" : others ? ` The other ${count(hidden)} have one row together.` : ` ${plural(hidden, "partition")} with less lag ${hidden === 1 ? "is" : "are"} not shown.`;
  document.getElementById("heat-facts").textContent = `${plural(rows.length, "partition")} of ${count(total)}, the worst first in each topic, at ${plural(columns.length, "snapshot")} of ${count(map.instants.length)}.${rest}`;
  const summary = heatSummary(map, span);
  document.getElementById("heat-summary").textContent = summary;
  element.setAttribute("aria-label", `Heat map of the lag by partition and time. ${summary} The table below has each row.`);
  document.getElementById("heat-legend").replaceChildren(...heatLegend(map));
  heatTable(document.getElementById("heat-values"), map, span);
}

function showRates(group, instants) {
  const part = document.getElementById("rates-part");
  part.hidden = !group.written?.some((value) => value !== null);
  if (part.hidden) return;
  const named = [["written", group.written, "var(--series-2)"], ["committed", group.committed, "var(--series-4)"]];
  const points = named.flatMap(([name, values, colour]) => lines(instants, values).map((point) => ({ ...point, name, colour, line: name + point.line })));
  const describe = shows(({ t_ms, value, name }) => [`${utc(t_ms)} UTC`, `${count(value)} offsets ${name} a second`]);
  embed("#rates", page.charts.series, { points, bands: bandsOf(group, instants) }, {}, describe, spanOf(group, "records"));
  const table = document.getElementById("rates-table");
  table.hidden = !group.rates?.length;
  table.tBodies[0].replaceChildren();
  for (const texts of group.rates ?? []) cells(table.tBodies[0].insertRow(), texts, ["", "n", "n"]);
  document.getElementById("rates-bytes").textContent = group.why_no_bytes ?? "";
}
