// The asking of the server.

import { queryText } from "./route.js";

// The answer as data. An error has `isAnswer` where the server gave it, with its status, and `at`.
export async function ask(path, query) {
  return dataOf(await fetch(`api/${path}?${queryText(query)}`, { headers: { Accept: "application/json" } }));
}

// The answer as text, which is no JSON value.
export async function text(path, query) {
  const answer = await fetch(`api/${path}?${queryText(query)}`);
  return answer.ok ? answer.text() : dataOf(answer);
}

// Something to be done by the server, with a body of JSON.
export async function send(path, body) {
  return dataOf(await fetch(`api/${path}`, {
    method: "POST", headers: { Accept: "application/json", "Content-Type": "application/json" }, body: JSON.stringify(body),
  }));
}

async function dataOf(answer) {
  const data = await answer.json();
  if (!answer.ok) {
    throw Object.assign(new Error(data.error || answer.statusText), { isAnswer: true, status: answer.status, at: data.at });
  }
  return data;
}

// Requests per second, from the counts of two answers.
export class Rates {
  constructor() { Object.assign(this, { rows: [], apis: {}, before: null }); }

  add(data) {
    const now = data.requests, { before } = this;
    if (before && now.counted_for_ms >= before.counted_for_ms && now.requests >= before.requests) {
      const seconds = (now.counted_for_ms - before.counted_for_ms) / 1000;
      if (seconds < 0.4) return;
      const per = (one, other) => Math.max(0, (one - other) / seconds);
      this.rows.push({ requests: per(now.requests, before.requests), errors: per(now.errors, before.errors) });
      if (this.rows.length > 60) this.rows.shift();
      if (data.apis && before.apis) {
        this.apis = Object.fromEntries(Object.entries(data.apis).map(([api, total]) => [api, per(total, before.apis[api] || 0)]));
      }
    }
    this.before = { ...now, apis: data.apis };
  }
}
