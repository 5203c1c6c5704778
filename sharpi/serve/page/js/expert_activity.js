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
  tokensPerSecond = null;
  hitRate = null; // since the start
  bytesPerSecond = null;
  totals = {};
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
    return before.num_tokens <= live.num_tokens && before.seconds <= live.seconds;
  }

  #begin() {
    const cells = this.layers.length * this.numExperts;
    this.states = new Uint8Array(cells);
    this.heat = new Float32Array(cells);
    this.#before = null;
  }

  #takeLayer(layer, before, row) {
    const used = layer.uses.map((uses, i) => uses - (before ? before.uses[i] : uses));
    const most = Math.max(1, ...used);
    used.forEach((count, i) => {
      const cell = row * this.numExperts + i;
      const isResident = layer.resident[i] === "1";
      const wasResident = before?.resident[i] === "1";
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
    const tokens = before ? live.num_tokens - before.num_tokens : 0;
    if (seconds > 0) {
      this.tokensPerSecond = smoothed(this.tokensPerSecond, tokens / seconds);
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
    const hit = states.filter((state) => state === HIT).length;
    const loaded = states.filter((state) => state === LOADED).length;
    this.totals = { disk: cells - resident, resident, hit, loaded };
  }

  usedNow(row) {
    const states = this.states.subarray(row * this.numExperts, (row + 1) * this.numExperts);
    return states.filter((state) => state >= HIT).length;
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

// Two looks a second see a few tokens each: their rates jump.
function smoothed(before, now) {
  if (before === null || now === 0) return now;
  return before + SMOOTHING * (now - before);
}

function sum(layers, name) {
  return layers.reduce((total, layer) => total + (layer[name] ?? 0), 0);
}
