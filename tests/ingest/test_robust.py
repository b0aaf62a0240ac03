"""Inputs that break parsers: known crashers, and inputs built to take quadratic time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from marklight.errors import Refused
from marklight.ingest.chunk import chunk
from marklight.ingest.document import parse_document
from marklight.ingest.read import read
from marklight.ingest.recipe import Chunker
from marklight.model import Chunk, DocumentId
from tests.ingest.reading import LIMIT, entry, uncovered
from tests.linear import demand_linear

SECONDS_PER_MEGABYTE = 60
"""Ten times what ordinary Markdown takes on a slow machine; quadratic time would be hours."""


def test_known_parser_crashers_are_indexed(eval_root: Path) -> None:
    root = eval_root / "robust"
    refused: list[str] = []
    lost: list[tuple[str, object]] = []
    files = sorted(path for path in root.rglob("*") if path.is_file())
    assert len(files) > 400
    for path in files:
        name = path.relative_to(root).as_posix()
        try:
            source = read(path, LIMIT)
        except Refused as reason:
            refused.append(f"{name} {reason}")
            continue
        id = DocumentId("robust", name if path.suffix == ".txt" else f"{name}.md")
        began = time.process_time()
        document, parsed = parse_document(id, source, {"*": "markdown"})
        made = chunk(document, parsed, Chunker())
        took = time.process_time() - began
        assert took < 2 + SECONDS_PER_MEGABYTE * len(source.text) / 1e6, name
        check(made.chunks)
        lost += [(name, line) for line in uncovered(parsed, made.chunks)]
    assert all("NUL" in line or "binary" in line for line in refused), refused
    assert len(refused) < 10
    assert lost == []


def check(chunks: Sequence[Chunk]) -> None:
    assert chunks
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    assert all(len(chunk.text) <= 1500 for chunk in chunks)


def repeated(unit: str) -> Callable[[int], str]:
    return lambda size: unit * (size // len(unit) + 1)


TRAPS: dict[str, Callable[[int], str]] = {
    **{
        unit: repeated(unit)
        for unit in (
            "[", "]", "![", "[[", "![[", "[[a|", "[a](", "[a](<b", "[a][", "[a]: ", "[a\n", "*a ", "_a ",
            "**a* ", "*_", "~~a", "<", "<a ", "a <!-- ", "<!--\n", "a <?", "a <![CDATA[", "&#x", "\\",
            "{{< ", '[a]({{< ref "x', "#a ", "^a\n", "|", "|\n", "> a\n", "1. a\n", "- a\n\n", "- ```\n",
            "# a\n", "#", "a\n===\n", "```\n", "~~~a\n", "    a\n", "<div>\n", "<div>\n\n", "[a](b.md)\n",
            "[a]: x '\n", "> - > - a\n", "<http:a", "*[`<![](", "} {#a", "漢字。", "😀", "\u2028", "\t",
            "* * *\n", "a|b\n-|-\n", "{{% x %}}\n",
        )
    },
    "backticks": lambda size: " ".join("`" * n for n in range(1, int((2 * size) ** 0.5))),
    "nested quotes": lambda size: "> " * (size // 2) + "a",
    "nested lists": lambda size: "- " * (size // 2) + "a",
    "indented lists": lambda size: "".join(" " * 2 * n + "- a\n" for n in range(int(size**0.5))),
    "one line": lambda size: "a" * size,
    "wide table": lambda size: "|a" * 900 + "|\n" + "|-" * 900 + "|\n" + "|\n" * (size // 2),
    "definitions": lambda size: "".join(f"[a{n}]: /x\n" for n in range(size // 12)),
    "uses": lambda size: "[a]: x.md\n\n" + "[a] " * (size // 4),
    "open uses": lambda size: "[a]: x.md\n\n" + "[a" * (size // 2),
    "long label": lambda size: "[" + "a\n" * (size // 2) + "]: x",
    "heading of brackets": lambda size: "# " + "[" * size,
    "heading of emphasis": lambda size: "# " + "*a " * (size // 3),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAPS)
def test_time_is_linear_in_size(name: str) -> None:
    demand_linear(lambda text: check(entry(text).chunks), TRAPS[name], 25_000)


@pytest.mark.parametrize("unit", ["- a\n", "> ", "[", "`", "*", "<!--", "|", "[[a]]", "\n\n# a"])
def test_ten_thousand_repetitions_of_any_construct_are_parsed(unit: str) -> None:
    text = unit * 10_000 + "\n\n# After\n\nlast words\n"
    made = entry(text)
    assert any("last words" in chunk.text for chunk in made.chunks)


def test_fifty_megabytes_in_one_line_are_refused_or_read_in_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "one-line.md"
    path.write_bytes(b"words and more " * 3_300_000)
    with pytest.raises(Refused, match="bytes, more than the limit"):
        read(path, LIMIT)
    source = read(path, 60_000_000)
    assert len(source.text) == 15 * 3_300_000

    def read_whole(text: str) -> None:
        id = DocumentId("docs", "one-line.md")
        made = chunk(*parse_document(id, replace(source, text=text)), Chunker())
        assert len(made.chunks) >= len(text) / 1500

    demand_linear(read_whole, lambda size: source.text[:size], 2_000_000)
