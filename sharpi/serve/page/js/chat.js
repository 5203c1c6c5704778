// The conversation: its messages and the answer that is streaming.

import { AnswerTimer } from "./answer_timer.js";
import { element, show } from "./elements.js";
import { KeptChat } from "./kept_chat.js";
import { AnswerView, showQuestion } from "./message_view.js";
import { Scroller } from "./scroller.js";

export class Chat {
  #messages = []; // in the API's form, with the reasoning of answers
  #running = null; // an AbortController
  #view = null; // of the answer that is streaming
  #kept = new KeptChat();
  #list = element("messages");
  #scroller = new Scroller();

  constructor(server, settings, composer) {
    Object.assign(this, { server, settings, composer });
  }

  // Shows the conversation that this tab had before it was loaded again.
  restore() {
    this.#messages = this.#kept.load();
    if (this.#messages.at(-1)?.role === "user") this.composer.restore(this.#messages.pop().content);
    show(element("welcome"), !this.#messages.length);
    this.#list.append(...this.#messages.map(viewOf));
    this.#scroller.toEnd();
    addEventListener("pagehide", () => this.#keep());
  }

  send(text) {
    this.#giveUpUnanswered();
    show(element("welcome"), false);
    this.#list.append(showQuestion(text));
    this.#messages.push({ role: "user", content: text });
    this.#keep();
    this.#scroller.toEnd();
    return this.#answer();
  }

  stop() {
    this.#running?.abort();
  }

  clear() {
    this.stop();
    this.#running = null;
    this.#messages = [];
    this.#view = null;
    this.#keep();
    this.#list.replaceChildren();
    show(element("welcome"), true);
    this.composer.isBusy = false;
    this.composer.focus();
  }

  async #answer() {
    const running = (this.#running = new AbortController());
    const view = (this.#view = new AnswerView());
    this.#list.append(view.node);
    this.composer.isBusy = true;
    this.#say("Answering");
    const outcome = await this.#receive(view, running.signal);
    if (this.#running !== running) return; // another chat has begun in the meantime
    this.#running = this.#view = null;
    this.composer.isBusy = false;
    this.#end(view, outcome);
    this.#keep();
    this.#scroller.follow();
  }

  // Shows the answer while it streams; returns the error that ended it, if any.
  async #receive(view, signal) {
    const timer = new AnswerTimer();
    try {
      await this.server.findModel();
      for await (const chunk of this.server.stream("v1/chat/completions", this.#request, signal)) {
        timer.take(chunk);
        view.takeChunk(chunk);
        this.#scroller.follow();
      }
      return null;
    } catch (error) {
      return error;
    } finally {
      view.end(timer.words);
    }
  }

  get #request() {
    const system = this.settings.systemPrompt;
    const said = this.#messages.map(({ role, content }) => ({ role, content }));
    const messages = system ? [{ role: "system", content: system }, ...said] : said;
    const stream = { stream: true, stream_options: { include_usage: true }, return_progress: true };
    return { model: this.server.model, messages, ...stream, ...this.settings.request };
  }

  #end(view, error) {
    const isStopped = error?.name === "AbortError";
    if (view.text) {
      this.#messages.push(view.message);
    }
    if (error && !isStopped) {
      this.#fail(view, error);
    } else {
      if (isStopped) view.note("stopped");
      this.#say(isStopped ? "Stopped" : "Answer complete");
    }
    if (isStopped && view.isEmpty) this.#forget(view);
  }

  #fail(view, error) {
    this.#say(`Failed: ${error.message}`);
    view.fail(error.message, "Try again", () => this.#again(view));
    if (error.wantsKey) this.settings.askForKey();
  }

  #again(view) {
    if (this.#running) return;
    if (this.#messages.at(-1)?.role === "assistant") this.#messages.pop();
    view.node.remove();
    this.#answer();
  }

  // Moves a question without any answer back into the message box.
  #forget(view) {
    this.composer.restore(this.#messages.pop().content);
    view.node.previousElementSibling.remove();
    view.node.remove();
    show(element("welcome"), !this.#messages.length);
  }

  // Removes an unanswered question: many chat templates refuse two in a row.
  #giveUpUnanswered() {
    if (this.#messages.at(-1)?.role === "user") this.#messages.pop();
    this.#list.querySelectorAll(".fault button").forEach((button) => button.remove());
  }

  // Keeps what an answer has so far, too.
  #keep() {
    this.#kept.save(this.#view?.text ? [...this.#messages, this.#view.message] : this.#messages);
  }

  #say(words) {
    element("status").textContent = words;
  }
}

function viewOf({ role, content, reasoning }) {
  if (role === "user") return showQuestion(content);
  const view = new AnswerView();
  view.take({ delta: { content, reasoning_content: reasoning } });
  view.end([]);
  return view.node;
}
