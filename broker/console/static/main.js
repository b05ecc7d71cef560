// The page's state, what changes it, and the asking of the server: once a second while it is seen.

import { show } from "./dom.js";
import * as views from "./views.js";

const EVERY_MS = 1000, RETRY_MS = 3000, KEPT_RATES = 60, RECORDS = 25;

const state = {
  route: { view: "overview", arguments: [] },
  query: {},
  data: null,
  connection: "loading",
  rates: [], apiRates: {}, counted: null,
  chosen: null, before: null, records: null, record: null, form: "json",
  spans: 40, wideSpans: 60,
  theme: stored("theme") || "auto",
};

const VIEWS = {
  overview: { draw: views.overview, path: () => ["overview", { search: state.query.search, internal: state.query.internal, page: state.query.page }] },
  topic: { draw: views.topic, path: ([topic]) => ["topic", { topic, page: state.query.page }] },
  partition: { draw: views.partition, path: ([topic, partition]) => ["partition", { topic, partition, before: state.before }] },
  transactions: { draw: views.transactions, path: () => ["transactions", { page: state.query.page }] },
  groups: { draw: views.groups, path: () => ["groups", { search: state.query.search, page: state.query.page }] },
  group: { draw: views.group, path: ([group]) => ["group", { group, page: state.query.page }] },
  requests: { draw: views.requests, path: () => ["requests", {}] },
};

const element = (id) => document.getElementById(id);

// --- drawing ------------------------------------------------------------------------------------

function draw() {
  measure();
  document.body.dataset.connection = state.connection;
  show(element("nav"), views.navigation(state.route));
  show(element("status"), views.status(state));
  if (state.data && state.data.view === state.route.view) {
    show(element("main"), VIEWS[state.route.view].draw(state.data, state));
  }
  const [first] = state.route.arguments;
  document.title = `${first ? `${state.route.arguments.join("-")} · ` : ""}Barnabas console`;
}

// How many spans have room.
function measure() {
  const width = element("main").clientWidth;
  state.spans = Math.max(10, Math.min(44, Math.floor((width > 1000 ? width * 0.52 : width - 120) / 13)));
  state.wideSpans = Math.max(10, Math.min(90, Math.floor((width - 80) / 15)));
}

function notice(words) {
  element("notice").textContent = words;
}

function announce(words) {
  element("announce").textContent = words;
}

// --- asking -------------------------------------------------------------------------------------

let timer = null, asking = 0;

async function ask(path, query) {
  const used = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const answer = await fetch(`api/${path}?${new URLSearchParams(used)}`, { headers: { Accept: "application/json" } });
  const data = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(data.error || answer.statusText), { isAnswer: true });
  return data;
}

async function renew() {
  clearTimeout(timer);
  if (document.hidden) { state.connection = "paused"; draw(); return; }
  asking += 1;
  const turn = asking, { route } = state;
  const [path, query] = VIEWS[route.view].path(route.arguments);
  let wait = EVERY_MS;
  try {
    const data = await ask(path, query);
    if (turn !== asking) return;
    state.data = { ...data, view: route.view };
    state.connection = "live";
    count(data);
    notice("");
  } catch (error) {
    if (turn !== asking) return;
    wait = RETRY_MS;
    state.connection = error.isAnswer ? "live" : "lost";
    notice(error.isAnswer ? error.message
      : "The broker does not answer: it has stopped, or cannot be reached. What is shown is what it was; this page goes on by itself when it is back.");
    if (error.isAnswer) { state.data = null; show(element("main"), views.missing(error.message)); }
  }
  draw();
  timer = setTimeout(renew, wait);
}

// Requests per second, from the counts of two answers.
function count(data) {
  const now = data.requests, before = state.counted;
  const goesOn = before && now.counted_for_ms >= before.counted_for_ms && now.requests >= before.requests;
  if (goesOn) {
    const seconds = (now.counted_for_ms - before.counted_for_ms) / 1000;
    if (seconds < 0.4) return;
    const per = (one, other) => Math.max(0, (one - other) / seconds);
    state.rates.push({ requests: per(now.requests, before.requests), errors: per(now.errors, before.errors) });
    if (state.rates.length > KEPT_RATES) state.rates.shift();
    if (data.apis && before.apis) {
      state.apiRates = Object.fromEntries(Object.entries(data.apis).map(([api, total]) => [api, per(total, before.apis[api] || 0)]));
    }
  }
  state.counted = { ...now, apis: data.apis };
}

