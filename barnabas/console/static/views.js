// What each view draws: functions from the server's answer to elements.

import { settings as topicSettings } from "./admin_views.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { bytes, count, duration, number, producer, rate } from "./format.js";
import { groupRow, readerRow, topicGroupRow } from "./group_views.js";
import { card, code, crumbs, empty, pages, search, table, tabs } from "./parts.js";
import { recordsPanel } from "./records.js";
import { hashOf, link } from "./route.js";
import { topicRecords } from "./topic_records.js";
import { transactionRow } from "./transaction_views.js";
import { writing } from "./writing.js";
import { LONG_MS, held, largeStrip, legend, smallStrip, spansOf, summary } from "./strip.js";

// --- header -------------------------------------------------------------------------------------

export function navigation(route) {
  const item = (href, words, names) => h("a", { href, "aria-current": names.includes(route.view) ? "page" : null }, words);
  return [item("#/", "Overview", ["overview"]), item("#/topics", "Topics", ["topics", "topic", "records", "settings", "write", "partition"]), item("#/transactions", "Transactions", ["transactions", "transaction"]),
    item("#/groups", "Groups", ["groups", "group", "members", "in-flight"]), item("#/requests", "Requests", ["requests"]), item("#/security", "Security", ["security"])];
}

export function status(state) {
  const { broker } = state.data || {};
  const words = { live: "live", lost: "no answer", paused: "paused", loading: "…" }[state.connection];
  return [
    broker ? h("span", { class: "where" }, h("b", {}, broker.address), h("span", { class: "wide" }, ` node ${broker.node_id} · ${broker.version} · ${count(broker.connections, "connection")}`)) : null,
    h("span", { class: `pulse ${state.connection}` }, h("i", { "aria-hidden": "true" }), words),
    state.data && state.data.user ? h("button", { type: "button", "data-action": "log-out", "aria-label": `Log ${state.data.user} out` }, `${state.data.user} · log out`) : null,
    h("button", { type: "button", class: "theme", "data-action": "theme", "aria-label": `Colours: ${state.theme}. Change` }, { auto: "◐", light: "☀", dark: "☾" }[state.theme]),
  ];
}

// --- overview -----------------------------------------------------------------------------------

export function overview(data, state) {
  const nothing = data.totals.partitions === 0 && !state.query.search;
  return [
    h("h1", { class: "hidden-text" }, "Overview"),
    verdict(data),
    figures(data, state),
    h("div", { class: "columns" },
      h("div", { class: "main-column" }, nothing ? firstSteps(data) : topics(data, state)),
      h("div", { class: "side-column" },
        card("Open transactions", data.totals.open_transactions > data.transactions.length ? h("a", { href: "#/transactions" }, `all ${number(data.totals.open_transactions)}`) : null,
          data.transactions.length ? h("ul", { class: "rows" }, data.transactions.map(transactionRow))
            : empty("No open transactions.", "A transaction appears here from its first partition to its last marker.")),
        card("Groups", data.totals.groups > data.groups.length ? h("a", { href: "#/groups" }, `all ${number(data.totals.groups)}`) : null,
          data.groups.length ? h("ul", { class: "rows" }, data.groups.map(groupRow))
            : empty("No groups.", "Consumers with a group.id appear here, with their lag.")))),
  ];
}

// The state of everything in a sentence.
function verdict(data) {
  const holder = data.transactions.find((row) => row.held > 0 && (row.age_ms >= LONG_MS || row.hanging));
  if (!holder) {
    const growing = data.groups.filter((group) => group.progress === "grows");
    if (growing.length) {
      return h("div", { class: "verdict waits", role: "status", key: "verdict" }, h("i", { "aria-hidden": "true" }, "!"),
        h("p", {}, "No reader waits for a transaction, but the lag grows of ", h("b", {}, growing.map((group) => group.group).join(", ")), "."));
    }
    const words = data.totals.held_partitions
      ? `${count(data.totals.held_partitions, "partition")} ${data.totals.held_partitions === 1 ? "waits" : "wait"} for a transaction that began recently.`
      : "No reader waits for a transaction.";
    return h("div", { class: "verdict good", role: "status", key: "verdict" }, h("i", { "aria-hidden": "true" }, "✓"), h("p", {}, words));
  }
  const place = holder.places[0];
  const where = `${place.topic}-${place.partition}`;
  const waiting = data.groups.filter((group) => group.stuck.some((row) => row.producer_id === holder.producer_id));
  const more = data.totals.stuck_partitions > 1 ? ` It is one of ${number(data.totals.stuck_partitions)} partitions that are held like this.` : "";
  return h("div", { class: "verdict bad", key: "verdict" }, h("i", { "aria-hidden": "true" }, "!"),
    h("p", {}, h("b", {}, producer(holder)), holder.hanging ? " hangs: nothing will end it. It holds " : ` has been open for ${duration(holder.age_ms)} and holds `,
      h("b", {}, where), ` back by ${count(place.held, "offset")}`,
      waiting.length ? [`; ${waiting.length === 1 ? "group" : "groups"} `, h("b", {}, waiting.map((row) => row.group).join(", ")), waiting.length === 1 ? " waits." : " wait."] : ".", more),
    h("a", { class: "button", href: link.partition(place.topic, place.partition) }, "Why?"));
}

