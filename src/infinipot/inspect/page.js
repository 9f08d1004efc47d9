// Shades the text by how many heads hold each word. Only what is near the view has a node for each
// word; the rest is plain text, so that a long document stays quick and the browser's own search works.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const LEAST = 120, MOST = 400; // words in a row, which ends with a paragraph if it can
const LEVELS = 10;
const number = new Intl.NumberFormat("en");

async function unpack(base64, kind) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new kind(await new Response(stream).arrayBuffer());
}

// What is known of each word --------------------------------------------------------------------

let starts, offsets, novelty; // first token, first character and one more, novelty x 10
const recipes = data.recipes; // each with share [moments x words] and map [moments x rows x bins]

async function load() {
  starts = await unpack(data.starts, Uint32Array);
  novelty = await unpack(data.novelty, Uint8Array);
  const lengths = await unpack(data.lengths, Uint32Array);
  offsets = new Uint32Array(lengths.length + 1);
  for (let n = 0; n < lengths.length; n++) offsets[n + 1] = offsets[n] + lengths[n];
  for (const recipe of recipes) {
    recipe.share = await unpack(recipe.share, Uint8Array);
    recipe.map = await unpack(recipe.map, Uint8Array);
  }
}

const word = (n) => data.text.slice(offsets[n], offsets[n + 1]);
const count = () => starts.length;

// What is shown -----------------------------------------------------------------------------------

const sides = [{ recipe: 0, moment: 0 }, { recipe: Math.min(1, recipes.length - 1), moment: 0 }];
const built = new Set(); // rows whose words are nodes
const rows = [];

/** The other side's moment: the last one at which no more of the text was read. */
function align() {
  const tokens = recipes[sides[0].recipe].tokens, other = recipes[sides[1].recipe].tokens;
  const at = Number($("cycle").value);
  sides[0].moment = at;
  let found = other.length - 1;
  if (at < tokens.length - 1) {
    found = other.findLastIndex((seen) => seen <= tokens[at]);
  }
  sides[1].moment = found; // -1: not distilled yet
}

function look(side, n) {
  const recipe = recipes[side.recipe];
  if (side.moment < 0) return "u";
  if (starts[n] >= recipe.tokens[side.moment]) return "u";
  const share = recipe.share[side.moment * count() + n];
  return "k" + (share ? Math.max(1, Math.round(LEVELS * Math.sqrt(share / 255))) : 0);
}

function shade(row) {
  const { first } = row;
  sides.forEach((side, column) => {
    const nodes = row.columns[column].children;
    for (let n = 0; n < nodes.length; n++) {
      let name = look(side, first + n);
      if (matched.has(first + n)) name += first + n === current ? " f c" : " f";
      if (nodes[n].className !== name) nodes[n].className = name;
    }
  });
}

function build(row) {
  for (const column of row.columns) {
    const nodes = document.createDocumentFragment();
    for (let n = row.first; n < row.last; n++) {
      const node = document.createElement("i"), whole = word(n), bare = whole.trimStart() || whole;
      const space = whole.slice(0, whole.length - bare.length);
      node.textContent = bare;
      node.dataset.n = n;
      nodes.append(n === row.first ? space.replace("\n", "") : space, node); // a row is a line of its own
    }
    column.replaceChildren(nodes);
  }
  built.add(row);
  shade(row);
}

function flatten(row) {
  built.delete(row);
  const text = data.text.slice(offsets[row.first], offsets[row.last]).replace(/^\n/, "");
  for (const column of row.columns) column.textContent = text;
}

function rowEnd(first) {
  const most = Math.min(first + MOST, count());
  for (let n = first + LEAST; n < most; n++) if (data.text[offsets[n]] === "\n") return n;
  return most;
}

function layOut() {
  const near = new IntersectionObserver((seen) => {
    for (const entry of seen) {
      const row = rows[entry.target.dataset.row];
      if (entry.isIntersecting && !built.has(row)) build(row);
      else if (!entry.isIntersecting && built.has(row)) flatten(row);
    }
  }, { root: $("pane"), rootMargin: "500px 0px" });
  for (let first = 0, last; first < count(); first = last) {
    last = rowEnd(first);
    const node = document.createElement("div");
    node.className = "row";
    node.dataset.row = rows.length;
    const row = { first, last, node, columns: [document.createElement("div"), document.createElement("div")] };
    node.append(...row.columns);
    rows.push(row);
    flatten(row);
  }
  $("pane").append(...rows.map((row) => row.node));
  for (const row of rows) near.observe(row.node);
}

function redraw() {
  align();
  for (const row of built) shade(row);
  if (told >= 0) tell(told);
  const recipe = recipes[sides[0].recipe], at = sides[0].moment, seen = recipe.tokens[at];
  const last = at === recipe.tokens.length - 1;
  const name = last ? "when the answer begins" : `after cycle ${number.format(recipe.cycles[at])} of ${number.format(recipe.total)}`;
  $("moment").textContent = `${name} · ${number.format(seen)} of ${number.format(data.tokens)} tokens read`;
  sides.forEach((side, n) => {
    const { held } = recipes[side.recipe];
    $(`name${n}`).textContent = recipes[side.recipe].name;
    $(`held${n}`).textContent = side.moment < 0 ? " · nothing distilled yet" : ` · ${number.format(held[side.moment])} tokens a head`;
    drawMap(side, $(`map${n}`));
    $(`mapname${n}`).textContent = recipes[side.recipe].name;
  });
}

