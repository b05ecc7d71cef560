// Numbers over the last hour as a line, with its highest and its last value in words.

import { h } from "./dom.js";
import { duration } from "./format.js";

const WIDTH = 300, HEIGHT = 64, HOUR_MS = 3600000;

// samples: [age in ms, value or null], the oldest first. now: the present value, which ends the line.
export function chart(label, samples, now, written) {
  const points = [...samples.map(([age, value]) => [age, value]), [0, now]].filter(([, value]) => value !== null && value !== undefined);
  const highest = Math.max(0, ...points.map(([, value]) => value));
  const since = samples.length ? Math.min(HOUR_MS, samples[0][0]) : 0;
  const span = Math.max(since, 60000);
  const words = `${label}: ${now === null || now === undefined ? "unknown yet" : `${written(now)} now`}${points.length > 1 ? `, at most ${written(highest)} in ${duration(span)}` : ""}`;
  return h("figure", { class: "chart", key: label },
    h("figcaption", {}, h("span", {}, label), h("b", {}, now === null || now === undefined ? "…" : written(now))),
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words, "data-tip": words },
      h("line", { class: "base", x1: "0", y1: HEIGHT - 1, x2: WIDTH, y2: HEIGHT - 1 }),
      parts(samples, now).map((part, at) => h("polyline", { key: at, points: part.map(([age, value]) => `${(WIDTH * (1 - age / span)).toFixed(1)},${(HEIGHT - 2 - (HEIGHT - 6) * (highest ? value / highest : 0)).toFixed(1)}`).join(" ") }))),
    h("p", { class: "chart-foot muted", "aria-hidden": "true" }, h("span", {}, `${duration(span)} ago`), h("span", {}, highest ? `at most ${written(highest)}` : ""), h("span", {}, "now")));
}

// The runs of samples that are known.
function parts(samples, now) {
  const runs = [[]];
  for (const [age, value] of [...samples, [0, now]]) {
    if (value === null || value === undefined) { if (runs.at(-1).length) runs.push([]); continue; }
    runs.at(-1).push([age, value]);
  }
  return runs.filter((run) => run.length > 1);
}
