// What people do: events are heard at the document, and named by `data-action`.

import { send, text } from "./asking.js";
import { logIn } from "./login.js";
import { announce, draw, enter, look, renew, setQuery, state } from "./main.js";
import { searchQuery } from "./search.js";
import { nextTheme } from "./theme.js";
import { isNearlyPassed, sortBy, toTheTop } from "./virtual.js";
import { produce, replay } from "./writing.js";

const ACTIONS = {
  page(target) { setQuery({ page: Number(target.dataset.page) || undefined }, true); renew(); },
  before(target) { state.chosen = null; setQuery({ before: target.dataset.offset }, true); renew(); },
  span(target) { lookFrom(Number(target.dataset.first)); },
  record(target) { const offset = Number(target.dataset.offset); state.record = state.record === offset ? null : offset; draw(); },
  form(target) { state.form = target.dataset.form; draw(); },
  "records-from"(target) { lookFrom(Number(target.dataset.offset)); },
  sort(target) {
    setQuery(sortBy(target.dataset.column, target.dataset.natural, state.query));
    toTheTop();
    renew();
  },
  internal() { setQuery({ internal: state.query.internal === "true" ? undefined : "true", page: undefined }); renew(); },
  live() { setQuery({ live: state.query.live === "no" ? undefined : "no" }); draw(); },
  "topic-record"(target) { const { record } = target.dataset; setQuery({ record: state.query.record === record ? undefined : record }); draw(); },
  more() { state.search.more(); },
  stop() { state.search.stop(); },
  copy(target) { copyRecord(target.dataset.record); },
  "copy-decoded"(target) { copyRecord(target.dataset.record, "yes"); },
  "all-settings"() { setQuery({ all: state.query.all === "yes" ? undefined : "yes" }); draw(); },
  async "log-out"() {
    await send("logout", {});
    Object.assign(state, { needsLogin: true, data: null });
    state.search.reset("", {});
    draw();
  },
  theme() { nextTheme(); draw(); },
};

const FORMS = {
  async login(data) {
    if (!await logIn(state, data.get("user"), data.get("password"), draw)) return;
    state.needsLogin = false;
    enter();
  },
  produce(data) { return produce(state, state.route.arguments[0], data, draw); },
  replay(data) { return replay(state, state.route.arguments[0], data, draw); },
  records(data) {
    const offset = data.get("offset");
    if (/^[0-9]+$/.test(offset)) lookFrom(Number(offset));
  },
  search(data) {
    const asked = Object.fromEntries(["text", "filter", "from", "to", "partitions"].map((name) => [name, data.get(name) || undefined]));
    setQuery({ ...asked, record: undefined }, true);
    const [topic] = state.route.arguments;
    state.search.start(topic, searchQuery(topic, state.query));
  },
};

function lookFrom(offset) {
  state.chosen = offset;
  setQuery({ offset });
  look(offset);
}

// A record as `barnabas consume --json` writes it, whole: the page itself has the first part of it.
async function copyRecord(id, decoded) {
  const [topic] = state.route.arguments, [partition, offset] = id.split("-").map(Number);
  const place = { topic, cursor: `${partition}:${offset + 1}`, after: `${partition}:${offset}`, decoded };
  try {
    const line = text("download", place).then((words) => new Blob([words.trimEnd()], { type: "text/plain" }));
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": line })]);
    announce("Copied");
  } catch (error) {
    announce(error.isAnswer ? error.message : "The browser does not allow it");
  }
}

let searchTimer = null;

export function listen() {
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-action]");
    if (!target) return;
    if (target.dataset.action === "skip") { event.preventDefault(); document.getElementById("main").focus(); return; }
    const action = ACTIONS[target.dataset.action];
    if (action) action(target);
  });

  document.addEventListener("submit", (event) => {
    event.preventDefault();
    const form = FORMS[event.target.dataset.form];
    if (form) form(new FormData(event.target));
  });

  document.addEventListener("input", (event) => {
    const { target } = event;
    if (target.dataset.action !== "search") return;
    clearTimeout(searchTimer);
    searchTimer = setTimeout(() => { setQuery({ search: target.value, page: undefined }); toTheTop(); renew(); }, 150);
  });

  // The list asks for other rows when those that it has are nearly passed.
  let scrollTimer = null;
  document.addEventListener("scroll", ({ target }) => {
    if (!target.closest || !target.closest(".virtual") || scrollTimer) return;
    scrollTimer = setTimeout(() => {
      scrollTimer = null;
      if (isNearlyPassed(target, state.data)) renew();
    }, 80);
  }, { capture: true, passive: true });

  // Along a strip by the arrow keys; its spans are one stop of the Tab key.
  document.addEventListener("keydown", (event) => {
    const span = event.target.closest("button.span");
    if (!span) return;
    const spans = [...span.parentElement.querySelectorAll("button.span")];
    const to = { ArrowLeft: spans.indexOf(span) - 1, ArrowRight: spans.indexOf(span) + 1, Home: 0, End: spans.length - 1 }[event.key];
    if (to === undefined || !spans[to]) return;
    event.preventDefault();
    spans[to].focus();
  });
}
