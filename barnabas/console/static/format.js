// Numbers, times and sizes as people read them.

import { laidOut } from "./json_text.js";

const numbers = new Intl.NumberFormat("en");
const oneDigit = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

// A number that JavaScript cannot hold comes as its digits.
export const number = (value) => numbers.format(typeof value === "string" ? BigInt(value) : value);

export function count(value, noun, plural) {
  return `${number(value)} ${value === 1 ? noun : plural || `${noun}s`}`;
}

export function rate(value) {
  if (value >= 10) return number(Math.round(value));
  return oneDigit.format(value);
}

export function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (size >= 1000 && at < units.length - 1) { size /= 1000; at += 1; }
  return `${at ? oneDigit.format(size) : size} ${units[at]}`;
}

// In its two largest units, as the command line says it: 12 s, 3 min 20 s, 2 h 5 min.
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.floor(ms / 1000);
  for (const [size, unit, smaller, smallerUnit] of
    [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (seconds >= size) {
      const rest = Math.floor((seconds % size) / smaller);
      return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${smallerUnit}` : ""}`;
    }
  }
  return `${seconds} s`;
}

export function time(ms) {
  if (ms < 0) return "no time";
  const date = new Date(Number(ms));
  if (Number.isNaN(date.getTime())) return `${number(ms)} ms`;
  const two = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  return `${day} ${clock}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

export function offsets(first, end) {
  return end - first <= 1 ? `offset ${number(first)}` : `offsets ${number(first)}–${number(end - 1)}`;
}

// Who a producer is: its transactional id, or its number where nobody knows one.
export const producer = (row) => row.transactional_id ?? `producer ${row.producer_id}`;

// --- bytes of records ---------------------------------------------------------------------------

export function decoded(blob) {
  return Uint8Array.from(atob(blob.base64), (character) => character.charCodeAt(0));
}

// The text, or null where the bytes are none (a character that was cut in two at the end is left out).
export function text(blob) {
  const data = decoded(blob);
  const isCut = data.length < blob.size;
  for (let cut = 0; cut <= (isCut ? 3 : 0); cut += 1) {
    try {
      const result = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data.subarray(0, data.length - cut));
      return /[\u0000-\u0008\u000e-\u001f]/.test(result) ? null : result;
    } catch { /* not so many */ }
  }
  return null;
}

export function json(blob) {
  if (decoded(blob).length < blob.size) return null;
  const source = text(blob);
  if (source === null || !/^\s*[[{"]/.test(source)) return null;
  return laidOut(source);
}

export function hex(blob) {
  const data = decoded(blob), lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const codes = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

// One line of it, for a table.
export function preview(blob) {
  if (blob === null) return null;
  const source = text(blob);
  if (source !== null) return source.replace(/\s+/g, " ").slice(0, 160);
  return [...decoded(blob).subarray(0, 24)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

// One line of a record's key or value: what its schema decodes, or its bytes.
export function partPreview(row, part) {
  const decoded = row.decoded && row.decoded[part];
  return decoded && !decoded.error ? decoded.json.slice(0, 160) : preview(row[part]);
}
