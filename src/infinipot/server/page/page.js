/**
 * The page at `/`: read something, watch the pot, ask, see what it kept. Wires the parts; each knows only its own.
 *
 *     text.js    numbers, sizes and names in words       dom.js     the document in small steps
 *     api.js     the server's routes                     status.js  the status line
 *     watch.js   a reading, drawn                        reading.js "Read something"
 *     pots.js    kept pots and the open one              talk.js    asking
 *     words.js   what the pot kept                       theme.js   light or dark
 * @module
 */

import { announce, by, on } from "./dom.js";
import { Pots } from "./pots.js";
import { Reading } from "./reading.js";
import { Status } from "./status.js";
import { Talk } from "./talk.js";
import { many } from "./text.js";
import { Words } from "./words.js";

const status = new Status();
const talk = new Talk(() => status.model);
const words = new Words();
const pots = new Pots(
  (pot) => {
    talk.about(pot && pot.id);
    words.about(pot && pot.id);
    select("ask");
  },
  (pot) => reading.addTo(pot),
);
const reading = new Reading(() => pots.names, kept, (file) => pots.bring(file));

/** @param {import("./pots.js").Pot} pot that was just read */
async function kept(pot) {
  await pots.refresh();
  pots.open(pot);
  announce(`${pot.title} is read: ${many(pot.tokens_read, "token")}`);
  by("question").focus();
}

/** @param {"ask" | "words"} wanted */
function select(wanted) {
  for (const name of ["ask", "words"]) {
    by(`tab-${name}`).setAttribute("aria-selected", String(name === wanted));
    by(`tab-${name}`).tabIndex = name === wanted ? 0 : -1;
    by(`panel-${name}`).hidden = name !== wanted;
  }
  if (wanted === "words") words.show();
}

on("tab-ask", "click", () => select("ask"));
on("tab-words", "click", () => select("words"));
on("tabs", "keydown", (event) => {
  if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const other = event.target.id === "tab-ask" ? "words" : "ask";
  select(other);
  by(`tab-${other}`).focus();
});

await Promise.all([status.look(), pots.refresh()]);
pots.openNamed();
document.documentElement.dataset.ready = "";
