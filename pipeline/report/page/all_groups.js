
// All groups of each cluster together, as one line a cluster; its newest values are in the legend.
if (page && document.getElementById("all-drawing")) {
  const choice = document.getElementById("all-unit");
  const groups = (n) => `${count(n)} group${n === 1 ? "" : "s"}`;
  const colourOf = (i) => `var(--series-${i % 8 + 1})`;

  const describe = shows(({ group, t_ms, value, unknown, of_groups }) => [
    page.all_groups[group].cluster, `${utc(t_ms)} UTC`, groups(of_groups), inUnit(value, choice.value),
    ...(unknown ? [`${groups(unknown)} not wholly known`] : []),
  ]);

  const draw = () => {
    const unit = choice.value;
    const all = page.all_groups.flatMap((cluster, group) => {
      const instants = page.instants[cluster.cluster];
      return lines(instants, cluster[unit]).map(({ t_ms, value, line, i }) => {
        const unknown = cluster.unknown[unit][i];
        const colour = colourOf(group);
        const fill = unknown ? "var(--surface)" : colour;
        const is_drawn = instants.length <= 60 || unknown > 0;
        return { group, t_ms, value, unknown, of_groups: cluster.groups[i], line: `${group}.${line}`, colour, fill, is_coloured: true, is_drawn };
      });
    });
    embed("#all-drawing", page.charts.lag, { points: all }, { picked: null, unit: unit === "age" ? "ms" : unit }, describe, times.whole());
  };

  document.getElementById("all-values").append(...page.all_groups.map((cluster, i) => {
    const item = document.createElement("li");
    const line = document.createElement("i");
    line.style.background = colourOf(i);
    const newest = (unit) => inUnit(cluster[unit].at(-1), unit);
    const text = `${cluster.cluster}: ${newest("records")} offsets, ${newest("bytes")}, oldest ${newest("age")}, in ${groups(cluster.groups.at(-1) ?? 0)}`;
    item.className = "rest";
    item.append(line, text);
    return item;
  }));
  choice.addEventListener("change", draw);
  draw();
}
