// The name of the model, and the defaults of its settings.

import { element } from "./elements.js";

export async function showModel(server, settings) {
  const line = element("model");
  try {
    const name = (await server.findModel()) ?? "no model";
    line.textContent = line.title = name;
    element("welcome-model").textContent = name;
    document.title = `${name} · sharpi`;
    settings.showDefaults(await defaults(server));
  } catch (error) {
    line.textContent = line.title = error.message;
    if (error.wantsKey) settings.askForKey();
  }
}

// A server without /props can still be used for chat.
async function defaults(server) {
  try {
    return (await server.get("props")).sampling ?? {};
  } catch {
    return {};
  }
}
