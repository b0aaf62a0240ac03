// What stands in place of results, so that a person knows why there are none and what to do.

import { byId, counted, make } from "./dom.js";

const state = () => byId("state");

export function nothing() {
  state().replaceChildren();
}

export function empty(status) {
  if (!status) return nothing();
  if (!status.documents) return noDocuments(status);
  const examples = [
    ["how do I …", "a question in your own words: what it means is found, not only what it says"],
    ['"exactly these words"', "a phrase, as it is written"],
    ["word -other", "without a word"],
    ["word tag:idea after:2026-01", "with a tag, or of a time; path: and collection: work too"],
  ];
  state().replaceChildren(make("div", { class: "state" },
    make("h2", {}, "Ask your documents"),
    make("p", {}, `${counted(status.documents, "document")}, ${counted(status.chunks, "passage")}. What you change on the disk is found with the next question.`),
    make("dl", {}, ...examples.flatMap(([asked, meaning]) => [
      make("dt", {}, make("code", {}, asked)), make("dd", {}, meaning)]))));
}

export function noDocuments(status) {
  const folders = Object.values(status.collections ?? {}).map((each) => each.path);
  state().replaceChildren(make("div", { class: "state" },
    make("h2", {}, "There are no documents yet"),
    make("p", {}, "Put Markdown or text files here and ask: they are found at once."),
    ...folders.map((folder) => make("p", {}, make("code", {}, folder)))));
}

// What an answer advises names a parameter, and here it is a button.
export function abstained(answer, filters, { showNearest, clearFilters }) {
  const buttons = [];
  if (answer.advice) buttons.push(make("button", { type: "button", click: showNearest }, "Show what comes nearest"));
  if (filters.length) buttons.push(make("button", { type: "button", click: clearFilters }, "Ask without filters"));
  state().replaceChildren(make("div", { class: "state" },
    make("h2", {}, answer.advice ? "Nothing here is likely to answer that" : "Nothing was found"),
    make("p", {}, sentence(answer.abstained || "No passage was found")),
    make("div", { class: "buttons" }, ...buttons)));
}

export function noneOfKind(kind, count) {
  state().replaceChildren(make("div", { class: "state" },
    make("h2", {}, `None of ${counted(count, "result")} is ${{ list: "a list", table: "a table" }[kind] ?? kind}`),
    make("p", {}, "Kinds are picked from what was found, at most a hundred passages. Choose “Any” to see them.")));
}

export function failed(problem, again) {
  const asked = problem.status === 422 || problem.status === 400;
  state().replaceChildren(make("div", { class: "state problem" },
    make("h2", {}, asked ? "This cannot be asked so" : problem.status === 503 ? "The library is busy" : "That did not work"),
    make("p", {}, sentence(problem.message)),
    problem.hint ? make("p", {}, sentence(problem.hint)) : null,
    asked ? null : make("div", { class: "buttons" }, make("button", { type: "button", click: again }, "Try again"))));
}

export const sentence = (text) => {
  const whole = text.trim();
  return whole ? whole[0].toUpperCase() + whole.slice(1) + (/[.!?…]$/.test(whole) ? "" : ".") : "";
};
