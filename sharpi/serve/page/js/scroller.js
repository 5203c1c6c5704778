// Keeps the newest words in sight, unless the reader has scrolled away from them.

import { element, show } from "./elements.js";

const NEAR_PIXELS = 48;

export class Scroller {
  #box = element("scroller");
  #button = element("newest");
  #isAtEnd = true;
  #top = 0; // where it was scrolled to at the last look

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
    this.#isAtEnd = true;
    this.#look();
  }

  // Only the reader scrolls up; more text alone is no sign that somebody left the end.
  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#box;
    const isNear = scrollHeight - clientHeight - scrollTop < NEAR_PIXELS;
    this.#isAtEnd = isNear || (this.#isAtEnd && scrollTop >= this.#top);
    this.#top = scrollTop;
    show(this.#button, !this.#isAtEnd);
  }
}
