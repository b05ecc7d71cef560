// Parts that several views have: cards, empty places, crumbs, tables, search boxes.

import { h } from "./dom.js";
import { number } from "./format.js";

export const code = (words) => h("code", {}, words);

export function empty(title, ...rest) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), rest.map((part) => h("p", {}, part)));
}

export function card(title, extra, ...body) {
  return h("section", { class: "card", key: title, "aria-label": title },
    h("div", { class: "card-head" }, h("h2", {}, title), extra), body);
}

export function pages(data) {
  if (data.pages < 2) return null;
  const step = (by, words, off) => h("button", {
    type: "button", "data-action": "page", "data-page": data.page + by, disabled: off,
  }, words);
  return h("div", { class: "pages" }, step(-1, "Previous", data.page === 0),
    h("span", {}, `page ${number(data.page + 1)} of ${number(data.pages)}`),
    step(1, "Next", data.page + 1 >= data.pages));
}

export function search(value, label) {
  return h("label", { class: "search" }, h("span", { class: "hidden-text" }, label),
    h("input", { type: "search", placeholder: label, value, "data-action": "search", spellcheck: "false", autocomplete: "off", maxlength: "249" }));
}

export function crumbs(links, last) {
  return h("nav", { class: "crumbs", "aria-label": "Where you are" }, links.map(([href, words]) => [h("a", { href }, words), " / "]), h("span", { "aria-current": "page" }, last));
}

export function tabs(label, items) {
  return h("nav", { class: "tabs", "aria-label": label, key: "tabs" }, items.map(([href, words, isCurrent]) => h("a", { href, "aria-current": isCurrent ? "page" : null }, words)));
}

export function table(heads, rows, label) {
  return h("div", { class: "table", tabindex: "0", role: "group", "aria-label": label || heads.join(", ") }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((words) => h("th", { scope: "col" }, words)))),
    h("tbody", {}, rows.map(([key, cells]) => h("tr", { key }, cells.map((cell) => h("td", {}, cell)))))));
}

export function missing(message) {
  return [h("h1", {}, message), h("p", {}, h("a", { href: "#/" }, "To the overview"))];
}
