// Where we are, as the part of the address behind #: #/topic/orders/records?filter=key%20%3D%201
//
// All that a view can be set to is in there, so that each view and each search is a link, and a
// reload shows it again.

export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { parts: path.split("/").map(decoded), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

// What is undefined, null or empty is left out.
export function queryText(query) {
  const used = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return new URLSearchParams(used).toString();
}

export function hashOf(parts, query = {}) {
  const text = queryText(query);
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const link = {
  partition: (topic, partition, query) => hashOf(["partition", topic, partition], query),
  topic: (topic) => hashOf(["topic", topic]),
  records: (topic, query) => hashOf(["topic", topic, "records"], query),
  write: (topic) => hashOf(["topic", topic, "write"]),
  settings: (topic) => hashOf(["topic", topic, "settings"]),
  group: (group) => hashOf(["group", group]),
  members: (group) => hashOf(["group", group, "members"]),
  inFlight: (group) => hashOf(["group", group, "in-flight"]),
  transaction: (producer) => hashOf(["transaction", String(producer)]),
};