function figures(data, state) {
  const figure = (words, value, extra, kind) => h("div", { class: `figure ${kind || ""}`, key: words }, h("dt", {}, words), h("dd", {}, value, extra));
  const rates = state.rates;
  const last = rates[rates.length - 1];
  return h("dl", { class: "figures" },
    figure("requests / s", last ? rate(last.requests) : "–", sparkline(rates.map((row) => row.requests), "requests per second over the last minute")),
    figure("errors / s", last ? rate(last.errors) : "–", sparkline(rates.map((row) => row.errors), "errors per second over the last minute"), last && last.errors > 0 ? "warn" : ""),
    figure("open transactions", number(data.totals.open_transactions)),
    figure("partitions held", number(data.totals.held_partitions), h("small", {}, ` of ${number(data.totals.partitions)}`), data.totals.stuck_partitions ? "warn" : ""),
    figure("log", bytes(data.totals.size_bytes), h("small", {}, ` in ${count(data.totals.topics, "topic")}`)));
}

function sparkline(values, label) {
  if (values.length < 2) return null;
  const most = Math.max(1, ...values);
  const points = values.map((value, at) => `${((60 - values.length + at) / 59 * 80).toFixed(1)},${(20 - (value / most) * 18).toFixed(1)}`).join(" ");
  return h("svg", { viewBox: "0 0 80 22", class: "sparkline", role: "img", "aria-label": label, preserveAspectRatio: "none" }, h("polyline", { points }));
}

function topics(data, state) {
  const page = data.topics;
  return card("The log",
    h("div", { class: "tools" }, search(state.query.search || "", "Find a topic"),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: state.query.internal === "true", "data-action": "internal" }), "internal topics")),
    legend(),
    page.rows.length ? page.rows.map((topic) => topicRow(topic, state))
      : empty(`No topic has “${state.query.search}” in its name.`, "The search compares names only."),
    page.total > page.rows.length ? h("p", { class: "pages" }, h("a", { href: hashOf(["topics"], { search: state.query.search, internal: state.query.internal }) }, `All ${number(page.total)} topics`)) : null);
}

function topicRow(topic, state) {
  const rest = topic.partition_count - topic.strips.length;
  return h("div", { class: "topic", key: topic.topic },
    h("h3", {}, h("a", { href: link.topic(topic.topic) }, topic.topic), " ",
      h("span", { class: "muted" }, `${count(topic.partition_count, "partition")} · ${bytes(topic.size_bytes)}`),
      topic.stuck_count ? h("span", { class: "badge warn" }, `${number(topic.stuck_count)} stuck`) : null),
    topic.strips.map((strip) => stripRow(strip, state)),
    rest > 0 ? h("a", { class: "more", href: link.topic(topic.topic) }, `${count(rest, "more partition")}`) : null);
}

function stripRow(strip, state) {
  const behind = held(strip);
  return h("a", { class: "strip-row", key: `${strip.topic}-${strip.partition}`, href: link.partition(strip.topic, strip.partition), "aria-label": `${summary(strip)}. Show details` },
    h("span", { class: "strip-name" }, strip.partition),
    smallStrip(strip, state.spans),
    h("span", { class: "strip-end" }, h("b", {}, number(strip.high_watermark)), behind ? h("span", { class: "held-count" }, `${number(behind)} held`) : h("span", { class: "muted" }, "all stable")));
}

function firstSteps(data) {
  const { address } = data.broker;
  return card("The log", null, empty("No topics yet.",
    ["Create one: ", code(`barnabas topics create orders --partitions 3 -b ${address}`)],
    ["Or write to one, which creates it: ", code(`echo hello | barnabas produce greetings -b ${address}`)],
    ["In a transaction: ", code(`echo hello | barnabas produce greetings --transactional-id first -b ${address}`)],
    "It appears here at once; the page renews itself."));
}

// --- topic and partition ------------------------------------------------------------------------

export function topic(data, state) {
  return [
    ...topicHead(data, "log"),
    h("div", { class: "charts", key: "charts" },
      chart("Records / s", data.samples.map(([age, records]) => [age, records]), data.records_rate, rate),
      chart("Bytes / s", data.samples.map(([age, , size]) => [age, size]), data.bytes_rate, (size) => bytes(Math.round(size)))),
    card("Partitions", null, legend(), h("div", { class: "topic" }, data.strips.map((strip) => stripRow(strip, state))), pages(data)),
    card("Groups that read it", null, data.groups.length ? h("ul", { class: "rows wide-rows" }, data.groups.map((group) => topicGroupRow(group)))
      : empty("No group has committed an offset here.")),
  ];
}

