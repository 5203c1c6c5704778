// The message box and its two buttons.

import { element, show } from "./elements.js";

export class Composer {
  onSend = () => {};
  onStop = () => {};
  #box = element("prompt");
  #send = element("send");
  #stop = element("stop");
  #isBusy = false;

  constructor() {
    this.#box.addEventListener("input", () => this.#fit());
    this.#box.addEventListener("keydown", (event) => this.#press(event));
    element("composer").addEventListener("submit", (event) => this.#submit(event));
    this.#stop.addEventListener("click", () => this.onStop());
    document.addEventListener("keydown", (event) => this.#escape(event));
  }

  focus() {
    this.#box.focus();
  }

  // Puts a text back into the box, unless it has new text.
  restore(text) {
    if (!this.#box.value) this.#box.value = text;
    this.#fit();
  }

  set isBusy(isBusy) {
    const hadFocus = document.activeElement === this.#stop;
    this.#isBusy = isBusy;
    show(this.#send, !isBusy);
    show(this.#stop, isBusy);
    if (hadFocus && !isBusy) this.focus();
  }

  #press(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.#submit(event);
  }

  #escape(event) {
    const isTaken = event.defaultPrevented || document.querySelector("dialog[open]");
    if (event.key === "Escape" && this.#isBusy && !isTaken) this.onStop();
  }

  #submit(event) {
    event.preventDefault();
    const text = this.#box.value.trim();
    if (!text || this.#isBusy) return;
    this.#box.value = "";
    this.#fit();
    this.onSend(text);
  }

  #fit() {
    this.#send.disabled = !this.#box.value.trim();
    this.#box.style.height = "auto";
    this.#box.style.height = `${this.#box.scrollHeight}px`;
  }
}
