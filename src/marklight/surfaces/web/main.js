// Entry point of the page: keeps the URL, the form, the results and the reading pane in step.

import { FILTERS, LIMITS, SEARCHED, activeFilters, differ, read, save, toUrl } from "./url_state.js";
import { Answering } from "./answering.js";
import { copy } from "./clipboard.js";
import { byId, counted, make } from "./dom.js";
import { stages } from "./explain.js";
import { ReadingPane } from "./reading_pane.js";
import { Results } from "./results.js";
import { Search } from "./search.js";
import { ServerStatus } from "./server_status.js";
import * as messages from "./messages.js";
import { visible } from "./escaping.js";

const NARROW = matchMedia("(max-width: 60rem)");
let state = read();
let retried = false;
let slow = 0;
const PAUSE_MS = 700; // without a key, until the page says that there is no result
let pause = 0;

const href = (patch) => toUrl({ ...state, open: "", lines: null, at: "", view: "text", ...patch });
const server = new ServerStatus({ changed: statusChanged, recovered: () => { runSearch({ now: true }); if (state.open) pane.show(state); } });
const results = new Results({ href, copy });
const search = new Search({ started, answered, listed, failed });
const pane = new ReadingPane({ href, several: () => server.several, view: (view) => change({ view }), close, offline: () => server.setOffline() });
const answering = new Answering({ href, several: () => server.several, model: () => (server.status && server.status.ask !== "none" ? server.status.ask : "") });
const form = byId("search-form");

// Search

function started() {
  byId("results-panel").setAttribute("aria-busy", "true");
  byId("results-panel").classList.add("stale");
  clearTimeout(slow);
  // Shown only if the search is slow; meanwhile the previous results fade.
  slow = setTimeout(() => byId("results-panel").classList.contains("stale") && !server.offline && announce("Searching …"), 400);
}

function finished() {
  byId("results-panel").removeAttribute("aria-busy");
  byId("results-panel").classList.remove("stale");
}

// `more`: further results for the list that is shown.
function runSearch({ now = false, more = false } = {}) {
  clearTimeout(pause);
  answering.update(state.q);
  if (state.q.trim() || state.documents) return search.run({ ...state, q: state.q.trim(), typing: !now, more }, { now });
  search.stop();
  finished();
  announce("");
  show([], null);
  messages.empty(server.status);
}

function answered(answer, query, complete) {
  clearTimeout(pause);
  if (complete && query.typing && !answer.results.length) {
    // Half a word often has no result: the previous ones stay, faded, while the user types.
    pause = setTimeout(() => answered(answer, { ...query, typing: false }, true), PAUSE_MS);
    return;
  }
  if (complete) {
    finished();
    retried = false;
    server.updateCounts(answer.index);
  }
  const all = answer.results;
  const hits = (query.kind ? all.filter((hit) => hit.kind === query.kind) : all).slice(0, query.limit);
  // Keyword results are preliminary: semantic search may still find passages. They would rearrange a list that is continued.
  if (!complete && (!hits.length || query.more)) return;
  show(hits, answer, complete);
  messages.clear();
  if (!complete) {
    byId("results-panel").classList.remove("stale");
    announce("Keyword results; semantic search is running …");
    return;
  }
  const more = query.kind ? all.filter((hit) => hit.kind === query.kind).length > hits.length : all.length >= query.limit;
  byId("more").hidden = !more || query.limit === LIMITS.at(-1) || !hits.length;
  if (hits.length) announce(`${counted(hits.length, "result")}${query.kind ? ` of ${all.length}` : ""}${query.nearest ? ", unlikely ones included" : ""}`);
  else if (answer.index.documents === 0) { messages.noDocuments(server.status ?? {}); announce("There are no documents", true); }
  else if (all.length) { messages.noneOfKind(query.kind, all.length); announce("No results of this kind", true); }
  else {
    if (answer.nearest.length) results.show(answer.nearest, answer, { calibrated: isCalibrated(answer), complete, several: server.several, nearest: true });
    byId("more").hidden = !answer.nearest.length || !answer.advice;
    messages.abstained(answer, activeFilters(state), { showNearest, clearFilters });
    announce(answer.nearest.length ? "No confident match. The closest passages are listed." : answer.advice ? "No confident match" : "No results", true);
  }
}

