"use strict";

// Sorting: a heading's button sorts by the cells' data-v, or their text; what is unknown stays last either way.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.firstElementChild.addEventListener("click", () => {
    const descends = heading.getAttribute("aria-sort") !== "descending";
    const isNumber = heading.classList.contains("n");
    const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
    const order = (a, b) => isNumber ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
    const rows = [...table.tBodies[0].rows].sort((r, s) => {
      const [a, b] = [value(r), value(s)];
      if (a === "" || b === "") return (a === "") - (b === "");
      return descends ? order(b, a) : order(a, b);
    });
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", descends ? "descending" : "ascending");
    table.tBodies[0].append(...rows);
  }));
}

const source = document.getElementById("chart-data");
if (source) drawChart(JSON.parse(source.textContent));

function drawChart({ groups, dots, linear, log }) {
  const values = dots.map(([group, t_ms, lag, unknown, line, is_drawn]) =>
    ({ group, t_ms, lag, unknown, line, is_drawn, ...colours(group, unknown) }));
  function colours(group, unknown) {
    const { colour } = groups[group];
    return { colour, fill: unknown ? "var(--surface)" : colour };
  }
  const utc = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
  const count = (n) => n.toLocaleString("en");
  let picked = null, view = null;

  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  tip.hidden = true;
  function showTip(_, event, item, value) {
    tip.hidden = value === null || value === undefined;
    if (tip.hidden) return;
    const { group, t_ms, lag, unknown } = item.datum;
    const lines = [groups[group].name, groups[group].cluster, `${utc(t_ms)} UTC`, `lag ${count(lag)}`];
    if (unknown) lines.push(`${count(unknown)} partitions unknown`);
    tip.textContent = lines.join("\n");
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4))}px`;
  }

  async function draw(specification) {
    specification.data.find((set) => set.name === "dots").values = values.map((dot) => ({ ...dot }));
    const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false, tooltip: showTip };
    view = (await vegaEmbed("#drawing", specification, options)).view;
    view.signal("picked", picked).runAsync();
  }

  function pick(group) {
    picked = group;
    view?.signal("picked", picked).runAsync();
    document.getElementById("pick").value = picked === null ? "" : String(picked);
    for (const button of document.querySelectorAll(".pick")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.g) === picked));
    }
    listValues();
  }

  function listValues() {
    const table = document.querySelector("#values table");
    const own = values.filter((dot) => dot.group === picked).sort((a, b) => b.t_ms - a.t_ms);
    table.caption.textContent = picked === null
      ? "Highlight a group to see its lag at each snapshot."
      : `${groups[picked].name}, cluster ${groups[picked].cluster}, newest first.`;
    table.tBodies[0].replaceChildren();
    own.forEach((dot, i) => {
      if (i && dot.line !== own[i - 1].line) addRow(table, ["a gap", "", ""]);
      addRow(table, [utc(dot.t_ms), count(dot.lag), count(dot.unknown)]);
    });
  }

  function addRow(table, texts) {
    const row = table.tBodies[0].insertRow();
    texts.forEach((text, i) => {
      const cell = row.insertCell();
      cell.textContent = text;
      if (i) cell.className = "n";
    });
  }

  document.getElementById("pick").addEventListener("change", (event) =>
    pick(event.target.value === "" ? null : Number(event.target.value)));
  document.getElementById("log").addEventListener("change", (event) =>
    draw(event.target.checked ? log : linear));
  for (const button of document.querySelectorAll(".pick")) {
    button.addEventListener("click", () => {
      const group = Number(button.dataset.g);
      pick(group === picked ? null : group);
      if (picked !== null && button.closest("table")) document.getElementById("chart").scrollIntoView();
    });
  }
  draw(linear);
}
