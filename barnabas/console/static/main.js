// The page's state, and its renewal: once a second while it is seen. actions.js has what people do.

import { listen } from "./actions.js";
import * as admin from "./admin_views.js";
import { Rates, ask } from "./asking.js";
import { show } from "./dom.js";
import * as groups from "./group_views.js";
import { loginForm } from "./login.js";
import { missing } from "./parts.js";
import { hashOf, parseRoute } from "./route.js";
import { TopicSearch, searchQuery } from "./search.js";
import { theme } from "./theme.js";
import "./tip.js";
import { topics } from "./topics.js";
import * as transactions from "./transaction_views.js";
import { visibleRows } from "./virtual.js";
import * as views from "./views.js";

const EVERY_MS = 1000, RETRY_MS = 3000, RECORDS = 25;

const rates = new Rates();

export const state = {
  route: { view: "overview", parts: [], arguments: [] },
  query: {},
  data: null,
  connection: "loading",
  rates: rates.rows,
  get apiRates() { return rates.apis; },
  chosen: null, records: null, record: null, form: "json",
  search: new TopicSearch(ask, () => draw()),
  spans: 40, wideSpans: 60,
  get theme() { return theme.name; },
};

// path: what the server is asked for, of the route's arguments and the query.
const VIEWS = {
  overview: { draw: views.overview, path: (_, { search, internal }) => ["overview", { search, internal }] },
  topics: { draw: topics, path: (_, query) => ["topics", { internal: query.internal, ...listed("topics", query) }] },
  topic: { draw: views.topic, path: ([topic], { page }) => ["topic", { topic, page }] },
  records: { draw: views.records, path: ([topic]) => ["topic", { topic, strips: "no" }], entered: searchTopic, renewed: renewSearch },
  partition: { draw: views.partition, path: ([topic, partition], { before }) => ["partition", { topic, partition, before }], entered: lookIntoPartition },
  transactions: { draw: transactions.transactions, path: (_, query) => ["transactions", listed("transactions", query)] },
  transaction: { draw: transactions.transaction, path: ([producer], query) => ["transaction", { producer, ...listed("transaction", query) }] },
  groups: { draw: groups.groups, path: (_, query) => ["groups", listed("groups", query)] },
  group: { draw: groups.offsets, path: ([group], query) => ["group", { group, of: "offsets", ...listed("group", query) }] },
  members: { draw: groups.members, path: ([group], query) => ["group", { group, of: "members", ...listed("members", query) }] },
  "in-flight": { draw: groups.inFlight, path: ([group], query) => ["group", { group, of: "in_flight", ...listed("in-flight", query) }] },
  settings: { draw: views.settings, path: ([topic]) => ["settings", { topic }] },
  write: { draw: views.write, path: ([topic]) => ["topic", { topic, strips: "no" }] },
  security: { draw: admin.security, path: () => ["security", {}] },
  requests: { draw: views.requests, path: () => ["requests", {}] },
  // the overview is asked for, since the page's head shows what each answer has
  nowhere: { draw: (_, { route }) => missing(`There is no page at ${hashOf(route.parts)}.`), path: () => ["overview", {}] },
};

// What of a view's query a list is asked for, and which of its rows.
const listed = (view, { search, sort, order }) => ({ search, sort, order, ...visibleRows(view) });

const element = (id) => document.getElementById(id);

// --- drawing ------------------------------------------------------------------------------------

