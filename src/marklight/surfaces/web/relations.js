// Outline, links and related documents as lists.

import { counted, make } from "./dom.js";
import { breakable } from "./results.js";

export function outline(page, href, name) {
  if (!page.outline.length) return [make("p", { class: "soft" }, "This document has no headings.")];
  const top = Math.min(...page.outline.map((each) => each.level));
  return [make("ol", { class: "outline" }, ...page.outline.map((each) =>
    make("li", { class: `level-${Math.min(5, each.level - top)}` },
      make("a", { href: href({ open: name, at: each.anchor }), "data-open": name, "data-at": each.anchor }, each.text || "(empty heading)"),
      make("span", { class: "lines" }, each.lines[0]))))];
}

export function links(found, related, href, several) {
  const named = (each) => (several ? `${each.collection}/${each.path}` : each.path);
  const to = (each, at = "") => make("a", { href: href({ open: named(each), at }), "data-open": named(each), "data-at": at || null }, ...breakable(named(each)));
  const one = (each, at, ...notes) => make("li", {}, to(each, at), ...notes.filter(Boolean).map((text) => make("span", { class: "soft" }, text)));
  const parts = [
    part("Linked from", grouped(found.in, named).map(([each, times]) => one(each, "", quoted(each.text), times > 1 ? `${times} times` : "")), found.more.in, "No other document links here."),
    part("Links to", grouped(found.out, (each) => `${named(each)}#${each.fragment}`).map(([each]) => one(each, each.fragment, quoted(each.text))), found.more.out, "This document links to no other document."),
    part("Related", related.related.map((each) => make("li", {}, to(each), make("span", { class: "soft" }, each.reasons.join("; ")))), 0, "No related documents found by links, tags or meaning."),
  ];
  if (found.unresolved.length) {
    parts.push(part("Broken links", found.unresolved.map((each) =>
      make("li", {}, make("code", {}, each.target), make("span", { class: "soft" }, `line ${each.line}`))), found.more.unresolved));
  }
  return parts;
}

function part(title, items, more, none = "") {
  const rest = more ? make("p", { class: "soft" }, `and ${counted(more, "more", "more")}`) : null;
  return make("section", {}, make("h3", {}, title, items.length ? make("span", { class: "count" }, items.length + (more ?? 0)) : null),
    items.length ? make("ul", { class: "relations" }, ...items) : make("p", { class: "soft" }, none), rest);
}

function grouped(all, key) {
  const found = new Map();
  for (const each of all) found.set(key(each), [each, (found.get(key(each))?.[1] ?? 0) + 1]);
  return [...found.values()];
}

const quoted = (text) => (text ? `“${text}”` : "");
