// Converts blocks of Markdown to elements.

import { copyButton } from "../copy_button.js";
import { make } from "../elements.js";
import { inlineNodes } from "./inline.js";

const MAKERS = {
  paragraph: (block) => make("p", {}, ...inlineNodes(block.text)),
  heading: (block) => make(`h${Math.min(block.level + 2, 6)}`, {}, ...inlineNodes(block.text)),
  rule: () => make("hr"),
  quote: (block) => make("blockquote", {}, ...block.blocks.map(blockNode)),
  code: codeNode,
  list: listNode,
  table: tableNode,
};

export function blockNode(block) {
  return MAKERS[block.kind](block);
}

function codeNode({ text, language }) {
  const head = make(
    "div",
    { className: "code-head" },
    make("span", {}, language || "text"),
    copyButton(() => text),
  );
  const body = make("pre", { tabIndex: 0 }, make("code", {}, text));
  return make("div", { className: "code" }, head, body);
}

function listNode({ isOrdered, start, items }) {
  const list = make(isOrdered ? "ol" : "ul", {}, ...items.map(itemNode));
  if (isOrdered && start !== 1) list.start = start;
  return list;
}

// The first paragraph of an item is on the line of its marker.
function itemNode([first, ...rest]) {
  const item = make("li");
  if (first?.kind === "paragraph") item.append(...inlineNodes(first.text));
  else if (first) item.append(blockNode(first));
  item.append(...rest.map(blockNode));
  return item;
}

function tableNode({ head, aligns, rows }) {
  const row = (cells, tag) =>
    make("tr", {}, ...cells.map((cell, i) => make(tag, { className: aligns[i] }, ...inlineNodes(cell))));
  const table = make(
    "table",
    {},
    make("thead", {}, row(head, "th")),
    make("tbody", {}, ...rows.map((cells) => row(cells, "td"))),
  );
  return make("div", { className: "table-frame", tabIndex: 0 }, table);
}
