// A partition's recent log as a strip of spans; and, larger, with a lane for each transaction.

import { h } from "./dom.js";
import { count, duration, number, offsets, producer } from "./format.js";

export const LONG_MS = 10000; // so long a transaction holds its readers before it is called stuck

export const WORDS = {
  plain: "without a transaction",
  committed: "committed",
  aborted: "aborted",
  open: "open",
  commit: "commit marker",
  abort: "abort marker",
  gap: "left empty by compaction",
};
const GLYPHS = { commit: "✓", abort: "✕" };
const FATES = { committed: "committed", aborted: "aborted", open: "open" };

// A span as the server lists it, with names.
export function spansOf(strip) {
  return strip.spans.map(([kind, first, end, batches, records, size, transaction]) => ({
    kind, first, end, batches, records, size,
    transaction: transaction < 0 ? null : strip.transactions[transaction],
    isMarker: kind === "commit" || kind === "abort",
    isHeld: first >= strip.last_stable_offset,
  }));
}

// Wide enough to be seen, wider for more records: a marker beside ten thousand records stays visible.
function weight(span) {
  if (span.isMarker || span.kind === "gap") return 0.62;
  return 0.8 + Math.log2(1 + span.records) * 0.55;
}

export const held = (strip) => strip.high_watermark - strip.last_stable_offset;

export function describe(span) {
  const of = span.transaction ? ` of ${producer(span.transaction)}` : "";
  const what = WORDS[span.kind];
  const records = span.isMarker || span.kind === "gap" ? "" : `, ${count(span.records, "record")}`;
  return `${what}${of}: ${offsets(span.first, span.end)}${records}${span.isHeld && span.kind !== "open" && !span.isMarker ? ", held back" : ""}`;
}

export function summary(strip) {
  const name = `${strip.topic}-${strip.partition}`;
  if (strip.log_end_offset === strip.log_start_offset) return `${name}: empty`;
  const end = `${name}: high watermark ${number(strip.high_watermark)}`;
  return held(strip)
    ? `${end}, last stable offset ${number(strip.last_stable_offset)}, ${count(held(strip), "offset")} held back`
    : `${end}, all of it stable`;
}

// --- small --------------------------------------------------------------------------------------

export function smallStrip(strip, most) {
  const spans = spansOf(strip).slice(-most);
  const key = `${strip.topic}-${strip.partition}`;
  if (!spans.length) {
    return h("div", { class: "strip empty-strip", key }, h("span", {}, strip.problem || "no records yet"));
  }
  const items = [];
  let isStableShown = false;
  for (const span of spans) {
    if (!isStableShown && span.isHeld) {
      items.push(stableLine(strip, items.length === 0));
      isStableShown = true;
    }
    items.push(h("i", {
      key: `${span.first}`,
      class: `span ${span.kind}${span.isHeld ? " held" : ""}`,
      style: { "flex-grow": weight(span).toFixed(2) },
      "data-tip": describe(span),
    }, GLYPHS[span.kind] || ""));
  }
  if (!isStableShown) items.push(stableLine(strip, false));
  return h("div", { class: "strip", key, "aria-hidden": "true" }, items);
}

function stableLine(strip, isBefore) {
  const isHeld = held(strip) > 0;
  return h("i", {
    key: "stable",
    class: `stable-line${isHeld ? " holds" : ""}${isBefore ? " before" : ""}`,
    "data-tip": `last stable offset ${number(strip.last_stable_offset)}: read_committed consumers read up to here`,
  });
}

// --- large, with lanes --------------------------------------------------------------------------

const MOST_LANES = 12;

