// A document's HTML as elements: its links lead on inside the page, its passage is marked.

import { make } from "./dom.js";

const INSIDE = "marklight:";
const PREFIX = "part-"; // before every id, so that none in a document can take the place of ours

// The server has made it harmless; here it only learns where it is.
export function elements(html, href) {
  const body = new DOMParser().parseFromString(html, "text/html").body;
  for (const link of body.querySelectorAll("a")) lead(link, href);
  for (const image of body.querySelectorAll("img")) image.replaceWith(instead(image));
  for (const table of body.querySelectorAll("table")) wide(table);
  for (const code of body.querySelectorAll("pre")) code.tabIndex = 0;
  return [...body.childNodes];
}

function lead(link, href) {
  const address = link.getAttribute("href");
  if (!address) {
    link.title = "Leads to nothing in this library";
  } else if (address.startsWith(INSIDE)) {
    const [path, fragment = ""] = address.slice(INSIDE.length).split("#").map(decoded);
    link.removeAttribute("target");
    link.dataset.open = path;
    if (fragment) link.dataset.at = fragment;
    link.setAttribute("href", href({ open: path, at: fragment }));
  } else {
    link.classList.add("outside");
  }
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

// Nothing is loaded because a document says so; what the picture shows is told in words.
function instead(image) {
  const said = image.getAttribute("alt");
  return make("span", { class: "image", role: "img", "aria-label": said ? `Image: ${said}` : "Image" },
    make("span", { class: "label" }, "Image"), said || "without a description");
}

// A wide table scrolls by itself, by keys too; the page never does so sideways.
function wide(table) {
  const frame = make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" });
  table.replaceWith(frame);
  frame.append(table);
}

// The blocks of these lines, the smallest that say so.
export function blocks(root, [first, last]) {
  return [...root.querySelectorAll("[data-lines]")].filter((block) => {
    const [from, to] = block.dataset.lines.split("-").map(Number);
    return from <= last && to >= first && !block.querySelector("[data-lines]") && block.textContent.trim();
  });
}

// A heading by its anchor or its words, a block by its name: all that links know.
export function place(root, page, fragment) {
  if (fragment.startsWith("^")) {
    const line = page.blocks[fragment.slice(1).toLowerCase()];
    return line ? blocks(root, [line, line])[0] : null;
  }
  const wanted = fragment.trim().toLowerCase();
  const heading = page.outline.find((each) => [each.anchor.toLowerCase(), each.text.toLowerCase()].includes(wanted));
  const id = PREFIX + (heading?.anchor ?? fragment);
  return root.querySelector(`[id="${CSS.escape(id)}"]`) ?? (heading ? blocks(root, [heading.lines[0], heading.lines[0]])[0] : null);
}
