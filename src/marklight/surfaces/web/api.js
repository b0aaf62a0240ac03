// HTTP requests to the server, and their errors.

const STATUS = { UsageError: 422, SettingsError: 422, NotConfigured: 404, NotFound: 404, Overloaded: 503, Busy: 503, StoreError: 503, ModelError: 503 };

export class Problem extends Error {
  constructor(message, hint = "", status = 0) {
    super(message);
    this.hint = hint;
    this.status = status;
  }

  // No response at all: the server has stopped, or the machine sleeps.
  get offline() { return this.status === 0; }
}

// An error event inside a stream, where the HTTP status was already sent.
export const problemOf = ({ type, message, hint }) => new Problem(message, hint, STATUS[type] ?? 500);

export async function get(address, { signal } = {}) {
  const response = await request(address, { signal });
  return response.json();
}

export async function post(address, body) {
  const response = await request(address, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  return response.json();
}

// With the version of the last answer: null means that nothing has changed.
export async function getChanged(address, etag, signal) {
  const response = await request(address, { signal, cache: "no-store", headers: etag ? { "if-none-match": etag } : {} });
  return response.status === 304 ? null : { value: await response.json(), etag: response.headers.get("etag") };
}

// Server-sent events by fetch instead of EventSource, which reconnects by itself and hides the status.
export async function* events(address, signal) {
  const response = await request(address, { signal, headers: { accept: "text/event-stream" } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await read(reader, signal);
    if (done) return;
    text += value.replaceAll("\r", "");
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const parsed = event(text.slice(0, end));
      if (parsed) yield parsed;
    }
  }
}

// Encodes a path for a URL; slashes stay.
export function inPath(path) {
  const parts = path.split("/");
  // Browsers resolve these segments, however they are encoded, and would request another document.
  if (parts.includes("..") || parts.includes(".")) throw new Problem(`No such document: ${path}`, "", 404);
  return parts.map(encodeURIComponent).join("/");
}

async function request(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem("The server does not answer", "Start it with: marklight serve");
  }
  if (!response.ok && response.status !== 304) throw await problemFrom(response);
  return response;
}

async function read(reader, signal) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem("The connection was lost during the answer");
  }
}

async function problemFrom(response) {
  try {
    const { error } = await response.json();
    return new Problem(error.message, error.hint, response.status);
  } catch {
    return new Problem(`The server returned status ${response.status}`, "", response.status);
  }
}

function event(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return data.length ? { name, data: JSON.parse(data.join("\n")) } : null;
}
