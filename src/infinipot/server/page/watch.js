/**
 * A reading under way, drawn: the pot fills, is distilled, fills again. Knows nothing of requests.
 *
 * A distillation happens inside a step, so the server reports the fill before and after it, never at the brim.
 * Where `cycles` has grown, the brim was reached in between: it is drawn.
 * @module
 */

import { announce, by, put } from "./dom.js";
import { count, duration, many, queued, times } from "./text.js";

/** @typedef {{tokens_read: number, cycles: number, fill: number, capacity: number | null,
 *   bytes_read?: number, bytes_total?: number}} Progress */

const BRIM = 450; // milliseconds a full pot is shown before it sinks, and a sunken one before it fills again
const POINTS = 1500; // of the trace; beyond, every other one is left out
const [TOP, BOTTOM] = [54, 172]; // where the liquid stands in the drawing, full and empty

export class Watch {
  /** Show an empty pot. @param {string} title @param {number} cycles it was distilled before */
  start(title, cycles = 0) {
    this.first = /** @type {Progress | null} */ (null);
    this.cycles = cycles;
    this.began = 0;
    this.told = 0;
    this.pulse = 0;
    this.points = [];
    this.called = document.title; // of the page, for afterwards
    by("watch").hidden = false;
    put("watch-title", `Reading ${title}`);
    for (const id of ["watch-rate", "watch-left", "watch-fill"]) put(id, "…");
    put("watch-tokens", "0");
    put("watch-cycles", times(cycles));
    this.level(0, 0);
    this.draw(0);
    this.phase("Sending the text");
    announce(`Reading ${title}`);
  }

  /** @param {string} text */
  phase(text) {
    put("watch-phase", text);
  }

  /** @param {number} done @param {number} total in bytes */
  sent(done, total) {
    if (this.first) return;
    const part = `Sending the text, ${Math.floor((100 * done) / total)}%`;
    this.phase(done < total ? part : "The text is sent");
  }

  /** @param {import("./text.js").Place} place in the queue, as the server tells it */
  queued(place) {
    if (!this.first) this.phase(queued(place));
  }

  /** @param {Progress} now */
  progress(now) {
    if (!this.first) [this.first, this.began] = [now, performance.now()];
    const share = now.bytes_total ? (now.bytes_read ?? 0) / now.bytes_total : 0;
    this.phase(now.cycles ? "Read what fits, distil, go on" : "Reading until the pot is full");
    this.numbers(now, share);
    this.trace(now, share, now.cycles > this.cycles);
    this.tell(share);
    this.cycles = now.cycles;
  }

  /** @param {Progress} now @param {number} share */
  numbers(now, share) {
    const seconds = (performance.now() - this.began) / 1000;
    const first = /** @type {Progress} */ (this.first);
    const before = first.bytes_total ? (first.bytes_read ?? 0) / first.bytes_total : 0;
    put("watch-tokens", count(now.tokens_read));
    put("watch-cycles", times(now.cycles));
    put("watch-fill", now.capacity ? `${count(now.fill)} of ${count(now.capacity)}` : count(now.fill));
    if (seconds < 0.5) return; // too early to tell
    put("watch-rate", many((now.tokens_read - first.tokens_read) / seconds, "token"));
    const left = duration((seconds * (1 - share)) / (share - before));
    if (share > before) put("watch-left", share < 1 ? left : "nearly done");
  }

  /** @param {Progress} now @param {number} share of the text @param {boolean} distilled since the last time */
  trace(now, share, distilled) {
    const fill = now.capacity ? now.fill / now.capacity : 0;
    if (distilled) this.points.push([share, 1]);
    this.points.push([share, fill]);
    const thin = this.points.length > POINTS;
    if (thin) this.points = this.points.filter((_, index) => index % 4 < 2); // by pairs: the teeth stay
    this.draw(share);
    this.target = /** @type {[number, number]} */ ([fill, now.cycles]);
    if (this.pulse) return; // one distillation is being shown: fast machines make many in that time
    if (distilled) this.boil();
    else this.level(...this.target);
  }

  /** Fill to the brim, then sink to what was kept. */
  boil() {
    this.level(1, this.cycles);
    by("vessel").classList.add("boiling");
    this.pulse = setTimeout(() => {
      by("vessel").classList.remove("boiling");
      this.level(...this.target);
      this.pulse = setTimeout(() => { this.pulse = 0; this.level(...this.target); }, BRIM);
    }, BRIM);
  }

  /** @param {number} fill from 0 to 1 @param {number} cycles the more, the darker the essence */
  level(fill, cycles) {
    const style = by("vessel").style;
    style.setProperty("--depth", `${BOTTOM - fill * (BOTTOM - TOP)}px`);
    style.setProperty("--strength", `${Math.min(100, 20 * Math.log2(1 + cycles))}%`);
  }

  /** @param {number} share */
  draw(share) {
    const place = ([x, y]) => `${(1000 * x).toFixed(1)} ${(57 - 54 * y).toFixed(1)}`;
    const line = [[0, 0], ...this.points].map(place).join("L");
    by("trace-line").setAttribute("d", `M${line}`);
    by("trace-area").setAttribute("d", `M0 60L${line}L${(1000 * share).toFixed(1)} 60Z`);
    by("trace").setAttribute("aria-valuenow", String(Math.floor(100 * share)));
    put("watch-share", `${Math.floor(100 * share)}%`);
    document.title = `${Math.floor(100 * share)}% read · InfiniPot`;
  }

  /** Say each quarter once. @param {number} share */
  tell(share) {
    const quarter = Math.floor(4 * share);
    if (quarter > this.told && quarter < 4) announce(`${quarter * 25}% is read`);
    this.told = Math.max(this.told, quarter);
  }

  end() {
    clearTimeout(this.pulse);
    by("vessel").classList.remove("boiling");
    by("watch").hidden = true;
    document.title = this.called;
  }
}
