/**
 * "What the pot kept": the words some head still holds, in reading order, shaded by how many hold them.
 *
 * Words are drawn in blocks, and only blocks near the window: a hundred thousand words stay light.
 * @module
 */

import { json, potPath } from "./api.js";
import { by, make, on, put } from "./dom.js";
import { count, many } from "./text.js";

const BLOCK = 300; // words
const SHADES = 6;

/** @typedef {{text: string, start: number, end?: number, share: number, novelty: number}} Word */

export class Words {
  constructor() {
    this.pot = /** @type {string | null} */ (null);
    this.words = /** @type {Word[]} */ ([]);
    this.blocks = /** @type {HTMLElement[]} */ ([]);
    this.hits = /** @type {number[]} */ ([]);
    this.marked = /** @type {Set<number>} */ (new Set()); // the same, to be asked one by one
    this.at = -1; // the word being looked at
    this.eye = new IntersectionObserver((entries) => entries.forEach((entry) => this.near(entry)),
      { root: by("words"), rootMargin: "100% 0px" });
    on("words", "pointerover", (event) => this.point(event.target, false));
    on("words", "click", (event) => this.point(event.target, true));
    on("words", "keydown", (event) => this.walk(event));
    on("find", "input", () => this.search());
    on("find", "keydown", (event) => event.key === "Enter" && this.next());
    on("find-next", "click", () => this.next());
  }

  /** Forget what is shown. @param {string | null} pot whose words to show when asked to */
  about(pot) {
    this.pot = pot;
    this.take([]);
    by("find").value = "";
    put("found", "");
    put("words-note", "");
  }

  /** Fetch and draw, unless it is there already. */
  async show() {
    const pot = this.pot;
    if (!pot || this.words.length) return;
    put("words-note", "Looking into the pot");
    try {
      const kept = await json(potPath(pot, "/words"));
      if (pot !== this.pot) return;
      this.take(kept.words);
      const [held, read] = [many(kept.words.length, "word"), many(kept.tokens_read, "token")];
      put("words-note", `${held}, held by at least one head, of ${read} read.`);
    } catch (error) {
      put("words-note", /** @type {Error} */ (error).message);
    }
  }

  /** @param {Word[]} words */
  take(words) {
    this.eye.disconnect();
    [this.words, this.hits, this.marked, this.at] = [words, [], new Set(), -1];
    // A server may send bare words or words with the blanks around them: only bare ones need ours.
    this.bare = !words.slice(0, 2000).some(({ text }) => /^\s|\s$/.test(text));
    this.lower = words.map(({ text }) => text.toLowerCase());
    const length = Math.ceil(words.length / BLOCK);
    this.blocks = Array.from({ length }, (_, index) => make("p", { "data-block": String(index) }));
    by("words").replaceChildren(...this.blocks);
    by("words").scrollTop = 0;
    this.blocks.forEach((block) => this.eye.observe(block));
  }

  /** @param {IntersectionObserverEntry} entry */
  near({ target, isIntersecting, boundingClientRect }) {
    const block = /** @type {HTMLElement} */ (target);
    if (isIntersecting) return this.fillInPlace(block);
    if (!block.firstChild || block.contains(document.activeElement)) return;
    block.style.minHeight = `${boundingClientRect.height}px`; // so that nothing jumps
    block.replaceChildren();
  }

  /**
   * Fill, and keep what is in sight where it is: a block above it seldom has the height it was given.
   * @param {HTMLElement} block
   */
  fillInPlace(block) {
    const [before, box] = [block.getBoundingClientRect(), by("words")];
    this.fill(block);
    if (before.top < box.getBoundingClientRect().top) box.scrollTop += block.offsetHeight - before.height;
  }

  /** @param {HTMLElement} block */
  fill(block) {
    if (block.firstChild) return;
    const first = Number(block.dataset.block) * BLOCK;
    const last = Math.min(first + BLOCK, this.words.length);
    for (let index = first; index < last; index += 1) {
      block.append(...this.gap(index), ...this.spans(index));
    }
    block.style.minHeight = "";
  }

