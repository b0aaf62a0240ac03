// State of the page in the URL, so that links can be shared and Back works.

const LISTS = ["collection", "tag", "path"];
const TEXTS = ["q", "after", "before", "kind", "open", "at"];
export const VIEWS = ["text", "outline", "links", "graph"];
export const FILTERS = ["collection", "tag", "path", "after", "before", "kind"];
export const SEARCHED = ["q", "prefix", "limit", "nearest", "documents", ...FILTERS]; // what results depend on
export const LIMITS = [10, 30, 100];

export function read(search = location.search) {
  const params = new URLSearchParams(search);
  const state = {};
  for (const name of LISTS) state[name] = params.getAll(name).filter(Boolean);
  for (const name of TEXTS) state[name] = params.get(name) ?? "";
  const limit = Number(params.get("limit"));
  state.limit = LIMITS.includes(limit) ? limit : LIMITS[0];
  state.prefix = params.get("prefix") === "1"; // the last word of the query may be unfinished
  state.nearest = params.get("nearest") === "1";
  state.documents = params.get("documents") === "1";
  const view = params.get("view") === "picture" ? "graph" : params.get("view"); // its name in older links
  state.view = VIEWS.includes(view) ? view : VIEWS[0];
  const lines = /^(\d{1,9})-(\d{1,9})$/.exec(params.get("lines") ?? "");
  state.lines = lines ? [Number(lines[1]), Number(lines[2])] : null;
  return state;
}

export function toUrl(state) {
  const params = new URLSearchParams();
  if (state.q) params.set("q", state.q);
  for (const name of LISTS) for (const value of state[name]) params.append(name, value);
  for (const name of TEXTS) if (name !== "q" && state[name]) params.set(name, state[name]);
  if (state.limit !== LIMITS[0]) params.set("limit", state.limit);
  if (state.q && state.prefix) params.set("prefix", "1");
  if (state.nearest) params.set("nearest", "1");
  if (state.documents) params.set("documents", "1");
  if (state.open && state.lines) params.set("lines", state.lines.join("-"));
  if (state.open && state.view !== VIEWS[0]) params.set("view", state.view);
  // Slashes need no encoding in a query string, and paths are easier to read with them.
  const query = params.toString().replaceAll("%2F", "/");
  return query ? `/?${query}` : "/";
}

export function save(state, { push = false } = {}) {
  const url = toUrl(state);
  if (url === location.pathname + location.search) return;
  history[push ? "pushState" : "replaceState"](null, "", url);
}

export const differ = (one, other, names) => names.some((name) => String(one[name]) !== String(other[name]));
export const activeFilters = (state) => FILTERS.filter((name) => state[name].length > 0);
