// Escapes characters that reorder text or hide it, by the rule of escaping.py; a test compares the two.

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
