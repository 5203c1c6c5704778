// The client of the server's API: JSON, event streams, and error messages.

import { readEvents } from "./event_stream.js";

export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }

  get wantsKey() {
    return this.status === 401;
  }
}

export class Server {
  model; // the model's name, once it is known
  #key;

  constructor(key) {
    this.#key = key;
  }

  // Returns the name of the model that the server has.
  async findModel() {
    this.model ??= (await this.get("v1/models")).data?.[0]?.id;
    return this.model;
  }

  async get(path, signal) {
    const response = await this.#fetch(path, { signal });
    return response.json();
  }

  // Yields the chunks of a streamed answer; the signal ends it.
  async *stream(path, body, signal) {
    const response = await this.#fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    for await (const data of readEvents(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ServerError(messageOf(chunk));
      yield chunk;
    }
    throw new ServerError("The answer is incomplete: the connection to the server was lost.");
  }

  async #fetch(path, options) {
    const headers = { ...options.headers, ...this.#key.headers };
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError("The server cannot be reached. Is it still running?");
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }
}

async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  const fallback = `The server refused: ${response.status} ${response.statusText}`.trim();
  return new ServerError(messageOf(body) ?? fallback, response.status);
}

function messageOf(body) {
  return body?.error?.message;
}
