// One question at a time: a pause in typing asks it, the next one takes its place.

import { Problem, events, problemOf } from "./api.js";

const PAUSE_MS = 120; // shorter than a pause for thought, longer than between two keys
const EARLY_MS = 150; // results by words alone are shown if the whole answer takes longer than this

export class Search {
  #running = null;
  #pause = 0;
  #early = 0;

  constructor(told) {
    this.told = told; // { begun, found, failed }
  }

  ask(question, { now = false } = {}) {
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => this.#run(question), now ? 0 : PAUSE_MS);
  }

  stop() {
    clearTimeout(this.#pause);
    clearTimeout(this.#early);
    this.#running?.abort();
    this.#running = null;
  }

  async #run(question) {
    this.stop();
    const giving = new AbortController();
    this.#running = giving;
    this.told.begun(question);
    let last = null;
    try {
      for await (const { name, data } of events(`/api/search/stream?${asked(question)}`, giving.signal)) {
        if (giving.signal.aborted) return;
        if (name === "results") this.#take((last = data), question);
        else if (name === "error") throw problemOf(data.error);
        else if (name === "done") break;
      }
      if (giving.signal.aborted) return;
      clearTimeout(this.#early);
      if (last) this.told.found(last, question, true);
      else throw new Problem("The server gave no answer", "", 500);
    } catch (error) {
      clearTimeout(this.#early);
      if (!giving.signal.aborted) this.told.failed(error, question);
    } finally {
      if (this.#running === giving) this.#running = null;
      giving.abort();
    }
  }

  // A list that is rearranged a moment after it appeared is worse than one that comes a moment later.
  #take(answer, question) {
    clearTimeout(this.#early);
    this.#early = setTimeout(() => this.told.found(answer, question, false), EARLY_MS);
  }
}

function asked(question) {
  const said = new URLSearchParams({ q: question.q, explain: "true" });
  // The library knows no filter by kind: the page takes its pick of as many results as there may be.
  said.set("limit", question.kind ? 100 : question.limit);
  if (question.nearest) said.set("min_confidence", "0");
  for (const name of ["collection", "tag", "path"]) for (const each of question[name]) said.append(name, each);
  for (const name of ["after", "before"]) if (question[name]) said.set(name, question[name]);
  return said;
}
