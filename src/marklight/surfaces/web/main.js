// Entry point of the page: keeps the URL, the form, the results and the reader in step.

import { events, inPath, get, post } from "./api.js";
import { byId, copy, counted, make, nameOf, sentence, tell, visible } from "./dom.js";
import { abstained, clearMessage, doubtful, failed as showFailure, home, noneListed, noneOfKind, showStatus } from "./home.js";
import { Reader } from "./reader.js";
import { Results, answerOf, quotation, reference } from "./results.js";
import { Search, withFilters } from "./search.js";
import { FILTERS, LIMITS, SEARCHED, activeFilters, differ, read, save, store, stored, toUrl } from "./url_state.js";

const NARROW = matchMedia("(max-width: 639px)");
const PAUSE_MS = 700; // without a key, until the page says that there is no result
const REST_MS = 1000; // until a query enters the history, is kept, and its results are announced
const PREVIEW_MS = 400; // until the best result of a new query is shown
const RETRY_MS = 1500; // until a server that does not answer is tried again
const MAX_QUERIES = 8;
const KEYS = [["/ or Ctrl+K", "search"], ["↑ ↓", "preview the results"], ["Enter", "go to the passage"], ["Shift+↓ Shift+↑", "next, previous result while reading"], ["n N", "next, previous match"],
  ["o", "open in your editor"], ["y", "copy the reference"], ["q", "copy as a quotation with its source"], ["Esc", "back to the list, the field, an empty field"]];

const form = byId("search-form"), field = byId("q"), panel = byId("results-panel");
let state = read();
let library = null, indexing = null, offline = false;
let retried = false, rested = true, pinned = Boolean(state.open);
let slow = 0, pause = 0, rest = 0, preview = 0;
let scrolls = null; // places to restore after Back
let answering = null;
let closest = false; // the list shows the closest passages, since there are no results

const href = (patch) => toUrl({ ...state, open: "", lines: null, at: "", graph: "", ...patch });
const results = new Results({ href, explain, omitted });
const search = new Search({ started, answered, listed, failed });
const reader = new Reader({ href, words: () => (state.q ? results.words : null), sentence: answerHere, offline: setOffline, editor: editorAddress, titled: showTitle });

// The sentence that answers, if the passage that is open is a result.
function answerHere() {
  const hit = state.q && results.hit(state);
  return hit ? answerOf(hit) : "";
}

// Search

function started() {
  panel.setAttribute("aria-busy", "true");
  panel.classList.add("stale");
  clearTimeout(slow);
  // Shown only if the search is slow; meanwhile the previous results fade.
  slow = setTimeout(() => panel.classList.contains("stale") && !offline && count("Searching …"), 400);
}

function finished() {
  panel.removeAttribute("aria-busy");
  panel.classList.remove("stale");
}

const isSearch = () => Boolean(state.q.trim() || state.documents);

// `more`: further results for the list that is shown.
function runSearch({ now = false, more = false } = {}) {
  clearTimeout(pause);
  answering?.update(state.q);
  if (isSearch()) return search.run({ ...state, q: state.q.trim(), typing: !now, more }, { now });
  search.stop();
  finished();
  count("");
  results.clear();
  results.words = null;
  clearMessage();
  showExtras(null);
}

function answered(answer, query, complete, named) {
  clearTimeout(pause);
  if (complete && query.typing && !answer.results.length && !named.length) {
    // Half a word often has no result: the previous ones stay, faded, while the user types.
    pause = setTimeout(() => answered(answer, { ...query, typing: false }, true, named), PAUSE_MS);
    return;
  }
  const all = answer.results;
  const hits = (query.kind ? all.filter((hit) => hit.kind === query.kind) : all).slice(0, query.limit);
  // Keyword results are preliminary: semantic search may still find passages. They would rearrange a list that is continued.
  if (!complete && (!hits.length || query.more)) return;
  clearMessage();
  if (!complete) {
    results.show(hits, answer, {});
    panel.classList.remove("stale");
    return count("Keyword results …");
  }
  finished();
  retried = false;
  const nearest = !hits.length && !all.length ? answer.nearest : [];
  results.show(hits.length ? hits : nearest, answer, { named });
  showExtras(answer);
  const more = query.kind ? all.filter((hit) => hit.kind === query.kind).length > hits.length : all.length >= query.limit;
  byId("more").hidden = !(hits.length ? more && query.limit !== LIMITS.at(-1) : nearest.length && answer.advice);
  if (hits.length) count(`${counted(hits.length, "result")}${query.kind ? ` of ${all.length}` : ""}${query.nearest ? ", unlikely ones included" : ""}`);
  else if (answer.index.documents === 0) { home({ documents: 0, collections: library?.collections }, {}); byId("home").hidden = false; count("There are no documents"); }
  else if (all.length) { noneOfKind(query.kind, all.length); count("No results of this kind"); }
  else {
    abstained(answer, activeFilters(state).length, { showNearest: () => { change({ nearest: true }); field.focus(); }, clearFilters });
    count(nearest.length ? `${counted(nearest.length, "passage")}, none likely to answer` : "No results");
  }
  closest = Boolean(nearest.length);
  if (hits.length && answer.doubt) doubtful(answer.doubt);
  settled(hits);
}

