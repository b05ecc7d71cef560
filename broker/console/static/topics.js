// All topics in one list, of which only the rows on the screen are asked for and drawn.

import { h } from "./dom.js";
import { bytes, count, number, rate } from "./format.js";
import { card, search } from "./parts.js";
import { link } from "./route.js";

export const ROW_PX = 38;
const MARGIN = 20;

// Columns: how they are sorted, and first in which direction.
const COLUMNS = [
  ["name", "Topic", "up", (row) => h("a", { href: link.topic(row.name) }, row.name)],
  ["partitions", "Partitions", "down", (row) => number(row.partitions)],
  ["records", "Records", "down", (row) => number(row.records)],
  ["size_bytes", "Size", "down", (row) => bytes(row.size_bytes)],
  ["records_rate", "Records / s", "down", (row) => (row.records_rate === null ? "…" : rate(row.records_rate))],
  ["bytes_rate", "Bytes / s", "down", (row) => (row.bytes_rate === null ? "…" : bytes(Math.round(row.bytes_rate)))],
  ["held", "Held back", "down", (row) => (row.stuck ? h("span", { class: "badge warn" }, `${number(row.held)} stuck`) : row.held ? number(row.held) : "")],
];

// Which rows are seen, with some around them: what the server is asked for.
export function visibleRows() {
  const list = document.getElementById("topic-list");
  const height = list ? list.clientHeight : window.innerHeight;
  const first = Math.max(0, Math.floor((list ? list.scrollTop : 0) / ROW_PX) - MARGIN);
  return { first, count: Math.min(200, Math.ceil(height / ROW_PX) + 2 * MARGIN) };
}

export function sortBy(column, query) {
  const [, , natural] = COLUMNS.find(([name]) => name === column);
  if (query.sort !== column) return { sort: column, order: natural };
  const other = { up: "down", down: "up" }[query.order || natural];
  return { sort: column, order: other };
}

export function topics(data, state) {
  const { query } = state;
  return [
    h("h1", {}, "Topics ", h("span", { class: "muted" }, count(data.total, query.search ? "match" : "topic", query.search ? "matches" : "topics"))),
    card("All topics", h("div", { class: "tools" }, search(query.search || "", "Find a topic"),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: query.internal === "true", "data-action": "internal" }), "internal topics")),
    data.total ? list(data, query) : h("p", { class: "empty" }, query.search ? `No topic has “${query.search}” in its name.` : "No topics yet.")),
  ];
}

function list(data, query) {
  return h("div", { class: "virtual", id: "topic-list", tabindex: "0", role: "group", "aria-label": "The list, which scrolls" },
    h("table", { "aria-rowcount": data.total + 1 },
      h("thead", {}, h("tr", {}, COLUMNS.map(([name, words]) => h("th", { scope: "col", class: `col-${name}`, key: name, "aria-sort": query.sort === name ? (query.order === "down" ? "descending" : "ascending") : null },
        h("button", { type: "button", "data-action": "sort", "data-column": name }, words, h("span", { "aria-hidden": "true" }, query.sort === name ? (query.order === "down" ? " ▾" : " ▴") : "")))))),
      h("tbody", {},
        space("before", data.first),
        data.rows.map((row, at) => h("tr", { key: row.name, "aria-rowindex": data.first + at + 2 }, COLUMNS.map(([name, , , cell]) => h("td", { key: name, class: `col-${name}` }, cell(row))))),
        space("after", data.total - data.first - data.rows.length))));
}

// The height of the rows that are not drawn.
function space(key, rows) {
  return rows > 0 ? h("tr", { key: ` ${key}`, class: "space", "aria-hidden": "true", style: { height: `${rows * ROW_PX}px` } }, h("td", { colspan: COLUMNS.length })) : null;
}
