// Tables sorted by a click on a column's head: numbers from the largest, words from A, then as they came.

import { all, download } from "../shared/dom.js";
import { DATA } from "./data.js";

export function connectTables() {
  for (const box of all(".scroll")) box.addEventListener("scroll", markWide, { passive: true });
  for (const fold of all("details")) fold.addEventListener("toggle", markWide);
  for (const table of all("table[data-sortable]")) {
    const rows = all("tbody tr", table);
    rows.forEach((row, i) => { row.dataset.order = i; });
    for (const head of all("thead th[data-column]", table)) {
      head.querySelector("button").addEventListener("click", () => sortBy(table, head));
    }
  }
}

function sortBy(table, head) {
  const column = Number(head.dataset.column);
  const cells = all("tbody tr", table).map((row) => row.children[column]);
  const numeric = cells.some((cell) => cell?.dataset.value !== undefined);
  const order = numeric ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
  const next = order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
  for (const other of all("thead th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", next);
  const body = table.tBodies[0];
  const rows = all("tr", body);
  rows.sort((a, b) => compare(a, b, column, next, numeric));
  body.append(...rows);
  table.classList.toggle("sorted", next !== "none");
}

// Rows without a number always come last.
function compare(a, b, column, direction, numeric) {
  const original = a.dataset.order - b.dataset.order;
  if (direction === "none") return original;
  const sign = direction === "ascending" ? 1 : -1;
  const [left, right] = [a.children[column], b.children[column]];
  if (!numeric) return sign * left.textContent.localeCompare(right.textContent, "en", { numeric: true }) || original;
  const [x, y] = [left, right].map((cell) => (cell?.dataset.value === undefined ? NaN : Number(cell.dataset.value)));
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || original;
  return sign * (x - y) || original;
}

// A table that continues to the right fades there.
export function markWide() {
  for (const box of all(".scroll")) {
    box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 4);
  }
}

// The table as text, from the page itself: it also works when the page was moved away from its folder.
export function connectDownloads() {
  for (const button of all("[data-download]")) {
    button.addEventListener("click", () => {
      const { table, download: kind } = button.dataset;
      const { name, texts } = DATA.tables[Number(table)];
      download(`${name}.${kind}`, new Blob([texts[kind]], { type: "text/plain" }));
    });
  }
}
