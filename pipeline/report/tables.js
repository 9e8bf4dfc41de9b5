"use strict";

// Sorting: a heading's button sorts by the data-v of the cells, or by their text. Unknown values are always last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.firstElementChild?.addEventListener("click", () => {
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

// Searching: shows only the groups whose name, cluster or client contains the text.
const find = document.getElementById("find");
find?.addEventListener("input", () => {
  const wanted = find.value.toLowerCase();
  const rows = [...document.querySelector("#groups-table tbody").rows];
  const names = (row) => `${row.cells[0].textContent}\n${row.querySelector(".clients").textContent}`.toLowerCase();
  for (const row of rows) row.hidden = !names(row).includes(wanted);
  const found = rows.filter((row) => !row.hidden).length;
  document.getElementById("found").textContent = wanted ? `${found.toLocaleString("en")} found` : "";
});
