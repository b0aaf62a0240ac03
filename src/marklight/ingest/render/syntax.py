"""Markdown beyond CommonMark for rendering: callouts, containers, footnotes, definition lists, formulas, marks.

Indexing does not use these rules: they change how a text looks, not what it contains. Every rule takes linear time and
has a limit on nesting, since documents may be hostile.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, MutableMapping, Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.footnote.index import footnote_tail
from mdit_py_plugins.subscript import sub_plugin
from mdit_py_plugins.superscript import superscript_plugin

from marklight.ingest.parse.inline import Inline
from marklight.ingest.parse.markdown import MAX_DEPTH, make_parser

_GROUPS = {
    "note": "note info seealso abstract summary tldr todo",
    "tip": "tip hint important success check done",
    "question": "question help faq",
    "warning": "warning caution attention",
    "danger": "danger error bug failure fail missing",
    "example": "example tab details",
    "quote": "quote cite",
}
_KINDS = {name: kind for kind, names in _GROUPS.items() for name in names.split()}
_FOLDED = frozenset(("details", "tab"))
_CALLOUT = re.compile(r"\[!([\w -]{1,40})(?:\|[^\]\n]{0,100})?\]([+-]?)[ \t]*([^\n]*)(?:\n|$)")
_CONTAINER = re.compile(
    r"(:{3,}|/{3,})[ \t]*\{?\.?([A-Za-z][\w-]{0,40})\}?(?:\[([^\n]*)\]|[ \t|]+(.*))?[ \t]*$"
)
_OPTION = re.compile(r"[ \t]{4,}[\w-]+:")
_FENCE_LINE = re.compile(r"^[ \t>]*(:{3,}|/{3,})[ \t]*$", re.MULTILINE)
_INCLUDE = re.compile(r"\{([*%])[ \t]?([^{}\n]{1,300}?)[ \t]?\1\}")


@cache
def block_parser() -> MarkdownIt:
    """Return the block rules, made once."""
    md = make_parser()
    # A shortcut for texts without the syntax below.
    md.disable("common")
    for plugin in (footnote_plugin, deflist_plugin, admon_plugin):
        plugin(md)
    after = ["paragraph", "reference", "blockquote", "list"]
    for name in ("footnote_def", "deflist", "admonition"):
        rule = next(each for each in md.block.ruler.__rules__ if each.name == name)
        md.block.ruler.at(name, _shallow(rule.fn), {"alt": rule.alt})
    md.block.ruler.before("fence", "container", _shallow(_container), {"alt": after})
    md.block.ruler.before("fence", "formula", _formula, {"alt": after})
    return md


_BlockRule = Callable[[StateBlock, int, int, bool], bool]


def _shallow(rule: _BlockRule) -> _BlockRule:
    """Return a block rule with a limit on nesting."""

    def within(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        return state.level <= MAX_DEPTH and rule(state, start, end, silent)

    return within


class _RenderInline(Inline):
    """The inline rules of the index, and those that only change how a text looks."""

    def __init__(self) -> None:
        super().__init__(text=True)
        footnote_plugin(self)
        dollarmath_plugin(self, allow_space=False, allow_digits=False, double_inline=True)
        rule = next(each for each in self.inline.ruler.__rules__ if each.name == "math_inline")
        self.inline.ruler.at("math_inline", _not_in_word(rule.fn))
        sub_plugin(self)
        superscript_plugin(self)
        self.inline.ruler.before("link", "mark", _mark)
        self.inline.ruler.before("link", "include", _include)


@cache
def render_inline() -> Inline:
    """Return the inline rules, made once."""
    return _RenderInline()


def move_footnotes(tokens: list[Token], env: MutableMapping[str, Any]) -> list[Token]:
    """Move footnotes to the end; a definition that nothing refers to stays where it is."""
    references = env.get("footnotes", {}).get("refs", {})
    kept: list[Token] = []
    for token in tokens:
        if token.type.startswith("footnote_reference_"):
            if token.type.endswith("open"):
                unused = references.get(f":{token.meta['label']}", -1) < 0
            if unused:
                continue
        kept.append(token)
    state = StateCore("", block_parser(), env, kept)
    footnote_tail(state)
    return state.tokens


def callouts(tokens: list[Token]) -> list[Token]:
    """Turn quotes that begin with `[!kind]`, admonitions and containers into callouts."""
    result: list[Token] = []
    closing: list[str] = []
    drop_paragraph = False
    for index, token in enumerate(tokens):
        if drop_paragraph:
            drop_paragraph = token.type != "paragraph_close"
            continue
        if token.type == "blockquote_open":
            match = _callout_match(tokens, index)
            closing.append(
                _open(result, token, match[1], match[3], match[2]) if match else "blockquote"
            )
            if match:
                inline = tokens[index + 2]
                inline.content = inline.content[match.end() :]
                drop_paragraph = not inline.content.strip()
                assert inline.map is not None
                inline.map = tokens[index + 1].map = [
                    inline.map[0] + (not drop_paragraph),
                    inline.map[1],
                ]
                continue
        elif token.type == "admonition_open":
            name = str(token.meta["tag"])
            fold = "" if token.markup == "!!!" else "+" if token.markup.endswith("+") else "-"
            closing.append(_open(result, token, name, token.content.strip('"'), fold))
            continue
        elif token.type == "container_open":
            closing.append(_open(result, token, token.info, token.content, ""))
            continue
        elif token.type in ("blockquote_close", "admonition_close", "container_close"):
            token.tag = closing.pop()
        result.append(token)
    return _without_admonition_titles(result)


def _without_admonition_titles(tokens: list[Token]) -> list[Token]:
    kept: list[Token] = []
    inside = False
    for token in tokens:
        if token.type == "admonition_title_open":
            inside = True
        elif token.type == "admonition_title_close":
            inside = False
        elif not inside:
            kept.append(token)
    return kept


def _callout_match(tokens: Sequence[Token], index: int) -> re.Match[str] | None:
    if index + 2 >= len(tokens) or tokens[index + 1].type != "paragraph_open":
        return None
    return _CALLOUT.match(tokens[index + 2].content)


def _open(result: list[Token], token: Token, name: str, title: str, fold: str) -> str:
    """Append the opening tokens of a callout with its title; return the tag of the closing one."""
    name = name.strip().lower()
    token.attrs = {"data-callout": _KINDS.get(name, "note")}
    token.tag = "details" if fold or name in _FOLDED else "div"
    if token.tag == "details" and fold != "-" and name != "details":
        token.attrs["open"] = ""
    head = "summary" if token.tag == "details" else "p"
    inline = Token("inline", "", 0, content=title.strip() or name.replace("-", " ").capitalize())
    inline.map = token.map
    opened = Token(
        "callout_title_open", head, 1, attrs={} if head == "summary" else {"data-title": ""}
    )
    result += [token, opened, inline, Token("callout_title_close", head, -1)]
    return token.tag


def _container(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse `::: kind Title` of Docusaurus and `/// kind | Title` of Material, up to the line that closes it."""
    first = state.bMarks[start] + state.tShift[start]
    if (
        state.src[first : first + 3] not in (":::", "///")
        or state.sCount[start] - state.blkIndent > 3
    ):
        return False
    match = _CONTAINER.match(state.src[first : state.eMarks[start]])
    if not match:
        return False
    last = _closing_line(state, start, end, match[1])
    if last is None:
        return False
    if silent:
        return True
    before = state.parentType, state.lineMax
    token = state.push("container_open", "div", 1)
    token.info, token.content, token.map = match[2], match[3] or match[4] or "", [start, last + 1]
    content = start + 1
    while content < last and _OPTION.match(
        state.src[state.bMarks[content] : state.eMarks[content]]
    ):
        content += 1  # options such as `open: true`
    state.parentType, state.lineMax = "container", last
    state.md.block.tokenize(state, content, last)
    state.parentType, state.lineMax = before
    state.push("container_close", "div", -1)
    state.line = last + 1
    return True