let waiting = false;
function soon() {
  if (!waiting) requestAnimationFrame(() => { waiting = false; redraw(); });
  waiting = true;
}

// The map: a line for each layer and head, a column for each part of the text ------------------------

function drawMap(side, canvas) {
  const { map } = recipes[side.recipe], lines = data.lines, bins = data.bins;
  canvas.width = bins;
  canvas.height = lines;
  const pen = canvas.getContext("2d"), picture = pen.createImageData(bins, lines);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const from = dark ? [13, 17, 23] : [255, 255, 255], to = dark ? [126, 196, 255] : [0, 72, 140];
  for (let n = 0; n < bins * lines; n++) {
    const share = side.moment < 0 ? 0 : Math.sqrt(map[side.moment * bins * lines + n] / 255);
    for (let c = 0; c < 3; c++) picture.data[4 * n + c] = from[c] + (to[c] - from[c]) * share;
    picture.data[4 * n + 3] = 255;
  }
  pen.putImageData(picture, 0, 0);
}

function tellMap(side, canvas, event) {
  const box = canvas.getBoundingClientRect();
  const x = Math.floor(((event.clientX - box.left) / box.width) * data.bins);
  const y = Math.floor(((event.clientY - box.top) / box.height) * data.lines);
  if (side.moment < 0 || x < 0 || y < 0 || x >= data.bins || y >= data.lines) return;
  const share = recipes[side.recipe].map[(side.moment * data.lines + y) * data.bins + x] / 255;
  const width = data.tokens / data.bins;
  $("maptold").textContent = `layer ${data.layers[Math.floor(y / data.heads)]}, head ${y % data.heads}, tokens `
    + `${number.format(Math.round(x * width))} to ${number.format(Math.round((x + 1) * width))}: ${(100 * share).toFixed(1)}% held`;
}

// Search --------------------------------------------------------------------------------------------

let matches = []; // first word of each
let matched = new Set(), current = -1, chosen = -1;

function wordAt(character) {
  let low = 0, high = count() - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= character) low = middle; else high = middle - 1;
  }
  return low;
}

function search() {
  const wanted = $("search").value;
  matches = [];
  matched = new Set();
  chosen = current = -1;
  if (wanted.trim()) {
    const pattern = new RegExp(wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+"), "giu");
    for (const found of data.text.matchAll(pattern)) {
      const first = wordAt(found.index), last = wordAt(found.index + found[0].length - 1);
      matches.push(first);
      for (let n = first; n <= last; n++) matched.add(n);
    }
  }
  step(1);
}

function step(way) {
  if (matches.length) {
    chosen = (chosen + way + matches.length) % matches.length;
    current = matches[chosen];
    show(current);
  }
  const wanted = $("search").value.trim();
  $("matches").textContent = !wanted ? "" : matches.length ? `${number.format(chosen + 1)} of ${number.format(matches.length)}` : "not in the text";
  for (const row of built) shade(row);
}

function show(n) {
  const row = rows.findLast((one) => one.first <= n);
  if (!built.has(row)) build(row);
  tell(n);
  reach(row, n, 8);
}

/** Scroll to a word; rows on the way take their true height only when they come into view, so again. */
function reach(row, n, times) {
  if (!built.has(row)) build(row);
  row.columns[0].children[n - row.first].scrollIntoView({ block: "center" });
  if (times && n === current) requestAnimationFrame(() => reach(row, n, times - 1));
}

let told = -1; // the word that is told about

function tell(n) {
  told = n;
  const held = sides.map((side) => {
    const name = recipes[side.recipe].name, state = look(side, n);
    if (state === "u") return `${name}: not read yet`;
    const share = recipes[side.recipe].share[side.moment * count() + n] / 255;
    return `${name}: held by ${(100 * share).toFixed(share && share < 0.1 ? 1 : 0)}% of heads`;
  });
  const name = document.createElement("b");
  name.textContent = word(n).trim() || "(space)";
  const facts = [`token ${number.format(starts[n])}`, `novelty ${(novelty[n] / 10).toFixed(1)}`, ...new Set(held)];
  $("word").replaceChildren(name, ` · ${facts.join(" · ")}`);
}

// Start -----------------------------------------------------------------------------------------------

function choose(side, index) {
  sides[side].recipe = index;
  if (side === 0) {
    const last = recipes[index].tokens.length - 1;
    $("cycle").max = last;
    $("cycle").value = last;
  }
  soon();
}

async function start() {
  await load();
  sides.forEach((side, n) => {
    $(`recipe${n}`).append(...recipes.map((recipe, at) => new Option(recipe.name, at, false, at === side.recipe)));
    $(`recipe${n}`).addEventListener("change", (event) => choose(n, Number(event.target.value)));
    $(`map${n}`).addEventListener("mousemove", (event) => tellMap(side, event.target, event));
  });
  layOut();
  choose(0, 0);
  redraw();
  $("cycle").addEventListener("input", soon);
  let typing;
  $("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, 150); });
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  });
  $("next").addEventListener("click", () => step(1));
  $("before").addEventListener("click", () => step(-1));
  $("pane").addEventListener("mouseover", (event) => {
    if (event.target.dataset.n) tell(Number(event.target.dataset.n));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  document.documentElement.dataset.ready = "yes";
}

start();
