// Runs one search at a time: debounced while typing, and cancelled by the next.

import { Problem, events, get, problemOf } from "./api.js";

const DEBOUNCE_MS = 120; // debounce delay: longer than the time between two keys
const MAX_LISTED = 1000; // documents in a list; their number is of all
const EARLY_MS = 150; // keyword results are shown if the complete answer takes longer

export class Search {
  #controller = null;
  #debounce = 0;
  #early = 0;

  constructor(callbacks) {
    this.callbacks = callbacks; // { started, answered, listed, failed }
  }

  run(query, { now = false } = {}) {
    clearTimeout(this.#debounce);
    this.#debounce = setTimeout(() => this.#run(query), now ? 0 : DEBOUNCE_MS);
  }

  stop() {
    clearTimeout(this.#debounce);
    clearTimeout(this.#early);
    this.#controller?.abort();
    this.#controller = null;
  }

  async #run(query) {
    this.stop();
    const controller = new AbortController();
    this.#controller = controller;
    this.callbacks.started(query);
    let last = null;
    try {
      if (query.documents) {
        const listing = await get(`/api/list?${listParameters(query)}`, controller.signal);
        if (!controller.signal.aborted) this.callbacks.listed(listing, query);
        return;
      }
      for await (const { name, data } of events(`/api/search/stream?${parameters(query)}`, controller.signal)) {
        if (controller.signal.aborted) return;
        if (name === "results") this.#showEarly((last = data), query);
        else if (name === "error") throw problemOf(data.error);
        else if (name === "done") break;
      }
      if (controller.signal.aborted) return;
      clearTimeout(this.#early);
      if (last) this.callbacks.answered(last, query, true);
      else throw new Problem("The server sent no answer", "", 500);
    } catch (error) {
      clearTimeout(this.#early);
      if (!controller.signal.aborted) this.callbacks.failed(error, query);
    } finally {
      if (this.#controller === controller) this.#controller = null;
      controller.abort();
    }
  }

  // A short delay avoids a list that is rearranged right after it appeared.
  #showEarly(answer, query) {
    clearTimeout(this.#early);
    this.#early = setTimeout(() => this.callbacks.answered(answer, query, false), EARLY_MS);
  }
}

function parameters(query) {
  const params = new URLSearchParams({ q: query.q, explain: "true" });
  // The library has no filter by kind: the page filters the maximum number of results.
  params.set("limit", query.kind ? 100 : query.limit);
  if (query.nearest) params.set("min_confidence", "0");
  if (query.prefix) params.set("prefix", "true");
  return withFilters(params, query);
}

function listParameters(query) {
  const params = new URLSearchParams({ limit: MAX_LISTED });
  if (query.q) params.set("q", query.q);
  if (query.prefix) params.set("prefix", "true");
  return withFilters(params, query);
}

export function withFilters(params, query) {
  for (const name of ["collection", "tag", "path"]) for (const value of query[name]) params.append(name, value);
  for (const name of ["after", "before"]) if (query[name]) params.set(name, query[name]);
  return params;
}
