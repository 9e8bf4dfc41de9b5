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
