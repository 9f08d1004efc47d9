/**
 * A conversation about the opened pot, or about nothing in particular.
 * @module
 */

import { aborted, chat, patiently } from "./api.js";
import { announce, by, make, on, put } from "./dom.js";
import { places } from "./places.js";
import { count, duration, full, many, queued, times } from "./text.js";

const LONGEST = 512; // tokens of an answer
const LONG = 1000; // tokens of a message whose reading is worth a bar

/** @typedef {{said: HTMLElement, note: HTMLElement, bar: HTMLProgressElement, text: string, finish: string,
 *   usage: any, pot: any, question: string, passages: any[], doing: string, timed: boolean, began: number}} Turn */

export class Talk {
  /** @param {() => string} model */
  constructor(model) {
    this.model = model;
    this.pot = /** @type {string | null} */ (null);
    this.messages = /** @type {{role: string, content: string}[]} */ ([]);
    this.running = /** @type {AbortController | null} */ (null);
    this.welcome();
    on("ask-form", "submit", (event) => { event.preventDefault(); this.ask(); });
    on("question", "keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.ask();
    });
    on("panel-ask", "keydown", (event) => event.key === "Escape" && this.stop());
    on("stop", "click", () => { this.stop(); by("question").focus(); });
  }

  /** Begin anew, unless it is about the same. @param {string | null} pot its name */
  about(pot) {
    if (pot === this.pot) return;
    this.stop();
    this.pot = pot;
    this.messages = [];
    by("log").replaceChildren();
    this.welcome();
  }

  welcome() {
    put("welcome", this.pot ? "Ask anything about it. It is not read again."
      : "Text of any length is read into a pot of fixed size. "
        + "When the pot is full it is distilled, and reading goes on.");
  }

  stop() {
    this.running?.abort(new DOMException("stopped", "AbortError"));
  }

  async ask() {
    const question = by("question").value.trim();
    if (!question || this.running) return;
    const [messages, control, turn] = [this.messages, new AbortController(), this.draw(question)];
    this.busy(control);
    by("question").value = "";
    const waiting = (/** @type {number} */ left) => this.tell(turn, `The server is busy, trying again in ${left} s.`, false);
    const beat = setInterval(() => this.beat(turn), 1000);
    messages.push({ role: "user", content: question });
    try {
      await patiently(() => this.follow(turn, control.signal), control.signal, waiting).finally(() => clearInterval(beat));
      this.done(turn, turn.finish === "length" ? `Cut after ${LONGEST} tokens: ask it to go on. ` : "");
    } catch (error) {
      this.failed(turn, error, question);
    } finally {
      if (turn.text) messages.push({ role: "assistant", content: turn.text });
      else messages.pop(); // as if it had not been asked: nothing of it is known
      if (this.running === control) this.busy(null);
    }
  }

  /** @param {Turn} turn @param {AbortSignal} signal */
  async follow(turn, signal) {
    const request = {
      model: this.model(), messages: this.messages, max_tokens: LONGEST, ...(this.pot && { pot: this.pot }),
      stream: true, stream_options: { include_usage: true }, return_progress: true,
    };
    this.tell(turn, "Asking");
    for await (const chunk of chat(request, signal)) {
      if (chunk.queue) this.tell(turn, queued(chunk.queue), false);
      if (chunk.prompt_progress) this.reading(turn, chunk.prompt_progress);
      turn.pot = chunk.pot ?? turn.pot;
      turn.usage = chunk.usage ?? turn.usage;
      turn.passages = chunk.passages ?? turn.passages;
      const choice = chunk.choices?.[0];
      turn.finish = choice?.finish_reason ?? turn.finish;
      if (choice?.delta?.content) this.say(turn, choice.delta.content);
    }
  }

  /** @param {string} question @returns {Turn} */
  draw(question) {
    const said = make("p", { class: "said" });
    const note = make("p", { class: "hint" });
    const bar = /** @type {any} */ (make("progress", { "aria-label": "Reading the message", hidden: "" }));
    const asked = make("p", { class: "asked" }, question);
    const answer = make("div", { class: "answer alive" }, said, bar, note);
    by("log").append(make("article", {}, make("h3", {}, "Asked"), asked, make("h3", {}, "Answered"), answer));
    this.keepEnd(true);
    const state = { doing: "", timed: true, began: performance.now() };
    return { said, note, bar, text: "", finish: "", usage: null, pot: null, question, passages: [], ...state };
  }

  /** Say what is done now. @param {Turn} turn @param {string} doing @param {boolean} timed with the time it has taken */
  tell(turn, doing, timed = true) {
    [turn.doing, turn.timed] = [doing, timed];
    this.beat(turn);
  }

  /** Show that a slow answer still comes: by its seconds. @param {Turn} turn */
  beat(turn) {
    const seconds = (performance.now() - turn.began) / 1000;
    turn.note.textContent = turn.doing + (turn.timed && seconds >= 2 ? `, ${duration(seconds)}` : "");
  }

  /** Nothing more comes. @param {Turn} turn */
  still(turn) {
    turn.bar.hidden = true;
    turn.said.parentElement?.classList.remove("alive");
  }

  /** @param {Turn} turn @param {{total: number, cache: number, processed: number}} progress */
  reading(turn, { total, cache, processed }) {
    this.tell(turn, processed < total ? `Reading ${count(processed)} of ${many(total, "token")}` : "Thinking");
    turn.bar.hidden = total - cache < LONG || processed >= total;
    [turn.bar.max, turn.bar.value] = [Math.max(1, total - cache), processed - cache];
  }

  /** @param {Turn} turn @param {string} piece */
  say(turn, piece) {
    turn.bar.hidden = true;
    this.tell(turn, "Writing");
    turn.text += piece;
    turn.said.append(piece);
    this.keepEnd(false);
  }

  /** @param {Turn} turn @param {string} remark */
  done(turn, remark) {
    this.still(turn);
    const { usage, pot } = turn;
    const known = usage?.prompt_tokens_details?.cached_tokens ?? 0;
    const told = usage ? `${many(usage.prompt_tokens - known, "token")} read now, ${count(known)} known before, `
      + `${count(usage.completion_tokens)} written` : "";
    const stood = pot ? ` · ${full(pot.fill, pot.capacity)}, distilled ${times(pot.cycles)}` : "";
    turn.note.textContent = remark + told + (told && stood);
    announce(turn.text ? `Answer: ${turn.text}` : "The answer is empty.");
    if (!turn.text) turn.said.append(make("i", {}, "(an empty answer)"));
    if (turn.passages.length) turn.note.before(places(turn.passages, turn.question.split("\n\n").at(-1)?.slice(-400) ?? ""));
    this.keepEnd(false);
  }

  /** @param {Turn} turn @param {any} error @param {string} question */
  failed(turn, error, question) {
    if (aborted(error)) return this.done(turn, "Stopped. ");
    this.still(turn);
    turn.note.textContent = error.message;
    turn.note.classList.add("wrong");
    announce(error.message);
    if (!by("question").value) by("question").value = question;
  }

  /** @param {AbortController | null} control */
  busy(control) {
    this.running = control;
    by("ask").hidden = Boolean(control);
    by("stop").hidden = !control;
    by("log").setAttribute("aria-busy", String(Boolean(control)));
  }

  /** Keep the end in sight, unless the reader has scrolled up. @param {boolean} always */
  keepEnd(always) {
    const log = by("log");
    if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
  }
}
