// Settings of a topic; ACLs, users and quotas. All of it to read alone.

import { h } from "./dom.js";
import { bytes, number } from "./format.js";
import { card, empty, table } from "./parts.js";

export function settings(data, state) {
  const all = state.query.all === "yes";
  const shown = data.settings.filter((row) => all || !row.is_default);
  return card("Settings", h("label", { class: "check" }, h("input", { type: "checkbox", checked: all, "data-action": "all-settings" }), "include defaults"),
    shown.length ? table(["Setting", "Value", "From"], shown.map((row) => [row.name, [
      h("span", { "data-tip": row.documentation }, row.name), row.is_secret ? h("i", {}, "secret") : row.value === "" ? h("i", {}, "empty") : row.value ?? h("i", {}, "none"), row.source]]), "Settings of the topic")
      : empty("The topic has no settings of its own.", "It uses the broker's."));
}

export function security(data) {
  return [
    h("h1", {}, "Security"),
    part("ACLs", data.acls, ["Principal", "May", "On", "From"], (row) => [
      row.principal, [row.permission === "deny" ? h("span", { class: "badge warn" }, "not") : null, ` ${row.operation}`],
      `${row.resource} ${row.name}${row.is_prefix ? "…" : ""}`, row.host === "*" ? "anywhere" : row.host], "No ACLs."),
    part("Users", data.users, ["User", "Logs in by"], (row) => [row.user, row.credentials.join("; ")], "No users with a password."),
    part("Quotas", data.quotas, ["Of", "Quota"], (row) => [
      row.entity.map(([kind, name]) => `${kind} ${name === null ? "(default)" : name}`).join(", "),
      Object.entries(row.values).map(([name, value]) => `${name} ${name.endsWith("byte_rate") ? `${bytes(value)}/s` : number(value)}`).join(", ")], "No quotas."),
  ];
}

function part(title, data, heads, cells, none) {
  return card(title, data.total > data.rows.length ? h("span", { class: "muted" }, `the first ${number(data.rows.length)} of ${number(data.total)}`) : null,
    data.note ? h("p", { class: "note" }, data.note) : data.rows.length ? table(heads, data.rows.map((row, at) => [at, cells(row)]), title) : empty(none));
}
