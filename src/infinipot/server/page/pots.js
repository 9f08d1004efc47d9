/**
 * Kept pots: the list, and the one that is open. What is done with an open pot is told to others.
 * @module
 */

import { json, potPath } from "./api.js";
import { announce, by, make, note, on, put } from "./dom.js";
import { ago, bytes, full, many, nameFrom, times, titleOf, unused } from "./text.js";

/** @typedef {{id: string, title: string, model: string, created: number | string, updated: number | string,
 *   tokens_read: number, cycles: number, fill: number, capacity: number, bytes: number}} Pot */

/** @param {Pot} pot */
const called = (pot) => pot.title || pot.id;

export class Pots {
  /** @param {(pot: Pot | null) => void} opened @param {(pot: Pot) => void} addTo */
  constructor(opened, addTo) {
    this.opened = opened;
    this.all = /** @type {Pot[]} */ ([]);
    this.names = /** @type {Set<string>} */ (new Set());
    this.current = /** @type {Pot | null} */ (null);
    on("import", "change", (event) => { this.bring(event.target.files[0]); event.target.value = ""; });
    on("add", "click", () => this.current && addTo(this.current));
    on("close", "click", () => { this.open(null); by("question").focus(); });
    on("delete", "click", () => this.ask());
    on("sure", "close", (event) => event.target.returnValue === "yes" && this.remove());
  }

  /** Ask the server what it keeps. */
  async refresh() {
    try {
      this.all = (await json("v1/pots")).data;
    } catch (error) {
      return note("kept-note", /** @type {Error} */ (error).message);
    }
    note("kept-note", "");
    this.all.sort((one, other) => (one.updated < other.updated ? 1 : -1));
    this.names = new Set(this.all.map((pot) => pot.id));
    this.show();
  }

  show() {
    by("kept-empty").hidden = this.all.length > 0;
    by("kept").replaceChildren(...this.all.map((pot) => this.row(pot)));
  }

  /** @param {Pot} pot */
  row(pot) {
    const name = nameFrom(called(pot)) === pot.id ? "" : `${pot.id} · `; // where the title does not tell
    const facts = `${name}${many(pot.tokens_read, "token")}, distilled ${times(pot.cycles)}, ${ago(pot.updated)}`;
    const button = make("button", { type: "button" }, make("b", {}, called(pot)), make("span", {}, facts));
    if (pot.id === this.current?.id) button.setAttribute("aria-current", "true");
    on(button, "click", () => { this.open(pot); by("open-title").focus(); });
    return make("li", {}, button);
  }

  /** @param {Pot | null} pot */
  open(pot) {
    this.current = pot;
    history.replaceState(null, "", pot ? `#pot/${pot.id}` : location.pathname + location.search);
    by("open-actions").hidden = by("tabs").hidden = !pot;
    put("open-title", pot ? called(pot) : "No text is open");
    put("open-facts", pot ? this.facts(pot) : "Read something, or open what is kept, to ask about it. Or just talk.");
    document.title = pot ? `${called(pot)} · InfiniPot` : "InfiniPot";
    if (pot) {
      by("download").href = potPath(pot.id, "/file");
      by("download").download = `${pot.id}.pot`;
    }
    this.show();
    this.opened(pot);
  }

  /** @param {Pot} pot */
  facts(pot) {
    const read = `${many(pot.tokens_read, "token")} read by ${pot.model}`;
    return [read, `distilled ${times(pot.cycles)}`, full(pot.fill, pot.capacity), `${bytes(pot.bytes)} on disk`,
      `kept as ${pot.id}`, ago(pot.updated)].join(" · ");
  }

  /** Open the one that the address names. */
  openNamed() {
    const pot = this.all.find(({ id }) => location.hash === `#pot/${id}`);
    if (pot) this.open(pot);
  }

  /** @param {File | undefined} file a .pot */
  async bring(file) {
    if (!file) return;
    const name = unused(nameFrom(titleOf(file.name)), this.names);
    note("kept-note", `Uploading ${file.name}`);
    try {
      const headers = { "Content-Type": "application/octet-stream" };
      const pot = await json(potPath(name, "/file"), { method: "PUT", headers, body: file });
      await this.refresh();
      this.open(pot);
      announce(`${called(pot)} is kept`);
    } catch (error) {
      note("kept-note", /** @type {Error} */ (error).message);
    }
  }

  ask() {
    if (!this.current) return;
    const tokens = many(this.current.tokens_read, "token");
    put("sure-text", `“${called(this.current)}” would have to be read again: ${tokens}.`);
    by("sure").returnValue = "no"; // Esc leaves it as it was
    by("sure").showModal();
  }

  async remove() {
    const pot = this.current;
    if (!pot) return;
    try {
      await json(potPath(pot.id), { method: "DELETE" });
      this.open(null);
      announce(`${called(pot)} is deleted`);
      by("kept-heading").focus();
    } catch (error) {
      note("kept-note", /** @type {Error} */ (error).message);
    }
    await this.refresh();
  }
}
