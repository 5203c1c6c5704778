// The panel of experts: beside the chat, or a drawer over it on small screens.

import { element, show } from "./elements.js";

const NARROW = matchMedia("(max-width: 63rem)");

export class Panel {
  onChange = () => {};
  #panel = element("experts");
  #toggle = element("toggle-experts");
  #backdrop = element("backdrop");

  constructor() {
    this.#set(!NARROW.matches);
    this.#toggle.addEventListener("click", () => this.#change(!this.isOpen));
    element("close-experts").addEventListener("click", () => this.#change(false));
    this.#backdrop.addEventListener("click", () => this.#change(false));
    document.addEventListener("keydown", (event) => this.#escape(event), { capture: true });
    NARROW.addEventListener("change", () => this.#change(!NARROW.matches));
  }

  get isOpen() {
    return !this.#panel.classList.contains("is-closed");
  }

  #set(isOpen) {
    this.#panel.classList.toggle("is-closed", !isOpen);
    this.#toggle.setAttribute("aria-expanded", String(isOpen));
    show(this.#backdrop, isOpen && NARROW.matches);
    element("chat").inert = isOpen && NARROW.matches;
  }

  #change(isOpen) {
    const hadFocus = this.#panel.contains(document.activeElement);
    this.#set(isOpen);
    if (isOpen && NARROW.matches) element("close-experts").focus();
    else if (hadFocus) this.#toggle.focus();
    this.onChange();
  }

  // The Escape key closes the drawer before it stops an answer.
  #escape(event) {
    if (event.key !== "Escape" || !this.isOpen || !NARROW.matches) return;
    event.stopPropagation();
    this.#change(false);
  }
}
