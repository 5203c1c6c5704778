// Converts the TeX that models write to MathML. Throws for what it does not know.

import { ACCENTS, BOLD, DOUBLE, FENCES, FUNCTIONS, LIMITS, SPACES, SYMBOLS } from "./math_symbols.js";

const TOKEN = /\\([a-zA-Z]+\*?|[^])|(\d+(?:[.,]\d+)*)|([^\s])/gu;
const MAX_DEPTH = 40;
const NO_BREAK = "\u00a0"; // a plain space at an end would not be shown
const TABLES = { matrix: "", pmatrix: "()", bmatrix: "[]", vmatrix: "||", cases: "{", aligned: "", align: "", array: "" };
const TEXTS = ["text", "textbf", "textit", "textrm", "mathrm", "operatorname", "mathsf", "mathtt"];
const IGNORED = ["displaystyle", "textstyle", "limits", "nolimits", "nonumber", "big", "Big", "bigg", "Bigg"];

export function mathNode(source, isBlock) {
  const tex = new Tex(source);
  const math = node("math", ...tex.row());
  if (isBlock) math.setAttribute("display", "block");
  math.setAttribute("aria-label", source);
  return math;
}

function node(tag, ...children) {
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  made.append(...children);
  return made;
}

// Only the fences of \left and \right grow.
function operator(text) {
  const made = node("mo", text);
  if ("()[]|".includes(text)) made.setAttribute("stretchy", "false");
  return made;
}

class Tex {
  #at = 0;
  #depth = 0;

  constructor(source) {
    const found = [...source.matchAll(TOKEN)];
    this.source = source;
    this.tokens = found.map(([token]) => token);
    this.starts = found.map(({ index }) => index);
  }

  // Reads up to one of the ends, which stays unread; without ends, everything.
  row(...ends) {
    if (++this.#depth > MAX_DEPTH) throw new Error("nested too deeply");
    const nodes = [];
    while (this.#at < this.tokens.length && !ends.includes(this.tokens[this.#at])) {
      const made = this.#scripted();
      if (made) nodes.push(made);
    }
    if (ends.length && this.#at === this.tokens.length) throw new Error(`no ${ends[0]}`);
    this.#depth--;
    return nodes;
  }

  #take() {
    if (this.#at === this.tokens.length) throw new Error("cut off");
    return this.tokens[this.#at++];
  }

  #accept(token) {
    if (this.tokens[this.#at] !== token) return false;
    this.#at++;
    return true;
  }

  // Reads an atom with what is below and above it.
  #scripted() {
    const isLimit = LIMITS.includes(this.tokens[this.#at]?.slice(1));
    const base = this.#atom() ?? null;
    const scripts = {};
    for (let next = this.tokens[this.#at]; next === "^" || next === "_" || next === "'"; next = this.tokens[this.#at]) {
      this.#at++;
      scripts[next === "_" ? "_" : "^"] = next === "'" ? node("mo", "′") : (this.#atom() ?? node("mrow"));
    }
    const { "^": above, _: below } = scripts;
    if (!above && !below) return base;
    const [both, under, over] = isLimit ? ["munderover", "munder", "mover"] : ["msubsup", "msub", "msup"];
    if (above && below) return node(both, base ?? node("mrow"), below, above);
    return above ? node(over, base ?? node("mrow"), above) : node(under, base ?? node("mrow"), below);
  }

  #atom() {
    const token = this.#take();
    if (token === "{") return this.#group();
    if (token === "}" || token === "&") throw new Error(`unexpected ${token}`);
    if (token === "~") return this.#space(0.3);
    if (token.startsWith("\\")) return this.#command(token.slice(1).replace(/\*$/, ""));
    if (/\d/.test(token)) return node("mn", token);
    return /\p{L}/u.test(token) ? node("mi", token) : operator(token === "-" ? "−" : token);
  }

  #group() {
    const inner = this.row("}");
    this.#take();
    return node("mrow", ...inner);
  }

  #argument() {
    return this.#atom() ?? node("mrow");
  }

  #command(name) {
    if (name in SYMBOLS) return node(/\p{L}/u.test(SYMBOLS[name]) ? "mi" : "mo", SYMBOLS[name]);
    if (FUNCTIONS.includes(name)) return node(LIMITS.includes(name) ? "mo" : "mi", name);
    if (name in SPACES) return this.#space(SPACES[name]);
    if (name in ACCENTS) return this.#accent(ACCENTS[name]);
    if (TEXTS.includes(name)) return node("mtext", this.#words().replaceAll(" ", NO_BREAK));
    if (IGNORED.includes(name)) return null;
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
        return node("mfrac", this.#argument(), this.#argument());
      case "binom":
        return this.#binomial();
      case "sqrt":
        return this.#root();
      case "mathbb":
        return node("mi", letters(this.#words(), DOUBLE));
      case "mathbf":
      case "boldsymbol":
        return node("mi", letters(this.#words(), BOLD));
      case "mathcal":
      case "mathit":
        return node("mi", this.#words());
      case "boxed":
        return this.#boxed();
      case "left":
        return this.#fenced();
      case "begin":
        return this.#table();
      default:
        throw new Error(`unknown: ${name}`);
    }
  }

  #space(em) {
    const made = node("mspace");
    made.setAttribute("width", `${em}em`);
    return made;
  }

  #accent([mark, tag]) {
    const made = node(tag, this.#argument(), node("mo", mark));
    made.setAttribute("accent", "true");
    return made;
  }

  // Reads a group as text.
  #words() {
    if (!this.#accept("{")) return this.#take();
    const start = this.#at;
    while (this.#take() !== "}");
    return this.source.slice(this.starts[start - 1] + 1, this.starts[this.#at - 1]);
  }

  #binomial() {
    const fraction = node("mfrac", this.#argument(), this.#argument());
    fraction.setAttribute("linethickness", "0");
    return node("mrow", node("mo", "("), fraction, node("mo", ")"));
  }

  #root() {
    if (!this.#accept("[")) return node("msqrt", this.#argument());
    const degree = node("mrow", ...this.row("]"));
    this.#take();
    return node("mroot", this.#argument(), degree);
  }

  #boxed() {
    const made = this.#argument();
    made.setAttribute("class", "boxed");
    return made;
  }

  #fence() {
    const token = this.#take();
    const text = token.startsWith("\\") ? FENCES[token.slice(1)] : token;
    if (text === undefined) throw new Error(`no fence: ${token}`);
    return node("mo", text === "." ? "" : text);
  }

  #fenced() {
    const open = this.#fence();
    const inner = this.row("\\right");
    this.#take();
    return node("mrow", open, ...inner, this.#fence());
  }

  #table() {
    const name = this.#words().replace(/\*$/, "");
    if (!(name in TABLES)) throw new Error(`unknown: ${name}`);
    if (name === "array") this.#words();
    const rows = [];
    do {
      const cells = [];
      do cells.push(node("mtd", ...this.row("&", "\\\\", "\\end")));
      while (this.#accept("&"));
      rows.push(node("mtr", ...cells));
    } while (this.#accept("\\\\"));
    this.#take();
    this.#words();
    const [open, close] = TABLES[name];
    const parts = [open && node("mo", open), node("mtable", ...rows), close && node("mo", close)];
    return node("mrow", ...parts.filter(Boolean));
  }
}

function letters(text, known) {
  return [...text].map((letter) => known(letter)).join("");
}
