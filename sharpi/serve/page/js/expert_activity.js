// Computes what changed between two polls of the experts, for each cell and in total.

export const DISK = 0;
export const RESIDENT = 1;
export const HIT = 2;
export const LOADED = 3;

const FADE = 0.6; // brightness that remains from one poll to the next
const SMOOTHING = 0.5;
const DIM = 0.08; // heat below this is not visible

export class ExpertActivity {
  layers = [];
  numExperts = 0;
  states = new Uint8Array(); // (layers, experts): DISK or RESIDENT
  glows = new Uint8Array(); // HIT or LOADED where heat is not 0
  heat = new Float32Array(); // 0 to 1: recent use
  hitRate = null; // since the start
  bytesPerSecond = null;
  totals = {};
  #isFresh = new Uint8Array(); // used since the previous poll
  #before = null;

  take(live) {
    const isNew = this.layers.length !== live.layers.length || this.numExperts !== live.num_experts;
    this.layers = live.layers;
    this.numExperts = live.num_experts;
    if (isNew) this.#begin();
    const before = this.#before;
    live.layers.forEach((layer, row) => this.#takeLayer(layer, before?.layers[row], row));
    this.#rates(live, before);
    this.#count();
    this.#before = live;
  }

  #begin() {
    const cells = this.layers.length * this.numExperts;
    this.states = new Uint8Array(cells);
    this.glows = new Uint8Array(cells);
    this.heat = new Float32Array(cells);
    this.#isFresh = new Uint8Array(cells);
    this.#before = null;
  }

  #takeLayer(layer, before, row) {
    const used = layer.uses.map((uses, i) => grown(uses, before ? before.uses[i] : uses));
    const most = Math.max(1, ...used);
    used.forEach((count, i) => {
      const cell = row * this.numExperts + i;
      this.states[cell] = layer.resident[i] === "1" ? RESIDENT : DISK;
      this.#isFresh[cell] = Number(count > 0);
      if (count > 0) this.#use(cell, before.resident[i] === "1" ? HIT : LOADED, count / most);
      else this.#cool(cell);
    });
  }

  // `share`: uses relative to the layer's most used expert.
  #use(cell, glow, share) {
    this.glows[cell] = glow;
    this.heat[cell] = (1 + share) / 2;
  }

  #cool(cell) {
    const heat = this.heat[cell] * FADE;
    this.heat[cell] = heat > DIM ? heat : 0;
  }

  #rates(live, before) {
    const seconds = before ? live.seconds - before.seconds : 0;
    const read = sum(live.layers, "bytes_read");
    if (seconds > 0) {
      const bytes = grown(read, sum(before.layers, "bytes_read"));
      this.bytesPerSecond = live.kind === "streamed" ? smoothed(this.bytesPerSecond, bytes / seconds) : null;
    }
    const accesses = sum(live.layers, "accesses");
    this.hitRate = accesses > 0 ? sum(live.layers, "hits") / accesses : null;
  }

  #count() {
    const { layers, glows } = this;
    const cells = layers.length * this.numExperts;
    const resident = layers.reduce((all, layer) => all + layer.resident.replaceAll("0", "").length, 0);
    const fresh = (wanted) => glows.filter((glow, cell) => glow === wanted && this.#isFresh[cell]).length;
    this.totals = { disk: cells - resident, resident, hit: fresh(HIT), loaded: fresh(LOADED) };
  }

  // The number of experts of a row that were used since the previous poll.
  usedNow(row) {
    const cells = this.#isFresh.subarray(row * this.numExperts, (row + 1) * this.numExperts);
    return cells.reduce((count, isFresh) => count + isFresh, 0);
  }

  // A text for those who cannot see the map.
  get summary() {
    const { disk, resident, hit, loaded } = this.totals;
    return (
      `${this.layers.length} layers with ${this.numExperts} experts each: ${resident} resident, ` +
      `${disk} on disk; just now ${hit} hit and ${loaded} loaded.`
    );
  }
}

// A model that was loaded again starts its counts at 0.
function grown(now, before) {
  return Math.max(0, now - before);
}

// Smooths the rate: each of the two polls per second sees only a few loads.
function smoothed(before, now) {
  if (before === null || now === 0) return now;
  return before + SMOOTHING * (now - before);
}

function sum(layers, name) {
  return layers.reduce((total, layer) => total + (layer[name] ?? 0), 0);
}
