// Query terms in a passage: cut the snippet and mark the terms in it.

import { make } from "./dom.js";
import { visible } from "./escaping.js";

const STOP_WORDS = new Set(("a an and are as at be by can do does for from has have how i if in into is it its me my no not of on or our " +
  "should so than that the their then there these they this to us was we were what when where which who whom whose why will with would you your").split(" "));
const ENDING = /(?:ations?|ments?|ings?|ies|ied|ers?|ed|es|ly|s|e|y)$/;
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]/u;

// Terms are marked with any ending: "caching" marks "cache" too.
export function pattern(...texts) {
  const stems = new Set();
  for (const word of texts.join(" ").toLowerCase().replace(/\b\w+:/g, " ").match(/[\p{L}\p{N}_]+/gu) ?? []) {
    if (UNSPACED.test(word)) for (const [index] of [...word].entries()) stems.add(word.slice(index, index + 2));
    else if (!STOP_WORDS.has(word) && word.length > 1) stems.add(word.length > 4 ? shortened(word) : word);
  }
  const written = [...stems].filter((each) => each.length > 1).slice(0, 60).sort((one, other) => other.length - one.length);
  if (!written.length) return null;
  const any = written.map((stem) => (UNSPACED.test(stem) ? stem : `(?<![\\p{L}\\p{N}])${stem}[\\p{L}\\p{N}]{0,${stem.length > 3 ? 5 : 2}}(?![\\p{L}\\p{N}])`));
  return new RegExp(any.join("|"), "giu");
}

function shortened(word) {
  const stem = word.replace(ENDING, "");
  return stem.length >= 3 ? stem : word;
}

export function marked(given, words) {
  if (!words) return [given];
  const text = visible(given); // before splitting: escaping depends on the preceding character
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(words)) {
    if (found.index > at) parts.push(new Text(text.slice(at, found.index)));
    parts.push(make("mark", {}, new Text(found[0])));
    at = found.index + found[0].length;
  }
  return [...parts, new Text(text.slice(at))];
}

// Strips Markdown syntax for excerpts.
export function plain(markdown) {
  return markdown
    .replace(/^[ \t]*(?:```|~~~).*$/gm, "")
    .replace(/^[ \t]*(?:\/\/\/|:::|\{\*|\{%).*$/gm, "") // admonitions and includes of documentation sites
    .replace(/<!--[^]*?-->/g, "")
    .replace(/^[ \t]{0,3}#{1,6}[ \t]+/gm, "")
    .replace(/!?\[([^\]\n]*)\]\([^)\n]*\)/g, "$1")
    .replace(/!\[\[([^\]|\n]*)\|[\dx]+\]\]/g, "$1") // without the size of an image
    .replace(/!?\[\[(?:[^\]|\n]*\|)?([^\]\n]*)\]\]/g, "$1")
    .replace(/(\*\*|__|~~)(?=\S)([^\n]{1,300}?)\1/g, "$2")
    .replace(/(^|[\s(])[*_](?=\S)([^*_\n]{1,300})[*_](?=[\s).,;:!?]|$)/gm, "$1$2")
    .replace(/`([^`\n]+)`/g, "$1")
    .replace(/<\/?[a-z][^<>\n]{0,300}>/gi, "")
    .replace(/^[ \t]*>[ \t]?/gm, "")
    .replace(/^([ \t]*)[-*+][ \t]+/gm, "$1• ")
    .replace(/\s*\{[#:][^}\n]*\}/g, "")
    .replace(/\n{2,}/g, "\n")
    .trim();
}

// The part of a text with the most query terms, from the start of a sentence or line.
export function snippet(text, words, room) {
  if (text.length <= room * 1.15) return text;
  const places = words ? [...text.matchAll(words)].map((found) => found.index) : [];
  let best = 0, most = -1;
  for (const from of [0, ...places]) {
    const inside = places.filter((place) => place >= from && place < from + room * 0.8).length;
    if (inside > most) [best, most] = [from, inside];
  }
  let start = 0;
  for (const found of text.slice(0, best + 1).matchAll(/(?:[.!?:]\s+|\n)(?=\S)/g)) {
    if (found.index + found[0].length <= best) start = found.index + found[0].length;
  }
  if (best - start > room * 0.5) start = Math.max(0, text.lastIndexOf(" ", best - 40) + 1);
  let end = Math.min(text.length, start + room);
  if (end < text.length) end = Math.max(start + room * 0.7, text.lastIndexOf(" ", end));
  return `${start ? "… " : ""}${text.slice(start, end).trim()}${end < text.length ? " …" : ""}`;
}

export function codeSnippet(text, words, most) {
  const lines = text.split("\n").filter((line, at, all) => !/^\s*(?:```|~~~)/.test(line) && (line.trim() || (at && all[at - 1].trim())));
  const at = words ? lines.findIndex((line) => line.search(words) >= 0) : 0;
  const first = Math.max(0, Math.min(at - 1, lines.length - most));
  return lines.slice(first, first + most).join("\n").trimEnd();
}
