"""Measure how faithfully documents are rendered: their visible words, and the parts that readers expect.

python -m benchmarks.rendering

Words are compared with those of markdown-it's own HTML; intended differences have a reason, and every other one is
printed. Parts are counted in the source and in the HTML, over the FastAPI pages, the documentation and a vault of notes
that this script writes: images, icons, callouts, embeds, footnotes, formulas, coloured code, comments, tables.
"""

from __future__ import annotations

import re
import struct
import tempfile
import zlib
from collections import Counter
from pathlib import Path

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name
from pygments.util import ClassNotFound
from tests.ingest.visible_text import differences, read_document

import marklight
from benchmarks._measure import eval_root, save
from marklight.ingest.render import MAX_CHARS, MAX_LINES
from marklight.ingest.render.generated import _LANGUAGES
from marklight.text.markdown import without_comments

SHOWN = 200
"""Unexplained differences that are printed."""
ROOT = Path(__file__).parent.parent
NOTES = 30
_FENCE = re.compile(
    r"^([ \t>]*)(`{3,}|~{3,})[ \t]*\{?\.?([\w+#-]*)[^\n]*\n.*?^[ \t>]*\2[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
_SPAN = re.compile(r"`+[^`\n]+`+")
_CODE = re.compile(r"<(pre|code)\b.*?</\1>", re.DOTALL)
_SOURCE = {
    "callouts": re.compile(
        r"^[ \t>]*> ?\[!\w+|^(?:!!!|\?\?\?\+?) \w|^:::+ ?[\w-]+(?![\w.-])|^/{3,} \w", re.MULTILINE
    ),
    "footnotes": re.compile(r"^\[\^[^\]\s]+\]:", re.MULTILINE),
    "formulas": re.compile(
        r"\$\$.+?\$\$|(?<![\w$\\])\$[^\s$][^$\n]*(?<=\S)\$(?![\w$({])", re.DOTALL
    ),
    "tables": re.compile(r"^[ \t>]*\|?[ \t]*:?-{2,}:?[ \t]*\|[-| :\t]*$", re.MULTILINE),
    "embeds": re.compile(r"^!\[\[(?![^\]]*\.(?:png|svg|pdf))[^\]]+\]\]$", re.MULTILINE),
    "icons": re.compile(r"!\[\[[^\]|]+#icon\]\]"),
    "images": re.compile(r"!\[\[[^\]|#]+\.(?:png|svg)(?:\|\d+)?\]\]"),
    "files": re.compile(r"!\[\[[^\]|#]+\.pdf\]\]"),
    "marks": re.compile(r"(?<![\w=!<>])==[^\s=][^=\n]*(?<=\S)=="),
}
_HTML = {
    "callouts": re.compile(r"<(?:div|details)[^>]* data-callout="),
    "footnotes": re.compile(r'<li[^>]* id="part-fn-'),
    "formulas": re.compile(r"<math[ >]"),
    "tables": re.compile(r"<table[ >](?!.*?</table></details>)"),
    "embeds": re.compile(r'<div[^>]* data-embed=""[^>]*><p><a href'),
    "icons": re.compile(r"<img[^>]* data-icon="),
    "images": re.compile(r"<img(?![^>]* data-icon=)[^>]* src="),
    "files": re.compile(r"<a[^>]* data-file="),
    "marks": re.compile(r"<mark>"),
    "coloured code": re.compile(r"<pre[^>]*><code>(?:(?!</code>).)*?<span class=", re.DOTALL),
}


def png(red: int, green: int, blue: int) -> bytes:
    """Return an image of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    row = b"\0" + bytes((red, green, blue)) * 64
    head = struct.pack(">IIBBBBB", 64, 40, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * 40)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def write_vault(root: Path) -> None:
    """Write notes that use everything which Obsidian renders, in several scripts."""
    (root / "files").mkdir(parents=True)
    (root / "files" / "icon.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle r="4"/></svg>'
    )
    (root / "files" / "paper.pdf").write_bytes(b"%PDF-1.4\n")
    scripts = (
        "The harbour waits for the tide.",
        "تنتظر القوارب المد في المرفأ.",
        "船は港で満潮を待っています。",
        "הסירות ממתינות בנמל.",
    )
    for number in range(NOTES):
        (root / "files" / f"picture {number}.png").write_bytes(png(number * 8, 120, 160))
        text = scripts[number % len(scripts)]
        other = (number + 1) % NOTES
        (root / f"note {number}.md").write_text(
            f"---\ntags: [vault, n{number}]\nauthor: Ada\n---\n# Note {number}\n\n{text} ![[icon.svg#icon]] ==Marked {number}==. %%hidden {number}%%\n\n"
            f'> [!note] Title {number}\n> {text}\n>\n> > [!tip]- Folded\n> > Nested in {number}.\n\n!!! warning "MkDocs"\n    {text}\n\n'
            f":::info[Docusaurus]\n{text}\n:::\n\n/// check | FastAPI\n\n{text}\n\n///\n\n![[picture {number}.png|40]]\n\n"
            f"![[note {other}#Part]]\n\n![[note {other}#^id{other}]]\n\nInline $a_{{{number}}}^2 + b$ costs $5 or $10.\n\n$$\n\\frac{{{number}}}{{x}}\n$$\n\n"
            f"A claim[^{number}] and [[note {other}|a link]].\n\n[^{number}]: The note of {number}.\n\n"
            f"| {text} | n |\n|---|---:|\n| a | {number} |\n\n```python\ndef f{number}(x):\n    return 'a'  # {number}\n```\n\n"
            f"```mermaid\ngraph TD; A-->B{number}\n```\n\n![[paper.pdf]]\n\n- [ ] open\n- [x] done\n\n%%\nblock {number}\n%%\n\n"
            f"## Part\n\nThe part of {number}.\n\nA block. ^id{number}\n"
        )


def _has_colours(fence: re.Match[str]) -> bool:
    """Return true if Pygments finds a keyword, string, number, comment or the like in a code block."""
    language = fence[3].lower()
    if language == "mermaid" or language not in _LANGUAGES:
        return language == "mermaid"
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return False
    code = "\n".join(fence[0].split("\n")[1:-1])
    kinds = {kind for kind, text in lexer.get_tokens(code) if text.strip()}
    coloured = (Comment, Keyword, Literal, Name.Function, Name.Builtin, Name.Tag, Generic.Prompt)
    return any(kind in each for kind in kinds for each in coloured)


def count_parts(folder: Path) -> dict[str, str]:
    """Return the parts rendered of those in the source, for the documents of a folder."""
    present: Counter[str] = Counter()
    rendered: Counter[str] = Counter()
    library = marklight.open(folder, settings={"model": {"name": "none"}})
    library.index()
    for path in sorted(folder.rglob("*.md")):
        text = path.read_text(errors="replace")
        if text.count("\n") >= MAX_LINES or len(text) > MAX_CHARS:
            continue  # shown in parts
        html = library.page(str(path.relative_to(folder))).html
        # What is embedded is counted once, in its own note.
        html = re.sub(
            r'(<div[^>]* data-embed=""[^>]*><p><a href[^>]*>).*?</div>\n',
            r"\1",
            html,
            flags=re.DOTALL,
        )
        visible = without_comments(text, 0)[0]
        lines = zip(text.split("\n"), visible.split("\n"), strict=True)
        hidden = sum(one != other for one, other in lines if "%%" in one)
        present["comments"] += hidden
        rendered["comments"] += hidden if "%%" not in _CODE.sub("", html) else 0
        present["coloured code"] += sum(map(_has_colours, _FENCE.finditer(visible)))
        prose = _SPAN.sub("", _FENCE.sub("", visible))
        present.update({name: len(pattern.findall(prose)) for name, pattern in _SOURCE.items()})
        rendered.update({name: len(pattern.findall(html)) for name, pattern in _HTML.items()})
    library.close()
    return {
        name: f"{min(rendered[name], count)} of {count}" for name, count in present.items() if count
    }


def compare_words() -> dict[str, dict[str, int]]:
    """Return the number of documents of each corpus, and of differences by their reason."""
    root = eval_root() / "corpora"
    results = {}
    printed = 0
    for corpus in sorted(path for path in root.iterdir() if path.is_dir()):
        documents, unexplained, reasons = 0, 0, Counter[str]()
        for path in sorted(corpus.rglob("*.[mM][dD]")):
            documents += 1
            found = list(differences(read_document(path)))
            unexplained += any(not reason for _, reason in found)
            reasons.update(reason or "unexplained" for _, reason in found)
            for difference in (each for each, reason in found if not reason):
                printed += 1
                if printed <= SHOWN:
                    print(f"  {path.relative_to(root)}: {difference[:300]}")
        equal = documents - unexplained
        results[corpus.name] = {"documents": documents, "same words": equal, **reasons}
        print(corpus.name, results[corpus.name], flush=True)
    return results


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        vault = Path(scratch) / "vault"
        write_vault(vault)
        folders = {
            "vault": vault,
            "docs": ROOT / "docs",
            "fastapi": eval_root() / "corpora" / "fastapi",
        }
        parts = {name: count_parts(folder) for name, folder in folders.items()}
    for name, counts in parts.items():
        print(name, counts, flush=True)
    save("rendering", {"parts": parts, "words": compare_words()})


if __name__ == "__main__":
    main()
