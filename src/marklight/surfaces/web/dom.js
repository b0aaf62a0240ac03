// Creates DOM elements; strings become text nodes, never markup, with invisible characters escaped.

const READABLE = ["aria-label", "title"]; // attributes that people read

export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : READABLE.includes(name) ? visible(value) : value);
  }
  const given = children.filter((each) => each !== null && each !== undefined);
  element.append(...given.map((each) => (typeof each === "string" ? visible(each) : each)));
  return element;
}

export const counted = (number, singular, plural = `${singular}s`) => `${number.toLocaleString("en")} ${number === 1 ? singular : plural}`;

export const lineText = ([first, last]) => (first === last ? `${first}` : `${first}–${last}`);

export const sentence = (text) => {
  const whole = (text ?? "").trim();
  return whole ? whole[0].toUpperCase() + whole.slice(1) + (/[.!?…]$/.test(whole) ? "" : ".") : "";
};

// The date that filters use, in UTC: in another time zone, the day of a document could change.
export function dateText(value) {
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric", timeZone: "UTC" });
}

// A link that opens a document in the reader; `main.js` handles the click.
export function documentLink(href, name, { lines = null, at = "" } = {}, attributes = {}, ...content) {
  return make("a", { href: href({ open: name, lines, at }), "data-open": name, "data-lines": lines?.join("-"), "data-at": at || null, ...attributes }, ...content);
}

// The name of a document in links: with its collection, if there are several.
export const nameOf = ({ path, collection, ref }) => (ref?.startsWith(`${collection}/${path}`) ? `${collection}/${path}` : path);

let told = 0;
// A short message at the bottom of the page, for keys that change nothing visible.
export function tell(text) {
  byId("toast")?.remove();
  clearTimeout(told);
  const toast = make("p", { id: "toast", role: "status" }, text);
  document.body.append(toast);
  told = setTimeout(() => toast.remove(), 2500);
}

export async function copy(text, what = "reference") {
  tell((await copied(text)) ? `Copied ${what}` : "Copying failed");
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // The clipboard API is not available over plain HTTP from another machine.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "visually-hidden";
    document.body.append(field);
    const focused = document.activeElement;
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return done;
  }
}

// Characters that reorder text or hide it are escaped by the rule of formatting.py; a test compares the two.

const CONTROLS = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u2028\\u2029";
const BIDI = "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069";
const TAGS = "\\u{e0000}-\\u{e007f}";
const INVISIBLE = "\\u200c\\u200d\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}\\xad\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u2060-\\u2065"
  + "\\u206a-\\u206f\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0080}-\\u{e00ff}\\u{e01f0}-\\u{e0fff}";
const tags = (region) => [...region].map((letter) => String.fromCodePoint(0xe0000 + letter.codePointAt(0))).join("");
const FLAGS = ["gbeng", "gbsct", "gbwls"].map((region) => `\u{1f3f4}${tags(region)}\u{e007f}`).join("|");
const HIDDEN = new RegExp(
  `(${FLAGS})|[${CONTROLS}${BIDI}${TAGS}]|(?:^|(?<=[\\s${CONTROLS}${BIDI}${TAGS}${INVISIBLE}]))(?!(?<=\\ufe0f)\\u200d)[${INVISIBLE}]`, "gu");

// Returns `\x1b`, `\u202e` or `\U000e0041`.
function escaped(character) {
  const code = character.codePointAt(0);
  if (character === "\r") return "\\r";
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
}

export const visible = (text) => text.replace(HIDDEN, (found, flag) => flag ?? escaped(found));
