// JSON as it came, laid out in lines: each token stays as it is, since JavaScript's numbers have 16 digits.

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},:]|[^\s[\]{},:"]+/g;
const DEEPEST = 40; // deeper lines are not indented further, so that a text of brackets does not grow by its square

// The laid-out text, or null where it is no JSON.
export function laidOut(source) {
  try { JSON.parse(source); } catch { return null; }
  const parts = [];
  let depth = 0, before = "";
  const line = () => parts.push("\n", "  ".repeat(Math.min(depth, DEEPEST)));
  for (const [token] of source.matchAll(TOKEN)) {
    if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") line();
    } else if (before === "{" || before === "[" || before === ",") line();
    parts.push(token);
    if (token === "{" || token === "[") depth += 1;
    else if (token === ":") parts.push(" ");
    before = token;
  }
  return parts.join("");
}
