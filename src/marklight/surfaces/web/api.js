// Questions to the server, and what can go wrong with them in words.

const STATUS = { UsageError: 422, SettingsError: 422, NotFound: 404, Overloaded: 503, Busy: 503, StoreError: 503, ModelError: 503 };

export class Problem extends Error {
  constructor(message, hint = "", status = 0) {
    super(message);
    this.hint = hint;
    this.status = status;
  }

  // Nobody answered at all: the server has ended, or the machine sleeps.
  get offline() { return this.status === 0; }
}

// An error that came in the midst of a stream, where there is no status any more.
export const problemOf = ({ type, message, hint }) => new Problem(message, hint, STATUS[type] ?? 500);

export async function get(address, signal) {
  const response = await reached(address, { signal });
  return response.json();
}

// Server-sent events by fetch rather than EventSource, which asks again by itself and tells no status.
export async function* events(address, signal) {
  const response = await reached(address, { signal, headers: { accept: "text/event-stream" } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await read(reader, signal);
    if (done) return;
    text += value.replaceAll("\r", "");
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const found = event(text.slice(0, end));
      if (found) yield found;
    }
  }
}

// What a name in an address must look like; strokes stay, for a path has them.
export function inPath(path) {
  const parts = path.split("/");
  // A browser follows these itself, however they are written, and would ask for something else.
  if (parts.includes("..") || parts.includes(".")) throw new Problem(`no document is called ${path}`, "", 404);
  return parts.map(encodeURIComponent).join("/");
}

async function reached(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem("The server does not answer", "Start it again with: marklight serve");
  }
  if (!response.ok) throw await told(response);
  return response;
}

async function read(reader, signal) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem("The server broke off in the middle of its answer");
  }
}

async function told(response) {
  try {
    const { error } = await response.json();
    return new Problem(error.message, error.hint, response.status);
  } catch {
    return new Problem(`The server answered with ${response.status}`, "", response.status);
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
