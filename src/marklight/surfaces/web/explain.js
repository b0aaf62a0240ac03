// Why an answer is as it is: what speaks for a hit, and what each stage left.

import { counted, make } from "./dom.js";

// Names of stages and of evidence in the JSON, as a person would say them.
const FOUND = {
  semantic: ["found by meaning", "how near the passage is to the question, as a cosine"],
  keyword: ["found by words", "BM25; only compares passages of this question"],
  code: ["found by names in code", "BM25; only compares passages of this question"],
  graph: ["found by links", "how close it is to the best passages"],
};
const EVIDENCE = {
  meaning: ["nearness in meaning", "ten times the cosine"],
  nearness: ["among the nearest", "1 is the nearest of those seen, 0 the last"],
  words: ["words", "score by words, times the share of the question's words"],
  covered: ["words it has", "share of the question's words; rare ones count more"],
  rare: ["rare words it has", "share of the question's words that hardly any passage has"],
  literal: ["the very word", "for questions of one word"],
  title: ["words in its title", "share of the question's words"],
  links: ["how well linked", "documents that it is linked with, by doublings"],
};
const AFTER = {
  answer: ["is there an answer at all", "probability, for the question as a whole"],
  learned: ["all of that together", "probability that this passage answers"],
  reciprocal: ["ranks together", "reciprocal rank fusion"],
  weighted_sum: ["scores together", "weighted sum"],
  score_aware: ["scores together", "trusting flat lists less"],
  calibrate: ["as a probability", ""],
  current_collection: ["in your collection", "score after the lift"],
  recency: ["how recent", "score after it"],
  community: ["belongs to the best by links", "score after the lift"],
  exact_title: ["is called so", "score after the lift"],
  rerank: ["read with the question", "score by the cross-encoder"],
};
const NUMBERS = ["value", "left", "ms"]; // heads of columns that end below each other
const ALL = { ...FOUND, ...EVIDENCE, ...AFTER };

export function why(hit) {
  const rows = hit.why.map(({ stage, value }) => {
    const [name, meaning] = ALL[stage] ?? [stage.replaceAll("_", " "), ""];
    return make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "number" }, number(value)), make("td", {}, meaning));
  });
  return table("What speaks for this passage", ["", "value", "what it is"], rows);
}

export function stages(answer, measured) {
  const most = Math.max(...answer.steps.map((step) => step.ms), 0.001);
  const rows = answer.steps.map((step) => {
    const filled = make("span", { class: "filled" });
    filled.style.inlineSize = `${(100 * step.ms) / most}%`;
    return make("tr", {},
      make("th", { scope: "row" }, step.stage.replaceAll("_", " ")),
      make("td", { class: "number" }, step.count ? step.count.toLocaleString("en") : "–"),
      make("td", { class: "number" }, step.ms.toFixed(1)),
      make("td", { "aria-hidden": "true" }, make("span", { class: "bar" }, filled)));
  });
  const told = [`${answer.took_ms.toFixed(0)} ms in all`, `${counted(answer.index.chunks, "passage")} in ${counted(answer.index.documents, "document")}`];
  if (answer.query.kind) told.push(`taken for a question that is ${answer.query.kind}`);
  if (answer.query.expanded_with.length) told.push(`searched with ${answer.query.expanded_with.join(", ")} too`);
  const meaning = measured ? " Scores are measured: of passages with 80 %, about eight of ten answer." : "";
  return [make("p", {}, `${told.join(", ")}.${meaning}`), table("Stages, what each left and how long it took", ["stage", "left", "ms", ""], rows)];
}

function table(caption, heads, rows) {
  return make("div", { class: "wide" }, make("table", {},
    make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, ...heads.map((head) => (head ? make("th", { scope: "col", class: NUMBERS.includes(head) ? "number" : null }, head) : make("td"))))),
    make("tbody", {}, ...rows)));
}

const number = (value) => (Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(3));
