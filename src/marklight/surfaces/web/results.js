// The list of results, and keyboard navigation in it.

import { byId, counted, make } from "./dom.js";
import { bar } from "./score.js";
import { why } from "./explain.js";
import { marked, pattern } from "./highlighting.js";

export class Results {
  #list = byId("results");
  #unfolded = new Set();
  #current = {};

  constructor({ href, copy }) {
    this.href = href;
    this.copy = copy;
    this.#list.addEventListener("keydown", (event) => this.#move(event));
  }

  show(hits, answer, { calibrated, complete, several, nearest = false }) {
    const words = pattern(answer.query.text, ...answer.query.expanded_with);
    const focused = document.activeElement?.closest?.("#results > li");
    const at = [...this.#list.children].indexOf(focused);
    this.#list.classList.toggle("nearest", nearest);
    this.#list.replaceChildren(...hits.map((hit) => this.#item(hit, words, bar(hit.score, calibrated, complete), several, complete && !nearest)));
    // Keep the focus in the list if it was there.
    if (focused) (this.#list.querySelector(`li[data-id="${CSS.escape(focused.dataset.id)}"] h3 a`) ?? this.#links()[at] ?? this.#links().at(-1))?.focus();
    this.mark(this.#current.open, this.#current.lines);
  }

  // One line for each document, with the number of its passages that match.
  list(listing, { calibrated, several }) {
    const words = pattern(listing.query.text, ...listing.query.expanded_with);
    this.#list.classList.remove("nearest");
    this.#list.replaceChildren(...listing.documents.map((found) => {
      const name = several ? `${found.collection}/${found.path}` : found.path;
      return make("li", { class: "listed", "data-id": found.chunk_id },
        make("h3", {}, this.#link(name, found.lines, ...marked(found.title || found.path, words))),
        make("p", { class: "place" },
          make("span", { class: "path" }, ...breakable(name)),
          make("span", {}, counted(found.passages, "passage")),
          dated(found),
          found.score === null || !calibrated ? null : make("span", {}, `${Math.round(found.score * 100)} %`),
          found.match === "meaning" ? make("span", {}, "by meaning") : null));
    }));
    this.mark(this.#current.open, this.#current.lines);
  }

  // The passages shown are the closest ones, although none is a confident match.
  get nearest() {
    return this.#list.classList.contains("nearest");
  }

  clear() {
    this.#list.replaceChildren();
  }

  // Mark the result that is open in the pane.
  mark(open = "", lines = null) {
    this.#current = { open, lines };
    for (const link of this.#list.querySelectorAll("a[data-open]")) {
      const here = open && link.dataset.open === open && link.dataset.lines === lines?.join("-");
      if (here) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  focusFirst() {
    this.#links()[0]?.focus();
    return this.#list.children.length > 0;
  }

  focusCurrent() {
    const current = this.#list.querySelector("[aria-current]") ?? this.#links()[0];
    current?.focus();
    return Boolean(current);
  }

  #links() {
    return [...this.#list.querySelectorAll("h3 a")];
  }

  #move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey || event.target.closest(".wide")) return;
    const links = this.#links();
    const item = event.target.closest("#results > li");
    const own = links.findIndex((link) => item?.contains(link));
    const at = step < 0 && event.target !== links[own] ? own : own + step; // up from a part of a result: to its title
    event.preventDefault();
    if (at < 0) byId("q").focus();
    else links[Math.min(at, links.length - 1)].focus();
  }

  #item(hit, words, score, several, withLinked) {
    const name = several ? `${hit.collection}/${hit.path}` : hit.path;
    const reference = `${name}:${hit.lines.join("-")}`;
    const trail = hit.headings.length ? hit.headings : [hit.title];
    const shown = trail.at(-1) || hit.title || hit.path;
    const above = (trail[0] === hit.title || !hit.title ? trail : [hit.title, ...trail]).slice(0, -1);
    return make("li", { "data-id": hit.chunk_id },
      make("p", { class: "place" }, make("span", { class: "path" }, ...breakable(name)), make("span", { class: "lines" }, lineText(hit.lines))),
      make("h3", {}, this.#link(name, hit.lines,
        ...above.flatMap((each) => [make("span", { class: "above" }, each), make("span", { class: "above", "aria-hidden": "true" }, " › ")]),
        ...marked(shown, words))),
      this.#passage(hit, words),
      make("div", { class: "below" },
        score,
        hit.kind === "prose" ? null : make("span", {}, hit.kind),
        dated(hit),
        make("button", { type: "button", class: "quiet", "aria-label": `Copy reference ${reference}`, click: (event) => this.copy(reference, event.currentTarget) }, "Copy"),
        hit.similar.length ? this.#unfoldable("similar", `+${hit.similar.length} similar`, hit, this.#places(hit.similar, several)) : null,
        hit.why.length ? this.#unfoldable("why", "Why", hit, why(hit)) : null),
      withLinked && hit.linked.length ? this.#linked(hit, several) : null);
  }

  #link(name, lines, ...content) {
    return make("a", { href: this.href({ open: name, lines }), "data-open": name, "data-lines": lines.join("-") }, ...content);
  }

  // Documents one link away from a result, in either direction, that are no results themselves.
  #linked(hit, several) {
    const id = `linked-${hit.chunk_id}`;
    return make("div", { class: "linked" }, make("p", { id }, "Linked with this result"), this.#places(hit.linked, several, id));
  }

  #places(passages, several, labelledBy = null) {
    return make("ul", { class: "places", "aria-labelledby": labelledBy }, ...passages.map((each) => {
      const name = several ? `${each.collection}/${each.path}` : each.path;
      return make("li", {}, this.#link(name, each.lines, each.title || each.path), " ",
        make("span", { class: "path" }, ...breakable(name)), " ", make("span", { class: "lines" }, lineText(each.lines)));
    }));
  }

  #passage(hit, words) {
    return make(hit.kind === "code" || hit.kind === "table" ? "pre" : "p", { class: "passage" }, ...marked(hit.snippet, words));
  }

  // Stays unfolded when the list is shown again.
  #unfoldable(kind, summary, hit, content) {
    const details = make("details", { class: kind }, make("summary", {}, summary), content);
    const key = `${kind} ${hit.chunk_id}`;
    details.open = this.#unfolded.has(key);
    details.addEventListener("toggle", () => this.#unfolded[details.open ? "add" : "delete"](key));
    return details;
  }
}

export const lineText = ([first, last]) => (first === last ? `line ${first}` : `lines ${first}–${last}`);

// Allow line breaks after slashes only.
export const breakable = (path) => path.split("/").flatMap((part, at, all) => (at < all.length - 1 ? [`${part}/`, make("wbr")] : [part]));

// The date that filters use, in UTC: in another time zone, the day of a document could change.
export function dated({ dated }) {
  const date = new Date(dated);
  const day = Number.isNaN(date.getTime()) ? "" : date.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric", timeZone: "UTC" });
  return make("time", { datetime: dated, title: "Date of the document, or the file's modification time" }, day);
}