function listed(listing, query) {
  clearTimeout(pause);
  if (query.typing && !listing.total) {
    pause = setTimeout(() => listed(listing, { ...query, typing: false }), PAUSE_MS);
    return;
  }
  finished();
  retried = false;
  clearMessage();
  showExtras(listing);
  const { documents, total, passages } = listing;
  if (!total) {
    results.clear();
    noneListed(listing, activeFilters(state).length, { clearFilters, showPassages: () => change({ documents: false }) });
    return count("No documents");
  }
  results.list(listing);
  count(`${counted(total, "document")}${state.q ? `, ${counted(passages, "passage")}` : ""}${documents.length < total ? `; the first ${documents.length} are listed` : ""}`);
  settled(documents);
}

// The list is complete: restore its place, mark the words in the document, preview the best result.
function settled(hits) {
  if (scrolls) panel.scrollTop = scrolls.list;
  scrolls = null;
  reader.mark();
  clearTimeout(preview);
  if (hits.length && !pinned && !NARROW.matches && !state.graph) preview = setTimeout(() => openLink(results.links()[0]), state.open ? PREVIEW_MS : 0);
}

function failed(problem, query) {
  clearTimeout(pause);
  if (problem.status === 422 && query.typing) {
    pause = setTimeout(() => failed(problem, { ...query, typing: false }), PAUSE_MS);
    return;
  }
  // The results shown belong to an earlier query: they stay faded until the server answers again.
  if (problem.offline) return setOffline();
  finished();
  if (problem.status === 503 && !retried) {
    // The server is overloaded: retry once automatically after a second.
    retried = true;
    setTimeout(() => query.q === state.q.trim() && runSearch({ now: true }), 1000);
    return;
  }
  results.clear();
  showExtras(null);
  showFailure(problem, () => runSearch({ now: true }));
  count(problem.message);
}

function showExtras(answer) {
  byId("more").hidden = true;
  // During indexing, the status already reports its progress.
  const notices = (answer?.notices ?? []).filter((notice) => !(indexing && /^(indexing|semantic search is incomplete)\b/i.test(notice)));
  byId("notices").hidden = !notices.length;
  byId("notices").replaceChildren(...notices.map((notice) => make("li", {}, sentence(notice))));
}

async function explain(hit) {
  const params = withFilters(new URLSearchParams({ q: state.q.trim(), explain: "true", limit: state.kind ? 100 : state.limit, min_confidence: 0 }), state);
  const answer = await get(`/api/search?${params}`);
  return answer.results.find((each) => each.chunk_id === hit.chunk_id);
}

// Passages of a document that match too; a search returns few of each.
async function omitted(shown, most) {
  const answer = await post("/api/search", { query: state.q.trim(), path: [nameOf(shown[0])], limit: 100, min_confidence: 0, settings: { search: { per_document: { max_passages: 100 } } } });
  return answer.results.filter((hit) => hit.verdict !== "weak" && !shown.some((other) => other.chunk_id === hit.chunk_id)).slice(0, most);
}

function count(text) {
  byId("message").textContent = visible(text);
}

function showTitle(title = reader.page?.title) {
  document.title = visible(state.open && title ? title : state.q ? `${state.q} – Marklight` : "Marklight");
}

// State

function change(patch, { push = false, now = true, more = false, focus = false, scroll = null } = {}) {
  const before = state;
  state = { ...state, ...patch };
  if (push) keepScroll();
  save(state, { push });
  apply(before, { now, more, focus, scroll });
}