export function records(data, state) {
  return [...topicHead(data, "records"), topicRecords(state)];
}

export function settings(data, state) {
  return [...topicHead(data, "settings"), topicSettings(data, state)];
}

export function write(data, state) {
  return [...topicHead(data, "write"), data.writes ? writing(state, data.topic)
    : empty("The console is read-only.", ["Start the broker with ", code("--console-writes"), " to produce and replay records."])];
}

function topicHead(data, tab) {
  return [
    crumbs([["#/topics", "Topics"]], data.topic),
    h("h1", {}, data.topic, " ", h("span", { class: "muted" }, data.partition_count === undefined ? "" : `${count(data.partition_count, "partition")} · ${bytes(data.size_bytes)}`)),
    tabs("Of this topic", [[link.topic(data.topic), "Log", tab === "log"], [link.records(data.topic), "Records", tab === "records"],
      [link.settings(data.topic), "Settings", tab === "settings"], ...(data.writes ? [[link.write(data.topic), "Write", tab === "write"]] : [])]),
  ];
}

export function partition(data, state) {
  const { strip } = data;
  const [name, index] = state.route.arguments;
  const title = `${name}-${index}`;
  if (!strip) return [h("h1", {}, title), empty("Its log cannot be read.", "The broker's log says why.")];
  const chosen = spansOf(strip).find((span) => span.first === state.chosen) || null;
  const isBack = strip.end_offset < strip.log_end_offset;
  const shown = strip.spans.slice(-state.wideSpans);
  const holder = holderOf(data);
  const firstShown = shown.length ? shown[0][1] : strip.log_start_offset;
  return [
    crumbs([["#/topics", "Topics"], [link.topic(name), name]], title),
    h("h1", {}, title, " ", h("span", { class: "muted" }, `offsets ${number(strip.log_start_offset)} to ${number(strip.log_end_offset)}`)),
    why(data),
    card("The log", h("div", { class: "tools" },
      holder && holder.first < firstShown ? h("button", { type: "button", class: "strong", "data-action": "before", "data-offset": holder.first + 12 }, `Where ${holder.name} begins`) : null,
      h("button", { type: "button", "data-action": "before", "data-offset": firstShown, disabled: firstShown <= strip.log_start_offset }, "◂ Older"),
      h("button", { type: "button", "data-action": "before", "data-offset": "", disabled: !isBack }, "Live ▸")),
    legend(),
    largeStrip(strip, state.wideSpans, chosen),
    strip.problem ? h("p", { class: "note warn" }, strip.problem) : null),
    h("div", { class: "columns even" },
      recordsPanel(state, strip, chosen),
      h("div", { class: "side-column" },
        card("Open here", null, data.transactions.length ? h("ul", { class: "rows" }, data.transactions.map(transactionRow))
          : empty("No open transactions here.", "read_committed consumers read to the end.")),
        card("Groups that read it", null, data.groups.length ? h("ul", { class: "rows" }, data.groups.map((group) => readerRow(group)))
          : empty("No group has committed an offset here.")))),
  ];
}

// The transaction that holds the last stable offset, and where it begins.
function holderOf(data) {
  for (const row of data.transactions) {
    const place = row.places.find((at) => at.held && at.topic === data.strip.topic && at.partition === data.strip.partition);
    if (place) return { name: producer(row), first: place.first_offset };
  }
  return null;
}

// The words of `barnabas txn why-stuck`.
function why(data) {
  const holder = data.transactions.find((row) => row.places.some((place) => place.held)) || null;
  const isLong = data.stuck && (!holder || holder.age_ms >= LONG_MS || holder.hanging);
  return h("div", { class: `verdict ${isLong ? "bad" : data.stuck ? "waits" : "good"}`, key: "why", role: "status", "aria-live": "off" },
    h("i", { "aria-hidden": "true" }, isLong ? "!" : data.stuck ? "…" : "✓"), h("p", { id: "why" }, data.explanation));
}

// --- requests -----------------------------------------------------------------------------------

export function requests(data, state) {
  const apis = Object.entries(data.apis).sort((one, other) => other[1] - one[1]);
  const seconds = data.requests.counted_for_ms / 1000;
  return [
    h("h1", {}, "Requests"),
    figures({ ...data }, state),
    h("div", { class: "columns even" },
      card("By request", h("span", { class: "muted" }, `counted for ${duration(data.requests.counted_for_ms)} since a page was opened`),
        apis.length ? table(["Request", "Now / s", "In all"], apis.map(([api, total]) => [api, [api, rate(state.apiRates[api] || 0), number(total)]]))
          : empty("No requests yet.", seconds < 3 ? "They are counted from now on." : "No client sends requests.")),
      card("Errors in answers", null, data.errors.length
        ? table(["Request", "Error", "In all"], data.errors.map((row) => [row.api + row.error, [row.api, code(row.error), number(row.count)]]))
        : empty("No errors.", "Kafka's error codes appear here, by request."))),
  ];
}
