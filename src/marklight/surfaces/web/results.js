// The list of results: sections by verdict, passages grouped by document, a menu with details for each.

import { get } from "./api.js";
import { byId, copy, counted, dateText, documentLink, make, nameOf } from "./dom.js";
import { marked, pattern } from "./search.js";

const SECTIONS = [["answers", "Answers"], ["mentions", "Also mentions"], ["weak", "Weak matches"]];
const SHOWN_PER_DOCUMENT = 3;
const SNIPPET = 98; // characters: about two lines

export class Results {
  #list = byId("results");
  #current = {};
  #hits = [];

  constructor({ href, explain, omitted }) {
    Object.assign(this, { href, explain, omitted });
  }

  show(hits, answer, { named = [] }) {
    const words = (this.words = pattern(answer.query.text, ...answer.query.expanded_with));
    this.#hits = [...hits];
    const judged = hits.some((hit) => hit.verdict);
    const parts = judged
      ? SECTIONS.map(([verdict, title]) => [title, hits.filter((hit) => hit.verdict === verdict), verdict])
      : [["", hits, "ranked"]];
    this.#replace([
      named.length ? section("Documents", "named", named.map((each) => this.#name(each))) : null,
      ...parts.map(([title, some, kind], at) => (some.length ? this.#section(title, kind, some, words, kind === "weak" && parts.slice(0, at).some(([, before]) => before.length)) : null)),
    ]);
  }

  list(listing) {
    const words = (this.words = pattern(listing.query.text, ...listing.query.expanded_with));
    this.#hits = listing.documents.map((found) => ({ ...found, headings: [], snippet: "", highlight: [0, 0] }));
    this.#replace([section("", "listed", listing.documents.map((found) => {
      const name = nameOf(found);
      return row(documentLink(this.href, name, { lines: found.lines }, { class: "row" },
        make("span", { class: "title", dir: "auto" }, make("span", { class: "end" }, found.title || found.path)),
        make("span", { class: "place" }, path(name), make("span", {}, [counted(found.passages, "passage"), dateText(found.dated)].filter(Boolean).join(" · ")))));
    }))], words);
  }

  clear() {
    this.#hits = [];
    this.#list.replaceChildren();
  }

  // Keeps the focus in the list if it was there.
  #replace(sections) {
    const focused = this.#list.contains(document.activeElement) ? this.links().indexOf(document.activeElement) : -1;
    const open = document.activeElement?.dataset?.open;
    this.#list.replaceChildren(...sections.filter(Boolean));
    if (focused >= 0) (this.links().find((link) => link.dataset.open === open) ?? this.links()[Math.min(focused, this.links().length - 1)])?.focus();
    this.mark(this.#current.open, this.#current.lines);
  }

  #section(title, kind, hits, words, folded) {
    const groups = new Map();
    for (const hit of hits) groups.set(nameOf(hit), [...(groups.get(nameOf(hit)) ?? []), hit]);
    const rows = [...groups].flatMap(([name, group]) => {
      const items = group.map((hit, at) => this.#row(hit, words, group[at - 1]));
      const rest = items.slice(SHOWN_PER_DOCUMENT);
      // Once for a document that is in two sections.
      const all = this.#hits.filter((hit) => nameOf(hit) === name);
      const omitted = all[0] === group[0] ? Math.max(...all.map((hit) => hit.more)) : 0;
      if (!rest.length && !omitted) return items;
      const more = row(make("button", { type: "button", class: "quiet more-here", click: async () => {
        const hits = omitted ? await this.omitted(all, omitted).catch(() => []) : [];
        this.#hits.push(...hits);
        more.replaceWith(...rest, ...hits.map((hit) => this.#row(hit, words, group.at(-1))));
      } }, `${rest.length + omitted} more here`));
      return [...items.slice(0, SHOWN_PER_DOCUMENT), more];
    });
    return section(title, kind, rows, folded ? counted(hits.length, "passage") : "");
  }

  // `above`: the passage of the same document before this one.
  #row(hit, words, above) {
    const inner = Boolean(above);
    const name = nameOf(hit);
    const trail = hit.headings.length ? hit.headings : [hit.title || hit.path];
    const whole = trail[0] === hit.title || !hit.title ? trail : [hit.title, ...trail];
    const shown = inner ? whole.slice(-1) : whole;
    const repeated = inner && String(above.headings) === String(hit.headings);
    const title = make("span", { class: "title", dir: "auto", title: whole.join(" › ") },
      shown.length > 1 ? make("span", { class: "start" }, shown[0]) : null,
      shown.length > 1 ? make("span", { class: "gap", "aria-hidden": "true" }, shown.length > 2 ? " › … › " : " › ") : null,
      make("span", { class: "end" }, shown.at(-1) || hit.path));
    const item = row(documentLink(this.href, name, { lines: hit.lines }, { class: inner ? "row inner" : "row" },
      repeated ? null : title,
      make("span", { class: hit.kind === "code" || hit.kind === "table" ? "snippet code" : "snippet", dir: "auto" }, ...marked(cut(part(hit.snippet, hit.highlight[0])), words)),
      make("span", { class: "place" }, ...(inner ? [make("span", { class: "line" }, `line ${hit.lines[0]}`)] : [path(name), make("span", { class: "line" }, `:${hit.lines[0]}`)]))));
    item.dataset.id = hit.chunk_id;
    item.append(this.#menu(hit, name));
    return item;
  }

  #menu(hit, name) {
    const body = make("div", { class: "popover" });
    const menu = make("details", { class: "menu" }, make("summary", { "aria-label": `Details of ${hit.title || name}` }, "⋯"), body);
    menu.addEventListener("toggle", () => {
      if (!menu.open || body.childNodes.length) return;
      const score = hit.verdict ? `${Math.round(hit.score * 100)} % likely relevant` : "Ranked, not calibrated";
      body.append(
        make("p", { class: "score" }, [score, hit.kind, dateText(hit.dated)].filter(Boolean).join(" · ")),
        make("p", {},
          make("button", { type: "button", class: "quiet", click: () => copy(reference(name, hit.lines)) }, "Copy reference"),
          make("button", { type: "button", class: "quiet", click: () => copy(quotation(hit, name), "quotation") }, "Copy quotation"),
          make("button", { type: "button", class: "quiet why", click: (event) => this.#why(hit, event.currentTarget) }, "Why")),
        this.#places("Similar", hit.similar), this.#places("Linked", hit.linked));
    });
    return menu;
  }

  async #why(hit, button) {
    button.disabled = true;
    const [explained, legend] = await Promise.all([this.explain(hit), get("/page/legend.json")]).catch(() => []);
    button.parentElement.after(explained?.why.length ? trace(explained.why, legend) : make("p", {}, "This passage is no longer among the results."));
  }

  #places(title, passages) {
    if (!passages?.length) return "";
    return make("div", {}, make("p", { class: "label" }, title), make("ul", { class: "places" }, ...passages.map((each) =>
      make("li", {}, documentLink(this.href, nameOf(each), { lines: each.lines }, {}, each.title || each.path)))));
  }

  #name({ ref, title }) {
    return row(documentLink(this.href, ref, {}, { class: "row" },
      make("span", { class: "title", dir: "auto" }, make("span", { class: "end" }, title || ref.split("/").at(-1))),
      make("span", { class: "place" }, path(ref))));
  }

  // Marks the result that is open in the reader.
  mark(open = "", lines = null) {
    this.#current = { open, lines };
    const links = this.links();
    const here = open ? (links.find((link) => link.dataset.open === open && link.dataset.lines === lines?.join("-")) ?? links.find((link) => link.dataset.open === open && !lines)) : null;
    for (const link of links) link.toggleAttribute("aria-current", false);
    here?.setAttribute("aria-current", "true");
    return here;
  }

  hit({ open, lines }) {
    return this.#hits.find((hit) => nameOf(hit) === open && String(hit.lines) === String(lines));
  }

  links() {
    return [...this.#list.querySelectorAll("a.row")].filter((link) => link.checkVisibility());
  }

  get current() {
    return this.#list.querySelector("a.row[aria-current]");
  }

  // The result `step` after the one that is focused or open.
  next(step) {
    const links = this.links();
    const own = links.indexOf(links.find((link) => link === document.activeElement) ?? this.current);
    return links[Math.max(0, Math.min(links.length - 1, own + step))] ?? null;
  }
}

// Positions are of characters, as in Python.
const part = (text, first, last) => [...text].slice(first, last).join("");

// The sentence of a result that answers; empty if none has a word of the query.
export const answerOf = (hit) => part(hit.snippet, ...hit.highlight);

export const reference = (name, lines) => (lines ? `${name}:${lines.join("-")}` : name);

export const quotation = (hit, name) => `${hit.content.trim().split("\n").map((line) => `> ${line}`).join("\n")}\n>\n> — ${hit.title || name}, ${reference(name, hit.lines)}\n`;

const row = (...content) => make("li", {}, ...content);

// How a score was computed: features, weights and stages, as `--explain` prints them.
const trace = (steps, legend) => make("table", { class: "trace" }, make("caption", { class: "visually-hidden" }, "How the score of this passage was computed"),
  make("tbody", {}, ...steps.map(({ stage, value }) => make("tr", { title: stage }, make("th", { scope: "row" }, legend[stage] ?? stage.replaceAll("_", " ")),
    make("td", {}, value.toFixed(Math.abs(value) >= 10 ? 1 : 3))))));

function section(title, kind, rows, folded = "") {
  const list = make("ol", {}, ...rows);
  if (folded) return make("details", { class: `section ${kind}` }, make("summary", {}, make("h2", {}, title), make("span", {}, folded)), list);
  return make("section", { class: `section ${kind}` }, title ? make("h2", {}, title) : null, list);
}

// The folders of a path are elided before its name.
function path(name) {
  const at = name.lastIndexOf("/") + 1;
  return make("span", { class: "path" }, make("span", { class: "folders" }, name.slice(0, at)), make("span", {}, name.slice(at)));
}

// Running text that ends with a sentence, or with a word and an ellipsis; an ellipsis before it if it begins within a sentence.
function cut(snippet) {
  const text = snippet.replace(/\s+/g, " ").trim();
  const whole = text.replace(/^… /, "").replace(/ …$/, "").replace(/^(?=\p{Ll}[\p{Ll}\d]* )/u, "… ");
  if (whole.length <= SNIPPET) return whole.length < text.length && !/[.!?]$/.test(whole) ? `${whole} …` : whole;
  const end = whole.slice(0, SNIPPET).search(/[.!?](?!.*[.!?]\s)\s/);
  if (end > SNIPPET / 2) return whole.slice(0, end + 1);
  return `${whole.slice(0, whole.lastIndexOf(" ", SNIPPET)).replace(/[\s.,;:–-]+$/, "")} …`;
}
