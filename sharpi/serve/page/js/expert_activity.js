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
  states = new Uint8Array(); // (layers, experts): what is drawn
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
    const before = this.#continues(live) ? this.#before : null;
    live.layers.forEach((layer, row) => this.#takeLayer(layer, before?.layers[row], row));
    this.#rates(live, before);
    this.#count();
    this.#before = live;
  }

  // The counts of a model that was loaded again begin anew.
  #continues(live) {
    const before = this.#before;
    if (!before || before.layers.length !== live.layers.length) return false;
    return before.seconds <= live.seconds;
  }

  #begin() {
    const cells = this.layers.length * this.numExperts;
    this.states = new Uint8Array(cells);
    this.heat = new Float32Array(cells);
    this.#isFresh = new Uint8Array(cells);
    this.#before = null;
  }

  #takeLayer(layer, before, row) {
    const used = layer.uses.map((uses, i) => Math.max(0, uses - (before ? before.uses[i] : uses)));
    const most = Math.max(1, ...used);
    used.forEach((count, i) => {
      const cell = row * this.numExperts + i;
      const isResident = layer.resident[i] === "1";
      const wasResident = before?.resident[i] === "1";
      this.#isFresh[cell] = Number(count > 0);
      if (count > 0) this.#use(cell, wasResident ? HIT : LOADED, 0.5 + (0.5 * count) / most);
      else this.#cool(cell, isResident);
    });
  }

  #use(cell, state, heat) {
    this.states[cell] = state;
    this.heat[cell] = heat;
  }

  #cool(cell, isResident) {
    this.heat[cell] *= FADE;
    if (this.heat[cell] > DIM) return;
    this.heat[cell] = 0;
    this.states[cell] = isResident ? RESIDENT : DISK;
  }

  #rates(live, before) {
    const seconds = before ? live.seconds - before.seconds : 0;
    const read = sum(live.layers, "bytes_read");
    if (seconds > 0) {
      const bytes = before ? read - sum(before.layers, "bytes_read") : 0;
      this.bytesPerSecond = live.kind === "streamed" ? smoothed(this.bytesPerSecond, bytes / seconds) : null;
    }
    const accesses = sum(live.layers, "accesses");
    this.hitRate = accesses > 0 ? sum(live.layers, "hits") / accesses : null;
  }

  #count() {
    const { layers, states } = this;
    const cells = layers.length * this.numExperts;
    const resident = layers.reduce((all, layer) => all + layer.resident.replaceAll("0", "").length, 0);
    const fresh = (wanted) => states.filter((state, cell) => state === wanted && this.#isFresh[cell]).length;
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

// Two looks a second see a few loads each: their rate jumps.
function smoothed(before, now) {
  if (before === null || now === 0) return now;
  return before + SMOOTHING * (now - before);
}

function sum(layers, name) {
  return layers.reduce((total, layer) => total + (layer[name] ?? 0), 0);
}