function apply(before, { now = true, more = false, focus = false, scroll = null } = {}) {
  if (differ(before, state, ["q", ...FILTERS])) answering?.clear();
  if (differ(before, state, SEARCHED)) runSearch({ now, more });
  if (state.open && !state.graph) reader.show(state, { focus, scroll });
  else reader.close();
  if (state.graph) showGraph();
  arrange();
}

function loadUrl() {
  const before = state;
  state = read();
  scrolls = history.state?.scrolls ?? null;
  pinned = Boolean(state.open);
  rested = true;
  fillForm();
  apply(before, { scroll: scrolls?.reader ?? null });
  if (!differ(before, state, SEARCHED) && scrolls) { panel.scrollTop = scrolls.list; scrolls = null; }
}

function keepScroll() {
  history.replaceState({ scrolls: { list: panel.scrollTop, reader: reader.scroll } }, "");
}

function arrange() {
  const searching = isSearch(), graph = Boolean(state.graph), reading = Boolean(state.open) && !graph;
  document.body.dataset.view = graph ? "graph" : searching ? "both" : reading ? "document" : "home";
  byId("home").hidden = document.body.dataset.view !== "home";
  byId("graph").hidden = !graph;
  panel.hidden = !searching || graph;
  panel.inert = NARROW.matches && reading;
  document.body.classList.toggle("reading", reading);
  if (!byId("home").hidden) home(library, { href, forget: () => { store("queries", []); arrange(); } });
  const here = results.mark(state.open, state.lines);
  here?.scrollIntoView({ block: "nearest" });
  byId("documents").setAttribute("aria-pressed", state.documents);
  byId("sort").hidden = !state.documents;
  byId("sort").value = state.sort;
  showChips();
  showTitle();
}

function showChips() {
  const chips = activeFilters(state).flatMap((name) => [state[name]].flat().map((value) => make("button", {
    type: "button", class: "chip", "aria-label": `Remove the filter ${name} ${value}`,
    click: () => { change({ [name]: Array.isArray(state[name]) ? state[name].filter((each) => each !== value) : "" }); fillForm(); field.focus(); },
  }, name === "tag" ? `#${value}` : name === "path" || name === "collection" ? value : `${{ after: "from", before: "to" }[name] ?? name} ${value}`, " ×")));
  byId("chips").replaceChildren(...chips);
}

// Opens a result: a preview replaces the entry in the history, a visit adds one.
function openLink(link, { visit = false, focus = visit } = {}) {
  if (!link) return;
  const [first, last] = (link.dataset.lines ?? "").split("-").map(Number);
  pinned = visit || pinned;
  change({ open: link.dataset.open, lines: first ? [first, last] : null, at: link.dataset.at ?? "", graph: "" }, { push: visit, focus });
}

function close() {
  pinned = false;
  change({ open: "", lines: null, at: "", graph: "" }, { push: true });
  (results.current ?? results.links()[0] ?? field).focus();
}

function clearFilters() {
  change(Object.fromEntries(FILTERS.map((name) => [name, Array.isArray(state[name]) ? [] : ""])));
  fillForm();
}

async function showGraph() {
  const { graphPage } = await import("./graph.js");
  await graphPage(byId("graph"), state, { href, get, offline: setOffline });
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
}

