// Measures the speed of an answer, from its chunks and the usage in the last one.

export class AnswerTimer {
  #start = performance.now();
  #first = null;
  #last = null;
  #numChunks = 0;
  #usage = null;

  take(chunk) {
    const delta = chunk.choices?.[0]?.delta;
    if (chunk.usage) this.#usage = chunk.usage;
    if (!delta?.content && !delta?.reasoning_content) return;
    this.#last = performance.now();
    this.#first ??= this.#last;
    this.#numChunks++;
  }

  // Tokens per second after the first one; null until it is known.
  get speed() {
    const seconds = (this.#last - this.#first) / 1000;
    const tokens = this.#usage?.completion_tokens ?? this.#numChunks;
    return this.#first !== null && seconds > 0 && tokens > 1 ? (tokens - 1) / seconds : null;
  }

  // The text under the answer.
  get words() {
    const words = [];
    if (this.speed !== null) words.push(`${this.speed.toFixed(1)} tokens/s`);
    if (this.#usage) words.push(...usageWords(this.#usage));
    if (this.#first !== null) {
      words.push(`first after ${((this.#first - this.#start) / 1000).toFixed(2)} s`);
    }
    return words;
  }
}

function usageWords(usage) {
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const prompt = `prompt ${usage.prompt_tokens}${cached ? ` (${cached} cached)` : ""}`;
  const answer = usage.completion_tokens;
  return [`${answer} ${answer === 1 ? "token" : "tokens"}`, prompt];
}
