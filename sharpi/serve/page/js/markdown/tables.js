// Parses tables: a row, a row of dashes, and more rows, with bars between cells.

export function tableAt(lines, at) {
  if (!lines[at].includes("|") || !isDelimiterRow(lines[at + 1] ?? "")) return null;
  const head = cellsOf(lines[at]);
  const aligns = cellsOf(lines[at + 1]).map(alignOf);
  if (head.length !== aligns.length) return null;
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  const rows = lines.slice(at + 2, end).map((line) => cellsOf(line).slice(0, head.length));
  return { kind: "table", head, aligns, rows, end };
}

export function isDelimiterRow(line) {
  return line.includes("|") && cellsOf(line).every((cell) => /^:?-+:?$/.test(cell));
}

// Splits a row into cells; a bar after a backslash is text.
function cellsOf(line) {
  const cells = line.trim().replace(/^\|/, "").split("|");
  for (let i = 0; i < cells.length - 1;) {
    if (cells[i].endsWith("\\")) cells.splice(i, 2, `${cells[i].slice(0, -1)}|${cells[i + 1]}`);
    else i++;
  }
  if (cells.length > 1 && !cells.at(-1).trim()) cells.pop();
  return cells.map((cell) => cell.trim());
}

function alignOf(cell) {
  if (cell.endsWith(":")) return cell.startsWith(":") ? "center" : "right";
  return "";
}
