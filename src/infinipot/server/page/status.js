/**
 * The status line: what the server is doing and what it holds. Asks every two seconds while someone looks.
 * @module
 */

import { json } from "./api.js";
import { by, put } from "./dom.js";
import { bytes, many, working } from "./text.js";

const EVERY = 2000; // milliseconds

/** @typedef {{model: string, capacity: number, slots: object[], slots_busy: number, queued: number,
 *   memory_bytes: number, memory_bound_bytes: number, pots_bytes: number}} State */

export class Status {
  constructor() {
    this.model = "";
    this.look = this.look.bind(this);
    document.addEventListener("visibilitychange", this.look);
    this.timer = 0;
  }

  /** Ask now, and again after a while if the page is still looked at. */
  async look() {
    clearTimeout(this.timer);
    if (document.visibilityState !== "visible") return;
    try {
      this.show(await json("v1/state"));
    } catch {
      put("status-model", "not connected, trying again");
      by("status").classList.add("lost");
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(this.look, EVERY);
  }

  /** @param {State} state */
  show(state) {
    this.model = state.model;
    by("status").classList.remove("lost");
    put("status-model", state.model);
    put("status-capacity", many(state.capacity, "token"));
    put("status-work", working(state.slots_busy, state.slots.length, state.queued));
    const most = state.memory_bound_bytes; // 0 until the server has warmed up
    put("status-memory", bytes(state.memory_bytes) + (most ? ` of ${bytes(most)}` : ""));
    const part = Math.round((100 * state.memory_bytes) / (state.memory_bound_bytes || Infinity));
    by("status-meter").setAttribute("aria-valuenow", String(part));
    by("status-meter").style.setProperty("--part", `${part}%`);
    put("watch-memory", bytes(state.pots_bytes));
  }
}
