// The trace of a score: features, weights and stages.

import { make } from "./dom.js";

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

export function why(hit) {
  const rows = hit.why.map(({ stage, value }) => {
    const [name, meaning] = LABELS[stage] ?? [stage.replaceAll("_", " "), ""];
    return make("tr", { title: meaning || null }, make("th", { scope: "row" }, name), make("td", {}, number(value)));
  });
  return make("table", { class: "trace" }, make("caption", { class: "visually-hidden" }, "How the score of this passage was computed"), make("tbody", {}, ...rows));
}

const number = (value) => (Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(3));
