// Explanation of an answer: the trace of each score, and the stages with their timings.

import { counted, make } from "./dom.js";

// Labels and descriptions of retrievers, features (× weight) and stages in the JSON.
const LABELS = {
  semantic: ["found by meaning", "cosine similarity of query and passage"],
  keyword: ["found by words", "BM25; comparable within this search only"],
  code: ["found by names in code", "BM25; comparable within this search only"],
  cosine: ["similarity in meaning", "10 × cosine similarity"],
  standard_cosine: ["similarity in meaning", "standard score of the cosine among the candidates"],
  relative_bm25: ["words", "BM25 divided by the best"],
  lexical: ["words", "BM25 × share of the query's words"],
  title: ["words in the title", "share of the query's words"],
  path: ["words in the path", "share of the query's words"],
  log_share: ["share among the best documents", "logarithm"],
  relevance_base: ["base of the relevance curve", "the same for all results"],
  relevance: ["relevance", "probability that it is relevant, if there is an answer"],
  answer: ["answer probability", "does the library contain an answer? The same for all results"],
  learned: ["score after fusion", "answer probability × relevance"],
  reciprocal: ["score after fusion", "reciprocal rank fusion"],
  weighted_sum: ["score after fusion", "weighted sum"],
  score_aware: ["score after fusion", "weighted sum in which flat lists count less"],
  probability: ["score as a probability", "answer probability × relevance"],
  shared: ["shared with its neighbours", "mean where the order contradicts the probabilities"],
  calibrate: ["score as a probability", ""],
  current_collection: ["boost of the current collection", "score after it"],
  recency: ["boost of recent documents", "score after it"],
  community: ["boost of linked documents", "score after it"],
  exact_name: ["name in code", "score after it"],
  exact_title: ["exact title", "score after it"],
  diversity: ["moved behind another result", "score after it"],
  rerank: ["cross-encoder", "score after it"],
};
const NUMBERS = ["value", "left", "ms"]; // columns aligned to the right

export function why(hit) {
  const rows = hit.why.map(({ stage, value }) => {
    const [name, meaning] = LABELS[stage] ?? [stage.replaceAll("_", " "), ""];
    return make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "number" }, number(value)), make("td", {}, meaning));
  });
  return table("How the score of this passage was computed", ["", "value", "what it is"], rows);
}

export function stages(answer, calibrated) {
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
  const facts = [`${answer.took_ms.toFixed(0)} ms`, `${counted(answer.index.chunks, "passage")} in ${counted(answer.index.documents, "document")}`];
  if (answer.query.kind) facts.push(`classified as ${answer.query.kind}`);
  if (answer.query.expanded_with.length) facts.push(`also searched for ${answer.query.expanded_with.join(", ")}`);
  const meaning = calibrated ? " Scores are calibrated: of passages with 80 %, about eight of ten answer the query." : "";
  return [make("p", {}, `${facts.join(", ")}.${meaning}`), table("Stages with the number of candidates left and the time taken", ["stage", "left", "ms", ""], rows)];
}

function table(caption, heads, rows) {
  return make("div", { class: "wide" }, make("table", {},
    make("caption", { class: "visually-hidden" }, caption),
    make("thead", {}, make("tr", {}, ...heads.map((head) => (head ? make("th", { scope: "col", class: NUMBERS.includes(head) ? "number" : null }, head) : make("td"))))),
    make("tbody", {}, ...rows)));
}

const number = (value) => (Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(3));
