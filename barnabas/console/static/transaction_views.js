// What the views of open transactions draw.

import { h } from "./dom.js";
import { count, duration, number, producer } from "./format.js";
import { card, code, crumbs, empty, search } from "./parts.js";
import { link } from "./route.js";
import { LONG_MS } from "./strip.js";
import { list } from "./virtual.js";

// A transaction in the lists of the overview and of a partition.
export function transactionRow(row) {
  const isLong = row.held > 0 && row.age_ms >= LONG_MS;
  const place = row.places[0];
  return h("li", { key: `${row.producer_id}`, class: row.hanging || isLong ? "row warn" : "row" },
    h("div", { class: "row-head" }, h("a", { href: link.transaction(row.producer_id) }, h("b", {}, producer(row))), h("span", { class: "age" }, duration(row.age_ms))),
    timeoutBar(row),
    h("p", {},
      row.hanging ? h("span", { class: "badge warn" }, "hangs") : h("span", { class: "badge open" }, stateWords(row.state)),
      ` on ${count(row.partition_count, "partition")}`,
      row.client ? ` · from ${row.client}` : null,
      ` · producer ${row.producer_id} epoch ${row.producer_epoch}`),
    place ? h("p", {}, row.places.slice(0, 6).map((at) => [h("a", { class: at.held ? "place holds" : "place", href: link.partition(at.topic, at.partition) }, `${at.topic}-${at.partition}`, at.held ? h("small", {}, ` holds ${number(at.held)}`) : null), " "]),
      row.places.length > 6 ? `and ${number(row.partition_count - 6)} more` : null)
      : h("p", { class: "muted" }, "no records yet"));
}

function stateWords(state) {
  return { Ongoing: "ongoing", PrepareCommit: "committing", PrepareAbort: "aborting" }[state] || state || "unknown";
}

function timeoutBar(row) {
  if (row.ends_in_ms === null || row.timeout_ms <= 0) return null;
  const share = Math.min(1, row.age_ms / row.timeout_ms);
  const words = row.ends_in_ms > 0 ? `aborted in ${duration(row.ends_in_ms)} unless its producer ends it` : "its timeout is over";
  return h("div", { class: "timeout", role: "img", "aria-label": words, "data-tip": words }, h("i", { style: { "inline-size": `${(share * 100).toFixed(1)}%` } }));
}

const isLong = (row) => row.held > 0 && row.age_ms >= LONG_MS;

const COLUMNS = [
  ["name", "Transaction", "up", (row) => h("a", { href: link.transaction(row.producer_id) }, producer(row))],
  ["state", "State", "up", (row) => (row.hanging ? h("span", { class: "badge warn" }, "hangs") : h("span", { class: "badge open" }, stateWords(row.state)))],
  ["age_ms", "Open for", "down", (row) => (isLong(row) ? h("b", {}, duration(row.age_ms)) : duration(row.age_ms))],
  ["ends_in_ms", "Timeout in", "up", (row) => (row.ends_in_ms === null ? "" : row.ends_in_ms > 0 ? duration(row.ends_in_ms) : "over")],
  ["partitions", "Partitions", "down", (row) => number(row.partition_count)],
  ["held", "Held back", "down", (row) => (row.held ? h("span", { class: isLong(row) ? "badge warn" : "" }, number(row.held)) : "")],
  ["where", "On", null, (row) => where(row)],
];

function where(row) {
  const place = row.places[0];
  if (!place) return h("span", { class: "muted" }, "no records yet");
  return [h("a", { href: link.partition(place.topic, place.partition) }, `${place.topic}-${place.partition}`), row.partition_count > 1 ? ` and ${number(row.partition_count - 1)} more` : null];
}

export function transactions(data, state) {
  const { query } = state;
  return [
    h("h1", {}, "Open transactions ", h("span", { class: "muted" }, query.search ? count(data.total, "match", "matches") : number(data.total))),
    card("The oldest first, or sorted by a column", h("div", { class: "tools" }, search(query.search || "", "Find a transaction")),
      data.total ? list("transactions", COLUMNS, data, query, (row) => row.producer_id)
        : query.search ? empty(`No open transaction has “${query.search}” in its name.`)
          : empty("No open transactions.", "A transaction appears here from its first partition to its last marker.", [`${count(data.totals.transactional_ids, "transactional id")} known. `, code("barnabas txn list"), " lists inactive ones, too."])),
  ];
}

const PLACES = [
  ["name", "Partition", "up", (row) => h("a", { href: link.partition(row.topic, row.partition, row.first_offset === null ? {} : { offset: row.first_offset }) }, `${row.topic}-${row.partition}`)],
  ["first_offset", "Begins at", "up", (row) => (row.first_offset === null ? h("span", { class: "muted" }, "no records yet") : number(row.first_offset))],
  ["held", "Held back", "down", (row) => (row.held ? h("span", { class: "badge warn" }, number(row.held)) : "")],
  ["hangs", "State", null, (row) => (row.hanging ? h("span", { class: "badge warn" }, "hangs") : "open")],
];

export function transaction(data, state) {
  const ends = data.hanging ? "It hangs: its coordinator will not end it. `barnabas txn abort` does."
    : data.ends_in_ms === null ? "No timeout ends it." : data.ends_in_ms > 0 ? `It is aborted in ${duration(data.ends_in_ms)} unless its producer ends it.` : "Its timeout is over.";
  return [
    crumbs([["#/transactions", "Transactions"]], producer(data)),
    h("h1", {}, producer(data), " ", h("span", { class: "muted" }, `open for ${duration(data.age_ms)}`)),
    h("div", { class: `verdict ${data.hanging || isLong(data) ? "bad" : "waits"}`, key: "verdict" }, h("i", { "aria-hidden": "true" }, "!"),
      h("p", {}, data.held ? `It holds read_committed consumers back by ${count(data.held, "offset")}. ` : "No reader waits for it. ", ends,
        ` Producer ${data.producer_id}, epoch ${data.producer_epoch}${data.client ? `, from ${data.client}` : ""}; ${stateWords(data.state)}.`)),
    timeoutBar(data),
    card("Partitions", h("span", { class: "muted" }, number(data.total)), data.total ? list("transaction", PLACES, data, state.query, (row) => `${row.topic}-${row.partition}`)
      : empty("It has no partition yet.")),
  ];
}
