// Producing a record and replaying what a search finds, where the broker allows the page to write.

import { send } from "./asking.js";
import { h } from "./dom.js";
import { count, number } from "./format.js";
import { card } from "./parts.js";

export function writing(state, topic) {
  const { written } = state;
  const field = (name, label, extra) => h("label", { class: `field ${name}` }, h("span", {}, label), h("input", { name, autocomplete: "off", spellcheck: "false", ...extra }));
  const transaction = () => h("label", { class: "check" }, h("input", { type: "checkbox", name: "transaction" }), "in a transaction");
  return h("div", { class: "columns even", key: "writing" },
    card("Produce a record", null, h("form", { "data-form": "produce", class: "stack" },
      field("key", "Key (empty: null)", { maxlength: "1000" }),
      h("label", { class: "field" }, h("span", {}, "Value"), h("textarea", { name: "value", rows: "4", spellcheck: "false" })),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "null" }), "null instead of a value"),
      h("label", { class: "field" }, h("span", {}, "Headers, a line each: name: value"), h("textarea", { name: "headers", rows: "2", spellcheck: "false" })),
      field("partition", "Partition (empty: by the key)", { inputmode: "numeric", pattern: "[0-9]*" }),
      transaction(), h("button", { type: "submit", class: "strong", disabled: state.isWriting }, "Produce"))),
    card("Replay records", null, h("form", { "data-form": "replay", class: "stack" },
      h("p", { class: "muted" }, `Copies the records that the search in Records of ${topic} finds, at most 1,000, the oldest first, with key, value, headers and time.`),
      field("text", "Text in key, value or header", { maxlength: "1000", value: state.query.text || "" }),
      field("filter", "Filter", { maxlength: "1000", value: state.query.filter || "" }),
      field("to", "Into the topic", { required: true, maxlength: "249" }),
      transaction(), h("button", { type: "submit", class: "strong", disabled: state.isWriting }, "Replay"))),
    h("p", { role: "status", class: written ? `note${written.isWrong ? " warn" : ""}` : "" }, written ? written.words : ""));
}

export async function produce(state, topic, data, draw) {
  const headers = String(data.get("headers")).split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  const partition = data.get("partition");
  const body = {
    topic, key: data.get("key") || null, value: data.get("null") ? null : data.get("value"), headers,
    partition: partition === "" ? null : Number(partition), transaction: Boolean(data.get("transaction")),
  };
  await write(state, "produce", body, (answer) => `Written: ${answer.topic}-${answer.partition} at offset ${number(answer.offset)}.`, draw);
}

export async function replay(state, topic, data, draw) {
  const body = { topic, to: data.get("to"), text: data.get("text"), filter: data.get("filter"), transaction: Boolean(data.get("transaction")) };
  await write(state, "replay", body, (answer) => `${count(answer.count, "record")} written to ${answer.topic}.`, draw);
}

async function write(state, path, body, said, draw) {
  Object.assign(state, { isWriting: true, written: null });
  draw();
  try {
    state.written = { words: said(await send(path, body)) };
  } catch (error) {
    state.written = { words: error.isAnswer ? error.message : "The broker does not answer: whether it was written is unknown.", isWrong: true };
  }
  state.isWriting = false;
  draw();
}
