// Below a group's lag, on the same time axis: what has changed in the group, and when its objectives were missed.
const LANES = [["joined", "▲", "member", "joined"], ["left", "▼", "member", "left"], ["restarted", "●", "member", "restarted"],
  ["moved", "■", "partition", "moved, assigned or unassigned"]];

const plural = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;

/** A text of 12 px that fits into a width. */
const shortened = (text, width) => text.length > width / 6.6 ? `${text.slice(0, Math.max(Math.floor(width / 6.6) - 1, 0))}…` : text;

/** Where in a chart of `plot` an instant is; `span` is the time that it shows. */
const placeIn = (plot, [first, last]) => (ms) => plot.left + plot.width * (ms - first) / (last - first);

/** The changes of a lane that are seen, those that would touch taken together: { x, n, texts }. */
function marksOf(group, lane, instants, at, isSeen) {
  const read = new Map(instants.map(([id, , ms]) => [id, ms]));
  const said = new Map(group.events.filter(([, level]) => level === "plain").map(([id, , sentence]) => [id, sentence]));
  const marks = [];
  for (const row of group.changes) {
    const [id, n] = [row[0], row[lane + 1]];
    if (!n) continue;
    const x = at(read.get(id) ?? id);
    if (!isSeen(x)) continue;
    const text = `${utc(id)} UTC: ${said.get(id) ?? ""}`;
    const before = marks.at(-1);
    if (before && x - before.x < 14) {
      before.n += n;
      before.texts.push(text);
    } else marks.push({ x, n, texts: [text] });
  }
  return marks;
}

/** The spans of positions as places: from the snapshot before, if none is missing in between, to the last of them. */
const barsOf = (ranges, instants, at) => ranges.map(([a, b]) => {
  const begins = a && instants[a - 1][1] === instants[a][1] ? a - 1 : a;
  return [at(instants[begins][2]), at(instants[b][2])];
});

/** In words, for those who do not see the strip. */
function changesInWords(group) {
  const sums = LANES.map(([, , what, verb], i) => [group.changes.reduce((sum, row) => sum + row[i + 1], 0), what, verb]);
  const changes = sums.filter(([n]) => n).map(([n, what, verb]) => `${plural(n, what)} ${verb}`);
  const missed = group.targets.map(({ name, missed }) => missed.length ? `objective ${name} was missed ${plural(missed.length, "time")}` : `objective ${name} was not missed`);
  return [...changes, ...missed].join("; ");
}

/** Draw the strip below the chart whose plot is `plot`, in pixels of the element. */
function drawChanges(element, group, span, plot, width) {
  const instants = page.instants[group.cluster];
  const at = placeIn(plot, span);
  const end = plot.left + plot.width;
  const isSeen = (x, to = x) => to >= plot.left - 1 && x <= end + 1;
  const lanes = LANES.map((lane, i) => [lane, i]).filter(([, i]) => group.changes.some((row) => row[i + 1]));
  const targets = group.targets.filter((target) => target.missed.length || target.unknown.length);
  const height = 20 * lanes.length + 34 * targets.length + 4;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "presentation", class: "changes" });
  const hatch = svg("pattern", { id: "changes-hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  hatch.append(svg("path", { d: "M0,0V6", class: "hatch" }));
  drawing.append(hatch);
  let y = 14;
  for (const [[name, sign], i] of lanes) {
    drawing.append(svg("path", { d: `M${plot.left},${y + 6}H${end}`, class: "lane" }), svg("text", { x: plot.left - 8, y, "text-anchor": "end" }, name));
    const marks = marksOf(group, i, instants, at, isSeen);
    marks.forEach(({ x, n, texts }, k) => {
      const mark = svg("g", { class: `mark ${name}` });
      const isRoomy = (marks[k + 1]?.x ?? end) - x > 14 + 7 * count(n).length && x + 14 + 7 * count(n).length < width;
      mark.append(svg("rect", { x: x - 7, y: y - 13, width: 14, height: 19, class: "hit" }), svg("text", { x, y, "text-anchor": "middle" }, sign));
      if (n > 1 && isRoomy) mark.append(svg("text", { x: x + 8, y, class: "count" }, count(n)));
      const more = texts.length > 6 ? [`and ${count(texts.length - 6)} more snapshots`] : [];
      hovers(mark, () => [`${plural(n, LANES[i][2])} ${LANES[i][3]}`, ...texts.slice(0, 6), ...more]);
      drawing.append(mark);
    });
    y += 20;
  }
  for (const { name, objective, missed, unknown } of targets) {
    drawing.append(svg("text", { x: plot.left, y, class: "count" }, shortened(`objective ${name}: ${objective}`, plot.width)), svg("text", { x: plot.left - 8, y: y + 15, "text-anchor": "end" }, "missed"));
    drawing.append(svg("path", { d: `M${plot.left},${y + 20}H${end}`, class: "lane" }));
    for (const [ranges, kind, text] of [[missed, "missed", "missed"], [unknown, "unknown", "not known whether it was met"]]) {
      for (const [[a, b], [from, to]] of ranges.map((range, i) => [barsOf(ranges, instants, at)[i], range])) {
        if (!isSeen(a, b)) continue;
        const [x, right] = [Math.max(a, plot.left), Math.min(b, end)];
        const rect = svg("rect", { x, y: y + 6, width: Math.max(right - x, 2), height: 11, class: kind });
        if (kind === "unknown") rect.setAttribute("fill", "url(#changes-hatch)");
        hovers(rect, () => [`objective ${name} (${objective})`, text, `${utc(instants[from][2])} to ${utc(instants[to][2])} UTC`]);
        drawing.append(rect);
      }
    }
    y += 34;
  }
  element.hidden = !lanes.length && !targets.length;
  element.setAttribute("aria-label", `What changed in the group over time: ${changesInWords(group)}. The table below has each change.`);
  element.replaceChildren(drawing);
  return { top: 0, height };
}
