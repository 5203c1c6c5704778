// Shows how far a prompt is computed: a bar, the tokens, their speed and the time that is left.

import { make, show } from "./elements.js";

const DELAY = 500; // milliseconds before it appears

export class PrefillBar {
  #bar = make("progress", { max: 1, value: 0, ariaLabel: "Reading the prompt" });
  #words = make("span", {});
  #start = performance.now();
  #timer = null;

  constructor() {
    this.node = make("div", { className: "prefill", hidden: true }, this.#bar, this.#words);
  }

  // Takes the progress in a chunk.
  take({ total, cache, processed, time_ms: elapsed }) {
    const [done, all] = [processed - cache, total - cache];
    this.#bar.value = all > 0 ? done / all : 1;
    this.#words.textContent = words(processed, total, done, all, elapsed / 1000);
    const wait = DELAY - (performance.now() - this.#start);
    this.#timer ??= setTimeout(() => show(this.node, true), Math.max(0, wait));
  }

  end() {
    clearTimeout(this.#timer);
    this.node.remove();
  }
}

function words(processed, total, done, all, seconds) {
  const counted = `Reading the prompt: ${processed} of ${total} tokens`;
  if (!(done > 0 && seconds > 0)) return counted;
  const speed = done / seconds;
  const left = Math.round((all - done) / speed);
  const clock = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
  return `${counted}, ${speed.toFixed(0)} tokens/s, ${clock} left`;
}
