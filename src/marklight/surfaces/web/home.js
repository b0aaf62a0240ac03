// The start view, messages in place of results, and the status of the server.

import { byId, counted, dateText, documentLink, make, sentence } from "./dom.js";
import { stored } from "./url_state.js";

const MAX_TAGS = 40;
const CLOSEST = "The closest passages:";

export function home(library, { href, forget }) {
  const root = byId("home");
  if (!library) return root.replaceChildren();
  if (!library.documents) return root.replaceChildren(noDocuments(library));
  const queries = stored("queries");
  const link = (patch, data, ...content) => make("a", { href: href(patch), ...data }, ...content);
  root.replaceChildren(
    part("Recently changed", make("ul", {}, ...library.recent.map((each) => make("li", { dir: "auto" },
      documentLink(href, each.ref, {}, {}, each.title || each.ref), make("span", { class: "path" }, each.ref), make("time", { datetime: each.modified }, dateText(each.modified)))))),
    make("div", {},
      queries.length ? part("Recent queries", make("ul", {}, ...queries.map((q) => make("li", { dir: "auto" }, link({ q }, { "data-query": q }, q)))),
        make("button", { type: "button", class: "quiet", click: forget }, "Clear")) : null,
      Object.keys(library.folders).length ? part("Folders", tree(library.folders, link)) : null),
    make("div", {},
      Object.keys(library.tags).length ? part("Tags", make("p", { class: "tags" }, ...Object.entries(library.tags).slice(0, MAX_TAGS).map(([tag, count]) =>
        link({ tag: [tag], documents: true }, { class: "tag", "data-tag": tag }, `#${tag}`, make("span", {}, ` ${count}`))))) : null,
      part("How to search", make("dl", {}, ...[
        ["how do I …", "a question in your own words"], ['"these words"', "an exact phrase"], ["word -other", "without a word"], ["tag:x path:guide/** after:2026-01", "filters"],
      ].flatMap(([example, meaning]) => [make("dt", {}, make("code", {}, example)), make("dd", {}, meaning)])),
      make("p", { class: "soft" }, `${counted(library.documents, "document")}, ${counted(library.chunks, "passage")}. Press ? for all keys.`))));
}

const part = (title, ...content) => make("section", {}, make("h2", {}, title), ...content);

// Folders below each other; those of the first level are open if there are few.
function tree(folders, link) {
  const names = Object.keys(folders);
  const level = (above) => {
    const own = names.filter((name) => name.startsWith(above) && name !== above && !name.slice(above.length).includes("/"));
    return make("ul", { class: "tree" }, ...own.map((name) => {
      const label = link({ path: [`${name}/**`], documents: true }, { "data-path": `${name}/**` }, name.slice(above.length), make("span", {}, ` ${folders[name].toLocaleString("en")}`));
      const inner = names.some((other) => other.startsWith(`${name}/`)) ? level(`${name}/`) : null;
      return inner ? make("li", {}, make("details", {}, make("summary", {}, label), inner)) : make("li", {}, label);
    }));
  };
  return level("");
}

function noDocuments(library) {
  return make("div", { class: "state" },
    make("h2", {}, "There are no documents yet"),
    make("p", {}, "Add Markdown or text files to this folder; they are found at once."),
    ...Object.values(library.collections ?? {}).map(({ path }) => make("p", {}, make("code", {}, path))));
}

// Messages in place of results

const show = (title, ...content) => byId("state").replaceChildren(make("div", { class: "state" }, make("h2", {}, title), ...content));
const row = (...buttons) => (buttons.some(Boolean) ? make("div", { class: "buttons" }, ...buttons) : null);
const button = (text, click) => make("button", { type: "button", click }, text);

export const clearMessage = () => byId("state").replaceChildren();

// The advice of an answer refers to a parameter; here it is a button.
export function abstained(answer, filtered, { showNearest, clearFilters }) {
  show(answer.doubt ?? "No results",
    make("p", {}, answer.doubt ? CLOSEST : sentence(answer.abstained || "No passage matches the query")),
    row(answer.advice && !answer.doubt ? button("Show the closest passages", showNearest) : null, filtered ? button("Search without filters", clearFilters) : null));
}

export const doubtful = (doubt) => show(doubt, make("p", {}, CLOSEST));

export function noneListed(listing, filtered, { clearFilters, showPassages }) {
  show("No documents", make("p", {}, sentence(listing.abstained || "No document matches")),
    row(listing.query.text ? button("Show the closest passages", showPassages) : null, filtered ? button("List without filters", clearFilters) : null));
}

export function noneOfKind(kind, count) {
  show(`None of ${counted(count, "result")} is ${{ list: "a list", table: "a table" }[kind] ?? kind}`,
    make("p", {}, "The kind is filtered among the first hundred passages."));
}

export function failed(problem, again) {
  const invalid = problem.status === 422 || problem.status === 400;
  show(invalid ? "Invalid query" : problem.status === 503 ? "The server is busy" : "The search failed",
    make("p", {}, sentence(problem.message)), problem.hint ? make("p", {}, sentence(problem.hint)) : null,
    invalid ? null : row(button("Try again", again)));
}

// Status of the server: whether it answers, indexing progress, problems.
export function showStatus({ offline, indexing, library }) {
  const shown = byId("server-status");
  const message = offline ? offlineMessage() : indexing ? indexingMessage(indexing) : warnings(library);
  shown.hidden = !message;
  shown.classList.toggle("offline", offline);
  // Setting the same text again would make screen readers repeat it.
  if (shown.textContent !== (message?.textContent ?? "")) shown.replaceChildren(...(message ? [message] : []));
}

function offlineMessage() {
  return make("p", {}, make("strong", {}, "The server does not answer. "), "This page keeps trying; if the server has stopped, start it with ", make("code", {}, "marklight serve"), ".");
}

function indexingMessage({ phase, done, total }) {
  const percent = total ? Math.floor((100 * done) / total) : 0;
  const bar = make("progress", { max: total || 1, value: done, "aria-label": "Indexing" });
  return make("p", {}, `Indexing, ${percent} %`, bar, make("span", { class: "soft" }, `${phase.toLowerCase()}, ${done.toLocaleString("en")} of ${total.toLocaleString("en")}. Results include only what is indexed so far.`));
}

function warnings(library) {
  const message = [];
  if (library?.model_problem) message.push(`Keyword search only: ${library.model_problem}.`);
  else if (library?.pending) message.push(`${counted(library.pending, "passage")} without embeddings yet: found by keywords only.`);
  if (library?.failed) message.push(`${counted(library.failed, "file")} could not be indexed. Run “marklight status” for details.`);
  return message.length ? make("p", {}, message.join(" ")) : null;
}
