/**
 * Where an answer comes from: each passage that was recalled, its place and quote, and its text to open.
 * @module
 */

import { make } from "./dom.js";
import { marked } from "./text.js";

/** @typedef {{place: string, quote: string, text: string}} Passage */

/** @param {Passage} passage @param {string} question @returns {HTMLElement} */
function place(passage, question) {
  const told = make("summary", {}, make("cite", {}, passage.place), " ", make("q", {}, passage.quote));
  const parts = marked(passage.text, question).map(([part, found]) => (found ? make("mark", {}, part) : part));
  return make("details", {}, told, make("p", { tabindex: "0" }, ...parts));
}

/** @param {Passage[]} passages @param {string} question @returns {HTMLElement} */
export function places(passages, question) {
  return make("section", { class: "places", "aria-label": "Where this comes from" },
    make("h4", {}, "Passages that were read again"), ...passages.map((one) => place(one, question)));
}
