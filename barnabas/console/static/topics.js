// All topics in one list.

import { h } from "./dom.js";
import { bytes, count, number, rate } from "./format.js";
import { card, search } from "./parts.js";
import { link } from "./route.js";
import { list } from "./virtual.js";

const COLUMNS = [
  ["name", "Topic", "up", (row) => h("a", { href: link.topic(row.name) }, row.name)],
  ["partitions", "Partitions", "down", (row) => number(row.partitions)],
  ["records", "Records", "down", (row) => number(row.records)],
  ["size_bytes", "Size", "down", (row) => bytes(row.size_bytes)],
  ["records_rate", "Records / s", "down", (row) => (row.records_rate === null ? "…" : rate(row.records_rate))],
  ["bytes_rate", "Bytes / s", "down", (row) => (row.bytes_rate === null ? "…" : bytes(Math.round(row.bytes_rate)))],
  ["held", "Held back", "down", (row) => (row.stuck ? h("span", { class: "badge warn" }, `${number(row.held)} stuck`) : row.held ? number(row.held) : "")],
];

export function topics(data, state) {
  const { query } = state;
  return [
    h("h1", {}, "Topics ", h("span", { class: "muted" }, count(data.total, query.search ? "match" : "topic", query.search ? "matches" : "topics"))),
    card("All topics", h("div", { class: "tools" }, search(query.search || "", "Find a topic"),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: query.internal === "true", "data-action": "internal" }), "internal topics")),
    data.total ? list("topics", COLUMNS, data, query, (row) => row.name) : h("p", { class: "empty" }, query.search ? `No topic has “${query.search}” in its name.` : "No topics yet.")),
  ];
}
