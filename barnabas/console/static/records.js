// The records at one place of the log: key, value and headers, as text, JSON or hex.

import { h } from "./dom.js";
import { bytes, count, hex, json, number, partPreview, text, time } from "./format.js";
import { laidOut } from "./json_text.js";

export function recordsPanel(state, strip, chosen) {
  const { records } = state;
  const first = chosen ? chosen.first : Math.max(strip.log_start_offset, strip.high_watermark - 10);
  return h("section", { class: "card", "aria-label": "Records", key: "records" },
    h("div", { class: "card-head" }, h("h2", {}, "Records"),
      h("form", { class: "tools", "data-form": "records" },
        h("label", {}, "from offset ", h("input", { name: "offset", inputmode: "numeric", pattern: "[0-9]*", size: "9", value: String(records ? records.offset : first), autocomplete: "off" })),
        h("button", { type: "submit" }, "Look"))),
    records ? list(state, records) : h("div", { class: "empty" },
      h("p", { class: "empty-title" }, "Choose a span above, or an offset."),
      h("p", {}, "Records show as text, JSON or hex. Reading here commits no offsets.")));
}

function list(state, records) {
  if (records.error) return h("p", { class: "note warn" }, records.error);
  if (!records.data) return h("p", { class: "empty" }, "Reading …");
  const { records: rows, next_offset: next, problem } = records.data;
  return [
    rows.length ? h("ul", { class: "records" }, rows.map((row) => record(state, row)))
      : problem ? null : h("p", { class: "empty" }, "No records at or after this offset yet."),
    problem ? h("p", { class: "note warn" }, problem) : null,
    next !== null ? h("button", { type: "button", "data-action": "records-from", "data-offset": next }, `Continue from ${number(next)}`) : null,
  ];
}

function record(state, row) {
  if (row.marker) {
    return h("li", { key: row.offset, class: "record marker" }, h("span", { class: "offset" }, number(row.offset)),
      h("span", {}, h("b", {}, row.marker === "commit" ? "✓ commit marker" : "✕ abort marker"), ` of producer ${row.producer_id} epoch ${row.producer_epoch}`), h("span", { class: "muted" }, time(row.timestamp)));
  }
  const isOpen = state.record === row.offset;
  const key = partPreview(row, "key"), value = partPreview(row, "value");
  return h("li", { key: row.offset, class: "record" },
    h("button", { type: "button", class: "record-head", "data-action": "record", "data-offset": row.offset, "aria-expanded": isOpen ? "true" : "false" },
      h("span", { class: "offset" }, number(row.offset)),
      h("span", { class: "record-line" }, key === null ? null : h("b", {}, key, " "), value === null ? h("i", {}, "null") : value)),
    isOpen ? details(state, row) : null);
}

export function details(state, row) {
  return h("div", { class: "record-body" },
    h("p", { class: "muted" }, time(row.timestamp), row.transactional ? ` · in a transaction of producer ${row.producer_id} epoch ${row.producer_epoch}` : "", row.codec !== "none" ? ` · ${row.codec}` : ""),
    h("div", { class: "forms", role: "group", "aria-label": "Show as" }, ["json", "text", "hex"].map((form) => h("button", {
      type: "button", "data-action": "form", "data-form": form, "aria-pressed": state.form === form ? "true" : "false",
    }, { json: "JSON", text: "Text", hex: "Hex" }[form]))),
    blob("Key", row.key, state.form, row.decoded?.key), blob("Value", row.value, state.form, row.decoded?.value),
    row.header_count ? h("table", { class: "headers" }, h("caption", {}, count(row.header_count, "header")),
      h("tbody", {}, row.headers.map((header, at) => h("tr", { key: at }, h("th", { scope: "row" }, header.key), h("td", {}, header.value === null ? h("i", {}, "null") : content(header.value, state.form).words)))))
      : h("p", { class: "muted" }, "No headers."));
}

// decoded: what a schema made of it, or why it made nothing; null where it names no schema.
function blob(name, data, form, decoded) {
  if (data === null) return h("p", {}, h("b", {}, name), " ", h("i", {}, "null"));
  const { words, note } = form === "json" && decoded && !decoded.error ? bySchema(decoded) : content(data, form);
  return h("div", {}, h("p", {}, h("b", {}, name), h("span", { class: "muted" }, ` ${bytes(data.size)}${note}`)),
    decoded && decoded.error ? h("p", { class: "note warn schema" }, `Not decoded, schema ${decoded.schema_id}: ${decoded.error}`) : null,
    h("pre", { tabindex: "0", "aria-label": name }, words || "(empty)"));
}

const KINDS = { AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON Schema" };

function bySchema(decoded) {
  const note = `, ${KINDS[decoded.kind] || decoded.kind}, schema ${decoded.schema_id}`;
  const shown = [...decoded.json].length;
  if (shown < decoded.size) return { words: decoded.json, note: `${note}, the first ${number(shown)} characters shown` };
  return { words: laidOut(decoded.json) ?? decoded.json, note };
}

// In the form that was asked for, or in the nearest that it has.
function content(data, form) {
  const shown = atob(data.base64).length;
  const cut = shown < data.size ? `, the first ${number(shown)} shown` : "";
  if (form === "json") {
    const pretty = json(data);
    if (pretty !== null) return { words: pretty, note: cut };
  }
  if (form !== "hex") {
    const words = text(data);
    if (words !== null) return { words, note: (form === "json" ? ", no JSON" : "") + cut };
  }
  return { words: hex(data), note: (form === "hex" ? "" : ", no text") + cut };
}
