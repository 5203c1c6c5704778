// Keeps the newest words in sight, unless the reader has scrolled away from them.

import { element, show } from "./elements.js";

const NEAR_PIXELS = 48;

export class Scroller {
  #box = element("scroller");
  #button = element("newest");
  #isAtEnd = true;

  constructor() {
    this.#box.addEventListener("scroll", () => this.#look(), { passive: true });
    this.#button.addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => this.follow()).observe(element("messages"));
  }

  follow() {
    if (this.#isAtEnd) this.toEnd();
    else this.#look();
  }

  toEnd() {
    this.#box.scrollTop = this.#box.scrollHeight;
    this.#look();
  }

  #look() {
    const left = this.#box.scrollHeight - this.#box.clientHeight - this.#box.scrollTop;
    this.#isAtEnd = left < NEAR_PIXELS;
    show(this.#button, !this.#isAtEnd);
  }
}
