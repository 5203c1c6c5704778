// The API key, stored until the tab is closed.

const NAME = "sharpi-api-key";

export class ApiKey {
  onChange = () => {};

  get value() {
    return sessionStorage.getItem(NAME) ?? "";
  }

  set value(key) {
    if (key === this.value) return;
    if (key) sessionStorage.setItem(NAME, key);
    else sessionStorage.removeItem(NAME);
    this.onChange();
  }

  get headers() {
    return this.value ? { Authorization: `Bearer ${this.value}` } : {};
  }
}
