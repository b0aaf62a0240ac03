// Runs one search at a time, throttled while typing and cancelled by the next; marks the words of a query in texts.

import { Problem, events, get, problemOf } from "./api.js";
import { make, visible } from "./dom.js";

const FIRST_MS = 120; // after the first key
const REST_MS = 260; // without a key: the user has stopped typing
const BETWEEN_MS = 900; // while typing, at least, from one search to the next
const EARLY_MS = 150; // keyword results are shown if the complete answer takes longer
const MAX_LISTED = 1000; // documents in a list; their number is of all

export class Search {
  #controller = null;
  #timer = 0;
  #early = 0;
  #last = -Infinity;

  constructor(callbacks) {
    this.callbacks = callbacks; // { started, answered, listed, failed, named }
  }

  run(query, { now = false } = {}) {
    clearTimeout(this.#timer);
    const since = performance.now() - this.#last;
    const wait = now ? 0 : since > BETWEEN_MS ? FIRST_MS : Math.min(REST_MS, BETWEEN_MS - since);
    this.#timer = setTimeout(() => this.#run(query), wait);
  }

  stop() {
    clearTimeout(this.#timer);
    clearTimeout(this.#early);
    this.#controller?.abort();
    this.#controller = null;
  }

  async #run(query) {
    this.stop();
    this.#last = performance.now();
    const controller = (this.#controller = new AbortController());
    const { signal } = controller;
    this.callbacks.started(query);
    let last = null;
    try {
      if (query.documents) {
        const listing = await get(`/api/list?${listParameters(query)}`, { signal });
        if (!signal.aborted) this.callbacks.listed(listing, query);
        return;
      }
      const names = query.typing && isName(query.q) ? get(`/api/names?${new URLSearchParams({ like: query.q })}`, { signal }).catch(() => null) : null;
      for await (const { name, data } of events(`/api/search/stream?${parameters(query)}`, signal)) {
        if (signal.aborted) return;
        if (name === "results") this.#showEarly((last = data), query);
        else if (name === "error") throw problemOf(data.error);
        else if (name === "done") break;
      }
      const named = (await names)?.documents ?? [];
      if (signal.aborted) return;
      clearTimeout(this.#early);
      if (last) this.callbacks.answered(last, query, true, named);
      else throw new Problem("The server sent no answer", "", 500);
    } catch (error) {
      clearTimeout(this.#early);
      if (!signal.aborted) this.callbacks.failed(error, query);
    } finally {
      if (this.#controller === controller) this.#controller = null;
      controller.abort();
    }
  }

  // A short delay avoids a list that is rearranged right after it appeared.
  #showEarly(answer, query) {
    clearTimeout(this.#early);
    this.#early = setTimeout(() => this.callbacks.answered(answer, query, false, []), EARLY_MS);
  }
}

// Only a short text without operators may be a part of a title or path.
const isName = (text) => text.length > 1 && text.length < 60 && !/[":]/.test(text) && text.split(/\s+/).length < 6;

function parameters(query) {
  const params = new URLSearchParams({ q: query.q });
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
  if (query.sort) params.set("sort", query.sort);
  return withFilters(params, query);
}

export function withFilters(params, query) {
  for (const name of ["collection", "tag", "path"]) for (const value of query[name]) params.append(name, value);
  for (const name of ["after", "before"]) if (query[name]) params.set(name, query[name]);
  return params;
}

// Words of a query in a text

const STOP_WORDS = new Set(("a an and are as at be by can do does for from has have how i if in into is it its me my no not of on or our " +
  "should so than that the their then there these they this to us was we were what when where which who whom whose why will with would you your").split(" "));
const ENDING = /(?:ings?|ies|ied|ed|es|e|s|y)$/;
const INFLECTED = "(?:e|es|ed|d|s|ing|ings|y|ies|ied|n|en)?(?:[’']s)?";
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]/u;

// A word is marked in its inflected forms: "caching" marks "cached" too, and "form" does not mark "format".
export function pattern(...texts) {
  const stems = new Set();
  for (const word of texts.join(" ").toLowerCase().replace(/\b\w+:/g, " ").match(/[\p{L}\p{N}_]+/gu) ?? []) {
    if (UNSPACED.test(word)) for (const [index] of [...word].entries()) stems.add(word.slice(index, index + 2));
    else if (!STOP_WORDS.has(word) && word.length > 1) stems.add(word);
  }
  const words = [...stems].filter((each) => each.length > 1).slice(0, 60).sort((one, other) => other.length - one.length);
  if (!words.length) return null;
  const any = words.map((word) => (UNSPACED.test(word) ? word : `(?<![\\p{L}\\p{N}])${inflections(word)}(?![\\p{L}\\p{N}])`));
  return new RegExp(any.join("|"), "giu");
}

function inflections(word) {
  if (word.length < 4 || /\d|_/.test(word)) return `${word}s?`;
  const stem = word.replace(ENDING, "");
  return stem.length >= 3 ? `${stem}(?:${stem.at(-1)}?(?:ing|ed)|${INFLECTED})` : `${word}s?`;
}

export function marked(given, words) {
  if (!words) return [given];
  const text = visible(given); // before splitting: escaping depends on the preceding character
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(words)) {
    if (found.index > at) parts.push(new Text(text.slice(at, found.index)));
    parts.push(make("mark", {}, new Text(found[0])));
    at = found.index + found[0].length;
  }
  return [...parts, new Text(text.slice(at))];
}
