// Yields the data of each server-sent event in a response.

export async function* readEvents(body) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of chunks(body)) {
    const events = (rest + decoder.decode(bytes, { stream: true }).replaceAll("\r", "")).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = dataOf(event);
      if (data) yield data;
    }
  }
}

// Not every browser can iterate over a stream.
async function* chunks(body) {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function dataOf(event) {
  const lines = event.split("\n").filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(5).trimStart()).join("\n");
}