export function largeStrip(strip, most, chosen) {
  const spans = spansOf(strip).slice(-most);
  if (!spans.length) {
    return h("p", { class: "empty" }, strip.problem || "No records yet. New records appear here.");
  }
  const columns = ["1.2rem", ...spans.map((span) => `minmax(0, ${weight(span).toFixed(2)}fr)`), "2.2rem"];
  const at = new Map(spans.map((span, index) => [span, index + 2]));
  const firstHeld = spans.findIndex((span) => span.isHeld);
  const items = [];
  // what is held back, behind all rows
  if (firstHeld >= 0) {
    items.push(h("div", {
      class: "veil", key: "veil", "aria-hidden": "true",
      style: { "grid-column": `${firstHeld + 2} / -2`, "grid-row": "1 / -1" },
    }));
  }
  const stableColumn = firstHeld >= 0 ? firstHeld + 2 : spans.length + 2;
  const isBefore = firstHeld === 0 && strip.last_stable_offset < spans[0].first;
  items.push(flag("stable", `${isBefore ? "◂ " : ""}last stable offset ${number(strip.last_stable_offset)}`, stableColumn, columns.length));
  const hasWatermark = strip.end_offset === strip.log_end_offset && held(strip) > 0;
  if (hasWatermark) {
    items.push(flag("watermark", `high watermark ${number(strip.high_watermark)}`, spans.length + 2, columns.length));
  }
  for (const [index, span] of spans.entries()) {
    items.push(h("button", {
      type: "button",
      key: `span ${span.first}`,
      class: `span ${span.kind}${span.isHeld ? " held" : ""}${isOf(span, chosen) ? " chosen" : ""}`,
      style: { "grid-column": `${index + 2}`, "grid-row": "2" },
      tabindex: chosen ? (chosen.first === span.first ? "0" : "-1") : (index === spans.length - 1 ? "0" : "-1"),
      "aria-label": describe(span),
      "aria-pressed": chosen && chosen.first === span.first ? "true" : "false",
      "data-action": "span",
      "data-first": span.first,
      "data-tip": describe(span),
    }, GLYPHS[span.kind] || ""));
  }
  items.push(h("span", { key: "first offset", class: "edge", style: { "grid-column": "2 / -1", "grid-row": "3" } },
    h("span", {}, number(spans[0].first)), h("span", {}, number(spans[spans.length - 1].end))));
  const lanes = lanesOf(strip, spans);
  for (const [index, lane] of lanes.entries()) items.push(...laneItems(strip, lane, index + 4, at, spans, chosen));
  return h("div", { class: "large" },
    h("div", {
      class: hasWatermark ? "grid two-flags" : "grid", role: "toolbar", "aria-label": `The log of ${summary(strip)}. Arrow keys move along it.`,
      style: { "grid-template-columns": columns.join(" ") },
    }, items),
    lanes.hidden ? h("p", { class: "note" }, `${count(lanes.hidden, "earlier transaction")} in this part of the log ${lanes.hidden === 1 ? "has" : "have"} no lane.`) : null);
}

function isOf(span, chosen) {
  if (!chosen) return false;
  if (!chosen.transaction || !span.transaction) return span.first === chosen.first;
  return span.transaction === chosen.transaction
    || (span.transaction.producer_id === chosen.transaction.producer_id
      && span.transaction.marker_offset === chosen.transaction.marker_offset
      && span.transaction.fate === chosen.transaction.fate);
}

function flag(kind, words, column, columnCount) {
  const isRight = column > columnCount / 2;
  return h("div", {
    key: `flag ${kind}`, class: `flag ${kind}${isRight ? " right" : ""}`,
    style: { "grid-column": `${column}`, "grid-row": "1 / -1" },
  }, h("span", {}, words));
}

// The transactions of the strip, in the order in which they begin; open ones always have a lane.
function lanesOf(strip, spans) {
  const lanes = new Map();
  for (const span of spans) {
    if (!span.transaction) continue;
    const lane = lanes.get(span.transaction) || { transaction: span.transaction, spans: [] };
    lane.spans.push(span);
    lanes.set(span.transaction, lane);
  }
  // an open one whose batches are all before what is shown
  for (const transaction of strip.transactions) {
    if (transaction.fate === "open" && !lanes.has(transaction)) lanes.set(transaction, { transaction, spans: [] });
  }
  const all = [...lanes.values()].sort((one, other) => begin(one, spans) - begin(other, spans));
  const open = all.filter((lane) => lane.transaction.fate === "open").slice(-MOST_LANES);
  const others = all.filter((lane) => lane.transaction.fate !== "open");
  const shown = new Set([...open, ...others.slice(-(MOST_LANES - open.length) || others.length)]);
  const list = all.filter((lane) => shown.has(lane));
  list.hidden = all.length - list.length;
  return list;
}

