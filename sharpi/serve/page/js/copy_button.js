// A button that copies text and confirms it.

import { make } from "./elements.js";

const SAID_MS = 1500;

export function copyButton(text, label = "Copy") {
  const button = make("button", { type: "button", className: "quiet" }, label);
  button.addEventListener("click", async () => {
    button.textContent = (await copy(text())) ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = label), SAID_MS);
  });
  return button;
}

// Except on localhost, browsers provide the clipboard over HTTPS only.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text) {
  const box = make("textarea", { value: text, className: "unseen" });
  const focused = document.activeElement;
  document.body.append(box);
  box.select();
  const isCopied = document.execCommand("copy");
  box.remove();
  focused?.focus();
  return isCopied;
}
