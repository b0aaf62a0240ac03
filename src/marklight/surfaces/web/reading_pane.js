// The reading pane: a document with its passage highlighted, its outline, links and link graph.

import { get, inPath } from "./api.js";
import { VIEWS } from "./url_state.js";
import { copy } from "./clipboard.js";
import { blocks, elements, lineOf, place } from "./document_html.js";
import { byId, make } from "./dom.js";
import { graphView } from "./graph.js";
import { links, outline } from "./relations.js";
import { breakable, dated, lineText } from "./results.js";
import { sentence } from "./messages.js";
import { visible } from "./escaping.js";

const REFRESH_MS = 3_000; // between two checks whether the open document has changed
const REFRESH_SHARE = 0.05; // of the time, at most, for documents that take long to render

export class ReadingPane {
  #pane = byId("pane");
  #shown = null; // { name, line, page } of the open document
  #controller = null;
  #timer = 0;
  #filled = new Set();
  #state = null;

  constructor({ href, several, view, close, offline }) {
    Object.assign(this, { href, several, offline });
    byId("close").addEventListener("click", close);
    byId("copy").addEventListener("click", (event) => copy(this.#reference(), event.currentTarget));
    new ResizeObserver(() => this.#highlight(byId("view-text"))).observe(byId("view-text"));
    addEventListener("focus", () => this.refresh());
    const tabs = VIEWS.map((each) => byId(`tab-${each}`));
    for (const [at, tab] of tabs.entries()) {
      tab.addEventListener("click", () => view(VIEWS[at]));
      tab.addEventListener("keydown", (event) => {
        const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        const next = (to + tabs.length) % tabs.length;
        view(VIEWS[next]);
        tabs[next].focus();
      });
    }
  }

  get open() { return !this.#pane.hidden; }

  close() {
    this.#controller?.abort();
    clearTimeout(this.#timer);
    this.#shown = this.#state = null;
    this.#pane.hidden = true;
  }

  // `focus`: the user opened the document; one from the URL leaves the focus in the search field.
  async show(state, { focus = false } = {}) {
    const before = this.#state;
    this.#state = { ...state };
    this.#pane.hidden = false;
    const near = this.#shown?.name === state.open && this.#covers(this.#wanted(state));
    if (!near && !(await this.#load(state))) return;
    // The line of a heading is known once the outline is: it may be in another part of a long document.
    if (!near && !this.#covers(this.#wanted(state)) && !(await this.#load(state, this.#wanted(state)))) return;
    this.#views(state.view);
    const moved = !near || !before || before.at !== state.at || String(before.lines) !== String(state.lines);
    if (state.view === "text" && (moved || before.view !== "text")) this.#go(state);
    else if (state.view !== "text") this.#fill(state.view);
    if (focus) byId("pane-title").focus({ preventScroll: true });
  }

  // The line that the state leads to, 0 for the start.
  #wanted({ lines, at }) {
    return lines ? lines[0] : at && this.#shown ? lineOf(this.#shown.page, at) : 0;
  }

  #covers(line) {
    const shown = this.#shown?.page.lines;
    return Boolean(shown) && (!line || line > this.#shown.page.of_lines || (line >= shown[0] && line <= shown[1]));
  }

  async #load(state, line = state.lines?.[0] ?? 0) {
    this.#controller?.abort();
    clearTimeout(this.#timer);
    const controller = (this.#controller = new AbortController());
    const name = state.open;
    this.#shown = null;
    byId("pane-title").textContent = visible(name.split("/").at(-1));
    this.#showLocation(name, state.lines);
    byId("view-text").replaceChildren(make("p", { class: "soft", role: "status" }, "Loading …"));
    this.#views("text");
    const began = performance.now();
    try {
      this.#fillText({ name, line, page: await this.#page(name, line, controller.signal) });
    } catch (problem) {
      if (controller.signal.aborted) return false;
      if (problem.offline) this.offline();
      byId("view-text").replaceChildren(make("div", { class: "state problem" },
        make("h3", {}, problem.status === 404 ? "Document not found" : "The document cannot be shown"),
        make("p", {}, sentence(problem.message)), make("p", {}, sentence(problem.hint ?? "")),
        make("div", { class: "buttons" }, make("button", { type: "button", click: () => this.show(this.#state) }, "Try again"))));
      return false;
    }
    this.#next(began);
    return true;
  }

  #page(name, line, signal) {
    return get(`/api/page/${inPath(name)}${line ? `?line=${line}` : ""}`, signal);
  }

  #fillText(shown) {
    const { name, page } = (this.#shown = shown);
    this.#filled.clear();
    byId("pane-title").textContent = visible(page.title || name);
    byId("view-text").replaceChildren(this.#notes(page), ...elements(page.html, this.href));
    if (page.lines[1] - page.lines[0] + 1 < page.of_lines) byId("view-text").append(this.#rest(page));
  }

  // Show what changed on disk, at the same place; an unchanged document is not touched.
  async refresh() {
    clearTimeout(this.#timer);
    const shown = this.#shown, began = performance.now();
    if (!shown) return;
    try {
      const page = document.hidden ? shown.page : await this.#page(shown.name, shown.line, this.#controller.signal);
      if (this.#shown !== shown) return;
      if (JSON.stringify(page) !== JSON.stringify(shown.page)) {
        const top = this.#pane.scrollTop;
        this.#fillText({ ...shown, page });
        this.#mark(this.#state);
        if (this.#state.view !== "text") this.#fill(this.#state.view);
        this.#pane.scrollTop = top;
      }
    } catch (problem) {
      if (this.#shown !== shown) return;
      if (problem.offline) this.offline(); // and the document stays
    }
    this.#next(began);
  }

  #next(began) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), Math.max(REFRESH_MS, (performance.now() - began) / REFRESH_SHARE));
  }

  #notes(page) {
    return make("p", { class: "facts" }, ...page.tags.map((tag) => make("span", { class: "tag" }, `#${tag}`)), dated(page));
  }

  #rest(page) {
    const beyond = [[page.lines[1] + 1, "Next part"], [page.lines[0] - 1, "Previous part"]].filter(([line]) => line >= 1 && line <= page.of_lines);
    return make("div", { class: "state" },
      make("p", {}, `This document is long. Showing ${lineText(page.lines)} of ${page.of_lines.toLocaleString("en")}.`),
      make("div", { class: "buttons" }, ...beyond.map(([line, label]) =>
        make("a", { class: "button", href: this.href({ open: this.#shown.name, lines: [line, line] }), "data-open": this.#shown.name, "data-lines": `${line}-${line}` }, label))));
  }

  #showLocation(name, lines) {
    byId("pane-place").replaceChildren(make("span", { class: "path" }, ...breakable(name)), lines ? make("span", { class: "lines" }, lineText(lines)) : "");
  }

  #reference() {
    const { open, lines, at } = this.#state;
    return lines ? `${open}:${lines.join("-")}` : at ? `${open}#${at}` : open;
  }

  #views(view) {
    for (const each of VIEWS) {
      const chosen = each === view;
      byId(`tab-${each}`).setAttribute("aria-selected", chosen);
      byId(`tab-${each}`).tabIndex = chosen ? 0 : -1;
      byId(`view-${each}`).hidden = !chosen;
    }
  }

  #go(state) {
    const found = this.#mark(state);
    const target = state.lines ? found[0] : state.at ? place(byId("view-text"), this.#shown.page, state.at) : null;
    this.#pane.scrollTop = target ? this.#top(target) : 0;
  }

  // Highlight the passage; returns its blocks.
  #mark(state) {
    const root = byId("view-text");
    for (const each of root.querySelectorAll(".in-passage")) each.classList.remove("in-passage");
    this.#showLocation(state.open, state.lines);
    const found = state.lines ? blocks(root, state.lines) : [];
    for (const each of found) each.classList.add("in-passage");
    this.#highlight(root);
    return found;
  }

  // Not scrollIntoView, which would scroll the page as well.
  #top(target) {
    const above = target.previousElementSibling;
    const first = above && /^H[1-6]$/.test(above.tagName) ? above : target; // include the heading above
    const head = this.#pane.querySelector("header").offsetHeight;
    return this.#pane.scrollTop + first.getBoundingClientRect().top - this.#pane.getBoundingClientRect().top - head - 24;
  }

  // One highlight behind all blocks of the passage; updated when the pane is resized.
  #highlight(root) {
    root.querySelector(".highlight")?.remove();
    const found = [...root.querySelectorAll(".in-passage")];
    if (!found.length || root.hidden) return;
    const edge = root.getBoundingClientRect().top;
    const top = Math.min(...found.map((each) => each.getBoundingClientRect().top)) - edge;
    const bottom = Math.max(...found.map((each) => each.getBoundingClientRect().bottom)) - edge;
    const highlight = make("div", { class: "highlight", "aria-hidden": "true" });
    highlight.style.insetBlockStart = `${top - 6}px`;
    highlight.style.blockSize = `${bottom - top + 12}px`;
    root.append(highlight); // at the end, so that :first-child and the like still match
  }

  async #fill(view) {
    if (!this.#shown || this.#filled.has(view)) return;
    const { name, page } = this.#shown;
    const root = byId(`view-${view}`);
    this.#filled.add(view);
    if (view === "outline") return root.replaceChildren(...outline(page, this.href, name));
    root.replaceChildren(make("p", { class: "soft", role: "status" }, "Loading …"));
    const signal = this.#controller.signal;
    try {
      const path = inPath(name);
      if (view === "links") {
        const [found, related] = await Promise.all([get(`/api/links/${path}`, signal), get(`/api/related/${path}`, signal)]);
        root.replaceChildren(...links(found, related, this.href, this.several()));
      } else {
        const graph = await get(`/api/graph?${new URLSearchParams({ path: name, depth: 2, limit: 60 })}`, signal);
        const named = (each) => (this.several() ? `${each.collection}/${each.path}` : each.path);
        root.replaceChildren(...graphView(graph, { href: this.href, named, width: root.clientWidth }));
      }
    } catch (problem) {
      if (signal.aborted) return;
      this.#filled.delete(view);
      if (problem.offline) this.offline();
      root.replaceChildren(make("p", { class: "soft" }, sentence(`${problem.message}`)));
    }
  }
}
