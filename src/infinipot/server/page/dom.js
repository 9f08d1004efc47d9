/**
 * The document in small steps. Text goes in as text, never as markup: titles, words and answers are hostile.
 * @module
 */

/** @param {string} id @returns {any} */
export const by = (id) => document.getElementById(id);

/**
 * @param {string} tag @param {Record<string, string>} attributes @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** @param {string} id @param {string} text */
export function put(id, text) {
  const element = by(id);
  if (element.textContent !== text) element.textContent = text;
}

/** Show one line, or hide its place. @param {string} id @param {string} text */
export function note(id, text) {
  put(id, text);
  by(id).hidden = !text;
}

/** Tell a screen reader, when it has time. @param {string} text */
export const announce = (text) => put("announcer", text);

/** @param {string | Element} where an id or an element @param {string} event @param {(event: any) => void} handler */
export function on(where, event, handler) {
  (typeof where === "string" ? by(where) : where).addEventListener(event, handler);
}