function listed(listing, query) {
  clearTimeout(pause);
  if (query.typing && !listing.total) {
    pause = setTimeout(() => listed(listing, { ...query, typing: false }), PAUSE_MS);
    return;
  }
  finished();
  retried = false;
  server.updateCounts(listing.index);
  show([], { ...listing, steps: [] });
  messages.clear();
  if (!listing.total) { messages.noneListed(listing, activeFilters(state), { clearFilters, showPassages }); announce("No documents", true); return; }
  results.list(listing, { calibrated: isCalibrated(listing), several: server.several });
  const { documents, total, passages } = listing;
  announce(`${counted(total, "document")}, ${counted(passages, "passage")}${documents.length < total ? `; the first ${counted(documents.length, "document")} are listed` : ""}`);
}

function failed(problem, query) {
  clearTimeout(pause);
  if (problem.status === 422 && query.typing) {
    pause = setTimeout(() => failed(problem, { ...query, typing: false }), PAUSE_MS);
    return;
  }
  // The results shown belong to an earlier query: they stay faded until the server answers again.
  if (problem.offline) { server.setOffline(); announce("The server does not answer", true); return; }
  finished();
  if (problem.status === 503 && !retried) {
    // The server is overloaded: retry once automatically after a second.
    retried = true;
    setTimeout(() => query.q === state.q.trim() && runSearch({ now: true }), 1000);
    return;
  }
  show([], null);
  messages.failed(problem, () => runSearch({ now: true }));
  announce(problem.message, true);
}

function show(hits, answer, complete = true) {
  if (hits.length) results.show(hits, answer, { calibrated: complete && isCalibrated(answer), complete, several: server.several });
  else results.clear();
  byId("more").hidden = true;
  // During indexing, the status bar already reports its progress.
  const notices = (answer?.notices ?? []).filter((notice) => !(server.indexing && /^(indexing|semantic search is incomplete)\b/i.test(notice)));
  byId("notices").hidden = !complete || !notices.length;
  byId("notices").replaceChildren(...notices.map((notice) => make("li", {}, messages.sentence(notice))));
  byId("stages").hidden = !complete || !answer?.steps.length;
  if (complete && answer?.steps.length) byId("stages").lastElementChild.replaceChildren(...stages(answer, isCalibrated(answer)));
  document.title = state.q ? `${state.q} – Marklight` : "Marklight";
}

// Scores are calibrated with all embeddings present; a few missing ones change little. A notice reports other languages.
const isCalibrated = ({ index, notices }) => Boolean(server.status?.calibrated) && index.pending * 10 < index.chunks && !notices.some((notice) => /\bcalibrated\b/i.test(notice));

// `hidden`: for screen readers only, because the page shows the same text below.
function announce(text, hidden = false) {
  byId("message").classList.toggle("visually-hidden", hidden);
  const shown = visible(text);
  if (byId("message").textContent !== shown) byId("message").textContent = shown;
}

function showNearest() { change({ nearest: true }); form.elements.q.focus(); }
function showPassages() { change({ documents: false }); fillForm(); form.elements.q.focus(); }
function clearFilters() { change(Object.fromEntries(FILTERS.map((name) => [name, Array.isArray(state[name]) ? [] : ""]))); fillForm(); }

// State

function change(patch, { push = false, now = true, more = false, focus = false } = {}) {
  const before = state;
  state = { ...state, ...patch };
  save(state, { push });
  if (differ(before, state, ["q", ...FILTERS])) answering.clear();
  if (differ(before, state, SEARCHED)) runSearch({ now, more });
  if (state.open) pane.show(state, { focus });
  else if (pane.open) pane.close();
  arrange();
}

function loadUrl() {
  const before = state;
  state = read();
  fillForm();
  if (differ(before, state, ["q", ...FILTERS])) answering.clear();
  if (differ(before, state, SEARCHED)) runSearch({ now: true });
  if (state.open) pane.show(state);
  else if (pane.open) { pane.close(); results.focusCurrent(); }
  arrange();
}

