// HTML of a document as elements: internal links open in the pane, passages are found by line.

import { make } from "./dom.js";

const INSIDE = "marklight:";
const PREFIX = "part-"; // prefix of ids in documents, so that they cannot collide with ours

// The server has sanitized the HTML; here links and images are adapted.
export function elements(html, href) {
  const body = new DOMParser().parseFromString(html, "text/html").body;
  for (const link of body.querySelectorAll("a")) adaptLink(link, href);
  for (const image of body.querySelectorAll("img")) image.replaceWith(placeholder(image));
  for (const table of body.querySelectorAll("table")) makeScrollable(table);
  for (const code of body.querySelectorAll("pre")) code.tabIndex = 0;
  return [...body.childNodes];
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
  } else {
    link.classList.add("outside");
  }
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

// Images are not loaded; their description is shown instead.
function placeholder(image) {
  const description = image.getAttribute("alt");
  return make("span", { class: "image", role: "img", "aria-label": description ? `Image: ${description}` : "Image" },
    make("span", { class: "label" }, "Image"), description || "no description");
}

// A wide table scrolls in its own frame, by keyboard too, instead of the page.
function makeScrollable(table) {
  const frame = make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" });
  table.replaceWith(frame);
  frame.append(table);
}

// The innermost blocks that contain these lines; the first one after them if they are blank.
export function blocks(root, [first, last]) {
  const all = [...root.querySelectorAll("[data-lines]")].filter((block) => !block.querySelector("[data-lines]") && block.textContent.trim());
  const range = (block) => block.dataset.lines.split("-").map(Number);
  const found = all.filter((block) => range(block)[0] <= last && range(block)[1] >= first);
  return found.length ? found : all.filter((block) => range(block)[0] > last).slice(0, 1);
}

// The heading that a fragment means, by anchor or text.
function heading(page, fragment) {
  const wanted = fragment.trim().toLowerCase();
  return page.outline.find((each) => [each.anchor.toLowerCase(), each.text.toLowerCase()].includes(wanted));
}

// The line of the target of a link, 0 if it is unknown.
export function lineOf(page, fragment) {
  return (fragment.startsWith("^") ? page.blocks[fragment.slice(1).toLowerCase()] : heading(page, fragment)?.lines[0]) ?? 0;
}

// The target of a link: a heading by anchor or text, a block by its ID.
export function place(root, page, fragment) {
  const line = lineOf(page, fragment);
  const id = PREFIX + (heading(page, fragment)?.anchor ?? fragment);
  return root.querySelector(`[id="${CSS.escape(id)}"]`) ?? (line ? blocks(root, [line, line])[0] : null);
}
