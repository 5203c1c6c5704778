// Polls the experts while they are visible, and shows figures, a heat map and a table.

import { element, show } from "./elements.js";
import { ExpertActivity } from "./expert_activity.js";
import { HeatMap } from "./heat_map.js";
import { showLayers } from "./layer_table.js";

const POLL_MS = 500;
const RETRY_MS = 4000;

const NOTES = {
  dense: "This model has no experts: every token uses all of its weights.",
  mapped: "All experts are in memory, so none is ever loaded. Brighter ones were used most just now.",
  streamed: "Experts by layer. Those on disk are loaded into a slot when a token needs them.",
  busy: "The model is busy with a long step.",
  unloaded: "The model was unloaded because it was not used. The next message loads it again.",
};

export class ExpertsPanel {
  #server;
  #isOpen;
  #timer = null;
  #polling = false;
  #map = new HeatMap(element("heat-map"), element("heat-cell"));
  #activity = new ExpertActivity();

  constructor(server, isOpen) {
    this.#server = server;
    this.#isOpen = isOpen;
    document.addEventListener("visibilitychange", () => this.refresh());
    element("by-layer").addEventListener("toggle", () => this.#showTable());
  }

  // Polls now, and then regularly while the panel is visible.
  async refresh() {
    clearTimeout(this.#timer);
    if (this.#polling || !this.#isSeen) return;
    this.#polling = true;
    const pause = await this.#poll();
    this.#polling = false;
    this.#timer = setTimeout(() => this.refresh(), pause);
  }

  get #isSeen() {
    return this.#isOpen() && document.visibilityState === "visible";
  }

  async #poll() {
    try {
      this.#show(await this.#server.get("experts/live"));
      return POLL_MS;
    } catch (error) {
      this.#note(error.message);
      return RETRY_MS;
    }
  }

  #show(live) {
    this.#note(NOTES[live.kind]);
    const hasExperts = Boolean(live.layers?.length);
    show(element("heat"), hasExperts);
    show(element("by-layer"), hasExperts);
    if (hasExperts) this.#activity.take(live);
    else this.#activity = new ExpertActivity();
    this.#figures(live.tokens_per_second);
    if (!hasExperts) return;
    this.#map.draw(this.#activity);
    this.#legend();
    this.#showTable();
  }

  #note(words) {
    const note = element("experts-note");
    if (note.textContent !== words) note.textContent = words;
  }

  #figures(speed) {
    const { hitRate, bytesPerSecond } = this.#activity;
    set("figure-speed", speed ? speed.toFixed(1) : "–");
    set("figure-hits", hitRate === null ? "–" : `${(100 * hitRate).toFixed(hitRate < 0.995 ? 1 : 0)}`, "%");
    const mib = bytesPerSecond === null ? null : bytesPerSecond / 2 ** 20;
    set("figure-read", mib === null ? "–" : mib.toFixed(mib < 10 ? 1 : 0), "MiB/s");
  }

  #legend() {
    const { totals } = this.#activity;
    for (const [name, count] of Object.entries(totals)) set(`legend-${name}`, String(count));
    element("heat-summary").textContent = this.#activity.summary;
  }

  #showTable() {
    if (element("by-layer").open) showLayers(element("layer-rows"), this.#activity);
  }
}

function set(id, words, unit = "") {
  const node = element(id);
  if (node.dataset.words === words) return;
  node.dataset.words = words;
  node.textContent = words;
  if (!unit || words === "–") return;
  const small = document.createElement("small");
  small.textContent = unit;
  node.append(small);
}
