// What the views of groups draw.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { count, duration, number } from "./format.js";
import { card, crumbs, empty, search, tabs } from "./parts.js";
import { link } from "./route.js";
import { LONG_MS } from "./strip.js";
import { list } from "./virtual.js";

const PROGRESS = { moves: "moves", rests: "no progress", "no members": "no members" };

// A group's progress, where it says more than the lag does.
function progress(row) {
  if (row.progress === "grows") return [h("span", { class: "badge warn" }, grows(row)), " "];
  if (row.progress === "rests" || row.progress === "no members") return [h("span", { class: "badge warn" }, PROGRESS[row.progress]), " "];
  return row.progress === "moves" ? [h("span", { class: "badge good" }, "moves"), " "] : null;
}

const grows = (row) => `lag grows: ${number(row.change)} more in ${duration(row.over_ms)}`;

// A group at a topic, with its lag there and over the last hour.
export function topicGroupRow(row) {
  return h("li", { key: row.group, class: row.progress === "grows" || row.stuck.length ? "row warn" : "row" },
    h("div", { class: "row-head" }, h("a", { href: link.group(row.group) }, h("b", {}, row.group)),
      h("span", { class: "age" }, `here: ${row.topic_status}`)),
    h("p", {}, progress(row), h("span", { class: "badge" }, row.state), ` ${count(row.members, "member")}`),
    row.progress === "bookkeeping" ? null : chart("Lag, all its topics", row.samples, row.lag, number));
}

export function groupRow(row) {
  const first = row.stuck[0];
  const isLong = first && (first.holder_age_ms >= LONG_MS || first.hanging);
  return h("li", { key: row.group, class: isLong ? "row warn" : "row" },
    h("div", { class: "row-head" }, h("a", { href: link.group(row.group) }, h("b", {}, row.group)),
      h("span", { class: "age" }, row.status)),
    h("p", {}, progress(row), h("span", { class: "badge" }, row.state), ` ${count(row.members, "member")} · ${count(row.partition_count, "partition")}`,
      row.pending ? ` · ${count(row.pending, "offset")} in open transactions` : null),
    first ? h("p", {}, "waits on ", h("a", { class: "place holds", href: link.partition(first.topic, first.partition) }, `${first.topic}-${first.partition}`),
      " for ", h("b", {}, holderName(first)), `, ${duration(first.holder_age_ms)}`, row.stuck_count > 1 ? ` and on ${count(row.stuck_count - 1, "other partition")}` : null) : null);
}

const holderName = (row) => row.transactional_id ?? (row.producer_id === null ? "a transaction" : `producer ${row.producer_id}`);

export function readerRow(group) {
  return h("li", { key: group.group, class: group.waits ? "row warn" : "row" },
    h("div", { class: "row-head" }, h("a", { href: link.group(group.group) }, h("b", {}, group.group)), h("span", { class: "age" }, group.status)),
    h("p", {}, h("span", { class: "badge" }, group.state), group.is_batch_number ? ` batch ${number(group.committed_offset)}` : group.committed_offset >= 0 ? ` at offset ${number(group.committed_offset)}` : " no offset yet", group.waits ? [" · ", h("b", {}, "waits for the transaction")] : null));
}

// What a group does or waits for, in one line.
function doing(row) {
  const first = row.stuck[0];
  if (!first) return [progress(row), row.status];
  return [h("span", { class: "badge warn" }, "waits"), " on ", h("a", { class: "place", href: link.partition(first.topic, first.partition) }, `${first.topic}-${first.partition}`),
    ` for ${holderName(first)}, ${duration(first.holder_age_ms)}`, row.stuck_count > 1 ? ` and ${number(row.stuck_count - 1)} more` : ""];
}

const COLUMNS = [
  ["name", "Group", "up", (row) => h("a", { href: link.group(row.group) }, row.group)],
  ["attention", "What it does", "up", doing],
  ["state", "State", "up", (row) => row.state],
  ["members", "Members", "down", (row) => number(row.members)],
  ["partitions", "Partitions", "down", (row) => number(row.partition_count)],
  ["lag", "Behind", "down", (row) => (row.progress === "bookkeeping" ? "" : number(row.lag))],
];

export function groups(data, state) {
  const { query } = state;
  return [
    h("h1", {}, "Groups ", h("span", { class: "muted" }, query.search ? count(data.total, "match", "matches") : number(data.total))),
    card("Waiting and lagging groups first, or sorted by a column", h("div", { class: "tools" }, search(query.search || "", "Find a group")),
      data.total ? list("groups", COLUMNS, data, query, (row) => row.group)
        : query.search ? empty(`No group has “${query.search}” in its name.`) : empty("No groups.", "Consumers with a group.id appear here, with their lag.")),
  ];
}

