// The experts as a table of numbers, readable without the map.

import { make } from "./elements.js";

export function showLayers(body, activity) {
  const rows = activity.layers.map((layer, row) => [
    layer.layer,
    `${layer.slots} / ${activity.numExperts}`,
    activity.usedNow(row),
    layer.accesses ? `${((100 * layer.hits) / layer.accesses).toFixed(1)} %` : "–",
    layer.loads ?? "–",
  ]);
  if (body.children.length !== rows.length) body.replaceChildren(...rows.map(rowNode));
  rows.forEach((cells, row) => fill(body.children[row], cells));
}

function rowNode([layer, ...cells]) {
  const head = make("th", { scope: "row" }, String(layer));
  return make("tr", {}, head, ...cells.map(() => make("td")));
}

function fill(row, cells) {
  cells.forEach((cell, i) => {
    const text = String(cell);
    if (row.children[i].textContent !== text) row.children[i].textContent = text;
  });
}
