// Score bar. Calibrated scores are probabilities: of passages with 0.8, about eight of ten answer the query.

import { make } from "./dom.js";

const LABELS = [[80, "very likely an answer"], [60, "likely an answer"], [40, "possibly an answer"], [20, "less likely"], [0, "unlikely"]];

// Without calibration for the model, or with keyword results only, scores only order the results.
export function bar(score, calibrated, complete = true) {
  const percent = Math.round(Math.max(0, Math.min(1, score)) * 100);
  const label = calibrated ? LABELS.find(([minimum]) => percent >= minimum)[1] : complete ? "ranked" : "keyword result";
  const meaning = calibrated
    ? `Of passages with this score, about ${percent} of 100 answer the query`
    : "This score only orders the results; it is not calibrated as a probability";
  const filled = make("span", { class: "filled" });
  filled.style.inlineSize = `${Math.max(3, percent)}%`;
  return make("span", { class: calibrated ? "score" : "score unsure", title: meaning },
    make("span", { class: "bar", "aria-hidden": "true" }, filled),
    make("span", {}, calibrated ? `${percent} %, ${label}` : label));
}
