// Messages in place of results: why there are none, and what to do.

import { byId, counted, make } from "./dom.js";

const state = () => byId("state");
const BEST = /^No confident match( \(best [\d.]+\))?/; // the probability of any answer: no score of a passage below

export function clear() {
  state().replaceChildren();
}

export function empty(status) {
  if (!status) return clear();
  if (!status.documents) return noDocuments(status);
  const examples = [
    ["how do I …", "a question in your own words; passages are found by meaning too"],
    ['"exactly these words"', "an exact phrase"],
    ["word -other", "exclude a word"],
    ["word tag:idea after:2026-01", "filter by tag or date; also path: and collection:"],
  ];
  state().replaceChildren(make("div", { class: "state" },
    make("h2", {}, "Search your documents"),
    make("p", {}, `${counted(status.documents, "document")}, ${counted(status.chunks, "passage")}. Changed files are found by the next search.`),
    make("dl", {}, ...examples.flatMap(([example, meaning]) => [
      make("dt", {}, make("code", {}, example)), make("dd", {}, meaning)]))));
}

export function noDocuments(status) {
  const folders = Object.values(status.collections ?? {}).map((collection) => collection.path);
  state().replaceChildren(make("div", { class: "state" },
    make("h2", {}, "There are no documents yet"),
    make("p", {}, "Add Markdown or text files to this folder; they are found at once."),
    ...folders.map((folder) => make("p", {}, make("code", {}, folder)))));
}

// The advice of an answer refers to a parameter; here it is a button.
export function abstained(answer, filters, { showNearest, clearFilters }) {
  const buttons = [];
  if (answer.advice && !answer.nearest.length) buttons.push(make("button", { type: "button", click: showNearest }, "Show the closest passages"));
  if (filters.length) buttons.push(make("button", { type: "button", click: clearFilters }, "Search without filters"));
  state().replaceChildren(make("div", { class: "state" },
    make("h2", {}, answer.advice ? "No confident match" : "No results"),
    ...(answer.nearest.length
      ? [row(buttons), make("p", {}, `Closest passages${answer.abstained.replace(BEST, "")}:`)]
      : [make("p", {}, sentence(answer.abstained || "No passage matches the query")), row(buttons)])));
}

export function noneListed(listing, filters, { clearFilters, showPassages }) {
  const buttons = [];
  if (listing.query.text) buttons.push(make("button", { type: "button", click: showPassages }, "Show the closest passages"));
  if (filters.length) buttons.push(make("button", { type: "button", click: clearFilters }, "List without filters"));
  state().replaceChildren(make("div", { class: "state" },
    make("h2", {}, "No documents"),
    make("p", {}, sentence(listing.abstained || "No document matches")),
    row(buttons)));
}

export function noneOfKind(kind, count) {
  state().replaceChildren(make("div", { class: "state" },
    make("h2", {}, `None of ${counted(count, "result")} is ${{ list: "a list", table: "a table" }[kind] ?? kind}`),
    make("p", {}, "The kind is filtered among the first hundred passages. Choose “Any” to see them all.")));
}

export function failed(problem, again) {
  const invalid = problem.status === 422 || problem.status === 400;
  state().replaceChildren(make("div", { class: "state problem" },
    make("h2", {}, invalid ? "Invalid query" : problem.status === 503 ? "The server is busy" : "The search failed"),
    make("p", {}, sentence(problem.message)),
    problem.hint ? make("p", {}, sentence(problem.hint)) : null,
    invalid ? null : row([make("button", { type: "button", click: again }, "Try again")])));
}

const row = (buttons) => (buttons.length ? make("div", { class: "buttons" }, ...buttons) : null);

export const sentence = (text) => {
  const whole = text.trim();
  return whole ? whole[0].toUpperCase() + whole.slice(1) + (/[.!?…]$/.test(whole) ? "" : ".") : "";
};