function begin(lane, spans) {
  if (lane.transaction.first_offset >= 0) return lane.transaction.first_offset;
  return lane.spans.length ? lane.spans[0].first - 0.5 : spans[0].first;
}

function laneItems(strip, lane, row, at, spans, chosen) {
  const { transaction } = lane;
  const isOpen = transaction.fate === "open";
  const first = lane.spans[0], last = lane.spans[lane.spans.length - 1];
  const beganBefore = !first || transaction.first_offset < first.first;
  const from = beganBefore ? 2 : at.get(first);
  const isEnded = transaction.marker_offset >= 0;
  const to = isEnded ? at.get(last) : spans.length + 2;
  const isChosen = chosen && chosen.transaction && first && isOf(first, chosen);
  const name = producer(transaction);
  const fate = isOpen ? "open" : FATES[transaction.fate];
  const isHolder = isOpen && transaction.first_offset === strip.last_stable_offset;
  const key = `lane ${transaction.producer_id} ${transaction.first_offset} ${first ? first.first : ""}`;
  const isLate = from > spans.length * 0.6;
  const isWide = !isLate && to > spans.length * 0.75;
  const items = [
    h("div", {
      key: `${key} line`,
      class: `lane-line ${transaction.fate}${beganBefore ? " began-before" : ""}${isEnded ? "" : " goes-on"}${isChosen ? " chosen" : ""}`,
      style: { "grid-column": `${from} / ${Math.max(to, from + 1)}`, "grid-row": `${row}` },
    }),
    isEnded ? h("div", { // the rest of it, to the middle of the marker
      key: `${key} end`, class: `lane-line ${transaction.fate} end`, style: { "grid-column": `${to}`, "grid-row": `${row}` },
    }) : null,
    ...lane.spans.map((span) => h("i", {
      key: `${key} ${span.first}`,
      class: `lane-span span ${span.kind}${isChosen ? " chosen" : ""}`,
      style: { "grid-column": `${at.get(span)}`, "grid-row": `${row}` },
      "aria-hidden": "true",
      "data-tip": describe(span),
    }, GLYPHS[span.kind] || "")),
    h("span", {
      key: `${key} name`,
      class: `lane-name${isLate ? " late" : isWide ? " inside" : ""}`,
      style: isWide ? { "grid-column": `${first ? from + 1 : 2} / -1`, "grid-row": `${row}` } : isLate
        ? { "grid-column": `1 / ${from}`, "grid-row": `${row}` }
        : { "grid-column": `${Math.min(isEnded ? to + 1 : to, spans.length + 2)} / -1`, "grid-row": `${row}` },
    }, h("b", {}, name), " ", fate, isHolder ? h("em", {}, " holds the last stable offset") : null),
  ];
  return items;
}

export function legend() {
  const item = (kind, words) => h("li", {},
    h("i", { class: `span ${kind}`, "aria-hidden": "true" }, GLYPHS[kind] || ""), words);
  return h("ul", { class: "legend", "aria-label": "What the colours and patterns mean" },
    item("committed", "committed"), item("aborted", "aborted: readers leave it out"),
    item("open", "open: not decided yet"), item("plain", "without a transaction"),
    item("commit", "commit marker"), item("abort", "abort marker"),
    h("li", {}, h("i", { class: "stable-line key", "aria-hidden": "true" }), "last stable offset"),
    h("li", {}, h("i", { class: "span veiled", "aria-hidden": "true" }), "held back from readers of committed records"));
}

export { duration };
