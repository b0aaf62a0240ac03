// What a score means. It is measured: of passages with 0.8, about eight of ten answer.

import { make } from "./dom.js";

const WORDS = [[80, "very likely an answer"], [60, "likely an answer"], [40, "maybe an answer"], [20, "less likely"], [0, "unlikely"]];

// Where nothing was measured for the model, or only words were compared yet, a score is an order and no more.
export function bar(score, measured, whole = true) {
  const percent = Math.round(Math.max(0, Math.min(1, score)) * 100);
  const said = measured ? WORDS.find(([least]) => percent >= least)[1] : whole ? "by rank" : "by words so far";
  const meaning = measured
    ? `Of passages with this score, about ${percent} of 100 answer the question`
    : "This score says which comes first, not how likely it answers: that was not measured here";
  const filled = make("span", { class: "filled" });
  filled.style.inlineSize = `${Math.max(3, percent)}%`;
  return make("span", { class: measured ? "score" : "score unsure", title: meaning },
    make("span", { class: "bar", "aria-hidden": "true" }, filled),
    make("span", {}, measured ? `${percent} %, ${said}` : said));
}
