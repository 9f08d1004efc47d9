/**
 * Numbers, sizes, times and names as people read them. Knows no document and no server.
 * @module
 */

const LONGEST_NAME = 64;
const ENDING = /(?<=.)\.(txt|md|pdf|docx|epub|html?|xhtml|log|pot)$/; // of a file, which its pot's name need not tell

/** @param {number} number */
export const count = (number) => Math.round(number).toLocaleString("en-US");

/** @param {number} number @param {string} word @returns {string} such as "1 token", "2,048 tokens" */
export const many = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** @param {number} busy requests at work @param {number} most at a time @param {number} waiting for their turn */
export function working(busy, most, waiting) {
  if (!busy) return "free";
  return `at work on ${count(busy)} of at most ${count(most)}${waiting ? `, ${count(waiting)} waiting` : ""}`;
}

/** @param {number} fill @param {number | null} capacity @returns {string} how full a pot is */
export const full = (fill, capacity) => (capacity ? `pot ${Math.round((100 * fill) / capacity)}% full` : `pot of ${many(fill, "token")}`);

/** @param {number} cycles @returns {string} how often a pot was distilled */
export const times = (cycles) => (cycles === 0 ? "never" : cycles === 1 ? "once" : `${count(cycles)} times`);

/** @param {number} size in bytes */
export function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (size >= 999.5 && step < units.length - 1) {
    size /= 1000;
    step += 1;
  }
  return `${step && size < 9.95 ? size.toFixed(1) : Math.round(size)} ${units[step]}`;
}

/** @param {number} seconds */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "…";
  const whole = Math.max(1, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** @typedef {{position: number, expected_wait_s: number}} Place in the server's queue */

/** @param {Place} place */
export function queued({ position, expected_wait_s: wait }) {
  const before = position === 1 ? "Next in line" : `${count(position - 1)} before you`;
  return wait >= 1 ? `${before}, about ${duration(wait)}` : before;
}

/** @param {number | string} when seconds since 1970, or a date in words @param {number} now milliseconds */
export function ago(when, now = Date.now()) {
  const then = typeof when === "number" ? when * 1000 : Date.parse(when);
  if (!Number.isFinite(then)) return "";
  const minutes = Math.floor((now - then) / 60000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ago`;
  return new Date(then).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

/** @param {string} title @returns {string} a name the store accepts: a-z, 0-9 and single hyphens */
export function nameFrom(title) {
  const plain = title.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().replace(ENDING, "");
  const name = plain.replace(/[^a-z0-9]+/g, "-").slice(0, LONGEST_NAME).replace(/^-+|-+$/g, "");
  return /^(con|prn|aux|nul|com\d|lpt\d)$/.test(name) ? `${name}-pot` : name || "pot"; // Windows' devices
}

/** @param {string} name @param {Set<string>} taken @returns {string} the name, or the next free one like it */
export function unused(name, taken) {
  for (let next = 1; ; next += 1) {
    const end = next === 1 ? "" : `-${next}`;
    const candidate = name.slice(0, LONGEST_NAME - end.length).replace(/-+$/, "") + end;
    if (!taken.has(candidate)) return candidate;
  }
}

/** @param {string} text @returns {string} its first words, for a title */
export function firstWords(text) {
  const words = text.slice(0, 400).trim().split(/\s+/).slice(0, 6).join(" ");
  return words.length > 60 ? `${words.slice(0, 59)}…` : words;
}

/** @param {string} file a file's name @returns {string} it without its folder and ending, for a title */
export const titleOf = (file) => fileName(file).replace(/(.)\.[A-Za-z0-9]{1,8}$/, "$1");

/** @param {string} file a file's name @returns {string} it without its folder */
export const fileName = (file) => file.replace(/^.*[/\\]/, "");

/**
 * A text cut where words of a question are: a word in any of its forms, or a pair of letters where no space
 * parts words.
 * @param {string} text @param {string} question @returns {[string, boolean][]} parts, and whether each is such a word
 */
export function marked(text, question) {
  const unspaced = "[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}]";
  const runs = question.match(new RegExp(`${unspaced}{2,}`, "gu")) ?? [];
  const pairs = runs.flatMap((run) => Array.from(run).slice(1).map((letter, at) => Array.from(run)[at] + letter));
  const words = (question.match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => word.length > 3 && !runs.includes(word));
  const stems = words.map((word) => `(?<![\\p{L}\\p{N}])${word.slice(0, 5)}[\\p{L}\\p{N}]*`);
  if (!pairs.length && !stems.length) return [[text, false]];
  const parts = text.split(new RegExp(`(${[...stems, ...pairs].join("|")})`, "giu"));
  return /** @type {[string, boolean][]} */ (parts.map((part, at) => [part, at % 2 === 1]).filter(([part]) => part));
}
