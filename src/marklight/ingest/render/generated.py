"""HTML that we generate ourselves, without the sanitiser: coloured code (Pygments) and formulas (latex2mathml).

Text of the document is escaped here; elements, classes and attributes come from fixed sets.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element

from marklight.formatting import visible

if TYPE_CHECKING:
    from pygments.lexer import Lexer

MAX_CODE_CHARS = 30_000
"""Characters of a code block that are coloured; a lexer may take quadratic time."""
MAX_FORMULA_CHARS = 2_000
_LANGUAGES = frozenset(
    "asm awk bash bat batch c c++ clojure cmake console cpp cs csharp css cuda cython dart diff django docker dockerfile "
    "elixir elm erlang fish fortran fsharp gherkin go golang graphql groovy haskell hcl html http ini java javascript jinja "
    "jinja2 js json json5 jsonc jsonnet jsx julia kotlin latex less lisp lua make makefile markdown matlab md mysql nginx nim "
    "nix objective-c ocaml pascal perl php postgresql powershell prolog properties proto protobuf ps1 psql pwsh py "
    "pycon python python-console python3 r rb rego rst ruby rust rs sass scala scheme scss sh shell shell-session sol "
    "solidity sql sqlite svelte swift systemverilog tcl terraform tex toml ts tsx typescript vb verilog vhdl vim vue xml "
    "xslt yaml yml zig zsh".split()
)
"""Languages of Pygments that documents use; others are shown without colours."""
_NAMES = {
    "jsonc": "json5",
    "pwsh": "powershell",
    "shell-session": "console",
    "proto": "protobuf",
    "svelte": "html",
}
_CLASSES = (
    ("Comment", "c"),
    ("Keyword", "k"),
    ("Literal.String", "s"),
    ("Literal.Number", "m"),
    ("Name.Function", "f"),
    ("Name.Class", "f"),
    ("Name.Decorator", "f"),
    ("Name.Builtin", "b"),
    ("Name.Tag", "k"),
    ("Name.Attribute", "f"),
    ("Name.Variable", "v"),
    ("Name.Constant", "v"),
    ("Name.Exception", "f"),
    ("Generic.Inserted", "i"),
    ("Generic.Deleted", "d"),
    ("Generic.Prompt", "p"),
    ("Generic.Heading", "k"),
    ("Operator.Word", "k"),
)
"""Token types and the class of a span; every other token is plain."""
_MERMAID = re.compile(
    r"(?P<c>%%[^\n]*)|(?P<s>\"[^\"\n]*\")|(?P<k>\b(?:graph|flowchart|subgraph|end|sequenceDiagram|participant|actor|"
    r"classDiagram|stateDiagram(?:-v2)?|erDiagram|gantt|pie|gitGraph|loop|alt|else|opt|note|class|section|title)\b)"
    r"|(?P<m><?[-=.~]{2,}[>xo]*)"
)


def code_html(code: str, language: str) -> str:
    """Return a code block with spans for keywords, strings and the like; without them if the language is unknown."""
    shown = visible(code)
    if len(shown) > MAX_CODE_CHARS:
        return escape(shown)
    if language == "mermaid":
        return _mermaid(shown)
    lexer = _lexer(_NAMES.get(language, language)) if language in _LANGUAGES else None
    if lexer is None:
        return escape(shown)
    parts: list[str] = []
    for name, tokens in groupby(lexer.get_tokens(shown), lambda token: _class(token[0])):
        text = escape("".join(text for _, text in tokens))
        parts.append(f'<span class="{name}">{text}</span>' if name else text)
    return "".join(parts)


def _mermaid(code: str) -> str:
    parts: list[str] = []
    offset = 0
    for match in _MERMAID.finditer(code):
        parts.append(escape(code[offset : match.start()]))
        parts.append(f'<span class="{match.lastgroup}">{escape(match[0])}</span>')
        offset = match.end()
    return "".join((*parts, escape(code[offset:])))


@cache
def _lexer(language: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@cache
def _class(kind: Any) -> str:
    name = str(kind).removeprefix("Token.")
    return next((short for prefix, short in _CLASSES if name.startswith(prefix)), "")


_ELEMENTS = frozenset(
    "math mrow mi mn mo ms mtext mspace msup msub msubsup mover munder munderover mfrac msqrt mroot mtable mtr mtd "
    "mlabeledtr mstyle mpadded mphantom menclose mmultiscripts mprescripts merror none".split()
)
_MATH_ATTRIBUTES = frozenset(
    "accent accentunder columnalign columnlines columnspacing depth display displaystyle fence form height largeop "
    "linethickness lspace mathsize mathvariant maxsize minsize movablelimits notation rowlines rowspacing rspace "
    "scriptlevel separator stretchy symmetric voffset width".split()
)
_VALUE = re.compile(r"[\w .%+-]{0,100}")
_MACRO = re.compile(r"\\(?:re)?newcommand|\\def|\\let|\\DeclareMathOperator")
_ENTITY = re.compile(r"&#x([0-9A-Fa-f]{1,6});")
_UNKNOWN = (
    (re.compile(r"\\(begin|end)\{aligned\}"), r"\\\1{align*}"),
    (re.compile(r"\\arg(?![A-Za-z])"), r"\\operatorname{arg}"),
    (re.compile(r"\\label\{[^{}]*\}|\\(?:nonumber|notag)(?![A-Za-z])"), ""),
)
"""Commands of LaTeX that latex2mathml does not convert, and what they mean."""
_MAX_DEPTH = 100


def formula_html(latex: str, *, display: bool) -> str:
    """Return a formula as MathML; as LaTeX in a code element if it cannot be converted."""
    source = f"<code>{escape(visible(latex.strip()))}</code>"
    # A macro may expand to any size.
    if len(latex) > MAX_FORMULA_CHARS or latex.count("{") > _MAX_DEPTH * 4 or _MACRO.search(latex):
        return source
    try:
        from latex2mathml.converter import Converter

        for command, meaning in _UNKNOWN:
            latex = command.sub(meaning, latex)
        root = Converter(display="block" if display else "inline").convert_to_element(latex.strip())
        return _mathml(root, 0)
    except Exception:  # of many kinds, one for each defect of a formula
        return source


def _mathml(element: Element, depth: int) -> str:
    """Serialise MathML from a fixed set of elements and attributes; latex2mathml itself does not escape text."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    content = _math_text(element.text) + "".join(
        _mathml(child, depth + 1) + _math_text(child.tail) for child in element
    )
    if element.tag not in _ELEMENTS:
        return content
    attributes = "".join(
        f' {name}="{escape(value)}"'
        for name, value in element.attrib.items()
        if name in _MATH_ATTRIBUTES and _VALUE.fullmatch(value)
    )
    return f"<{element.tag}{attributes}>{content}</{element.tag}>"


def _math_text(text: str | None) -> str:
    shown = _ENTITY.sub(lambda match: chr(int(match[1], 16)), text or "")
    return escape(shown.encode("utf-8").decode())  # a surrogate raises
