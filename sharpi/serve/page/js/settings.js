// The user's settings, stored in this browser, except for the key.

import { element } from "./elements.js";

const NAME = "sharpi-settings";
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const FIELDS = [...NUMBERS, "system", "thinking"];

export class Settings {
  #dialog = element("settings");
  #form = element("settings-form");
  #key;

  constructor(key) {
    this.#key = key;
    this.#fill(stored());
    element("open-settings").addEventListener("click", () => this.open());
    element("reset-settings").addEventListener("click", () => this.#reset());
    this.#dialog.addEventListener("click", (event) => this.#closeOutside(event));
    this.#form.addEventListener("input", () => this.#store());
    this.#dialog.addEventListener("close", () => this.#useKey());
  }

  // Opens the dialog with the focus on `field`.
  open(field = "system") {
    this.#input("key").value = this.#key.value;
    this.#dialog.showModal();
    this.#input(field).focus();
  }

  askForKey() {
    element("key-note").textContent = "the server asks for one";
    this.open("key");
  }

  // Shows the server's defaults in empty fields.
  showDefaults(defaults) {
    for (const name of NUMBERS) {
      if (defaults[name] != null) this.#input(name).placeholder = String(defaults[name]);
    }
  }

  get systemPrompt() {
    return this.#input("system").value.trim();
  }

  // The fields of a request.
  get request() {
    const request = {};
    for (const name of NUMBERS) {
      const input = this.#input(name);
      if (input.value !== "" && input.validity.valid) request[name] = input.valueAsNumber;
    }
    const thinking = this.#input("thinking").value;
    if (thinking) request.chat_template_kwargs = { enable_thinking: thinking === "on" };
    return request;
  }

  #input(name) {
    return this.#form.elements.namedItem(name);
  }

  #fill(values) {
    for (const name of FIELDS) this.#input(name).value = values[name] ?? "";
  }

  #reset() {
    this.#fill({});
    this.#store();
  }

  // Whatever changed is stored at once, so that nothing is lost if the page is left meanwhile.
  #store() {
    const values = Object.fromEntries(FIELDS.map((name) => [name, this.#input(name).value]));
    localStorage.setItem(NAME, JSON.stringify(values));
  }

  #useKey() {
    this.#key.value = this.#input("key").value.trim();
  }

  #closeOutside(event) {
    if (event.target === this.#dialog) this.#dialog.close();
  }
}

function stored() {
  try {
    return JSON.parse(localStorage.getItem(NAME)) ?? {};
  } catch {
    return {};
  }
}
