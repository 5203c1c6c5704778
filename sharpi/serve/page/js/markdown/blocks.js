// Parses Markdown into a tree of blocks: plain data with the source lines of each block.
//
// Time is linear in the text: no pattern backtracks, and nesting ends at MAX_DEPTH.

import { isDelimiterRow, tableAt } from "./tables.js";

const MAX_DEPTH = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(\S.*)$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const MARKER = /^( *)([-*+]|\d{1,9}[.)])( {1,4}|$)/;

export function parseBlocks(lines, depth = 0) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const block = blockAt(lines, at, depth);
    block.source = lines.slice(at, block.end).join("\n");
    blocks.push(block);
    at = block.end;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const isNested = depth >= MAX_DEPTH;
  return (
    fenceAt(lines, at) ??
    headingAt(line, at) ??
    (RULE.test(line) ? { kind: "rule", end: at + 1 } : null) ??
    (isNested ? null : quoteAt(lines, at, depth)) ??
    (isNested ? null : listAt(lines, at, depth)) ??
    tableAt(lines, at) ??
    paragraphAt(lines, at)
  );
}

function fenceOf(line) {
  const found = FENCE.exec(line);
  if (!found || (found[1][0] === "`" && found[2].includes("`"))) return null;
  return { fence: found[1], language: found[2].trim().split(/\s/)[0], indent: indentOf(line) };
}

// A fence that is not closed extends to the end, as in an answer that is streaming.
function fenceAt(lines, at) {
  const open = fenceOf(lines[at]);
  if (!open) return null;
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], open.fence)) end++;
  const body = lines.slice(at + 1, end).map((line) => line.slice(Math.min(open.indent, indentOf(line))));
  const { language } = open;
  return { kind: "code", language, text: body.join("\n"), end: Math.min(end + 1, lines.length) };
}

function closes(line, fence) {
  const text = line.trim();
  return indentOf(line) < 4 && text.length >= fence.length && text === fence[0].repeat(text.length);
}

function headingAt(line, at) {
  const found = HEADING.exec(line);
  if (!found) return null;
  return { kind: "heading", level: found[1].length, text: withoutClosing(found[2].trimEnd()), end: at + 1 };
}

// "Title ##" is "Title".
function withoutClosing(text) {
  let end = text.length;
  while (text[end - 1] === "#") end--;
  return text[end - 1] === " " ? text.slice(0, end).trimEnd() : text;
}

function quoteAt(lines, at, depth) {
  if (!QUOTE.test(lines[at])) return null;
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { kind: "quote", blocks: parseBlocks(inner, depth + 1), end };
}

function markerOf(line) {
  const found = MARKER.exec(line);
  if (!found || RULE.test(line)) return null;
  const [all, spaces, bullet] = found;
  const isOrdered = bullet.length > 1;
  return { indent: spaces.length, width: all.length, isOrdered, number: parseInt(bullet, 10) };
}

function listAt(lines, at, depth) {
  const first = markerOf(lines[at]);
  if (!first) return null;
  const items = [];
  let end = at;
  for (let next = at; next < lines.length; next = afterBlank(lines, end)) {
    const marker = markerOf(lines[next]);
    if (!marker || marker.isOrdered !== first.isOrdered || isDeeper(marker, first)) break;
    end = endOfItem(lines, next, marker);
    items.push(parseBlocks(itemLines(lines, next, end, marker), depth + 1));
  }
  return { kind: "list", isOrdered: first.isOrdered, start: first.number, items, end };
}

// Two more spaces nest an item, whatever the marker's width, since models write it so.
function isDeeper(marker, parent) {
  return marker.indent >= parent.indent + 2;
}

function endOfItem(lines, at, marker) {
  let end = at + 1;
  while (end < lines.length) {
    const next = afterBlank(lines, end);
    if (next === lines.length || !belongs(lines[next], marker, next > end)) break;
    end = next + 1;
  }
  return end;
}

function belongs(line, marker, isAfterBlank) {
  const inner = markerOf(line);
  if (inner) return isDeeper(inner, marker);
  if (indentOf(line) >= Math.min(marker.width, marker.indent + 2)) return true;
  return !isAfterBlank && !startsBlock(line);
}

function itemLines(lines, at, end, marker) {
  const rest = lines.slice(at + 1, end);
  const inner = rest.map((line) => line.slice(Math.min(marker.width, indentOf(line))));
  return [lines[at].slice(marker.width), ...inner];
}

function paragraphAt(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !interrupts(lines, end)) end++;
  const trimmed = lines.slice(at, end).map((line) => line.trim());
  return { kind: "paragraph", text: trimmed.join("\n"), end };
}

function interrupts(lines, at) {
  const line = lines[at];
  const marker = markerOf(line);
  const startsList = marker !== null && line.length > marker.width && !(marker.number > 1);
  const startsTable = at + 1 < lines.length && line.includes("|") && isDelimiterRow(lines[at + 1]);
  return startsBlock(line) || startsList || startsTable;
}

function startsBlock(line) {
  return fenceOf(line) !== null || HEADING.test(line) || QUOTE.test(line) || RULE.test(line);
}

function afterBlank(lines, at) {
  while (at < lines.length && !lines[at].trim()) at++;
  return at;
}

function indentOf(line) {
  return line.length - line.trimStart().length;
}
