/**
 * "Read something": a file, several, or pasted text becomes a kept pot, or is added to one.
 * @module
 */

import { Refused, aborted, patiently, potPath, upload } from "./api.js";
import { by, note, on, put } from "./dom.js";
import { bytes, fileName, firstWords, nameFrom, unused } from "./text.js";
import { Watch } from "./watch.js";

const MUCH = 200_000; // pasted characters that are taken as a file: a box of that size is slow to edit

const DOCUMENT = /\.(pdf|docx|epub|html?|xhtml)$/i; // is made text by the server, one at a time

/** @typedef {import("./pots.js").Pot} Pot */

/** @param {File} file @returns {string} its path in the folder that was chosen, or its name: one line of it */
const pathOf = (file) => (file.webkitRelativePath || file.name).replace(/[\p{C}\s]+/gu, " ").trim();

/** @param {File} file @returns {Promise<boolean>} whether it begins as UTF-8 text does */
async function isText(file) {
  const start = new Uint8Array(await file.slice(0, 4096).arrayBuffer());
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(start, { stream: true }); // a character may be cut at the end
    return !start.includes(0);
  } catch {
    return false;
  }
}

export class Reading {
  /**
   * @param {() => Set<string>} taken names in use
   * @param {(pot: Pot) => void} kept what to do with a pot once it is kept
   * @param {(file: File) => void} bring what to do with a .pot
   */
  constructor(taken, kept, bring) {
    this.taken = taken;
    this.kept = kept;
    this.bring = bring;
    this.watch = new Watch();
    this.source = /** @type {Blob | null} */ (null);
    this.target = /** @type {Pot | null} */ (null); // to add to
    this.running = /** @type {AbortController | null} */ (null);
    this.named = false; // the title is the user's own, not a file's
    on("read-form", "submit", (event) => { event.preventDefault(); this.read(); });
    on("file", "change", (event) => { this.choose([...event.target.files]); event.target.value = ""; });
    on("folder", "change", (event) => { this.chooseFolder([...event.target.files]); event.target.value = ""; });
    on("unchoose", "click", () => { this.choose([]); by("file").focus(); });
    on("unappend", "click", () => { this.addTo(null); by("title").focus(); });
    on("title", "input", (event) => { this.named = Boolean(event.target.value); this.hint(); });
    on("paste", "input", () => this.hint());
    on("paste", "paste", (event) => this.pasted(event));
    on("cancel", "click", () => this.cancel());
    on("watch", "keydown", (event) => event.key === "Escape" && this.cancel());
    this.droppable();
  }

  droppable() {
    const box = by("drop");
    let over = 0; // dragenter and dragleave come for every element on the way
    const mark = (/** @type {number} */ depth) => { over = depth; box.classList.toggle("over", over > 0); };
    const files = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
    on(document.body, "dragenter", (event) => files(event) && mark(over + 1));
    on(document.body, "dragleave", (event) => files(event) && mark(Math.max(0, over - 1)));
    on(document.body, "dragover", (event) => files(event) && event.preventDefault());
    on(document.body, "drop", (event) => {
      if (!files(event)) return;
      event.preventDefault();
      mark(0);
      this.choose([...event.dataTransfer.files]);
    });
  }

  /** Take what is text in a folder, as the command line does. @param {File[]} files */
  async chooseFolder(files) {
    const seen = files.filter((file) => file.size && !/(^|[/])[.]/.test(file.webkitRelativePath));
    const text = await Promise.all(seen.map((file) => !DOCUMENT.test(file.name) && isText(file)));
    const taken = seen.filter((_, index) => text[index]).sort((one, other) => (pathOf(one) < pathOf(other) ? -1 : 1));
    this.choose(taken, files[0]?.webkitRelativePath.split("/")[0]);
    const out = seen.length - taken.length;
    if (!taken.length) return note("read-note", "There is no text file in this folder.");
    if (out) note("read-note", `${out} of ${seen.length} files are left out: they are no plain text. Read documents one by one.`);
  }

