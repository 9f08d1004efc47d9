/**
 * The server's routes as functions and streams. Knows HTTP and nothing of the page.
 * Addresses are relative, so the page works behind any prefix; the browser adds the key by itself.
 * @module
 */

const UNREACHABLE = "The server cannot be reached. Check that it is running, then try again.";
const PATIENCE = 30; // attempts at a busy server

/** What the server, or the way to it, said instead of an answer: one line that says what to do. */
export class Refused extends Error {
  /** @param {string} message @param {number} status @param {number} retryAfter seconds, 0 if not to be tried again */
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** @param {unknown} error */
export const aborted = (error) => error instanceof DOMException && error.name === "AbortError";

/** @param {number} status @param {string} body @param {string | null} after the Retry-After header */
function refusal(status, body, after) {
  let said = "";
  try {
    said = JSON.parse(body).error.message;
  } catch { /* a proxy's page: its status must do */ }
  const fallback = status === 401 ? "This server needs a key. Reload the page and sign in with it as the password."
    : status === 413 ? "This is larger than the server accepts."
    : `The server answered ${status}. Try again, or look at its log.`;
  const busy = status === 429 || (status === 503 && after);
  return new Refused(said || fallback, status, busy ? Math.max(1, Number.parseInt(after ?? "", 10) || 5) : 0);
}

/** @param {string} path @param {RequestInit} options @returns {Promise<Response>} */
async function reach(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw aborted(error) ? error : new Refused(UNREACHABLE);
  }
  if (response.ok) return response;
  throw refusal(response.status, await response.text().catch(() => ""), response.headers.get("Retry-After"));
}

/** @param {string} path @param {RequestInit} [options] @returns {Promise<any>} */
export const json = async (path, options) => (await reach(path, options)).json();

/** @param {string} name @param {string} [rest] */
export const potPath = (name, rest = "") => `v1/pots/${encodeURIComponent(name)}${rest}`;

/** @param {ReadableStream<string>} stream @returns {AsyncGenerator<string>} */
async function* pieces(stream) {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Server-sent events from text that arrives in any pieces.
 * @param {AsyncIterable<string>} chunks
 * @returns {AsyncGenerator<{event: string, data: string}>}
 */
export async function* events(chunks) {
  let rest = "", event = "message", data = [];
  for await (const chunk of chunks) {
    const lines = (rest + chunk).split(/\r?\n/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (data.length) yield { event, data: data.join("\n") };
        [event, data] = ["message", []];
      } else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      else if (line.startsWith("event:")) event = line.slice(6).trim();
    }
  }
}

/** @param {object} request @param {AbortSignal} signal @returns {AsyncGenerator<any>} the chunks of an answer */
export async function* chat(request, signal) {
  const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
  const body = JSON.stringify(request);
  const response = await reach("v1/chat/completions", { method: "POST", headers, signal, body });
  const text = /** @type {ReadableStream<Uint8Array>} */ (response.body).pipeThrough(new TextDecoderStream());
  for await (const { data } of events(pieces(text))) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Refused(chunk.error.message, 500);
    yield chunk;
  }
  throw new Refused("The connection broke before the answer was whole. Ask again.");
}

/**
 * Send a text and follow its reading. XMLHttpRequest, because fetch cannot say how much of a body is sent.
 * @param {string} path @param {Blob} body @param {AbortSignal} signal
 * @param {(done: number, total: number) => void} sent
 * @returns {AsyncGenerator<{event: string, data: any}>}
 */
export async function* upload(path, body, signal, sent) {
  const xhr = new XMLHttpRequest();
  const headed = new Promise((resolve) => { xhr.onreadystatechange = () => xhr.readyState > 1 && resolve(0); });
  const text = new ReadableStream({
    start: (stream) => relay(xhr, stream),
    cancel: () => { xhr.onabort = null; xhr.abort(); },
  });
  xhr.upload.onprogress = (event) => sent(event.loaded, event.total);
  xhr.open("POST", path);
  xhr.setRequestHeader("Content-Type", body.type === "text/html" ? body.type : "text/plain; charset=utf-8");
  xhr.setRequestHeader("Accept", "text/event-stream");
  signal.addEventListener("abort", () => xhr.abort(), { once: true });
  xhr.send(body);
  await headed;
  if (xhr.status >= 400) {
    let said = "";
    for await (const piece of pieces(text)) said += piece;
    throw refusal(xhr.status, said, xhr.getResponseHeader("Retry-After"));
  }
  for await (const { event, data } of events(pieces(text))) {
    const content = JSON.parse(data);
    if (event === "error") throw new Refused((content.error ?? content).message, 500);
    yield { event, data: content };
  }
}

/** @param {XMLHttpRequest} xhr @param {ReadableStreamDefaultController<string>} stream */
function relay(xhr, stream) {
  let seen = 0;
  const pass = () => {
    const fresh = xhr.responseText.slice(seen);
    seen += fresh.length;
    if (fresh) stream.enqueue(fresh);
  };
  xhr.onprogress = pass;
  xhr.onload = () => { pass(); stream.close(); };
  xhr.onerror = () => stream.error(new Refused(UNREACHABLE));
  xhr.onabort = () => stream.error(new DOMException("cancelled", "AbortError"));
}

/** @param {number} milliseconds @param {AbortSignal} signal */
const pause = (milliseconds, signal) => new Promise((resolve, reject) => {
  setTimeout(resolve, milliseconds);
  signal.addEventListener("abort", () => reject(signal.reason), { once: true });
});

/**
 * Try until the server is no longer busy, or the signal says to stop.
 * @template T @param {() => Promise<T>} attempt @param {AbortSignal} signal
 * @param {(seconds: number) => void} waiting told once a second
 * @returns {Promise<T>}
 */
export async function patiently(attempt, signal, waiting) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof Refused) || !error.retryAfter || tries >= PATIENCE) throw error;
      for (let left = error.retryAfter; left > 0; left -= 1) {
        waiting(left);
        await pause(1000, signal);
      }
    }
  }
}
