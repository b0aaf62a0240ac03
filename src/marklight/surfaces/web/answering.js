// The answer of the configured language model: each sentence once it is checked, with links to its sources.

import { events, problemOf } from "./api.js";
import { byId, counted, documentLink, lineText, make, nameOf, sentence as asSentence } from "./dom.js";
import { withFilters } from "./search.js";

const ITEM = /(?:[-*+•]|\d{1,3}[.)])[ \t]+$/; // the mark of a list item
const INLINE = /(`[^`]+`|\*\*[^*]+\*\*)/; // the only markup of a model that is rendered

export class Answering {
  #controller = null;
  #sources = [];
  #panel = byId("answer");
  #text = byId("answer-text");
  #status = byId("answer-status");
  #button = byId("ask");

  constructor({ href, model }) {
    this.href = href;
    this.model = model;
  }

  // Shown only if a model is configured: nothing is sent to it before somebody presses the button.
  update(query) {
    const model = this.model();
    this.#button.hidden = !model;
    this.#button.disabled = !query.trim() && !this.#controller;
    this.#button.title = model ? `Let ${model} answer from the passages found` : "";
  }

  stop() {
    this.#controller?.abort();
    this.#controller = null;
    this.#button.textContent = "Answer";
    this.#panel.removeAttribute("aria-busy");
  }

  clear() {
    this.stop();
    this.#panel.hidden = true;
  }

  toggle(state) {
    if (!this.#controller) return this.#run(state);
    this.stop();
    this.#say("Stopped.");
  }

  async #run(state) {
    const controller = (this.#controller = new AbortController());
    const params = withFilters(new URLSearchParams({ q: state.q.trim() }), state);
    if (state.nearest) params.set("min_confidence", "0");
    this.#button.textContent = "Stop";
    this.#panel.hidden = false;
    this.#panel.setAttribute("aria-busy", "true");
    this.#text.replaceChildren();
    this.#say("Searching …");
    try {
      for await (const { name, data } of events(`/api/ask/stream?${params}`, controller.signal)) {
        if (controller.signal.aborted) return;
        if (name === "sources") this.#found(data.results);
        else if (name === "sentence") this.#add(data);
        else if (name === "error") throw problemOf(data.error);
        else if (name === "done") this.#finish(data);
      }
    } catch (problem) {
      if (!controller.signal.aborted) this.#say([problem.message, problem.hint].filter(Boolean).map(asSentence).join(" "), true);
    } finally {
      if (this.#controller === controller) this.stop();
    }
  }

  #found(results) {
    this.#sources = results;
    if (results.length) this.#say(`${this.model()} reads ${counted(results.length, "passage")} …`);
  }

  #add({ text, lead, citations, supported, problem }) {
    const marks = citations.map((number) => this.#citation(number));
    const doubt = supported ? [] : [" ", make("span", { class: "doubt", title: problem }, "unsupported")];
    const shown = text.includes("\n")
      ? make("pre", {}, text.split("\n").slice(1, -1).join("\n"))
      : make("span", supported ? {} : { class: "unsupported" }, ...inline(text));
    const block = shown.tagName === "PRE" ? this.#append("div") : this.#block(lead);
    if (block.childNodes.length) block.append(" ");
    block.append(shown, " ", ...marks, ...doubt);
  }

  // The paragraph or list item that a sentence belongs to.
  #block(lead) {
    const last = this.#text.lastElementChild;
    const open = last?.tagName === "UL" ? last.lastElementChild : last;
    if (ITEM.test(lead)) {
      const list = last?.tagName === "UL" ? last : this.#append("ul");
      const item = make("li");
      list.append(item);
      return item;
    }
    return open && open.tagName !== "DIV" && !lead.includes("\n") ? open : this.#append("p");
  }

  #append(tag) {
    const element = make(tag);
    this.#text.append(element);
    return element;
  }

  #citation(number) {
    const source = this.#sources[number - 1];
    const name = nameOf(source);
    const place = `${source.title || source.path}: ${name}, lines ${lineText(source.lines)}`;
    return documentLink(this.href, name, { lines: source.lines }, { class: "citation", title: place, "aria-label": `Source ${number}, ${place}` }, String(number));
  }

  #finish(answer) {
    if (!answer.query) return; // an error came before
    const unsupported = answer.sentences.filter((each) => !each.supported).length;
    const parts = [
      answer.abstained ? answer.abstained : `Written by ${answer.model} from ${counted(answer.sources.length, "passage")}`,
      unsupported ? `${counted(unsupported, "sentence")} not supported by the cited passages` : "",
      answer.removed.length ? `${counted(answer.removed.length, "sentence")} removed, which the passages do not support` : "",
      answer.incomplete ? `The answer is incomplete: ${answer.incomplete}` : "",
      !answer.model && answer.abstained ? "No model was called" : "",
    ];
    this.#say(parts.filter(Boolean).map(asSentence).join(" "));
  }

  #say(text, isProblem = false) {
    this.#status.replaceChildren(make("span", {}, text));
    this.#status.classList.toggle("problem", isProblem);
  }
}

const inline = (text) => text.split(INLINE).filter(Boolean).map((part) => {
  if (part.length > 2 && part.startsWith("`")) return make("code", {}, part.slice(1, -1));
  if (part.length > 4 && part.startsWith("**")) return make("strong", {}, part.slice(2, -2));
  return part;
});
