// Parses emphasis, code, links and line breaks within a block into nodes; the rest is text.

import { make } from "../elements.js";
import { mathNode } from "./math.js";
import { linkAt, safeLink, urlAt } from "./links.js";

const MAX_DEPTH = 6;
const SPECIAL = /[\\`*_~[!<\nh$]/g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;
const MATH = { "\\(": "\\)", "\\[": "\\]", "$$": "$$" };
const MAX_MATH = 4000; // characters
const EMPHASIS = { 1: ["em"], 2: ["strong"], 3: ["em", "strong"] };

export function inlineNodes(text, depth = 0) {
  return new Inline(text, depth).nodes();
}

class Inline {
  #nodes = [];
  #plain = "";
  #missing = new Set(); // runs without an end, which need no second search

  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
  }

  nodes() {
    const { text } = this;
    for (let at = 0; at < text.length;) {
      SPECIAL.lastIndex = at;
      const next = SPECIAL.exec(text)?.index ?? text.length;
      this.#plain += text.slice(at, next);
      at = next < text.length ? this.#special(next) : next;
    }
    this.#flush();
    return this.#nodes;
  }

  // Parses markup at a special character, or takes the character as text; returns the end.
  #special(at) {
    const { text } = this;
    const end = this.#markup(at);
    if (end > at) return end;
    const run = "`*_~".includes(text[at]) ? runAt(text, at) : 1;
    this.#plain += text.slice(at, at + run);
    return at + run;
  }

  // Parses the markup at `at` and returns its end; returns `at` if there is none.
  #markup(at) {
    switch (this.text[at]) {
      case "\\":
      case "$":
        return this.#math(at) ?? this.#escape(at);
      case "`":
        return this.#code(at);
      case "\n":
        return this.#add(make("br"), at + 1);
      case "*":
      case "_":
      case "~":
        return this.#emphasis(at);
      default:
        return this.#link(at);
    }
  }

  // Parses \( \), \[ \] or $$ $$; what is no TeX that the page knows is shown as it is written.
  #math(at) {
    const end = this.#endOfMath(at);
    if (end < 0) return null;
    const source = this.text.slice(at + 2, end - 2).trim();
    try {
      return this.#add(mathNode(source, this.text[at + 1] !== "("), end);
    } catch {
      return this.#add(make("code", {}, this.text.slice(at, end)), end);
    }
  }

  // Returns the end of the mathematics that begins at `at`; -1 if none does, or it has no end.
  #endOfMath(at) {
    const { text } = this;
    const close = MATH[text.slice(at, at + 2)];
    if (!close || this.#missing.has(close)) return -1;
    const length = text.slice(at + 2, at + MAX_MATH).indexOf(close);
    if (length < 0 && at + MAX_MATH >= text.length) this.#missing.add(close);
    return length < 0 ? -1 : at + length + 4;
  }

  #escape(at) {
    if (this.text[at] !== "\\") return at;
    const next = this.text[at + 1];
    if (!next || !PUNCTUATION.test(next)) return at;
    this.#plain += next;
    return at + 2;
  }

  #code(at) {
    const end = this.#endOfCode(at);
    if (end < 0) return at;
    const run = runAt(this.text, at);
    const inner = this.text.slice(at + run, end - run).replaceAll("\n", " ");
    const isPadded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim();
    return this.#add(make("code", {}, isPadded ? inner.slice(1, -1) : inner), end);
  }

  // Returns the end of the run that closes the one at `at`; -1 if there is none.
  #endOfCode(at) {
    const { text } = this;
    const run = runAt(text, at);
    if (this.#missing.has(`\`${run}`)) return -1;
    for (let next = text.indexOf("`", at + run); next >= 0;) {
      const length = runAt(text, next);
      if (length === run) return next + run;
      next = text.indexOf("`", next + length);
    }
    this.#missing.add(`\`${run}`);
    return -1;
  }

  #emphasis(at) {
    const { text } = this;
    const mark = text[at];
    const run = runAt(text, at);
    const tags = mark === "~" ? (run === 2 ? ["del"] : null) : EMPHASIS[run];
    if (!tags || this.depth >= MAX_DEPTH || !opens(text, at, run)) return at;
    const end = this.#endOfEmphasis(at + run, mark, run);
    if (end < 0) return at;
    const inner = inlineNodes(text.slice(at + run, end - run), this.depth + 1);
    return this.#add(tags.reduce((nodes, tag) => [make(tag, {}, ...nodes)], inner)[0], end);
  }

  // A longer run also closes, with its last marks: **bold *and more***.
  #endOfEmphasis(from, mark, run) {
    const { text } = this;
    if (this.#missing.has(mark + run)) return -1;
    for (let at = from; at < text.length;) {
      if (text[at] === "\\") {
        const end = this.#endOfMath(at);
        at = end < 0 ? at + 2 : end;
      } else if (text[at] === "`") {
        const end = this.#endOfCode(at);
        at = end < 0 ? at + runAt(text, at) : end;
      } else if (text[at] === mark) {
        const length = runAt(text, at);
        const fits = length === run || (length === 3 && run < 3);
        if (fits && closes(text, at, length)) return at + length;
        at += length;
      } else {
        at++;
      }
    }
    this.#missing.add(mark + run);
    return -1;
  }

  #link(at) {
    const url = urlAt(this.text, at);
    if (url) return this.#add(safeLink(url.href, url.href), url.end);
    const link = this.depth < MAX_DEPTH ? linkAt(this.text, at) : null;
    const made = link && safeLink(link.href, ...inlineNodes(link.label || link.href, MAX_DEPTH));
    return made ? this.#add(made, link.end) : at;
  }

  #add(node, end) {
    this.#flush();
    this.#nodes.push(node);
    return end;
  }

  #flush() {
    if (this.#plain) this.#nodes.push(document.createTextNode(this.#plain));
    this.#plain = "";
  }
}

function runAt(text, at) {
  let end = at + 1;
  while (text[end] === text[at]) end++;
  return end - at;
}

function opens(text, at, run) {
  const next = text[at + run] ?? " ";
  return next.trim() !== "" && !(text[at] === "_" && WORD.test(text[at - 1] ?? " "));
}

function closes(text, at, run) {
  const previous = text[at - 1];
  return previous.trim() !== "" && !(text[at] === "_" && WORD.test(text[at + run] ?? " "));
}
