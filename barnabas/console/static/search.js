// The search in a topic's records: asked for part by part, and continued as records come.

const FOUND_AT_ONCE = 50, MOST_ROWS = 1000, LONGEST_MS = 60000;
const QUERY = ["text", "filter", "from", "to", "partitions"];

// What of a view's query the server is asked for; the times are typed in local time.
export function searchQuery(topic, query) {
  const asked = { topic };
  for (const name of QUERY) {
    const value = query[name];
    if (!value) continue;
    asked[name] = name === "from" || name === "to" ? String(new Date(value).getTime()) : value;
    if (asked[name] === "NaN") delete asked[name];
  }
  // a minute's end is a part of it, and so is a second's
  if (asked.to) asked.to = String(Number(asked.to) + (query.to.length > 16 ? 999 : 59999));
  return asked;
}

export class TopicSearch {
  // ask: of the server, a path and a query; changed: is called when there is something to draw.
  constructor(ask, changed) {
    Object.assign(this, { ask, changed, turn: 0 });
    this.reset("", {});
  }

  reset(topic, asked) {
    this.turn += 1;
    Object.assign(this, {
      topic, asked, rows: [], cursor: null, ends: null, scanned: 0, problems: [],
      error: null, errorAt: null, isRunning: false, isStopped: false, skipped: false,
    });
  }

  isOf(topic, asked) {
    return this.topic === topic && JSON.stringify(this.asked) === JSON.stringify(asked);
  }

  start(topic, asked) {
    this.reset(topic, asked);
    return this.run(FOUND_AT_ONCE);
  }

  more() { return this.run(this.rows.length + FOUND_AT_ONCE); }

  stop() { this.isStopped = true; }

  // Until there are so many rows, or the topic's beginning is reached, or somebody stops it.
  async run(wanted) {
    const { turn } = this, end = Date.now() + LONGEST_MS;
    Object.assign(this, { isRunning: true, isStopped: false });
    this.changed();
    try {
      do {
        const answer = await this.ask("search", { ...this.asked, cursor: this.cursor, count: Math.min(100, wanted - this.rows.length) });
        if (turn !== this.turn) return;
        this.rows.push(...answer.rows);
        if (this.ends === null) this.ends = answer.ends;
        this.cursor = answer.cursor;
        this.scanned += answer.scanned;
        this.problems = [...new Set([...this.problems, ...answer.problems])].slice(0, 20);
        this.changed();
      } while (this.cursor !== null && this.rows.length < wanted && !this.isStopped && Date.now() < end);
    } catch (error) {
      if (turn !== this.turn) return;
      this.error = error.isAnswer ? error.message : "The broker does not answer.";
      this.errorAt = error.at ?? null;
    }
    this.isRunning = false;
    this.changed();
  }

  // What has come since, in front of the others.
  async renew() {
    if (this.isRunning || this.error !== null || this.ends === null) return;
    const { turn } = this;
    const answer = await this.ask("search", { ...this.asked, after: this.ends, count: 100 });
    if (turn !== this.turn || this.isRunning) return;
    this.ends = answer.ends;
    this.scanned += answer.scanned;
    if (!answer.rows.length) return;
    this.skipped = this.skipped || answer.cursor !== null; // more came at once than are shown
    this.rows.unshift(...answer.rows);
    if (this.rows.length > MOST_ROWS) {
      this.rows.length = MOST_ROWS;
      this.cursor = null;
    }
    this.changed();
  }
}
