// A list of which only the rows on the screen are asked for and drawn, sorted by its columns.

import { h } from "./dom.js";

export const ROW_PX = 38;
const MARGIN = 20, LIST = "list";
// Columns of text, which has two lines where one is too short.
const WORDS = new Set(["name", "attention", "where", "which", "host", "member", "does"]);

// A column: name, by which the server sorts; words; the direction of the first click, null where it
// is not sorted by; and what a row's cell has.

const theList = () => document.getElementById(LIST);

// Which rows are seen, with some around them: what the server is asked for.
export function visibleRows(kind) {
  const shown = theList(), list = shown && shown.classList.contains(kind) ? shown : null;
  const height = list ? list.clientHeight : window.innerHeight;
  const first = Math.max(0, Math.floor((list ? list.scrollTop : 0) / ROW_PX) - MARGIN);
  return { first, count: Math.min(200, Math.ceil(height / ROW_PX) + 2 * MARGIN) };
}

export function toTheTop() {
  const list = theList();
  if (list) list.scrollTop = 0;
}

// Whether the rows that the list has are nearly passed.
export function isNearlyPassed(target, data) {
  if (target.id !== LIST || !data || data.first === undefined) return false;
  const first = target.scrollTop / ROW_PX, last = first + target.clientHeight / ROW_PX, end = data.first + data.rows.length;
  return (first < data.first + 5 && data.first > 0) || (last > end - 5 && end < data.total);
}

// What a click on a column's head changes.
export function sortBy(column, natural, query) {
  if (query.sort !== column) return { sort: column, order: natural };
  return { sort: column, order: { up: "down", down: "up" }[query.order || natural] };
}

// kind: the view whose list it is, also for the widths of its columns. keyOf: tells rows apart.
export function list(kind, columns, data, query, keyOf) {
  return h("div", { class: `virtual ${kind}`, id: LIST, key: kind, tabindex: "0", role: "group", "aria-label": "The list, which scrolls" },
    h("table", { "aria-rowcount": data.total + 1 },
      h("thead", {}, h("tr", {}, columns.map(([name, words, natural]) => h("th", { scope: "col", class: `col-${name}`, key: name, "aria-sort": query.sort === name ? (query.order === "down" ? "descending" : "ascending") : null },
        natural ? h("button", { type: "button", "data-action": "sort", "data-column": name, "data-natural": natural }, words, h("span", { "aria-hidden": "true" }, query.sort === name ? (query.order === "down" ? " ▾" : " ▴") : ""))
          : h("span", { class: "head" }, words))))),
      h("tbody", {},
        space("before", data.first, columns),
        data.rows.map((row, at) => h("tr", { key: keyOf(row), "aria-rowindex": data.first + at + 2 }, columns.map(([name, , , cell]) => h("td", { key: name, class: `col-${name}` }, WORDS.has(name) ? h("div", { class: "words" }, cell(row)) : cell(row))))),
        space("after", data.total - data.first - data.rows.length, columns))));
}

// The height of the rows that are not drawn.
function space(key, rows, columns) {
  return rows > 0 ? h("tr", { key: ` ${key}`, class: "space", "aria-hidden": "true", style: { height: `${rows * ROW_PX}px` } }, h("td", { colspan: columns.length })) : null;
}