  /** @param {File[]} files @param {string} folder they are in, if they are a folder's */
  choose(files, folder = "") {
    note("read-note", "");
    const pot = files.find((file) => file.name.endsWith(".pot"));
    if (pot) return this.bring(pot);
    const alone = files.length > 1 && files.find((file) => DOCUMENT.test(file.name));
    if (alone) return note("read-note", `Read ${alone.name} by itself, then add the others to it.`);
    const lead = (/** @type {File} */ file) => (files.length > 1 ? `File: ${pathOf(file)}\n\n` : "");
    const parts = files.flatMap((file, index) => [index ? "\n\n" : "", lead(file), file]);
    this.source = files.length ? new Blob(parts, { type: files.length > 1 ? "text/plain" : files[0].type }) : null;
    by("chosen").hidden = !files.length;
    by("drop").hidden = by("folder-part").hidden = by("paste-part").hidden = files.length > 0;
    const more = files.length > 1 ? ` and ${files.length - 1} more` : "";
    const title = files.length ? folder || fileName(files[0].name) + more : "";
    put("chosen-name", this.source ? `${title}, ${bytes(this.source.size)}` : "");
    if (!this.named) by("title").value = title;
    this.hint();
    if (files.length) by("read").focus();
  }

  /** @param {ClipboardEvent} event */
  pasted(event) {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (text.length < MUCH) return;
    event.preventDefault();
    this.choose([new File([text], firstWords(text))]);
  }

  title() {
    return by("title").value.trim() || firstWords(by("paste").value) || "Pasted text";
  }

  /** Say what the pot will be called. */
  hint() {
    const wanted = nameFrom(this.title());
    const name = unused(wanted, this.taken());
    const idle = !by("title").value && !by("paste").value;
    const clash = name === wanted ? "" : ` (${wanted} is taken)`;
    put("name-hint", idle ? "The text is kept under a name made from the title." : `Kept as ${name}${clash}`);
    by("title").placeholder = idle ? "" : this.title(); // what the text is called if nothing is typed
    return name;
  }

  /** @param {Pot | null} pot to add to; none for a new one */
  addTo(pot) {
    this.target = pot;
    by("append-part").hidden = !pot;
    by("title-part").hidden = Boolean(pot);
    put("append-title", pot?.title ?? "");
    put("read", pot ? "Read on" : "Read");
    if (pot) by(this.source ? "read" : "paste").focus();
  }

  async read() {
    const body = this.source ?? new Blob([by("paste").value]);
    if (this.running) return;
    if (!body.size) return note("read-note", "There is nothing to read yet. Choose a file or paste some text.");
    const [target, name, title] = [this.target, this.hint(), this.target?.title ?? this.title()];
    const path = target ? potPath(target.id, "/append") : potPath(name, `?${new URLSearchParams({ title })}`);
    note("read-note", "");
    this.begin(title, target);
    const signal = /** @type {AbortController} */ (this.running).signal;
    const busy = (/** @type {number} */ left) => this.watch.phase(`The server is busy, trying again in ${left} s`);
    try {
      const pot = await patiently(() => this.follow(path, body, signal), signal, busy);
      this.clear();
      this.kept(pot);
    } catch (error) {
      this.failed(error, name);
    } finally {
      this.running = null;
      by("read").disabled = false;
      this.watch.end();
    }
  }

  /** @param {string} title @param {Pot | null} target */
  begin(title, target) {
    this.running = new AbortController();
    by("read").disabled = true;
    this.watch.start(title, target?.cycles);
    by("cancel").focus({ preventScroll: true });
    for (const id of ["watch", "cancel"]) by(id).scrollIntoView({ block: "nearest" }); // the button, if not both fit
  }

  /** @param {string} path @param {Blob} body @param {AbortSignal} signal @returns {Promise<Pot>} */
  async follow(path, body, signal) {
    let pot = null;
    for await (const { event, data } of upload(path, body, signal, (done, total) => this.watch.sent(done, total))) {
      if (event === "queued") this.watch.queued(data);
      if (event === "progress") this.watch.progress(data);
      if (event === "done") pot = data;
    }
    if (pot) return pot;
    throw new Refused("The connection broke before the text was read. Read it again.");
  }

  /** @param {any} error @param {string} name */
  failed(error, name) {
    by("read").disabled = false;
    by("read").focus();
    if (aborted(error)) return note("read-note", "Cancelled. Nothing was kept.");
    if (error.status !== 409 || this.target) return note("read-note", error.message);
    this.taken().add(name);
    note("read-note", `${name} is taken by now. Press Read to keep it as ${this.hint()}.`);
  }

  cancel() {
    this.running?.abort(new DOMException("cancelled", "AbortError"));
  }

  clear() {
    by("paste").value = by("title").value = "";
    this.named = false;
    this.choose([]);
    this.addTo(null);
  }
}
