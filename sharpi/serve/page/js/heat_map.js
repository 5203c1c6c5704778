// Draws the experts on a canvas, one row per layer, and describes the one under the pointer.

import { DISK, HIT, LOADED, RESIDENT } from "./expert_activity.js";

const MIN_CELL = 2; // device pixels; narrower cells are merged
const MIN_HEIGHT = 10; // CSS pixels of a row, unless all rows exceed MAX_TOTAL_HEIGHT
const MAX_HEIGHT = 26;
const MAX_TOTAL_HEIGHT = 560;

const STATES = { [DISK]: "on disk", [RESIDENT]: "resident" };
const GLOWS = { [HIT]: ", hit just now", [LOADED]: ", loaded just now" };

export class HeatMap {
  #canvas;
  #words;
  #activity = null;
  #pointer = null;

  constructor(canvas, words) {
    this.#canvas = canvas;
    this.#words = words;
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerdown", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", () => this.#point(null));
    new ResizeObserver(() => this.#redraw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#redraw());
  }

  draw(activity) {
    this.#activity = activity;
    this.#redraw();
    this.#showWords();
  }

  #redraw() {
    const width = this.#canvas.clientWidth;
    if (!this.#activity?.layers.length || !width) return;
    const grid = this.#grid(width);
    this.#canvas.style.height = `${grid.height}px`;
    resize(this.#canvas, Math.round(width * devicePixelRatio), Math.round(grid.height * devicePixelRatio));
    this.#paint(grid);
  }

  // `together`: the number of experts per cell, more than 1 if there are too few pixels.
  #grid(width) {
    const { layers, numExperts } = this.#activity;
    const together = Math.ceil((numExperts * MIN_CELL) / (width * devicePixelRatio));
    const columns = Math.ceil(numExperts / together);
    const row = Math.min(MAX_HEIGHT, MAX_TOTAL_HEIGHT / layers.length, Math.max(MIN_HEIGHT, width / columns));
    return { together, columns, rows: layers.length, height: Math.round(row * layers.length) };
  }

  #paint({ together, columns, rows }) {
    const { width, height } = this.#canvas;
    const context = this.#canvas.getContext("2d");
    const colours = coloursOf(this.#canvas);
    const gap = width / columns > 5 * devicePixelRatio ? devicePixelRatio : 0;
    context.clearRect(0, 0, width, height);
    for (let row = 0; row < rows; row++) {
      const top = Math.round((row * height) / rows);
      const tall = Math.round(((row + 1) * height) / rows) - top - (height / rows > 4 ? devicePixelRatio : 0);
      for (let column = 0; column < columns; column++) {
        const left = Math.round((column * width) / columns);
        const wide = Math.round(((column + 1) * width) / columns) - left - gap;
        this.#cell(context, colours, this.#hottest(row, column, together), [left, top, wide, tall]);
      }
    }
  }

  #hottest(row, column, together) {
    const { states, heat, numExperts } = this.#activity;
    const first = row * numExperts + column * together;
    const end = Math.min(first + together, (row + 1) * numExperts);
    let best = first;
    for (let cell = first + 1; cell < end; cell++) {
      const isHotter = heat[cell] > heat[best];
      if (isHotter || (heat[cell] === heat[best] && states[cell] > states[best])) best = cell;
    }
    return best;
  }

  // Draws the state of an expert, and its last use over that.
  #cell(context, colours, cell, rectangle) {
    const { states, glows, heat } = this.#activity;
    context.globalAlpha = 1;
    context.fillStyle = colours[states[cell]];
    context.fillRect(...rectangle);
    if (heat[cell] === 0) return;
    context.globalAlpha = heat[cell];
    context.fillStyle = colours[glows[cell]];
    context.fillRect(...rectangle);
  }

  #point(event) {
    this.#pointer = event && { x: event.offsetX, y: event.offsetY };
    this.#showWords();
  }

  #showWords() {
    this.#words.textContent = this.#pointer && this.#activity ? this.#wordsAt(this.#pointer) : "";
  }

  #wordsAt({ x, y }) {
    const { layers, numExperts, states, glows, heat } = this.#activity;
    const row = within((y / this.#canvas.clientHeight) * layers.length, layers.length);
    const expert = within((x / this.#canvas.clientWidth) * numExperts, numExperts);
    const { layer, uses } = layers[row];
    const cell = row * numExperts + expert;
    const glow = heat[cell] > 0 ? GLOWS[glows[cell]] : "";
    return `layer ${layer}, expert ${expert}: ${STATES[states[cell]]}${glow}, used ${uses[expert]}×`;
  }
}

function within(value, count) {
  return Math.min(count - 1, Math.max(0, Math.floor(value)));
}

function resize(canvas, width, height) {
  if (canvas.width === width && canvas.height === height) return;
  canvas.width = width;
  canvas.height = height;
}

function coloursOf(canvas) {
  const style = getComputedStyle(canvas);
  const of = (name) => style.getPropertyValue(`--heat-${name}`).trim();
  return { [DISK]: of("disk"), [RESIDENT]: of("resident"), [HIT]: of("hit"), [LOADED]: of("loaded") };
}