def _closing_line(state: StateBlock, start: int, end: int, fence: str) -> int | None:
    """Return the line that closes a container; all such lines are found once for a document."""
    if "fence_lines" not in state.env:
        lines: list[tuple[int, str]] = []
        line, offset = 0, 0
        for match in _FENCE_LINE.finditer(state.src):
            line += state.src.count("\n", offset, match.start(1))
            offset = match.start(1)
            lines.append((line, match[1]))
        state.env["fence_lines"] = lines
    lines = state.env["fence_lines"]
    for line, marker in lines[bisect_left(lines, (start + 1, "")) :]:
        if line >= end:
            return None
        if marker[0] == fence[0] and len(marker) >= len(fence):
            return line
    return None


def _formula(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse `$$ … $$` on lines of its own."""
    first = state.bMarks[start] + state.tShift[start]
    if not state.src.startswith("$$", first) or state.sCount[start] - state.blkIndent > 3:
        return False
    close = state.src.find("$$", first + 2)
    last = start
    while last < end and close > state.eMarks[last]:
        last += 1
    if close < 0 or last >= end or state.src[close + 2 : state.eMarks[last]].strip():
        return False
    if not silent:
        token = state.push("math_block", "div", 0)
        token.content = state.src[first + 2 : close]
        token.map = [start, last + 1]
        state.line = last + 1
    return True


def _not_in_word(rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
    """Return the rule of `$…$` without matches in words: `$HOME/$USER` is no formula."""

    def separate(state: StateInline, silent: bool) -> bool:
        start = state.pos
        if state.src[start] != "$" or (start and state.src[start - 1].isalnum()):
            return False
        if not rule(state, True):
            return False
        end = state.pos
        if end < state.posMax and (state.src[end].isalnum() or state.src[end] in "_{("):
            state.pos = start
            return False
        if silent:
            return True
        state.pos = start
        return rule(state, False)

    return separate


def _mark(state: StateInline, silent: bool) -> bool:
    """Parse `==marked==`."""
    source, start, maximum = state.src, state.pos, state.posMax
    if not source.startswith("==", start) or source[start + 2 : start + 3] in ("", " ", "=", "\n"):
        return False
    if start and (source[start - 1].isalnum() or source[start - 1] in "=!<>"):
        return False
    end = source.find("==", start + 2, maximum)
    if end < 0 or source[end - 1].isspace() or source[end + 2 : end + 3] == "=":
        return False
    if not silent:
        state.push("mark_open", "mark", 1)
        state.pos, state.posMax = start + 2, end
        state.md.inline.tokenize(state)
        state.push("mark_close", "mark", -1)
    state.pos, state.posMax = end + 2, maximum
    return True


def _include(state: StateInline, silent: bool) -> bool:
    """Parse `{* file *}` and `{% tag %}` of documentation sites."""
    if state.src[state.pos] != "{":
        return False
    match = _INCLUDE.match(state.src, state.pos, state.posMax)
    if not match:
        return False
    if not silent:
        state.push("include", "", 0).content = match[2].strip()
    state.pos = match.end()
    return True
