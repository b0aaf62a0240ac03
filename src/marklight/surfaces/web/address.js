// What is asked and what is open, as the address says it: a link can be shared, and Back goes back.

const LISTS = ["collection", "tag", "path"];
const TEXTS = ["q", "after", "before", "kind", "open", "at"];
export const VIEWS = ["text", "outline", "links", "picture"];
export const FILTERS = ["collection", "tag", "path", "after", "before", "kind"];
export const STEPS = [10, 30, 100];

export function read(search = location.search) {
  const given = new URLSearchParams(search);
  const state = {};
  for (const name of LISTS) state[name] = given.getAll(name).filter(Boolean);
  for (const name of TEXTS) state[name] = given.get(name) ?? "";
  const limit = Number(given.get("limit"));
  state.limit = STEPS.includes(limit) ? limit : STEPS[0];
  state.nearest = given.get("nearest") === "1";
  state.view = VIEWS.includes(given.get("view")) ? given.get("view") : VIEWS[0];
  const lines = /^(\d{1,9})-(\d{1,9})$/.exec(given.get("lines") ?? "");
  state.lines = lines ? [Number(lines[1]), Number(lines[2])] : null;
  return state;
}

export function written(state) {
  const said = new URLSearchParams();
  if (state.q) said.set("q", state.q);
  for (const name of LISTS) for (const each of state[name]) said.append(name, each);
  for (const name of TEXTS) if (name !== "q" && state[name]) said.set(name, state[name]);
  if (state.limit !== STEPS[0]) said.set("limit", state.limit);
  if (state.nearest) said.set("nearest", "1");
  if (state.open && state.lines) said.set("lines", state.lines.join("-"));
  if (state.open && state.view !== VIEWS[0]) said.set("view", state.view);
  // A path reads better with its strokes, and they need no sign in their place there.
  const query = said.toString().replaceAll("%2F", "/");
  return query ? `/?${query}` : "/";
}

export function keep(state, { push = false } = {}) {
  const address = written(state);
  if (address === location.pathname + location.search) return;
  history[push ? "pushState" : "replaceState"](null, "", address);
}

export const filtered = (state) => FILTERS.filter((name) => state[name].length > 0);
