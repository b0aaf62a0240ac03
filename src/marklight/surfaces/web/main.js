// The page as a whole: what is asked goes into the address, and what the address says is shown.

import { FILTERS, STEPS, filtered, keep, read, written } from "./address.js";
import { copy } from "./copying.js";
import { byId, counted, make } from "./dom.js";
import { stages } from "./explain.js";
import { Reading } from "./reading.js";
import { Results } from "./results.js";
import { Search } from "./search.js";
import { Standing } from "./standing.js";
import * as states from "./states.js";
import { visible } from "./visible.js";

const NARROW = matchMedia("(max-width: 60rem)");
let state = read();
let retried = false;
let slow = 0;

const href = (patch) => written({ ...state, open: "", lines: null, at: "", view: "text", ...patch });
const standing = new Standing({ changed: known, back: () => { ask({ now: true }); if (state.open) reading.show(state); } });
const results = new Results({ href, copy });
const search = new Search({ begun, found, failed });
const reading = new Reading({ href, several: () => standing.several, view: (view) => change({ view }), close, lost: () => standing.lost() });
const form = byId("ask");

// Asking

function begun() {
  byId("found").setAttribute("aria-busy", "true");
  byId("found").classList.add("stale");
  clearTimeout(slow);
  // Said only where it takes long enough to wonder; the list from before fades meanwhile.
  slow = setTimeout(() => byId("found").classList.contains("stale") && !standing.away && say("Searching …"), 400);
}

function rest() {
  byId("found").removeAttribute("aria-busy");
  byId("found").classList.remove("stale");
}

function ask({ now = false } = {}) {
  if (state.q.trim()) return search.ask({ ...state, q: state.q.trim() }, { now });
  search.stop();
  rest();
  say("");
  show([], null);
  states.empty(standing.status);
}

function found(given, question, whole) {
  if (whole) {
    rest();
    retried = false;
    standing.counted(given.index);
  }
  const all = given.results;
  const hits = (question.kind ? all.filter((hit) => hit.kind === question.kind) : all).slice(0, question.limit);
  // By words alone nothing is said about what is missing: the meaning may still find it.
  if (!whole && !hits.length) return;
  show(hits, given, whole);
  states.nothing();
  if (!whole) {
    byId("found").classList.remove("stale");
    say("By words so far; looking for what is meant …");
    return;
  }
  const more = question.kind ? all.filter((hit) => hit.kind === question.kind).length > hits.length : all.length >= question.limit;
  byId("more").hidden = !more || question.limit === STEPS.at(-1) || !hits.length;
  if (hits.length) say(`${counted(hits.length, "result")}${question.kind ? ` of ${all.length} found` : ""}`);
  else if (given.index.documents === 0) { states.noDocuments(standing.status ?? {}); say("There are no documents", true); }
  else if (all.length) { states.noneOfKind(question.kind, all.length); say("No results of this kind", true); }
  else { states.abstained(given, filtered(state), { showNearest, clearFilters }); say(given.advice ? "Nothing is likely to answer that" : "Nothing was found", true); }
}

function failed(problem, question) {
  // What is shown answers an older question: it stays faded until somebody answers again.
  if (problem.offline) { standing.lost(); say("The server does not answer", true); return; }
  rest();
  if (problem.status === 503 && !retried) {
    // Too many at once: the server asks to wait a second, and a person should not have to.
    retried = true;
    setTimeout(() => question.q === state.q.trim() && ask({ now: true }), 1000);
    return;
  }
  show([], null);
  states.failed(problem, () => ask({ now: true }));
  say(problem.message, true);
}

function show(hits, given, whole = true) {
  if (hits.length) results.show(hits, given, { measured: whole && isMeasured(given), whole, several: standing.several });
  else results.clear();
  byId("more").hidden = true;
  // While a run goes on, what it has not done yet is told above, with how far it is.
  const notices = (given?.notices ?? []).filter((said) => !(standing.indexing && /^(indexing|semantic search is incomplete)\b/i.test(said)));
  byId("notices").hidden = !whole || !notices.length;
  byId("notices").replaceChildren(...notices.map((said) => make("li", {}, states.sentence(said))));
  byId("stages").hidden = !whole || !given?.steps.length;
  if (whole && given?.steps.length) byId("stages").lastElementChild.replaceChildren(...stages(given, isMeasured(given)));
  document.title = state.q ? `${state.q} – Marklight` : "Marklight";
}

// What scores mean was measured with all vectors in place; a few that are missing change little.
const isMeasured = ({ index }) => Boolean(standing.status?.calibrated) && index.pending * 10 < index.chunks;

// For ears alone where the same is shown at large below.
function say(text, unseen = false) {
  byId("said").classList.toggle("unseen", unseen);
  const shown = visible(text);
  if (byId("said").textContent !== shown) byId("said").textContent = shown;
}

function showNearest() { change({ nearest: true }); form.elements.q.focus(); }
function clearFilters() { change(Object.fromEntries(FILTERS.map((name) => [name, Array.isArray(state[name]) ? [] : ""]))); fillForm(); }

