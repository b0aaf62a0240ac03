// Mark query terms in a passage.

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