function formState() {
  const fields = form.elements;
  const q = fields.q.value;
  return {
    // While somebody types, the last word may be unfinished; a space, a quotation mark or Enter finishes it.
    q, prefix: q === state.q ? state.prefix : /[^\s"]$/.test(q), limit: LIMITS[0], nearest: false,
    collection: fields.collection.value ? fields.collection.value.split(", ") : [],
    tag: fields.tag.value.split(/[\s,]+/).map((item) => item.replace(/^#/, "")).filter(Boolean),
    path: fields.path.value.split(/,\s+/).map((item) => item.trim()).filter(Boolean),
    after: fields.after.value, before: fields.before.value, kind: fields.kind.value,
  };
}

// The first key after a rest adds an entry to the history, further ones change it.
form.addEventListener("input", () => {
  const push = rested && Boolean(state.q || state.open);
  rested = false;
  pinned = false;
  change({ ...formState(), graph: "" }, { now: false, push });
  clearTimeout(rest);
  rest = setTimeout(atRest, REST_MS);
});

function atRest() {
  rested = true;
  const q = state.q.trim();
  byId("announce").textContent = byId("message").textContent;
  if (q.length > 2) store("queries", [q, ...stored("queries").filter((each) => each !== q && !q.startsWith(each))].slice(0, MAX_QUERIES));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  change({ ...formState(), prefix: false });
  runSearch({ now: true });
  atRest();
});
byId("documents").addEventListener("click", () => change({ documents: !state.documents, limit: LIMITS[0] }));
byId("sort").addEventListener("change", (event) => change({ sort: event.target.value }));
byId("close").addEventListener("click", close);
byId("copy").addEventListener("click", () => copy(placeName()));
byId("help").addEventListener("click", showKeys);
byId("more").addEventListener("click", () => {
  change(closest ? { nearest: true } : { limit: LIMITS.find((item) => item > state.limit) ?? LIMITS.at(-1) }, { more: true });
  results.links().at(-1)?.focus();
});
byId("ask").addEventListener("click", () => answering?.toggle(state));

// What is open

const placeName = () => (state.lines ? reference(state.open, state.lines) : state.at ? `${state.open}#${state.at}` : state.open);

// The address of a file in the user's editor, by the setting terminal.link.
function editorAddress(name, line) {
  if (!library?.editor || /^(javascript|data|vbscript|blob):/i.test(library.editor)) return "";
  const names = Object.keys(library.collections);
  const own = names.length > 1 ? names.find((each) => name.startsWith(`${each}/`)) : names[0];
  const path = names.length > 1 ? name.slice((own ?? "").length + 1) : name;
  const file = `${library.collections[own]?.path ?? ""}/${path}`.replaceAll("\\", "/");
  return library.editor.replace("{path}", encodeURI(file).replaceAll("#", "%23").replaceAll("?", "%3F")).replace("{line}", String(line));
}

async function edit() {
  if (!byId("edit").hidden) byId("edit").click();
  else { await copy(placeName()); tell("No editor is set: the setting terminal.link names it. The reference is copied."); }
}

async function quote() {
  const hit = results.hit(state);
  if (hit) return copy(quotation(hit, state.open), "quotation");
  const part = state.lines ? `?lines=${state.lines.join("-")}` : state.at ? `?heading=${encodeURIComponent(state.at)}` : "";
  const { text, content, lines } = await get(`/api/documents/${inPath(state.open)}${part}`);
  return copy(quotation({ content: content ?? text ?? "", title: reader.page?.title, lines }, state.open), "quotation");
}

function showKeys() {
  const dialog = byId("keys");
  dialog.replaceChildren(make("h2", { id: "keys-title" }, "Keys"), make("dl", {}, ...KEYS.flatMap(([key, meaning]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, meaning)])),
    make("form", { method: "dialog" }, make("button", {}, "Close")));
  dialog.showModal();
}

// Keys and links

const READING = { n: () => reader.step(1), N: () => reader.step(-1), o: edit, y: () => copy(placeName()), q: quote };

addEventListener("keydown", (event) => {
  const { key, target } = event;
  const typing = target.closest?.("input, select, textarea");
  if (byId("keys").open || event.isComposing || event.altKey) return;
  if ((event.ctrlKey || event.metaKey) && key === "k") { event.preventDefault(); return focusField(); }
  if (event.ctrlKey || event.metaKey) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[key];
  const inList = panel.contains(target) && !target.closest(".popover");
  if (key === "/" && !typing) { event.preventDefault(); focusField(); }
  else if (key === "?" && !typing) showKeys();
  else if (step && event.shiftKey && !typing) { event.preventDefault(); openLink(results.next(step), { focus: byId("reader").contains(target) }); }
  else if (step && (target === field || inList)) move(event, step);
  // Without a submit button, Enter in a form of several fields does nothing.
  else if (key === "Enter" && target === field) { event.preventDefault(); form.requestSubmit(); }
  else if (key === "Escape") escape(event);
  else if (!typing && state.open && READING[key]) { event.preventDefault(); READING[key](); }
});

function focusField() {
  if (NARROW.matches && state.open) close();
  field.focus();
  field.select();
}

// Arrow keys move through the results and preview them.
function move(event, step) {
  const links = results.links();
  const own = links.indexOf(event.target);
  if (event.target === field && (step < 0 || !links.length)) return;
  event.preventDefault();
  if (own === 0 && step < 0) return field.focus();
  const next = event.target === field ? links[0] : results.next(step);
  next.focus();
  clearTimeout(preview);
  pinned = true;
  if (!NARROW.matches) preview = setTimeout(() => openLink(next), 60);
}

function escape(event) {
  event.preventDefault();
  for (const open of document.querySelectorAll("details.menu[open], #filters[open]")) { open.open = false; return open.querySelector("summary").focus(); }
  if (state.graph || (state.open && (NARROW.matches || !isSearch()))) return close();
  if (event.target.closest?.("#reader, #rail") && isSearch()) return (results.current ?? field).focus();
  if (panel.contains(event.target)) return field.focus();
  if (field.value && event.target === field) { field.value = ""; pinned = false; change({ ...formState(), open: "", lines: null, at: "", documents: false }, { push: true }); }
  field.focus();
}

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open], #filters[open]")) if (!menu.contains(event.target)) menu.open = false;
  const link = event.target.closest?.("a");
  if (!link || event.button || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const { open, graph, tag, path, query } = link.dataset;
  const go = (patch) => { event.preventDefault(); pinned = false; change({ ...read(""), ...patch }, { push: true }); fillForm(); };
  if (open !== undefined) { event.preventDefault(); openLink(link, { visit: true }); }
  else if (graph !== undefined) { event.preventDefault(); change({ graph, depth: Number(link.dataset.depth ?? 2) }, { push: true }); }
  else if (tag !== undefined) go({ tag: [tag], documents: true });
  else if (path !== undefined) go({ path: [path], documents: true });
  else if (query !== undefined) go({ q: query });
  else if (link.classList.contains("name")) { go({}); field.focus(); }
});

