// Status bar: whether the server answers, indexing progress, problems, number of documents.

import { get } from "./api.js";
import { byId, counted, make } from "./dom.js";

const IDLE_MS = 15_000, INDEXING_MS = 700, OFFLINE_MS = 1_500; // polling intervals

export class ServerStatus {
  status = null;
  offline = false;
  problem = null; // error of the status request, for example a missing token
  indexing = null;
  #timer = 0;

  constructor({ changed, recovered }) {
    this.changed = changed; // called after every check
    this.recovered = recovered; // the server answers again, or indexing has ended: search again
    addEventListener("online", () => this.check());
    document.addEventListener("visibilitychange", () => document.hidden || this.check());
  }

  // Another request failed because the server did not answer.
  setOffline() {
    if (this.offline) return;
    this.offline = true;
    this.#show();
    this.#next();
  }

  async check() {
    clearTimeout(this.#timer);
    const wasOffline = this.offline, wasIndexing = this.indexing !== null;
    try {
      const health = await get("/health");
      this.offline = false;
      this.problem = null;
      this.indexing = health.indexing;
      if (!this.status || wasOffline || wasIndexing || this.indexing) this.status = await get("/api/status");
    } catch (problem) {
      this.offline = Boolean(problem.offline);
      this.problem = this.offline ? null : problem;
    }
    this.#show();
    this.changed();
    if (!this.offline && (wasOffline || (wasIndexing && !this.indexing))) this.recovered();
    this.#next();
  }

  // Every answer contains the current counts.
  updateCounts({ documents, chunks, pending }) {
    if (!this.status || this.status.documents === documents) return;
    Object.assign(this.status, { documents, chunks, pending });
    this.#show();
  }

  get several() {
    return Object.keys(this.status?.collections ?? {}).length > 1;
  }

  #next() {
    clearTimeout(this.#timer);
    const wait = this.offline ? OFFLINE_MS : this.indexing ? INDEXING_MS : IDLE_MS;
    this.#timer = setTimeout(() => (document.hidden ? this.#next() : this.check()), wait);
  }

  #show() {
    if (this.status) byId("size").textContent = `${counted(this.status.documents, "document")}`;
    const shown = byId("server-status");
    const message = this.offline ? offlineMessage() : this.indexing ? indexingMessage(this.indexing) : this.#warnings();
    shown.hidden = !message;
    shown.classList.toggle("offline", this.offline);
    // Setting the same text again would make screen readers repeat it.
    if (message && shown.textContent !== message.textContent) shown.replaceChildren(message);
    if (!message) shown.replaceChildren();
  }

  #warnings() {
    if (!this.status) return null;
    const message = [];
    if (this.status.model_problem) message.push(`Keyword search only: ${this.status.model_problem}.`);
    else if (this.status.pending) message.push(`${counted(this.status.pending, "passage")} without embeddings yet: found by keywords only.`);
    if (this.status.failed?.length) message.push(`${counted(this.status.failed.length, "file")} could not be indexed. Run “marklight status” for details.`);
    return message.length ? make("p", {}, message.join(" ")) : null;
  }
}

function offlineMessage() {
  return make("p", {}, make("strong", {}, "The server does not answer. "), "This page keeps trying; if the server has stopped, start it with ", make("code", {}, "marklight serve"), ".");
}

function indexingMessage({ phase, done, total }) {
  const percent = total ? Math.floor((100 * done) / total) : 0;
  const bar = make("progress", { max: total || 1, value: done, "aria-label": "Indexing" });
  return make("p", {}, `Indexing, ${percent} %`, bar, make("span", { class: "soft" }, `${phase.toLowerCase()}, ${done.toLocaleString("en")} of ${total.toLocaleString("en")}. Results include only what is indexed so far.`));
}
