"""The page's own style and script; they refer to nothing outside the page."""

STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1c2430; --soft: #5c6675; --line: #d9dee5; --panel: #f5f7f9;
  --c0: #2166a5; --c1: #d07a1f; --c2: #3d8f5f; --c3: #8659a8; --good: #1c7a43; --bad: #b3372b; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14181d; --text: #e4e8ee; --soft: #9aa5b3; --line: #333b45; --panel: #1d232a;
    --c0: #6cabe6; --c1: #eda657; --c2: #70c593; --c3: #bd98dc; --good: #6fce95; --bad: #f28b7e; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 4rem; }
body { margin: 0 auto; padding: 0 1.25rem 4rem; max-width: 70rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
header { padding: 1.75rem 0 .5rem; }
h1 { margin: 0; font-size: 1.7rem; line-height: 1.25; }
h2 { margin: 2.75rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); font-size: 1.3rem; }
h3 { margin: 1.75rem 0 .5rem; font-size: 1.05rem; }
p { margin: .5rem 0; max-width: 48rem; }
a { color: var(--c0); }
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
nav { position: sticky; top: 0; z-index: 1; padding: .55rem 0; background: var(--page);
  border-bottom: 1px solid var(--line); }
nav ul { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; margin: 0; padding: 0; list-style: none; }
nav a { text-decoration: none; }
.note, .soft, small { color: var(--soft); font-size: .87rem; }
small { white-space: nowrap; }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding: 0; list-style: none; }
.tiles li { min-width: 9rem; padding: .6rem .9rem; border: 1px solid var(--line); border-radius: 6px;
  background: var(--panel); }
.tiles strong { display: block; font-size: 1.55rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.worth { padding: .5rem 1rem .5rem 2rem; border-left: 4px solid var(--c1); background: var(--panel); }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { color: var(--soft); font-size: .87rem; font-weight: 600; vertical-align: bottom; white-space: nowrap; }
td:first-child { min-width: 7rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(21rem, 100%), 1fr)); gap: 0 2rem;
  margin: .75rem 0; }
dl div { display: flex; justify-content: space-between; gap: 1rem; padding: .25rem 0;
  border-bottom: 1px solid var(--line); }
dt { color: var(--soft); }
dd { margin: 0; text-align: right; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.number { text-align: right; white-space: nowrap; }
.sortable th { cursor: pointer; }
.sortable th[aria-sort=ascending]::after { content: " ▲"; }
.sortable th[aria-sort=descending]::after { content: " ▼"; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--c0); }
figure { margin: 1rem 0 1.5rem; max-width: 48rem; }
figcaption { font-weight: 600; }
.chart { display: block; width: 100%; height: auto; }
.chart text { fill: var(--soft); font-size: 12px; }
.chart .name { fill: var(--text); }
.chart .middle { text-anchor: middle; }
.chart .end { text-anchor: end; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1.2rem; margin: .2rem 0; padding: 0; list-style: none;
  font-size: .87rem; }
.swatch { width: .7rem; height: .7rem; margin-right: .4rem; }
.meter { display: block; width: 9rem; height: .6rem; margin-top: .4rem; }
.track { fill: var(--line); }
.grid { stroke: var(--line); stroke-width: 1; }
.diagonal { fill: none; stroke: var(--soft); stroke-width: 1; stroke-dasharray: 4 4; }
.curve { fill: none; stroke-width: 2; }
.whisker { stroke: var(--text); stroke-width: 1.5; }
.fill0 { fill: var(--c0); } .fill1 { fill: var(--c1); } .fill2 { fill: var(--c2); } .fill3 { fill: var(--c3); }
.line0 { stroke: var(--c0); } .line1 { stroke: var(--c1); } .line2 { stroke: var(--c2); } .line3 { stroke: var(--c3); }
.examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(21rem, 1fr)); gap: .8rem; }
.example { padding: .7rem .9rem; border: 1px solid var(--line); border-radius: 6px; background: var(--panel);
  overflow-wrap: anywhere; }
.example h4 { margin: 0; font-size: .95rem; }
.example ol, .example ul { margin: .4rem 0; padding: 0; list-style: none; }
.example li { padding-left: 1.3em; text-indent: -1.3em; }
.hit { color: var(--good); } .miss { color: var(--bad); } .spare { color: var(--soft); }
.hit, .miss, .spare { display: inline-block; width: 1.3em; text-indent: 0; font-weight: 700; }
@media print { nav { display: none; } body { max-width: none; } figure, .example { break-inside: avoid; } }
@media (max-width: 40rem) { .examples { grid-template-columns: 1fr; } }
"""

SCRIPT = """
if (window !== window.top) {
  /* Inside another page, a link to a place in this one could load that other page instead. */
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    const place = link && document.getElementById(link.getAttribute("href").slice(1));
    if (!place) return;
    event.preventDefault();
    place.scrollIntoView();
  });
}
const key = (row, column) => {
  const cell = row.cells[column];
  if (!cell.classList.contains("number")) return cell.textContent;
  return "value" in cell.dataset ? Number(cell.dataset.value) : null;
};
const sort = (table, column) => {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const isNumber = body.rows[0].cells[column].classList.contains("number");
  const before = heads[column].getAttribute("aria-sort");
  const rising = before ? before === "descending" : !isNumber;
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", rising ? "ascending" : "descending");
  body.append(...[...body.rows].sort((one, other) => {
    const a = key(one, column), b = key(other, column);
    if (a === null || b === null) return (a === null) - (b === null);
    return (isNumber ? a - b : a.localeCompare(b)) * (rising ? 1 : -1);
  }));
};
for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.tabIndex = 0;
    head.title = "Sort by this column";
    head.addEventListener("click", () => sort(table, column));
    head.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort(table, column);
    });
  });
}
"""