// State

function change(patch, { push = false, now = true, focus = false } = {}) {
  const before = state;
  state = { ...state, ...patch };
  keep(state, { push });
  if (["q", "limit", "nearest", ...FILTERS].some((name) => String(before[name]) !== String(state[name]))) ask({ now });
  if (state.open) reading.show(state, { focus });
  else if (reading.open) reading.close();
  arrange();
}

function fromAddress() {
  const before = state;
  state = read();
  fillForm();
  if (["q", "limit", "nearest", ...FILTERS].some((name) => String(before[name]) !== String(state[name]))) ask({ now: true });
  if (state.open) reading.show(state);
  else if (reading.open) { reading.close(); results.focusCurrent(); }
  arrange();
}

function arrange() {
  document.body.classList.toggle("reading", Boolean(state.open));
  // Below the pane nothing may be reached while it covers everything.
  for (const each of [form, byId("found"), document.querySelector(".top")]) each.inert = Boolean(state.open) && NARROW.matches;
  // Back in the list a person finds where they were, so what was open stays marked.
  if (state.open) results.mark(state.open, state.lines);
  byId("close").textContent = NARROW.matches ? "← Results" : "Close";
  byId("clear").hidden = !filtered(state).length;
  byId("in-force").textContent = filtered(state).length ? ` (${filtered(state).length})` : "";
}

function close() {
  change({ open: "", lines: null, at: "", view: "text" }, { push: true });
  if (!results.focusCurrent()) form.elements.q.focus();
}

// The form

function fillForm() {
  const fields = form.elements;
  if (fields.q.value.trim() !== state.q) fields.q.value = state.q;
  const chosen = state.collection.join(", ");
  if (chosen && ![...fields.collection.options].some((each) => each.value === chosen)) fields.collection.append(make("option", { value: chosen }, chosen));
  fields.collection.value = chosen;
  fields.tag.value = state.tag.join(", ");
  fields.path.value = state.path.join(", ");
  for (const name of ["after", "before", "kind"]) fields[name].value = state[name];
  if (filtered(state).length) byId("filters").open = true;
}

function fromForm() {
  const fields = form.elements;
  return {
    q: fields.q.value, limit: STEPS[0], nearest: false,
    collection: fields.collection.value ? fields.collection.value.split(", ") : [],
    tag: fields.tag.value.split(/[\s,]+/).map((each) => each.replace(/^#/, "")).filter(Boolean),
    path: fields.path.value.split(/,\s+/).map((each) => each.trim()).filter(Boolean),
    after: fields.after.value, before: fields.before.value, kind: fields.kind.value,
  };
}

function known() {
  const { status } = standing;
  const names = Object.keys(status?.collections ?? {});
  byId("of-collection").hidden = names.length < 2 && !state.collection.length;
  const options = form.elements.collection.options;
  for (const name of names) if (![...options].some((each) => each.value === name)) options.add(new Option(visible(name), name));
  if (standing.problem && !status) states.failed(standing.problem, () => standing.look());
  else if (!state.q.trim()) states.empty(status);
}

form.addEventListener("input", () => change(fromForm(), { now: false }));
form.addEventListener("submit", (event) => { event.preventDefault(); change(fromForm()); ask({ now: true }); });
byId("clear").addEventListener("click", () => { clearFilters(); form.elements.q.focus(); });
byId("more").addEventListener("click", () => {
  const count = byId("results").children.length;
  change({ limit: STEPS.find((each) => each > state.limit) ?? STEPS.at(-1) });
  byId("results").children[count - 1]?.querySelector("h3 a").focus();
});

// Keys and links

addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.isComposing) return;
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key === "/" && !typing) { event.preventDefault(); if (state.open && NARROW.matches) close(); form.elements.q.focus(); form.elements.q.select(); }
  else if (event.key === "ArrowDown" && event.target === form.elements.q && results.focusFirst()) event.preventDefault();
  else if (event.key === "Escape") escape(event);
});

function escape(event) {
  if (state.open) { event.preventDefault(); close(); }
  else if (form.elements.q.value) { event.preventDefault(); form.elements.q.value = ""; change(fromForm()); form.elements.q.focus(); }
  else if (document.activeElement !== form.elements.q) form.elements.q.focus();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-open]");
  if (!link || event.button || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const [first, last] = (link.dataset.lines ?? "").split("-").map(Number);
  change({ open: link.dataset.open, lines: first ? [first, last] : null, at: link.dataset.at ?? "", view: link.dataset.view ?? "text" }, { push: true, focus: true });
});

document.querySelector(".name").addEventListener("click", (event) => {
  if (event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  change(read(""), { push: true });
  fillForm();
  form.elements.q.focus();
});

addEventListener("popstate", fromAddress);
NARROW.addEventListener("change", arrange);

fillForm();
arrange();
// What the library is decides how results read: whether scores were measured, how documents are called.
await standing.look();
if (state.q.trim()) ask({ now: true });
if (state.open) reading.show(state);
