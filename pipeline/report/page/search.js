
// Searching: shows only the groups and cards that contain every word in a name, cluster, topic, client, host or owner.
{
  const field = document.getElementById("find");
  const rows = [...document.querySelectorAll("#groups-table tbody tr")];
  const cards = [...document.querySelectorAll(".card")];
  const numbered = new Map(rows.map((row) => [row.dataset.row, row]));
  const ofRow = (row) => [row.cells[0].textContent, row.querySelector(".clients").textContent, row.dataset.names ?? ""].join("\n");
  const ofCard = (card) => [...card.querySelectorAll("h3, header small, dl")].map((part) => part.textContent)
    .concat(numbered.has(card.dataset.row) ? ofRow(numbered.get(card.dataset.row)) : []).join("\n");

  const search = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (text) => words.every((word) => text.toLowerCase().includes(word));
    for (const row of rows) row.hidden = !matches(ofRow(row));
    for (const card of cards) card.hidden = !matches(ofCard(card));
    const [groups, problems] = [rows, cards].map((all) => all.filter((one) => !one.hidden).length);
    const cut = rows.filter((row) => row.hasAttribute("data-cut")).length;
    const more = cut ? ` Not all names of ${cut.toLocaleString("en")} group${cut === 1 ? "" : "s"} can be searched.` : "";
    const some = `${groups.toLocaleString("en")} of ${rows.length.toLocaleString("en")} groups, ${problems} of ${cards.length} cards.`;
    const none = "Nothing found: no name, cluster, topic, client, host or owner of a group contains this.";
    document.getElementById("found").textContent = words.length ? (groups || problems ? some : none) + more : "";
    document.getElementById("no-groups")?.toggleAttribute("hidden", groups > 0 || !rows.length);
  };
  field?.addEventListener("input", search);
  field?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    field.value = "";
    search();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !field) return;
    if (event.target.closest?.("input, select, textarea")) return;
    event.preventDefault();
    field.focus();
  });
}
