// The records of a topic: the form of the search, and what it found.

import { h } from "./dom.js";
import { count, number, partPreview, time } from "./format.js";
import { card } from "./parts.js";
import { details } from "./records.js";
import { link, queryText } from "./route.js";
import { searchQuery } from "./search.js";

const EXAMPLE = 'key = "1" and value.id > 3 and partition in (0, 1)';

export function topicRecords(state) {
  const [topic] = state.route.arguments, { search } = state;
  return card("Records", h("label", { class: "check" }, h("input", { type: "checkbox", checked: state.query.live !== "no", "data-action": "live" }), "live"),
    form(state),
    search.error ? problem(search, state.query.filter || "") : null,
    found(state, topic));
}

function form(state) {
  const { query } = state;
  const field = (name, label, type, extra) => h("label", { class: `field ${name}` }, h("span", {}, label),
    h("input", { name, type, value: query[name] || "", autocomplete: "off", spellcheck: "false", ...extra }));
  return h("form", { class: "search-form", "data-form": "search", role: "search", "aria-label": "Search in records" },
    field("text", "Text in key, value or header", "search", { maxlength: "1000" }),
    field("filter", "Filter", "text", { placeholder: EXAMPLE, maxlength: "1000", "aria-describedby": "filter-help", "aria-invalid": state.search.errorAt !== null ? "true" : null }),
    field("from", "From", "datetime-local", { step: "1" }),
    field("to", "To", "datetime-local", { step: "1" }),
    field("partitions", "Partitions", "text", { placeholder: "all, or 0,1,2", inputmode: "numeric" }),
    h("button", { type: "submit", class: "strong" }, "Search"),
    h("details", { class: "help", id: "filter-help" }, h("summary", {}, "How a filter is written"),
      h("ul", {},
        h("li", {}, h("code", {}, 'key = "a"'), " ", h("code", {}, "offset >= 100"), " ", h("code", {}, 'value contains "coffee"'), " ", h("code", {}, "partition in (0, 1)"), " ", h("code", {}, "key is null")),
        h("li", {}, state.data.registry ? "Fields of JSON, and of what a schema decodes: " : "Fields of JSON: ", h("code", {}, "value.items[0].id > 3"), "; headers: ", h("code", {}, 'headers.trace = "4711"')),
        h("li", {}, "What became of it: ", h("code", {}, 'state = "aborted"'), ", committed, open or plain; also ", h("code", {}, "time"), " and ", h("code", {}, "size"), "."),
        h("li", {}, "Joined by ", h("code", {}, "and"), ", ", h("code", {}, "or"), ", ", h("code", {}, "not"), " and brackets."))));
}

// The filter, with a mark below the place where it is wrong.
function problem(search, filter) {
  return h("div", { class: "note warn", role: "alert", key: "problem" }, h("p", {}, search.error),
    search.errorAt === null ? null : h("pre", { "aria-hidden": "true" }, `${filter}\n${" ".repeat(search.errorAt)}↑`));
}

function found(state, topic) {
  const { search } = state;
  if (search.error) return null;
  const asked = queryText(searchQuery(topic, state.query));
  return h("div", { class: "found", key: "found" },
    h("div", { class: "tools found-head" },
      h("span", { role: "status" }, said(search)),
      search.isRunning ? h("button", { type: "button", "data-action": "stop" }, "Stop") : null,
      h("span", { class: "tools" }, h("a", { class: "button", href: `api/download?${asked}`, download: `${topic}.jsonl` }, "Download as JSON lines"),
      state.data.registry ? h("a", { class: "button", href: `api/download?${asked}&decoded=yes`, download: `${topic}.jsonl` }, "Download decoded") : null)),
    search.rows.length ? h("ul", { class: "records topic-records" }, search.rows.map((row) => record(state, topic, row))) : null,
    search.skipped ? h("p", { class: "note" }, "More came at once than are shown here.") : null,
    search.problems.map((words) => h("p", { class: "note warn", key: words }, words)),
    search.cursor !== null && !search.isRunning ? h("button", { type: "button", "data-action": "more" }, "Go on with older ones") : null);
}

function said(search) {
  const looked = `${count(search.scanned, "record")} searched`;
  if (search.isRunning) return `${count(search.rows.length, "record")} found, ${looked} …`;
  if (!search.rows.length) return search.cursor === null ? `Nothing found: ${looked}, to the beginning.` : `Nothing found yet: ${looked}.`;
  return `${count(search.rows.length, "record")}, the newest first; ${looked}${search.cursor === null ? "" : ", older ones were not searched"}`;
}

const isDecoded = (row) => ["key", "value"].some((part) => row.decoded?.[part]?.json);

const STATES = { aborted: "aborted", open: "open" };

function record(state, topic, row) {
  const id = `${row.partition}-${row.offset}`;
  const isOpen = state.query.record === id;
  const key = partPreview(row, "key"), value = partPreview(row, "value");
  return h("li", { key: id, class: `record ${row.state}` },
    h("button", { type: "button", class: "record-head", "data-action": "topic-record", "data-record": id, "aria-expanded": isOpen ? "true" : "false" },
      h("span", { class: "record-time" }, time(row.timestamp)),
      h("span", { class: "offset" }, id),
      h("span", { class: "record-line" }, STATES[row.state] ? h("span", { class: `badge ${row.state}` }, STATES[row.state]) : null, " ",
        key === null ? null : h("b", {}, key, " "), value === null ? h("i", {}, "null") : value)),
    isOpen ? [h("div", { class: "tools record-tools" },
      h("button", { type: "button", "data-action": "copy", "data-record": id }, "Copy as JSON"),
      isDecoded(row) ? h("button", { type: "button", "data-action": "copy-decoded", "data-record": id }, "Copy decoded") : null,
      h("a", { href: link.partition(topic, row.partition, { offset: row.offset }) }, `${topic}-${row.partition} at ${number(row.offset)}`)),
    details(state, row)] : null);
}
