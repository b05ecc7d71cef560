// What the views of groups draw.

import { h } from "./dom.js";
import { count, duration, number } from "./format.js";
import { card, crumbs, empty, pages, search, table } from "./parts.js";
import { link } from "./route.js";
import { LONG_MS } from "./strip.js";

export function groupRow(row) {
  const first = row.stuck[0];
  const isLong = first && (first.holder_age_ms >= LONG_MS || first.hanging);
  return h("li", { key: row.group, class: isLong ? "row warn" : "row" },
    h("div", { class: "row-head" }, h("a", { href: link.group(row.group) }, h("b", {}, row.group)),
      h("span", { class: "age" }, row.lag ? `${number(row.lag)} behind` : "up to date")),
    h("p", {}, h("span", { class: "badge" }, row.state), ` ${count(row.members, "member")} · ${count(row.partition_count, "partition")}`,
      row.pending ? ` · ${count(row.pending, "offset")} in open transactions` : null),
    first ? h("p", {}, "waits on ", h("a", { class: "place holds", href: link.partition(first.topic, first.partition) }, `${first.topic}-${first.partition}`),
      " for ", h("b", {}, holderName(first)), `, ${duration(first.holder_age_ms)}`, row.stuck_count > 1 ? ` and on ${count(row.stuck_count - 1, "other partition")}` : null) : null);
}

const holderName = (row) => row.transactional_id ?? (row.producer_id === null ? "a transaction" : `producer ${row.producer_id}`);

export function readerRow(group) {
  return h("li", { key: group.group, class: group.waits ? "row warn" : "row" },
    h("div", { class: "row-head" }, h("a", { href: link.group(group.group) }, h("b", {}, group.group)), h("span", { class: "age" }, group.lag > 0 ? `${number(group.lag)} behind` : "up to date")),
    h("p", {}, h("span", { class: "badge" }, group.state), group.committed_offset >= 0 ? ` at offset ${number(group.committed_offset)}` : " no offset yet", group.waits ? [" · ", h("b", {}, "waits for the transaction")] : null));
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
    h("h1", {}, data.group, " ", h("span", { class: "muted" }, `${data.state} · ${data.lag ? `${number(data.lag)} behind` : "up to date"}`)),
    data.stuck.length ? h("div", { class: "verdict bad", key: "verdict" }, h("i", { "aria-hidden": "true" }, "!"),
      h("p", {}, "It waits for ", h("b", {}, holderName(data.stuck[0])), ` on ${data.stuck[0].topic}-${data.stuck[0].partition}${data.stuck[0].offset < 0 ? "" : `, at offset ${number(data.stuck[0].offset)}`}, where it reads committed data.`),
      h("a", { class: "button", href: link.partition(data.stuck[0].topic, data.stuck[0].partition) }, "Why?")) : null,
    card("Committed offsets", null, data.rows.length
      ? table(["Partition", "Offset", "Behind", "State"], data.rows.map((row) => [row.topic + row.partition, [
        h("a", { href: link.partition(row.topic, row.partition) }, `${row.topic}-${row.partition}`), row.offset < 0 ? "none yet" : number(row.offset),
        row.lag === null ? "no lag" : number(row.lag), row.waits ? h("span", { class: "badge warn" }, "waits") : data.members ? "moves" : "no members"]]))
      : empty("It has committed nothing."), pages(data)),
    card("Members", null, data.member_rows.length
      ? table(["Client", "Address", "Partitions"], data.member_rows.map((row) => [row.member_id, [
        row.client_id, row.client_host, row.assignment.slice(0, 12).map(([name, index]) => `${name}-${index}`).join(", ") + (row.assignment.length > 12 ? ` and ${row.assignment.length - 12} more` : "") || "none"]]))
      : empty("Nobody is in it now.", "Its offsets are kept for when somebody comes back.")),
  ];
}
