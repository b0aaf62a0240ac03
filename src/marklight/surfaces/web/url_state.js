// State of the page in the URL, so that links can be shared and Back works.

const LISTS = ["collection", "tag", "path"];
const TEXTS = ["q", "after", "before", "kind", "sort", "open", "at", "graph"];
const FLAGS = ["nearest", "documents"];
export const FILTERS = ["collection", "tag", "path", "after", "before", "kind"];
export const SEARCHED = ["q", "prefix", "limit", "sort", ...FLAGS, ...FILTERS]; // what results depend on
export const LIMITS = [20, 50, 100];

export function read(search = location.search) {
  const params = new URLSearchParams(search);
  const state = {};
  for (const name of LISTS) state[name] = params.getAll(name).filter(Boolean);
  for (const name of TEXTS) state[name] = params.get(name) ?? "";
  for (const name of FLAGS) state[name] = params.get(name) === "1";
  const limit = Number(params.get("limit"));
  state.limit = LIMITS.includes(limit) ? limit : LIMITS[0];
  state.prefix = params.get("prefix") === "1"; // the last word of the query may be unfinished
  state.depth = ["1", "3"].includes(params.get("depth")) ? Number(params.get("depth")) : 2;
  const lines = /^(\d{1,9})-(\d{1,9})$/.exec(params.get("lines") ?? "");
  state.lines = lines ? [Number(lines[1]), Number(lines[2])] : null;
  return state;
}

export function toUrl(state) {
  const params = new URLSearchParams();
  if (state.q) params.set("q", state.q);
  for (const name of LISTS) for (const value of state[name]) params.append(name, value);
  for (const name of TEXTS) if (name !== "q" && state[name]) params.set(name, state[name]);
  for (const name of FLAGS) if (state[name]) params.set(name, "1");
  if (state.limit !== LIMITS[0]) params.set("limit", state.limit);
  if (state.q && state.prefix) params.set("prefix", "1");
  if (state.open && state.lines) params.set("lines", state.lines.join("-"));
  if (state.graph && state.depth !== 2) params.set("depth", state.depth);
  // Slashes need no encoding in a query string, and paths are easier to read with them.
  const query = params.toString().replaceAll("%2F", "/");
  return query ? `/?${query}` : "/";
}

export function save(state, { push = false } = {}) {
  const url = toUrl(state);
  if (url === location.pathname + location.search) return;
  history[push ? "pushState" : "replaceState"](push ? null : history.state, "", url);
}

export const differ = (one, other, names) => names.some((name) => String(one[name]) !== String(other[name]));
export const activeFilters = (state) => FILTERS.filter((name) => state[name].length > 0);

// What stays in this browser; without storage, until the page is closed.
const kept = new Map();
export const stored = (name) => { try { return JSON.parse(localStorage.getItem(`marklight-${name}`)) ?? []; } catch { return kept.get(name) ?? []; } };
export const store = (name, value) => { kept.set(name, value); try { localStorage.setItem(`marklight-${name}`, JSON.stringify(value)); } catch { /* as above */ } };
