// Shows Markdown that grows; only blocks with changed text are created again.

import { parseBlocks } from "./blocks.js";
import { blockNode } from "./nodes.js";

const PAUSE_MS = 50;

export class MarkdownView {
  #box;
  #text = "";
  #shown = []; // the source text of each child
  #timer = null;

  constructor(box) {
    this.#box = box;
  }

  // Shows the whole text so far, after a short pause.
  show(text) {
    this.#text = text;
    this.#timer ??= setTimeout(() => this.finish(), PAUSE_MS);
  }

  // Shows the last text now.
  finish() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const blocks = parseBlocks(this.#text.replaceAll("\t", "    ").split("\n"));
    blocks.forEach((block, i) => this.#place(block, i));
    while (this.#shown.length > blocks.length) this.#removeLast();
  }

  #place(block, i) {
    const source = `${block.kind} ${block.source}`;
    if (this.#shown[i] === source) return;
    const node = blockNode(block);
    if (i < this.#shown.length) this.#box.children[i].replaceWith(node);
    else this.#box.append(node);
    this.#shown[i] = source;
  }

  #removeLast() {
    this.#shown.pop();
    this.#box.lastElementChild.remove();
  }
}
