// Links with harmless schemes. Images become links, so that nothing external is fetched.

import { make } from "../elements.js";

const SCHEMES = ["http:", "https:", "mailto:"];
const MAX_LABEL = 500;
const MAX_URL = 2000;
const URL_AT = /https?:\/\/[^\s<>"`]{1,2000}/y;
const ENDS_SENTENCE = /[.,;:!?'"*_~\])}]/;

// Returns a link, or null for a scheme that is not in SCHEMES.
export function safeLink(href, ...label) {
  if (!URL.canParse(href) || !SCHEMES.includes(new URL(href).protocol)) return null;
  return make("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...label);
}

// Parses a bare URL at `at`, with or without angle brackets.
export function urlAt(text, at) {
  const isBracketed = text[at] === "<";
  URL_AT.lastIndex = isBracketed ? at + 1 : at;
  let href = URL_AT.exec(text)?.[0];
  if (!href || (!isBracketed && /\w/.test(text[at - 1] ?? " "))) return null;
  if (!isBracketed) href = withoutSentence(href);
  else if (text[at + 1 + href.length] !== ">") return null;
  if (!URL.canParse(href)) return null;
  return { href, end: at + href.length + (isBracketed ? 2 : 0) };
}

// In "see https://a.b/c_(d)." the URL ends before the full stop, not before the bracket.
function withoutSentence(href) {
  let end = href.length;
  while (ENDS_SENTENCE.test(href[end - 1])) {
    if (href[end - 1] === ")" && href.slice(0, end).includes("(")) break;
    end--;
  }
  return href.slice(0, end);
}

// Parses [label](href "title") or ![alt](source); returns null if `at` begins neither.
export function linkAt(text, at) {
  const open = text[at] === "!" ? at + 1 : at;
  const close = text[open] === "[" ? bracketEnd(text, open, "[", "]", MAX_LABEL) : -1;
  if (close < 0 || text[close + 1] !== "(") return null;
  const end = bracketEnd(text, close + 1, "(", ")", MAX_URL);
  if (end < 0) return null;
  const target = text.slice(close + 2, end).trim();
  const [href] = target.split(/\s/);
  return { label: text.slice(open + 1, close), href: href.replace(/^<|>$/g, ""), end: end + 1 };
}

function bracketEnd(text, at, open, close, limit) {
  let depth = 0;
  for (let end = at; end < Math.min(text.length, at + limit); end++) {
    if (text[end] === "\\") end++;
    else if (text[end] === open) depth++;
    else if (text[end] === close && --depth === 0) return end;
  }
  return -1;
}