// What all pages of a group begin with.
function head(data, tab) {
  const isShare = data.kind === "share", first = data.stuck[0];
  return [
    crumbs([["#/groups", "Groups"]], data.group),
    h("h1", {}, data.group, " ", h("span", { class: "muted" }, `${data.state} · ${data.status}`)),
    tabs("Of this group", [[link.group(data.group), isShare ? "Start offsets" : "Offsets", tab === "offsets"], [link.members(data.group), `Members (${number(data.members)})`, tab === "members"],
      ...(isShare ? [[link.inFlight(data.group), "In flight", tab === "in-flight"]] : [])]),
    first ? h("div", { class: "verdict bad", key: "verdict" }, h("i", { "aria-hidden": "true" }, "!"),
      h("p", {}, "It waits for ", h("b", {}, holderName(first)), ` on ${first.topic}-${first.partition}${first.offset < 0 ? "" : `, at offset ${number(first.offset)}`}, where it reads committed data.`),
      h("a", { class: "button", href: link.partition(first.topic, first.partition) }, "Why?")) : null,
    data.progress === "grows" ? h("div", { class: "verdict bad", key: "grows" }, h("i", { "aria-hidden": "true" }, "!"), h("p", {}, `Its ${grows(data)}. ${first ? "" : data.members ? "It reads more slowly than records come." : "It has no members."}`)) : null,
  ];
}

// A partition whose number stays visible where its topic's name is too long for the column.
const partition = (row) => h("a", { href: link.partition(row.topic, row.partition) }, h("span", { class: "cut" }, row.topic), `-${row.partition}`);

// Situations of a group in a partition that a person should look at.
const UNUSUAL = new Set(["waits", "never committed", "before the start", "beyond the end"]);

const OFFSETS = [
  ["name", "Partition", "up", partition],
  ["offset", "Offset", "down", (row) => (row.offset < 0 ? "none yet" : number(row.offset))],
  ["lag", "Behind", "down", (row) => (row.lag === null ? "no lag" : number(row.lag))],
  ["does", "State", null, (row) => (row.situation === "behind" ? PROGRESS[row.progress] : UNUSUAL.has(row.situation) ? h("span", { class: "badge warn" }, row.situation) : row.situation)],
];

export function offsets(data, state) {
  return [
    ...head(data, "offsets"),
    data.progress === "bookkeeping" ? h("p", { class: "note", key: "books" }, "The Spark sink keeps the number of its last micro-batch here, as the offset of a group. It is no place in a partition, so there is no lag.") : null,
    data.progress === "bookkeeping" ? null : card("Lag over the last hour", progress(data), chart("Lag", data.samples, data.lag, number)),
    card(data.kind === "share" ? "Start offsets" : "Committed offsets", h("span", { class: "muted" }, count(data.total, "partition")), data.total
      ? list("group", OFFSETS, data, state.query, (row) => `${row.topic}-${row.partition}`) : empty("It has committed nothing.")),
  ];
}

const MEMBERS = [
  ["name", "Client", "up", (row) => h("span", { "data-tip": row.member_id }, row.client_id)],
  ["host", "Address", "up", (row) => row.client_host],
  ["partitions", "Partitions", "down", (row) => number(row.assignment.length)],
  ["which", "Which", null, (row) => row.assignment.slice(0, 12).map(([name, index]) => `${name}-${index}`).join(", ") + (row.assignment.length > 12 ? ` and ${number(row.assignment.length - 12)} more` : "") || "none"],
];

export function members(data, state) {
  return [
    ...head(data, "members"),
    card("Members", h("span", { class: "muted" }, data.total < data.members ? `the first ${number(data.total)}` : ""), data.total
      ? list("members", MEMBERS, data, state.query, (row) => row.member_id) : empty("It has no members now.", "Its offsets are kept for the next one.")),
  ];
}

const STATES = { held: "held", waiting: "waits for another delivery", done: "acknowledged", "given up": "given up" };

// What a share group has in flight: which member holds it, and how often it was delivered.
const IN_FLIGHT = [
  ["name", "Partition", "up", partition],
  ["records", "Records", "down", (row) => h("a", { href: link.partition(row.topic, row.partition, { offset: row.first_offset }) }, `${number(row.first_offset)}${row.last_offset > row.first_offset ? ` to ${number(row.last_offset)}` : ""}`)],
  ["state", "State", "up", (row) => h("span", { class: row.state === "given up" ? "badge warn" : "badge" }, STATES[row.state])],
  ["delivery_count", "Delivered", "down", (row) => count(row.delivery_count, "time")],
  ["member", "Member", "up", (row) => (row.member_id ? `${row.member_id}${row.left_ms === null ? "" : `, for ${duration(row.left_ms)} more`}` : "")],
];

export function inFlight(data, state) {
  return [
    ...head(data, "in-flight"),
    card("In flight", null, data.total ? list("in-flight", IN_FLIGHT, data, state.query, (row) => `${row.topic}-${row.partition}-${row.first_offset}`)
      : empty("Nothing is in flight.", "Records appear here while a member holds them, or while they wait for another delivery.")),
  ];
}
