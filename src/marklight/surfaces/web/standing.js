// How the library stands: whether anybody answers, what is being indexed, how much there is.

import { get } from "./api.js";
import { byId, counted, make } from "./dom.js";

const QUIET_MS = 15_000, INDEXING_MS = 700, AWAY_MS = 1_500;

export class Standing {
  status = null;
  away = false;
  problem = null; // what the server says in place of how it stands: that it takes a token, perhaps
  indexing = null;
  #timer = 0;

  constructor({ changed, back }) {
    this.changed = changed; // after every look that has news
    this.back = back; // the server answers again, or a run has ended: ask anew
    addEventListener("online", () => this.look());
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
  }

  // Somebody else noticed that nobody answers.
  lost() {
    if (this.away) return;
    this.away = true;
    this.#show();
    this.#next();
  }

  async look() {
    clearTimeout(this.#timer);
    const wasAway = this.away, wasIndexing = this.indexing !== null;
    try {
      const health = await get("/health");
      this.away = false;
      this.problem = null;
      this.indexing = health.indexing;
      if (!this.status || wasAway || wasIndexing || this.indexing) this.status = await get("/api/status");
    } catch (problem) {
      this.away = Boolean(problem.offline);
      this.problem = this.away ? null : problem;
    }
    this.#show();
    this.changed();
    if (!this.away && (wasAway || (wasIndexing && !this.indexing))) this.back();
    this.#next();
  }

  // Every answer tells how much there is now.
  counted({ documents, chunks, pending }) {
    if (!this.status || this.status.documents === documents) return;
    Object.assign(this.status, { documents, chunks, pending });
    this.#show();
  }

  get several() {
    return Object.keys(this.status?.collections ?? {}).length > 1;
  }

  #next() {
    clearTimeout(this.#timer);
    const wait = this.away ? AWAY_MS : this.indexing ? INDEXING_MS : QUIET_MS;
    this.#timer = setTimeout(() => (document.hidden ? this.#next() : this.look()), wait);
  }

  #show() {
    if (this.status) byId("size").textContent = `${counted(this.status.documents, "document")}`;
    const shown = byId("standing");
    const said = this.away ? away() : this.indexing ? indexing(this.indexing) : this.#worries();
    shown.hidden = !said;
    shown.classList.toggle("away", this.away);
    // The same words again would be read out again.
    if (said && shown.textContent !== said.textContent) shown.replaceChildren(said);
    if (!said) shown.replaceChildren();
  }

  #worries() {
    if (!this.status) return null;
    const said = [];
    if (this.status.model_problem) said.push(`Only words are searched: ${this.status.model_problem}.`);
    else if (this.status.pending) said.push(`${counted(this.status.pending, "passage")} can be found by words only, as yet.`);
    if (this.status.failed?.length) said.push(`${counted(this.status.failed.length, "file")} could not be read: marklight status tells why.`);
    return said.length ? make("p", {}, said.join(" ")) : null;
  }
}

function away() {
  return make("p", {}, make("strong", {}, "The server does not answer. "), "This page tries again by itself; if it has ended, start it with ", make("code", {}, "marklight serve"), ".");
}

function indexing({ phase, done, total }) {
  const percent = total ? Math.floor((100 * done) / total) : 0;
  const bar = make("progress", { max: total || 1, value: done, "aria-label": "Indexing" });
  return make("p", {}, `Indexing, ${percent} %`, bar, make("span", { class: "soft" }, `${phase.toLowerCase()}, ${done.toLocaleString("en")} of ${total.toLocaleString("en")}. Answers come from what is there so far.`));
}
