// What happened between two looks at the experts, cell by cell and in all.

export const DISK = 0;
export const RESIDENT = 1;
export const HIT = 2;
export const LOADED = 3;

const FADE = 0.6; // of the brightness, from one look to the next
const SMOOTHING = 0.5;
const DIM = 0.08; // less is not seen

export class ExpertActivity {
  layers = [];
  numExperts = 0;
  states = new Uint8Array(); // (layers, experts): DISK or RESIDENT
  glows = new Uint8Array(); // HIT or LOADED where heat is not 0
  heat = new Float32Array(); // 0 to 1: how lately and how much it was used
  hitRate = null; // since the start
  bytesPerSecond = null;
  totals = {};
  #isFresh = new Uint8Array(); // used since the look before
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

  // `share`: of the uses of the layer's most used expert.
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

  // Experts of a row that were used since the look before.
  usedNow(row) {
    const cells = this.#isFresh.subarray(row * this.numExperts, (row + 1) * this.numExperts);
    return cells.reduce((count, isFresh) => count + isFresh, 0);
  }

  // For who cannot see the map.
  get summary() {
    const { disk, resident, hit, loaded } = this.totals;
    return (
      `${this.layers.length} layers with ${this.numExperts} experts each: ${resident} resident, ` +
      `${disk} on disk; just now ${hit} hit and ${loaded} loaded.`
    );
  }
}

// The counts of a model that was loaded again begin anew.
function grown(now, before) {
  return Math.max(0, now - before);
}

// Two looks a second see a few loads each: their rate jumps.
function smoothed(before, now) {
  if (before === null || now === 0) return now;
  return before + SMOOTHING * (now - before);
}

function sum(layers, name) {
  return layers.reduce((total, layer) => total + (layer[name] ?? 0), 0);
}
