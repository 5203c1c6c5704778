// Scrolls to the newest text, unless the user has scrolled away from it.

import { element, show } from "./elements.js";

const NEAR_PIXELS = 48;

export class Scroller {
  #box = element("scroller");
  #button = element("newest");
  #isAtEnd = true;
  #top = 0; // the scroll position at the last check

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

  // Only the user scrolls up; a larger distance alone may be due to new text.
  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#box;
    const isNear = scrollHeight - clientHeight - scrollTop < NEAR_PIXELS;
    this.#isAtEnd = isNear || (this.#isAtEnd && scrollTop >= this.#top);
    this.#top = scrollTop;
    show(this.#button, !this.#isAtEnd);
  }
}