addEventListener("popstate", loadUrl);
NARROW.addEventListener("change", arrange);

// Live updates by one stream of events; a hidden page has none, since browsers allow few connections.

let stream = null;

async function follow() {
  stream?.abort();
  if (document.hidden) return;
  const { signal } = (stream = new AbortController());
  try {
    for await (const { name, data } of events("/api/events", signal)) {
      const recovered = offline || (name === "indexing" && indexing && !data.indexing);
      offline = false;
      if (name === "library") learn(data);
      else if (name === "indexing") indexing = data.indexing;
      else if (name === "changed") changed(data.refs);
      showStatus({ offline, indexing, library });
      if (recovered) { if (isSearch()) runSearch({ now: true }); if (state.open) { reader.refresh(); if (!reader.page) reader.show(state); } }
    }
  } catch (problem) {
    if (signal.aborted) return;
    if (problem.status && !library) { showFailure(problem, follow); panel.hidden = false; }
  }
  if (signal.aborted) return;
  setOffline();
}

function learn(data) {
  library = data;
  const names = Object.keys(data.collections);
  byId("collection-filter").hidden = names.length < 2 && !state.collection.length;
  const { options } = form.elements.collection;
  for (const name of names) if (![...options].some((item) => item.value === name)) options.add(new Option(visible(name), name));
  reader.showEditor();
  if (data.ask && data.ask !== "none") loadAnswering();
  if (!byId("home").hidden) home(library, { href, forget: () => { store("queries", []); arrange(); } });
}

function changed(refs) {
  if (state.open && (refs.includes(state.open) || refs.length >= 200)) reader.refresh();
  else if (state.open) setTimeout(() => reader.refresh(), 0); // an embed or the target of a link may have changed
  if (isSearch() && rested) runSearch({ now: true });
}

let again = 0;
function setOffline() {
  offline = true;
  showStatus({ offline, indexing, library });
  clearTimeout(again);
  again = setTimeout(follow, RETRY_MS);
}

async function loadAnswering() {
  if (answering) return answering.update(state.q);
  const { Answering } = await import("./answering.js");
  answering ??= new Answering({ href, model: () => library.ask });
  answering.update(state.q);
}

addEventListener("online", follow);
document.addEventListener("visibilitychange", follow);

// What was typed before this script ran is a query. The browser's own autofocus waits for the first paint.
if (!state.q && field.value) state = { ...state, q: field.value, prefix: true };
if (document.activeElement === document.body) field.focus();
fillForm();
arrange();
if (isSearch()) runSearch({ now: true });
if (state.open || state.graph) apply(state);
follow();
