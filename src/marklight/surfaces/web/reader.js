// The reader: a document at its passage with the query's words marked, and a rail with outline and links.

import { get, getChanged, inPath } from "./api.js";
import { byId, copy, counted, dateText, documentLink, lineText, make, sentence, visible } from "./dom.js";

const INSIDE = "marklight:";
const PREFIX = "part-"; // prefix of ids in documents, so that they cannot collide with ours
const MAX_MATCHES = 2000;
const NUMBER = /^\s*\d+[.)]\s/; // of a list item, which is no text of the page
const RAIL_MS = 250; // until the links of a document that stays open are loaded
const DIRECTED = "p, h1, h2, h3, h4, h5, h6, ul, ol, td, th, dt, dd, summary, figcaption";
const FROM_RIGHT = /^[^\p{L}]*[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

export class Reader {
  #root = byId("text");
  #pane = byId("reader");
  #rail = byId("rail");
  #shown = null; // { name, line, page, etag } of the open document
  #state = null;
  #controller = null;
  #railTimer = 0;
  #matches = [];
  #answer = null; // the range of the sentence that answers
  #match = -1;
  #html = new WeakMap(); // the HTML of each block as the server sent it: folds change the DOM

  constructor({ href, words, sentence, offline, editor, titled }) {
    Object.assign(this, { href, words, sentence, offline, editor, titled });
    this.#root.addEventListener("scroll", () => requestAnimationFrame(() => this.#markHeading()), { passive: true });
    this.#root.addEventListener("click", (event) => {
      const button = event.target.closest(".copy-code");
      if (button) copy(button.parentElement.querySelector("pre").textContent, "code");
    });
    const [previous, , next] = byId("matches").children;
    previous.addEventListener("click", () => this.step(-1));
    next.addEventListener("click", () => this.step(1));
  }

  get page() { return this.#shown?.page ?? null; }
  get scroll() { return this.#root.scrollTop; }

  close() {
    this.#controller?.abort();
    clearTimeout(this.#railTimer);
    this.#shown = this.#state = null;
    this.#pane.hidden = this.#rail.hidden = true;
    this.#clearMatches();
  }

  // `scroll`: restore this place instead of going to the passage.
  async show(state, { focus = false, scroll = null } = {}) {
    const before = this.#state, focused = document.activeElement;
    this.#state = { ...state };
    this.#pane.hidden = false;
    const near = this.#shown?.name === state.open && this.#covers(this.#wanted(state));
    if (!near && !(await this.#load(state))) return;
    // The line of a heading is known once the outline is: it may be in another part of a long document.
    if (!near && !this.#covers(this.#wanted(state)) && !(await this.#load(state, this.#wanted(state)))) return;
    const moved = !near || !before || before.at !== state.at || String(before.lines) !== String(state.lines);
    this.#showPlace();
    const target = this.#markPassage();
    this.mark();
    if (scroll !== null) this.#root.scrollTop = scroll;
    else if (moved) { this.#scrollTo(target); this.#showAnswer(); }
    this.#markHeading();
    // Not if the user has moved on while the document was loaded; the body has the focus of a block that was replaced.
    if (focus && [focused, document.body].includes(document.activeElement)) this.#focus(target);
  }

  // Loads the document again if it changed, and replaces the blocks that differ: scroll, selection and folds stay.
  async refresh() {
    const shown = this.#shown;
    if (!shown) return;
    try {
      const changed = await getChanged(this.#address(shown.name, shown.line), shown.etag, this.#controller.signal);
      if (this.#shown !== shown || !changed) return;
      this.#fill({ ...shown, page: changed.value, etag: changed.etag });
      this.#markPassage();
      this.mark();
      this.#markHeading();
    } catch (problem) {
      if (this.#shown === shown && problem.offline) this.offline(); // and the document stays
    }
  }

  #wanted({ lines, at }) {
    return lines ? lines[0] : at && this.#shown ? this.#lineOf(at) : 0;
  }

  #covers(line) {
    const shown = this.#shown?.page.lines;
    return Boolean(shown) && (!line || line > this.#shown.page.of_lines || (line >= shown[0] && line <= shown[1]));
  }

  #address(name, line) {
    return `/api/page/${inPath(name)}${line ? `?line=${line}` : ""}`;
  }

  async #load(state, line = state.lines?.[0] ?? 0) {
    this.#controller?.abort();
    const controller = (this.#controller = new AbortController());
    const name = state.open;
    byId("place").replaceChildren(make("span", { class: "path" }, name));
    this.#root.classList.add("stale");
    try {
      const { value, etag } = await getChanged(this.#address(name, line), "", controller.signal);
      if (controller.signal.aborted) return false;
      this.#shown = null;
      this.#root.replaceChildren();
      this.#root.scrollTop = 0;
      this.#fill({ name, line, page: value, etag });
      return true;
    } catch (problem) {
      if (controller.signal.aborted) return false;
      if (problem.offline) this.offline();
      this.#shown = null;
      this.#rail.hidden = true;
      this.#clearMatches();
      this.#root.replaceChildren(make("div", { class: "state problem" },
        make("h2", {}, problem.status === 404 ? "Document not found" : "The document cannot be shown"),
        make("p", {}, sentence(problem.message)), make("p", {}, sentence(problem.hint)),
        make("div", { class: "buttons" }, make("button", { type: "button", click: () => this.show(this.#state) }, "Try again"))));
      return false;
    } finally {
      if (this.#controller === controller) this.#root.classList.remove("stale");
    }
  }

  #fill(shown) {
    this.#shown = shown;
    const { page, name } = shown;
    const blocks = elements(page.html, this.href);
    if (page.tags.length || page.dated) blocks.unshift(facts(page, this.href));
    if (page.lines[1] - page.lines[0] + 1 < page.of_lines) blocks.push(this.#rest(page));
    this.#patch(blocks);
    this.titled(page.title || name);
    this.#fillOutline();
    clearTimeout(this.#railTimer);
    this.#railTimer = setTimeout(() => this.#fillLinks(), RAIL_MS);
  }

  // Replaces only the blocks between the first and the last that differ.
  #patch(fresh) {
    const bare = (block) => block.outerHTML?.replaceAll(/ data-lines="[^"]*"/g, "") ?? block.data;
    const old = [...this.#root.childNodes];
    const html = fresh.map(bare);
    const same = (at, to) => this.#html.get(old[at]) === html[to];
    let first = 0, last = 0;
    while (first < Math.min(old.length, fresh.length) && same(first, first)) first += 1;
    while (last < Math.min(old.length, fresh.length) - first && same(old.length - 1 - last, fresh.length - 1 - last)) last += 1;
    for (let at = 0; at < last; at += 1) renumber(old[old.length - 1 - at], fresh[fresh.length - 1 - at]);
    for (const block of old.slice(first, old.length - last)) block.remove();
    const added = fresh.slice(first, fresh.length - last);
    added.forEach((block, at) => this.#html.set(block, html[first + at]));
    if (last) old[old.length - last].before(...added);
    else this.#root.append(...added);
  }

  #rest(page) {
    const beyond = [[page.lines[0] - 1, "Previous part"], [page.lines[1] + 1, "Next part"]].filter(([line]) => line >= 1 && line <= page.of_lines);
    return make("div", { class: "state" },
      make("p", {}, `This document is long. Showing lines ${lineText(page.lines)} of ${page.of_lines.toLocaleString("en")}.`),
      make("div", { class: "buttons" }, ...beyond.map(([line, label]) => documentLink(this.href, this.#shown.name, { lines: [line, line] }, { class: "button" }, label))));
  }

  #showPlace() {
    const { open, lines } = this.#state;
    this.showEditor();
    byId("place").replaceChildren(make("span", { class: "path", title: open }, open), lines ? make("span", { class: "line" }, `:${lineText(lines)}`) : "");
  }

  // The link that opens the document in the editor.
  showEditor() {
    if (!this.#state) return;
    const { open, lines } = this.#state;
    const address = this.editor(open, lines?.[0] ?? 1);
    byId("edit").hidden = !address;
    byId("edit").href = address || "";
  }

  // Marks the blocks of the passage; returns where to scroll to.
  #markPassage() {
    const { lines, at } = this.#state;
    for (const each of this.#root.querySelectorAll(".in-passage")) each.classList.remove("in-passage");
    const found = lines ? this.#blocks(lines) : [];
    for (const each of found) each.classList.add("in-passage");
    return found[0] ?? (at ? this.#target(at) : null);
  }

  // The innermost blocks that contain these lines; the first one after them if they are blank.
  #blocks([first, last]) {
    const all = [...this.#root.querySelectorAll("[data-lines]")].filter((block) => !block.querySelector("[data-lines]") && block.textContent.trim());
    const range = (block) => block.dataset.lines.split("-").map(Number);
    const found = all.filter((block) => range(block)[0] <= last && range(block)[1] >= first);
    return found.length ? found : all.filter((block) => range(block)[0] > last).slice(0, 1);
  }

  #heading(fragment) {
    const wanted = fragment.trim().toLowerCase();
    return this.#shown.page.outline.find((each) => [each.anchor.toLowerCase(), each.text.toLowerCase()].includes(wanted));
  }

  #lineOf(fragment) {
    const { blocks } = this.#shown.page;
    return (fragment.startsWith("^") ? blocks[fragment.slice(1).toLowerCase()] : this.#heading(fragment)?.lines[0]) ?? 0;
  }

  // The target of a link: a heading by anchor or text, a block by its ID, a footnote.
  #target(fragment) {
    const line = this.#lineOf(fragment);
    const id = PREFIX + (this.#heading(fragment)?.anchor ?? fragment);
    return this.#root.querySelector(`[id="${CSS.escape(id)}"]`) ?? (line ? this.#blocks([line, line])[0] : null);
  }

  // Not scrollIntoView, which would scroll the page as well.
  #scrollTo(target, margin = 24) {
    if (!target) { this.#root.scrollTop = 0; return; }
    for (let above = target.closest("details"); above && this.#root.contains(above); above = above.parentElement.closest("details")) above.open = true;
    const above = target.previousElementSibling;
    const first = above && /^H[1-6]$/.test(above.tagName) ? above : target; // include the heading above
    this.#root.scrollTop += first.getBoundingClientRect().top - this.#root.getBoundingClientRect().top - margin;
  }

  #focus(target) {
    const block = target ?? this.#root;
    if (block !== this.#root) block.tabIndex = -1;
    block.focus({ preventScroll: true });
  }

  // The sentence that answers: markup may differ, so only letters and digits are compared.
  #find(sentence) {
    const letters = /[\p{L}\p{N}]/gu;
    const wanted = (sentence.replace(NUMBER, "").match(letters) ?? []).join("");
    if (!wanted) return null;
    const places = [];
    let text = "";
    for (const block of this.#root.querySelectorAll(".in-passage")) {
      const walk = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
      while (walk.nextNode()) for (const { 0: letter, index } of walk.currentNode.data.matchAll(letters)) {
        text += letter;
        while (places.length < text.length) places.push([walk.currentNode, index, index + letter.length]);
      }
    }
    const at = text.indexOf(wanted);
    if (at < 0) return null;
    const first = places[at], last = places[at + wanted.length - 1];
    const range = new Range();
    range.setStart(first[0], first[1]);
    range.setEnd(last[0], last[2]);
    return range;
  }

  // Scrolls on where the sentence that answers is below the window.
  #showAnswer() {
    if (!this.#answer) return;
    const box = this.#answer.getBoundingClientRect(), frame = this.#root.getBoundingClientRect();
    if (box.bottom > frame.bottom) this.#root.scrollTop += box.top - frame.top - frame.height / 3;
  }

  // Words of the query: strong in the passage, weak elsewhere.
  mark() {
    this.#clearMatches();
    const words = this.words();
    if (!words || !this.#shown || !CSS.highlights) return;
    this.#answer = this.#find(this.sentence());
    if (this.#answer) CSS.highlights.set("answer", new Highlight(this.#answer));
    const strong = new Highlight(), weak = new Highlight();
    const walk = document.createTreeWalker(this.#root, NodeFilter.SHOW_TEXT);
    while (walk.nextNode() && this.#matches.length < MAX_MATCHES) {
      const node = walk.currentNode;
      const inside = Boolean(node.parentElement.closest(".in-passage"));
      for (const found of node.data.matchAll(words)) {
        const range = new Range();
        range.setStart(node, found.index);
        range.setEnd(node, found.index + found[0].length);
        (inside ? strong : weak).add(range);
        this.#matches.push(range);
      }
    }
    CSS.highlights.set("strong", strong);
    CSS.highlights.set("weak", weak);
    this.#match = Math.max(0, this.#matches.findIndex((range) => strong.has(range)));
    this.#showMatch();
  }

  #clearMatches() {
    CSS.highlights?.clear();
    this.#matches = [];
    this.#answer = null;
    this.#match = -1;
    byId("matches").hidden = true;
  }

  #showMatch() {
    byId("matches").hidden = !this.#matches.length;
    byId("matches").children[1].textContent = `${this.#match + 1} of ${this.#matches.length}`;
  }

  // Goes to the next or the previous match.
  step(by) {
    if (!this.#matches.length) return;
    this.#match = (this.#match + by + this.#matches.length) % this.#matches.length;
    const range = this.#matches[this.#match];
    CSS.highlights.set("current", new Highlight(range));
    for (let fold = range.startContainer.parentElement.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    const box = range.getBoundingClientRect(), frame = this.#root.getBoundingClientRect();
    if (box.top < frame.top + 40 || box.bottom > frame.bottom - 40) this.#root.scrollTop += box.top - frame.top - frame.height / 3;
    this.#showMatch();
  }

  // The rail

  #fillOutline() {
    const { page, name } = this.#shown;
    const top = Math.min(...page.outline.map((each) => each.level));
    const headings = page.outline.filter((each) => each.level - top < 4).slice(0, 200);
    this.#rail.hidden = false;
    this.#rail.replaceChildren(headings.length > 1
      ? part("Outline", make("ol", { class: "outline" }, ...headings.map((each) => make("li", { class: `level-${each.level - top}` },
        documentLink(this.href, name, { at: each.anchor }, { "data-line": each.lines[0], dir: "auto" }, each.text || "(empty heading)")))))
      : "");
  }

  #markHeading() {
    const links = [...this.#rail.querySelectorAll(".outline a")];
    if (!links.length) return;
    const { top, bottom } = this.#root.getBoundingClientRect();
    const atEnd = this.#root.scrollTop > 0 && this.#root.scrollTop + this.#root.clientHeight > this.#root.scrollHeight - 4;
    const edge = atEnd ? bottom : top + 60;
    const above = links.filter((link) => {
      const heading = this.#root.querySelector(`[id="${CSS.escape(PREFIX + link.dataset.at)}"]`);
      return heading && heading.getBoundingClientRect().top < edge;
    });
    for (const link of links) link.toggleAttribute("aria-current", false);
    const current = above.at(-1) ?? links[0];
    current.setAttribute("aria-current", "location");
    if (this.#rail.scrollHeight > this.#rail.clientHeight) current.scrollIntoView({ block: "nearest" });
  }

  async #fillLinks() {
    const shown = this.#shown;
    if (!shown || !this.#rail.checkVisibility()) return;
    try {
      const [found, { miniature }] = await Promise.all([get(`/api/around/${inPath(shown.name)}`, { signal: this.#controller.signal }), import("./graph.js")]);
      if (this.#shown !== shown) return;
      const { linked, more, related, graph } = found;
      for (const old of this.#rail.querySelectorAll(".links")) old.remove();
      this.#rail.append(
        linked.length ? part("Linked from", make("ul", {}, ...linked.map((each) => make("li", { dir: "auto" },
          documentLink(this.href, each.ref, { lines: [each.line, each.line] }, {}, each.title), make("p", {}, each.sentence)))), more ? make("p", {}, `and ${counted(more, "more", "more")}`) : "") : "",
        related.length ? part("Related", make("ul", {}, ...related.map((each) => make("li", { dir: "auto" }, documentLink(this.href, each.ref, {}, {}, each.title))))) : "",
        graph.nodes.length > 2 ? part("Neighbourhood", miniature(graph, { href: this.href }), make("a", { class: "to-graph", href: this.href({ graph: shown.name }), "data-graph": shown.name }, "Open the graph")) : "");
    } catch { /* the document is shown without them */ }
  }
}

const part = (title, ...content) => make("section", { class: title === "Outline" ? "" : "links" }, make("h2", {}, title), ...content);

function facts(page, href) {
  return make("p", { class: "facts" }, ...page.tags.map((tag) => make("a", { class: "tag", href: href({ tag: [tag], documents: true, q: "" }), "data-tag": tag }, `#${tag}`)),
    make("time", { title: "Date of the document, or the file's modification time" }, dateText(page.dated)));
}

// Blocks that only moved get new line numbers.
function renumber(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  const numbered = (root) => [root, ...root.querySelectorAll("[data-lines]")].filter((each) => each.dataset.lines);
  const lines = numbered(fresh);
  numbered(old).forEach((each, at) => { if (lines[at]) each.dataset.lines = lines[at].dataset.lines; });
}

// The server has sanitised the HTML; here links, images, tables and code are adapted.
function elements(html, href) {
  const body = new DOMParser().parseFromString(html, "text/html").body;
  for (const link of body.querySelectorAll("a")) adaptLink(link, href);
  for (const image of body.querySelectorAll("img")) adaptImage(image);
  for (const box of body.querySelectorAll("[data-image]")) adaptBox(box);
  for (const file of body.querySelectorAll("[data-file]")) { file.className = "file"; file.prepend(make("span", { class: "label" }, file.dataset.file), " "); }
  for (const table of body.querySelectorAll("table")) wrap(table, "wide", "Table");
  for (const code of body.querySelectorAll("pre")) {
    const frame = wrap(code, "code", "");
    code.tabIndex = 0;
    frame.append(make("button", { type: "button", class: "copy-code quiet", "aria-label": "Copy code" }, "Copy"));
    if (code.dataset.language) frame.dataset.language = code.dataset.language;
  }
  for (const block of body.querySelectorAll(DIRECTED)) block.dir ||= "auto";
  // For `auto`, text in elements with a direction of their own does not count.
  for (const block of body.querySelectorAll("[data-callout], blockquote, details")) if (FROM_RIGHT.test(block.textContent)) block.dir = "rtl";
  return [...body.childNodes].filter((node) => node.nodeType !== Node.TEXT_NODE || node.data.trim());
}

function adaptLink(link, href) {
  const address = link.getAttribute("href");
  if (!address) {
    link.title = "Broken link";
  } else if (address.startsWith(INSIDE)) {
    const [path, fragment = ""] = address.slice(INSIDE.length).split("#").map(decoded);
    link.removeAttribute("target");
    link.dataset.open = path;
    if (fragment) link.dataset.at = fragment;
    link.setAttribute("href", href({ open: path, at: fragment }));
  } else if (address.startsWith("/api/attachments/")) {
    link.removeAttribute("target");
    link.dataset.file ??= address.split(".").at(-1).toLowerCase();
  } else if (!address.startsWith("/api/files/")) {
    link.classList.add("outside");
  }
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function adaptImage(image) {
  image.loading = "lazy";
  image.decoding = "async";
  image.addEventListener("error", () => { const box = make("span", { "data-image": "" }, image.alt); image.replaceWith(box); adaptBox(box); });
}

// An image that is missing, or on another machine, where a request would tell that the document is read.
function adaptBox(box) {
  const host = box.dataset.image, address = box.dataset.src ?? "";
  const text = box.textContent;
  box.className = "image";
  box.replaceChildren(make("span", { class: "label" }, host ? `Image on ${host}` : "Image not found"), text ? ` ${visible(text)}` : "");
  if (host && /^https?:/.test(address) && !box.closest("a")) {
    const link = make("a", { class: "image", href: address, target: "_blank", rel: "noopener noreferrer" }, ...box.childNodes);
    box.replaceWith(link);
  }
}

// What is wide scrolls in its own frame, by keyboard too, instead of the page.
function wrap(element, kind, label) {
  const frame = make("div", { class: kind, ...(label ? { tabindex: "0", role: "group", "aria-label": label } : {}) });
  element.replaceWith(frame);
  frame.append(element);
  return frame;
}