  /** What stands before a word: an ellipsis where the pot let go of something. @param {number} index */
  gap(index) {
    const [before, word] = [this.words[index - 1], this.words[index]];
    if (!before) return [];
    // Without an end it is a guess, but for words that bring their blanks: one without any follows a loss.
    const end = before.end ?? before.start + Math.max(1, Math.ceil(before.text.trim().length / 4));
    const [left, right] = [/\s$/.test(before.text) ? "" : " ", /^\s/.test(word.text) ? "" : " "];
    const torn = before.end === undefined && !this.bare && left && right;
    if (word.start > end || torn) return [make("span", { class: "gap" }, `${left}…${right}`)];
    return this.bare ? [" "] : [];
  }

  /** Blanks of a text file as blanks of a page: its lines flow, its paragraphs stay. @param {string} blanks */
  blank(blanks) {
    return !blanks ? [] : /\n\s*\n/.test(blanks) ? ["\n"] : [" "];
  }

  /** A word, shaded, between blanks that are not. @param {number} index */
  spans(index) {
    const { text, share } = this.words[index];
    const [, before, core, after] = /** @type {RegExpMatchArray} */ (text.match(/^(\s*)([^]*?)(\s*)$/));
    const shade = Math.min(SHADES, Math.max(1, Math.ceil(share * SHADES)));
    const span = make("span", { class: `s${shade}`, "data-word": String(index) }, core || "␣");
    if (this.marked.has(index)) span.classList.add("hit");
    return [...this.blank(before), span, ...this.blank(after)];
  }

  /** @param {number} index @returns {HTMLElement} its place in the page, drawn if need be */
  place(index) {
    const block = this.blocks[Math.floor(index / BLOCK)];
    this.fill(block);
    return /** @type {HTMLElement} */ (block.querySelector(`[data-word="${index}"]`));
  }

  /** @param {Element} target @param {boolean} stay */
  point(target, stay) {
    if (!(target instanceof HTMLElement) || !target.dataset.word) return;
    if (stay) this.look(Number(target.dataset.word), false);
    else this.tell(Number(target.dataset.word));
  }

  /** @param {number} index @param {boolean} move bring it into sight */
  look(index, move = true) {
    by("words").querySelector("[aria-current]")?.removeAttribute("aria-current");
    this.at = Math.max(0, Math.min(this.words.length - 1, index));
    const span = this.place(this.at);
    span.setAttribute("aria-current", "true");
    if (move) span.scrollIntoView({ block: "nearest" });
    this.tell(this.at);
  }

  /** @param {number} index */
  tell(index) {
    const { text, share, novelty, start } = this.words[index];
    const shown = text.trim().slice(0, 60) || "(blank)";
    const held = `held by ${Math.round(100 * share)}% of heads`;
    put("word", `“${shown}” · ${held} · novelty ${novelty.toFixed(1)} · token ${count(start)}`);
  }

  /** @param {KeyboardEvent} event */
  walk(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (!step || !this.words.length) return;
    event.preventDefault();
    this.look(this.at < 0 && step === 1 ? 0 : this.at + step);
  }

  search() {
    const wanted = by("find").value.trim().toLowerCase();
    this.hits = [];
    if (wanted) this.lower.forEach((text, index) => text.includes(wanted) && this.hits.push(index));
    this.marked = new Set(this.hits);
    for (const span of by("words").querySelectorAll("[data-word]")) {
      span.classList.toggle("hit", this.marked.has(Number(span.dataset.word)));
    }
    put("found", wanted ? (this.hits.length ? `${count(this.hits.length)} found` : "not in the pot") : "");
  }

  /** Go to the next hit, around the end to the first. */
  next() {
    if (!this.hits.length) return;
    const following = this.hits.findIndex((index) => index > this.at);
    const turn = following < 0 ? 0 : following;
    this.look(this.hits[turn]);
    put("found", `${count(turn + 1)} of ${count(this.hits.length)}`);
  }
}