function arrange() {
  document.body.classList.toggle("reading", Boolean(state.open));
  // Nothing below the pane may be focused while it covers the page.
  for (const item of [form, byId("results-panel"), document.querySelector(".top")]) item.inert = Boolean(state.open) && NARROW.matches;
  // The result stays marked after the pane is closed, so that users find their place again.
  if (state.open) results.mark(state.open, state.lines);
  byId("close").textContent = NARROW.matches ? "← Results" : "Close";
  byId("clear").hidden = !activeFilters(state).length;
  byId("filter-count").textContent = activeFilters(state).length ? ` (${activeFilters(state).length})` : "";
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
  if (chosen && ![...fields.collection.options].some((item) => item.value === chosen)) fields.collection.append(make("option", { value: chosen }, chosen));
  fields.collection.value = chosen;
  fields.tag.value = state.tag.join(", ");
  fields.path.value = state.path.join(", ");
  for (const name of ["after", "before", "kind"]) fields[name].value = state[name];
  fields.documents.checked = state.documents;
  if (activeFilters(state).length) byId("filters").open = true;
}

function formState() {
  const fields = form.elements;
  const q = fields.q.value;
  return {
    // While somebody types, the last word may be unfinished; a space, a quotation mark or Enter finishes it.
    q, prefix: q === state.q ? state.prefix : /[^\s"]$/.test(q), limit: LIMITS[0], nearest: false, documents: fields.documents.checked,
    collection: fields.collection.value ? fields.collection.value.split(", ") : [],
    tag: fields.tag.value.split(/[\s,]+/).map((item) => item.replace(/^#/, "")).filter(Boolean),
    path: fields.path.value.split(/,\s+/).map((item) => item.trim()).filter(Boolean),
    after: fields.after.value, before: fields.before.value, kind: fields.kind.value,
  };
}

function statusChanged() {
  const { status } = server;
  answering.update(state.q);
  const names = Object.keys(status?.collections ?? {});
  byId("collection-filter").hidden = names.length < 2 && !state.collection.length;
  const options = form.elements.collection.options;
  for (const name of names) if (![...options].some((item) => item.value === name)) options.add(new Option(visible(name), name));
  if (server.problem && !status) messages.failed(server.problem, () => server.check());
  else if (!state.q.trim() && !state.documents) messages.empty(status);
}

form.addEventListener("input", () => change(formState(), { now: false }));
form.addEventListener("submit", (event) => { event.preventDefault(); change({ ...formState(), prefix: false }); runSearch({ now: true }); });
byId("ask").addEventListener("click", () => answering.toggle(state));
byId("clear").addEventListener("click", () => { clearFilters(); form.elements.q.focus(); });
byId("more").addEventListener("click", () => {
  const count = byId("results").children.length;
  change(results.nearest ? { nearest: true } : { limit: LIMITS.find((item) => item > state.limit) ?? LIMITS.at(-1) }, { more: true });
  byId("results").children[count - 1]?.querySelector("h3 a").focus();
});

// Keys and links

addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.isComposing) return;
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key === "/" && !typing) { event.preventDefault(); if (state.open && NARROW.matches) close(); form.elements.q.focus(); form.elements.q.select(); }
  else if (event.key === "ArrowDown" && event.target === form.elements.q && results.focusFirst()) event.preventDefault();
  // Without a submit button, Enter in a form of several fields does nothing.
  else if (event.key === "Enter" && event.target === form.elements.q) { event.preventDefault(); form.requestSubmit(); }
  else if (event.key === "Escape") escape(event);
});

function escape(event) {
  if (state.open) { event.preventDefault(); close(); }
  else if (form.elements.q.value) { event.preventDefault(); form.elements.q.value = ""; change(formState()); form.elements.q.focus(); }
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

addEventListener("popstate", loadUrl);
NARROW.addEventListener("change", arrange);

fillForm();
arrange();
// The status decides how results are shown: calibrated scores, names of collections.
await server.check();
if (state.q.trim() || state.documents) runSearch({ now: true });
if (state.open) pane.show(state);