async function look(offset) {
  const [topic, partition] = state.route.arguments;
  state.records = { offset, data: null };
  state.record = null;
  const records = state.records;
  draw();
  try {
    records.data = await ask("records", { topic, partition, offset, count: RECORDS });
    const rows = records.data.records;
    announce(`${rows.length} records read`);
    const first = rows.find((row) => !row.marker);
    if (first && state.records === records) state.record = first.offset;
  } catch (error) {
    records.error = error.isAnswer ? error.message : "The broker does not answer.";
  }
  draw();
}

// --- where we are -------------------------------------------------------------------------------

function onRoute() {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const known = VIEWS[view] ? view : "overview";
  const isSame = state.route.view === known && state.route.arguments.join("/") === rest.join("/");
  if (isSame && state.data) return;
  Object.assign(state, { route: { view: known, arguments: rest }, query: {}, chosen: null, before: null, records: null, record: null });
  if (state.data && state.data.view !== known) state.data = null;
  renew().then(() => { window.scrollTo(0, 0); if (state.hasMoved) element("main").focus({ preventScroll: true }); state.hasMoved = true; });
}

// --- what people do -----------------------------------------------------------------------------

const ACTIONS = {
  page(target) { state.query.page = Number(target.dataset.page); renew(); },
  before(target) { state.before = target.dataset.offset === "" ? null : Number(target.dataset.offset); state.chosen = null; renew(); },
  span(target) { state.chosen = Number(target.dataset.first); look(state.chosen); },
  record(target) { const offset = Number(target.dataset.offset); state.record = state.record === offset ? null : offset; draw(); },
  form(target) { state.form = target.dataset.form; draw(); },
  "records-from"(target) { look(Number(target.dataset.offset)); },
  internal() { state.query.internal = state.query.internal === "true" ? undefined : "true"; state.query.page = 0; renew(); },
  theme() {
    state.theme = { auto: "light", light: "dark", dark: "auto" }[state.theme];
    store("theme", state.theme);
    applyTheme();
    draw();
  },
};

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-action]");
  if (!target) return;
  if (target.dataset.action === "skip") { event.preventDefault(); element("main").focus(); return; }
  const action = ACTIONS[target.dataset.action];
  if (action && target.tagName !== "FORM") action(target);
});

document.addEventListener("submit", (event) => {
  event.preventDefault();
  const offset = new FormData(event.target).get("offset");
  if (/^[0-9]+$/.test(offset)) look(Number(offset));
});

let searchTimer = null;
document.addEventListener("input", (event) => {
  const { target } = event;
  if (target.dataset.action !== "search") return;
  clearTimeout(searchTimer);
  searchTimer = setTimeout(() => { state.query.search = target.value; state.query.page = 0; renew(); }, 150);
});

// Along a strip by the arrow keys; its spans are one stop of the Tab key.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
  const span = event.target.closest("button.span");
  if (!span) return;
  const spans = [...span.parentElement.querySelectorAll("button.span")];
  const to = { ArrowLeft: spans.indexOf(span) - 1, ArrowRight: spans.indexOf(span) + 1, Home: 0, End: spans.length - 1 }[event.key];
  if (to === undefined || !spans[to]) return;
  event.preventDefault();
  spans[to].focus();
});

// --- what is under the pointer, or has the focus ------------------------------------------------

function showTip(target) {
  const tip = element("tip"), box = target.getBoundingClientRect();
  tip.textContent = target.dataset.tip;
  tip.hidden = false;
  tip.style.left = "0"; // where it has all the width, so that it can be measured
  const width = tip.offsetWidth;
  tip.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, box.left + box.width / 2 - width / 2))}px`;
  const above = box.top - tip.offsetHeight - 8;
  tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
}

function hideTip() { element("tip").hidden = true; }

document.addEventListener("pointerover", (event) => {
  const target = event.target.closest("[data-tip]");
  if (target) showTip(target); else hideTip();
});
document.addEventListener("focusin", (event) => { if (event.target.dataset && event.target.dataset.tip) showTip(event.target); else hideTip(); });
document.addEventListener("scroll", hideTip, { passive: true });

// --- colours ------------------------------------------------------------------------------------

function stored(name) { try { return localStorage.getItem(name); } catch { return null; } }
function store(name, value) { try { localStorage.setItem(name, value); } catch { /* private windows */ } }
function applyTheme() {
  if (state.theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = state.theme;
}

applyTheme();
window.addEventListener("hashchange", onRoute);
window.addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => { if (document.hidden) { clearTimeout(timer); state.connection = "paused"; draw(); } else renew(); });
onRoute();
