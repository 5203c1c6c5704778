// Which model answers, and what it takes where the user says nothing.

import { element } from "./elements.js";

export async function showModel(server, settings) {
  const line = element("model");
  try {
    const models = await server.get("v1/models");
    server.model = models.data?.[0]?.id;
    const name = server.model ?? "no model";
    line.textContent = line.title = name;
    element("welcome-model").textContent = name;
    settings.showDefaults(await defaults(server));
  } catch (error) {
    line.textContent = line.title = error.message;
    if (error.wantsKey) settings.askForKey();
  }
}

// A server without /props is one to chat with all the same.
async function defaults(server) {
  try {
    const props = await server.get("props");
    return props.default_generation_settings?.params ?? props.sampling ?? {};
  } catch {
    return {};
  }
}
