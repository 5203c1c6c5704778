// The conversation in this tab's storage: it outlives a reload, and ends with the tab.

const NAME = "sharpi-chat";

export class KeptChat {
  // Messages are objects of a role, a content and maybe a reasoning.
  save(messages) {
    try {
      sessionStorage.setItem(NAME, JSON.stringify(messages));
    } catch {
      sessionStorage.removeItem(NAME); // it has become too long
    }
  }

  load() {
    try {
      const messages = JSON.parse(sessionStorage.getItem(NAME)) ?? [];
      return messages.filter(({ content }) => typeof content === "string");
    } catch {
      return [];
    }
  }
}