export function draw() {
  measure();
  document.body.dataset.connection = state.connection;
  show(element("nav"), views.navigation(state.route));
  show(element("status"), views.status(state));
  if (state.needsLogin) {
    show(element("main"), loginForm(state));
  } else if (state.data && state.data.view === state.route.view) {
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

export function announce(words) {
  element("announce").textContent = words;
}

// --- asking -------------------------------------------------------------------------------------

let timer = null, asking = 0;

export async function renew() {
  clearTimeout(timer);
  if (document.hidden) { state.connection = "paused"; draw(); return; }
  asking += 1;
  const turn = asking, { route } = state, view = VIEWS[route.view];
  const [path, query] = view.path(route.arguments, state.query);
  let wait = EVERY_MS;
  try {
    const data = await ask(path, query);
    if (turn !== asking) return;
    state.data = { ...data, view: route.view };
    state.needsLogin = false;
    state.connection = "live";
    rates.add(data);
    if (view.renewed) await view.renewed();
    if (turn !== asking) return;
    notice(data.problem || "");
  } catch (error) {
    if (turn !== asking) return;
    wait = RETRY_MS;
    if (error.isAnswer) refused(error); else lost();
  }
  draw();
  if (!state.needsLogin) timer = setTimeout(renew, wait);
}

function refused(error) {
  state.connection = "live";
  state.data = null;
  if (error.status === 401) {
    state.needsLogin = true;
    notice("");
    return;
  }
  notice(error.message);
  show(element("main"), missing(error.message));
}

function lost() {
  state.connection = "lost";
  notice("The broker does not answer: it has stopped, or cannot be reached. The page shows the last known state, and renews itself when the broker is back.");
}

export async function look(offset) {
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

function lookIntoPartition() {
  if (/^\d+$/.test(state.query.offset || "")) {
    state.chosen = Number(state.query.offset);
    look(state.chosen);
  }
}

function searchTopic() {
  const [topic] = state.route.arguments, asked = searchQuery(topic, state.query);
  if (!state.search.isOf(topic, asked) || state.search.error) state.search.start(topic, asked);
}

async function renewSearch() {
  if (state.query.live !== "no" && !state.query.to) await state.search.renew();
}

// --- where we are -------------------------------------------------------------------------------

const PARTS = { topic: ["records", "settings", "write"], group: ["members", "in-flight"] };
const NOT_BY_NAME = [...Object.values(PARTS).flat(), "nowhere"];
// How many parts a route has after its name; none where nothing is said.
const LENGTHS = { topic: 1, group: 1, transaction: 1, partition: 2 };

// The view of a route's parts, and what it is a view of.
function viewOf([name, ...rest]) {
  if (!name && !rest.length) return ["overview", []];
  if (PARTS[name] && PARTS[name].includes(rest[1]) && rest.length === 2) return [rest[1], rest.slice(0, 1)];
  const exists = Object.hasOwn(VIEWS, name) && !NOT_BY_NAME.includes(name) && rest.length === (LENGTHS[name] || 0);
  return exists ? [name, rest] : ["nowhere", rest];
}

function onRoute() {
  const { parts, query } = parseRoute(location.hash);
  const [view, rest] = viewOf(parts);
  const isSame = state.data && state.route.view === view && state.route.arguments.join("/") === rest.join("/");
  state.query = query;
  if (!isSame) {
    Object.assign(state, { route: { view, parts, arguments: rest }, chosen: null, records: null, record: null, written: null });
    if (state.data && state.data.view !== view) state.data = null;
  }
  enter().then(() => {
    if (isSame) return;
    window.scrollTo(0, 0);
    // who has begun to type while the answer was awaited goes on typing
    if (state.hasMoved && !document.activeElement.matches("input, textarea, select")) element("main").focus({ preventScroll: true });
    state.hasMoved = true;
  });
}

export function enter() {
  const { entered } = VIEWS[state.route.view];
  if (entered && !state.needsLogin) entered();
  return renew();
}

// Change what the view is set to. isStep: the browser's way back leads to what it was.
export function setQuery(changes, isStep = false) {
  state.query = { ...state.query, ...changes };
  const hash = hashOf(state.route.parts, state.query);
  if (isStep) history.pushState(null, "", hash); else history.replaceState(null, "", hash);
}

listen();
window.addEventListener("hashchange", onRoute);
window.addEventListener("popstate", onRoute);
window.addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => { if (document.hidden) { clearTimeout(timer); state.connection = "paused"; draw(); } else renew(); });
onRoute();
