"""What a passage says, freed of the signs it is written with; code stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]]{0,2000})\]\([^()\s]{0,2000}(?:\s\"[^\"\n]{0,500}\")?\)")
_WIKILINK = re.compile(r"!?\[\[([^\[\]|\n]{1,500})(?:\|([^\[\]\n]{0,500}))?\]\]")
_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*)((?:\s[^<>]{0,2000})?/?)>")
_CLOSING = re.compile(r"</([A-Za-z][\w.:-]*)\s*>")
_VOID = frozenset(("br", "hr", "wbr"))
_LAYOUT = frozenset(
    "a b blockquote center dd details div dl dt em figcaption figure font h1 h2 h3 h4 h5 h6 i img kbd li "
    "ol p pre small span strong sub summary sup table tbody td tfoot th thead tr u ul".split()
)
"""What stands open where a passage ends before its tag does; few of them name a value, as `<pod>` does."""
_SHORTCODE = re.compile(r"\{\{[<%]([^{}]{0,2000})[>%]\}\}")
_QUOTED = re.compile(r'"([^"\n]{1,500})"')
_SHOWN = re.compile(r'\btext\s*=\s*"([^"\n]{1,500})"')


_CODE_MARK = re.compile(r"`+|~~~+|\n[ \t]*\n")
_BEFORE_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?")
_DEEPEST_FENCE = 64
"""Characters that may stand before a fence on its line: quotes, list items, blanks."""
_HIDDEN = str.maketrans("<[]{", "\x01\x02\x03\x04")
"""Signs of markup, and what stands for them inside code: ASCII, so that a text stays one byte a sign."""


def plain(markdown: str) -> str:
    """What a passage says, without addresses, tags and macros; quoted macro values are words too.

    Code is left as it is, and so is what only looks like a tag: `vector<int>`, `delete <pod>`.
    """
    text = markdown
    if "<" not in text and "[" not in text and "{{" not in text:
        return text
    if hides := "`" in text or "~~~" in text:
        text = _with_code_hidden(text)
    if "{{" in text:
        # Before links and tags: `{{<name` looks like a tag, and a link may lead to `{{< ref >}}`.
        text = _SHORTCODE.sub(_macro_words, text)
    if "](" in text:
        text = _IMAGE_OR_LINK.sub(r"\1", text)
    if "[[" in text:
        text = _WIKILINK.sub(lambda found: found[2] or found[1], text)
    if "<" in text:
        text = _without_tags(_without_comments(text))
    if hides:
        for sign, hidden in _HIDDEN.items():
            text = text.replace(chr(hidden), chr(sign))
    return text


def _with_code_hidden(text: str) -> str:
    """Hidden rather than cut out, since a link may have code for its words."""
    kept: list[str] = []
    at = 0
    for start, end in _code(text):
        kept += [text[at:start], text[start:end].translate(_HIDDEN)]
        at = end
    return "".join(kept) + text[at:]


def _code(text: str) -> list[tuple[int, int]]:
    """Where the code is: from fence to fence, and inside a paragraph between runs of as many backticks."""
    found: list[tuple[int, int]] = []
    runs: list[tuple[int, re.Match[str]]] = []
    paragraph, fence, start = 0, "", 0
    for mark in _CODE_MARK.finditer(text):
        sign = mark[0]
        if sign[0] == "\n":
            paragraph += 1
        elif len(sign) >= 3 and _begins_line(text, mark.start()):
            line_end = text.find("\n", mark.end())
            rest = text[mark.end() : line_end if line_end >= 0 else len(text)]
            if fence:
                if sign.startswith(fence) and not rest.strip():
                    found.append((start, mark.start()))
                    fence = ""
            elif sign[0] == "~" or "`" not in rest:
                paragraph, fence, start = paragraph + 1, sign, mark.end()
            else:
                runs.append((paragraph, mark))
        elif not fence and sign[0] == "`":
            runs.append((paragraph, mark))
    if fence:
        found.append((start, len(text)))
    return sorted([*found, *_inline_code(runs)])


def _begins_line(text: str, at: int) -> bool:
    earliest = max(0, at - _DEEPEST_FENCE)
    line = text.rfind("\n", earliest, at) + 1
    return (line > 0 or earliest == 0) and bool(_BEFORE_FENCE.fullmatch(text, line, at))


def _inline_code(runs: list[tuple[int, re.Match[str]]]) -> Iterator[tuple[int, int]]:
    # Each run's partner is found from the end: a search forward from each would be quadratic.
    partner: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    for number in range(len(runs) - 1, -1, -1):
        paragraph, mark = runs[number]
        key = (paragraph, len(mark[0]))
        if key in last:
            partner[number] = last[key]
        last[key] = number
    number = 0
    while number < len(runs):
        end = partner.get(number)
        if end is not None:
            yield runs[number][1].end(), runs[end][1].start()
        number = number + 1 if end is None else end + 1


def _without_tags(text: str) -> str:
    closed = frozenset(_CLOSING.findall(text))

    def kept(found: re.Match[str]) -> str:
        closing, name, attributes = found.groups()
        glued = found.start() > 0 and text[found.start() - 1].isalnum()
        markup = (
            closing
            or name in closed
            or attributes.endswith("/")
            or "=" in attributes
            or name.lower() in _VOID
            or (name.lower() in _LAYOUT and not glued and not attributes)
        )
        return " " if markup else found[0]

    return _TAG.sub(kept, text)


def _macro_words(found: re.Match[str]) -> str:
    """What a shortcode shows: its `text`, else all that is quoted, but never an address."""
    inner = found[1].strip()
    if inner.startswith(("ref ", "relref ", "include ")):
        return ""
    shown = _SHOWN.search(inner)
    return shown[1] if shown else " ".join(_QUOTED.findall(inner))


def _without_comments(text: str) -> str:
    # By hand: a pattern looks for the end of every unclosed comment anew, which is quadratic.
    kept: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start)) >= 0:
        kept.append(text[at:start])
        at = end + 3
    return "".join(kept) + text[at:]
