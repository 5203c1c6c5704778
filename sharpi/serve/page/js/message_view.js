// The views of a question and of an answer.

import { copyButton } from "./copy_button.js";
import { make, show } from "./elements.js";
import { MarkdownView } from "./markdown/view.js";
import { PrefillBar } from "./prefill_bar.js";

export function showQuestion(text) {
  const body = make("div", { className: "text" }, text);
  return make("article", { className: "message user", ariaLabel: "You" }, body);
}

export class AnswerView {
  text = "";
  #reasoningText = "";
  #ending = null;
  #summary = make("summary", {}, "Thinking");
  #reasoningBody = make("div", { className: "body markdown" });
  #reasoning = make(
    "details",
    { className: "reasoning is-open-ended", hidden: true },
    this.#summary,
    this.#reasoningBody,
  );
  #body = make("div", { className: "answer markdown" });
  #foot = make("div", { className: "foot" });
  #reasoningView = new MarkdownView(this.#reasoningBody);
  #view = new MarkdownView(this.#body);
  #thinkingSince = null;
  #prefill = new PrefillBar();

  constructor() {
    this.node = make(
      "article",
      { className: "message assistant is-answering", ariaLabel: "Answer", ariaBusy: "true" },
      this.#prefill.node,
      this.#reasoning,
      this.#body,
      this.#foot,
    );
  }

  // Adds a chunk of the stream.
  takeChunk(chunk) {
    if (chunk.prompt_progress) this.#prefill.take(chunk.prompt_progress);
    else this.take(chunk.choices?.[0]);
  }

  // Adds the choice of a chunk, which may be missing.
  take(choice) {
    const { content, reasoning_content: reasoning } = choice?.delta ?? {};
    if (content || reasoning) this.#prefill.end();
    if (reasoning) this.#think(reasoning);
    if (content) this.#write(content);
    this.#ending = choice?.finish_reason ?? this.#ending;
  }

  #think(text) {
    this.#thinkingSince ??= performance.now();
    show(this.#reasoning, true);
    this.#reasoningText += text;
    this.#reasoningView.show(this.#reasoningText);
  }

  #write(text) {
    if (!this.text) this.#endThinking();
    this.text += text;
    this.#view.show(this.text);
  }

  #endThinking() {
    this.#reasoning.classList.remove("is-open-ended");
    if (this.#thinkingSince === null) return;
    const seconds = (performance.now() - this.#thinkingSince) / 1000;
    this.#thinkingSince = null;
    this.#summary.textContent = seconds < 1 ? "Thought for a moment" : `Thought for ${Math.round(seconds)} s`;
  }

  end(words) {
    this.#prefill.end();
    this.#endThinking();
    this.#reasoningView.finish();
    this.#view.finish();
    this.node.classList.remove("is-answering");
    this.node.ariaBusy = "false";
    if (this.text) this.#foot.append(copyButton(() => this.text, "Copy answer"));
    words.forEach((word) => this.note(word));
    if (this.#ending === "length") this.note("cut: no room for more tokens");
  }

  // In the API's form, with the reasoning.
  get message() {
    return { role: "assistant", content: this.text, reasoning: this.#reasoningText };
  }

  get isEmpty() {
    return !this.text && !this.#reasoningText;
  }

  note(word) {
    this.#foot.append(make("span", {}, word));
  }

  fail(message, action, act) {
    const button = make("button", { type: "button", onclick: act }, action);
    this.#foot.before(make("p", { className: "fault" }, message, button));
  }
}
