// What the views of groups draw.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { count, duration, number } from "./format.js";
import { card, crumbs, empty, pages, search, table } from "./parts.js";
import { link } from "./route.js";
import { LONG_MS } from "./strip.js";

const BOOKKEEPING = "Spark sink's bookkeeping";

// How far a group is behind, in words.
export function behind(row) {
  if (row.progress === "bookkeeping") return BOOKKEEPING;
  return row.lag ? `${number(row.lag)} behind` : "up to date";
}

const PROGRESS = { moves: "moves", rests: "no progress", "no members": "no members", "up to date": "up to date", bookkeeping: BOOKKEEPING };

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
      h("span", { class: "age" }, row.progress === "bookkeeping" ? BOOKKEEPING : row.topic_lag ? `${number(row.topic_lag)} behind here` : "up to date here")),
    h("p", {}, progress(row), h("span", { class: "badge" }, row.state), ` ${count(row.members, "member")}`),
    row.progress === "bookkeeping" ? null : chart("Lag, all its topics", row.samples, row.lag, number));
}

export function groupRow(row) {
  const first = row.stuck[0];
  const isLong = first && (first.holder_age_ms >= LONG_MS || first.hanging);
  return h("li", { key: row.group, class: isLong ? "row warn" : "row" },
    h("div", { class: "row-head" }, h("a", { href: link.group(row.group) }, h("b", {}, row.group)),
      h("span", { class: "age" }, behind(row))),
    h("p", {}, progress(row), h("span", { class: "badge" }, row.state), ` ${count(row.members, "member")} · ${count(row.partition_count, "partition")}`,
      row.pending ? ` · ${count(row.pending, "offset")} in open transactions` : null),
    first ? h("p", {}, "waits on ", h("a", { class: "place holds", href: link.partition(first.topic, first.partition) }, `${first.topic}-${first.partition}`),
      " for ", h("b", {}, holderName(first)), `, ${duration(first.holder_age_ms)}`, row.stuck_count > 1 ? ` and on ${count(row.stuck_count - 1, "other partition")}` : null) : null);
}

const holderName = (row) => row.transactional_id ?? (row.producer_id === null ? "a transaction" : `producer ${row.producer_id}`);

export function readerRow(group) {
  return h("li", { key: group.group, class: group.waits ? "row warn" : "row" },
    h("div", { class: "row-head" }, h("a", { href: link.group(group.group) }, h("b", {}, group.group)), h("span", { class: "age" }, group.is_batch_number ? BOOKKEEPING : group.lag > 0 ? `${number(group.lag)} behind` : "up to date")),
    h("p", {}, h("span", { class: "badge" }, group.state), group.is_batch_number ? ` batch ${number(group.committed_offset)}` : group.committed_offset >= 0 ? ` at offset ${number(group.committed_offset)}` : " no offset yet", group.waits ? [" · ", h("b", {}, "waits for the transaction")] : null));
}

export function groups(data, state) {
  return [
    h("h1", {}, "Groups"),
    card("Those that wait or are behind come first", h("div", { class: "tools" }, search(state.query.search || "", "Find a group")),
      data.rows.length ? h("ul", { class: "rows wide-rows" }, data.rows.map(groupRow))
        : state.query.search ? empty(`No group has “${state.query.search}” in its name.`) : empty("No groups.", "A consumer with a group.id shows here, with how far it is behind."), pages(data)),
  ];
}

export function group(data) {
  return [
    crumbs([["#/groups", "Groups"]], data.group),
    h("h1", {}, data.group, " ", h("span", { class: "muted" }, `${data.state} · ${behind(data)}`)),
    data.stuck.length ? h("div", { class: "verdict bad", key: "verdict" }, h("i", { "aria-hidden": "true" }, "!"),
      h("p", {}, "It waits for ", h("b", {}, holderName(data.stuck[0])), ` on ${data.stuck[0].topic}-${data.stuck[0].partition}${data.stuck[0].offset < 0 ? "" : `, at offset ${number(data.stuck[0].offset)}`}, where it reads committed data.`),
      h("a", { class: "button", href: link.partition(data.stuck[0].topic, data.stuck[0].partition) }, "Why?")) : null,
    data.progress === "grows" ? h("div", { class: "verdict bad", key: "grows" }, h("i", { "aria-hidden": "true" }, "!"), h("p", {}, `Its ${grows(data)}. ${data.members ? "It reads more slowly than records come." : "It has no members."}`)) : null,
    data.progress === "bookkeeping" ? h("p", { class: "note", key: "books" }, "The Spark sink keeps the number of its last micro-batch here, as the offset of a group. It is no place in a partition, so there is no lag.") : null,
    data.progress === "bookkeeping" ? null : card("Lag over the last hour", progress(data), chart("Lag", data.samples, data.lag, number)),
    data.in_flight ? inFlight(data.in_flight) : null,
    card(data.in_flight ? "Start offsets" : "Committed offsets", null, data.rows.length
      ? table(["Partition", "Offset", "Behind", "State"], data.rows.map((row) => [row.topic + row.partition, [
        h("a", { href: link.partition(row.topic, row.partition) }, `${row.topic}-${row.partition}`), row.offset < 0 ? "none yet" : number(row.offset),
        row.lag === null ? "no lag" : number(row.lag), row.waits ? h("span", { class: "badge warn" }, "waits") : row.progress === "bookkeeping" ? "batch number" : PROGRESS[row.progress]]]))
      : empty("It has committed nothing."), pages(data)),
    card("Members", null, data.member_rows.length
      ? table(["Client", "Address", "Partitions"], data.member_rows.map((row) => [row.member_id, [
        row.client_id, row.client_host, row.assignment.slice(0, 12).map(([name, index]) => `${name}-${index}`).join(", ") + (row.assignment.length > 12 ? ` and ${row.assignment.length - 12} more` : "") || "none"]]))
      : empty("It has no members now.", "Its offsets are kept for the next one.")),
  ];
}

// What a share group has in flight: which member holds it, and how often it was delivered.
function inFlight(rows) {
  const words = { held: "held", waiting: "waits for another delivery", done: "acknowledged", "given up": "given up" };
  return card("In flight", null, rows.length
    ? table(["Records", "State", "Delivered", "Member"], rows.map((row) => [`${row.topic}-${row.partition}-${row.first_offset}`, [
      h("a", { href: link.partition(row.topic, row.partition, { offset: row.first_offset }) }, `${row.topic}-${row.partition}: ${number(row.first_offset)}${row.last_offset > row.first_offset ? ` to ${number(row.last_offset)}` : ""}`),
      h("span", { class: row.state === "given up" ? "badge warn" : "badge" }, words[row.state]), count(row.delivery_count, "time"),
      row.member_id ? `${row.member_id}${row.left_ms === null ? "" : `, for ${duration(row.left_ms)} more`}` : ""]]))
    : empty("Nothing is in flight.", "Records show here while a member holds them, or when they wait for another delivery."));
}
