"""Links are recognised and resolve to the intended document; linked documents form communities."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marklight.ingest import communities
from marklight.ingest.links import keys_for, names_for
from marklight.ingest.parse import Style
from marklight.ingest.read import read
from marklight.model import Batch, Document, DocumentId, Link, LinkType, NameStrength
from marklight.text.markdown import strip_markup
from tests.contracts.builders import entry as stored_entry
from tests.contracts.builders import id_of, link
from tests.ingest.reading import document, entry
from tests.oracle import MemoryEngine

HERE = DocumentId("docs", "guide/setup/page.md")


def links(text: str) -> list[tuple[str, str, str, str]]:
    return [(link.type, link.target, link.fragment, link.text) for link in document(text).links]


def test_every_form_of_wikilink() -> None:
    assert links(
        "[[A]] [[B c|shown]] [[D#Heading]] [[E^block]] [[F#^block|x]] ![[G]] ![[H#Part]] [[I#J#K]]"
    ) == [
        ("links_to", "A", "", "A"),
        ("links_to", "B c", "", "shown"),
        ("links_to", "D", "Heading", "D#Heading"),
        ("links_to", "E", "^block", "E^block"),
        ("links_to", "F", "^block", "x"),
        ("embeds", "G", "", "G"),
        ("embeds", "H", "Part", "H#Part"),
        ("links_to", "I", "K", "I#J#K"),
    ]


def test_double_brackets_that_are_not_wikilinks() -> None:
    assert links("`[[a]]`\n\n    [[b]]\n\n```sh\nif [[ -f c ]]; then\n```\n\n[[ $d == e ]]") == []
    assert links("[[]] [[ ]] [[a\nb]] \\[[c]] [[1]](https://x.y) [[#only a heading]]") == []
    assert links("![[picture.png]] ![[paper.pdf]] [[Node.js]]") == [
        ("links_to", "Node.js", "", "Node.js")
    ]


def test_wikilinks_in_tables_and_headings() -> None:
    text = "# About [[A]]\n\n| x |\n|---|\n| [[B\\|shown]] |\n"
    assert links(text) == [("links_to", "A", "", "A"), ("links_to", "B", "", "shown")]
    assert document(text).links[1].line == 5


def test_markdown_links_to_documents_only() -> None:
    assert links(
        "[a](b.md) [c](./d.md#part) [e](/f/g/) [**h**](<i j.md> 'title') ![k](l.md) [m](n%20o.md)\n"
        "[x](https://a.b) [x](mailto:a@b) [x](#here) [x](pic.png) [x](//a.b/c) <https://a.b> [x](a.py)"
    ) == [
        ("links_to", "b.md", "", "a"),
        ("links_to", "./d.md", "part", "c"),
        ("links_to", "/f/g/", "", "e"),
        ("links_to", "i j.md", "", "h"),
        ("links_to", "l.md", "", "k"),
        ("links_to", "n%20o.md", "", "m"),
    ]


def test_reference_links_are_links_even_when_defined_later() -> None:
    assert links("[a][1], [2] and [b][]\n\n[1]: one.md\n[2]: two.md#x\n[b]: https://x.y\n") == [
        ("links_to", "one.md", "", "a"),
        ("links_to", "two.md", "x", "2"),
    ]


def test_hugo_references_and_html_links_are_links() -> None:
    assert links(
        '[a]({{< ref "one.md" >}}) [b]({{% relref path="two" %}}#part) {{< ref "three#x" >}}\n\n'
        '<p>\n<a class="c" href="four.md">x</a> <a href="{{< ref "five" >}}">y</a>\n</p>\n\n'
        'words <a href="six.md">z</a>\n'
    ) == [
        ("links_to", "one.md", "", "a"),
        ("links_to", "two", "part", "b"),
        ("links_to", "three", "x", ""),
        ("links_to", "four.md", "", ""),
        ("links_to", "five", "", ""),
        ("links_to", "six.md", "", ""),
    ]


@pytest.mark.parametrize(
    "directive, target",
    [
        ("{% include note.md %}", "note.md"),
        ("{%- include_relative parts/note.md kind='x' -%}", "parts/note.md"),
        ("{% include 'note.md' %}", "note.md"),
        ("{% data reusables.git.clone-note %}", "reusables/git/clone-note"),
        ("{% indented_data_reference reusables.git.note spaces=3 %}", "reusables/git/note"),
        ("import Note from './_note.mdx';", "./_note.mdx"),
        ('--8<-- "parts/note.md"', "parts/note.md"),
        ('{{< include "parts/note.md" >}}', "parts/note.md"),
        ('{{% readfile file="note.md" %}}', "note.md"),
    ],
)
def test_an_included_document_is_embedded(directive: str, target: str) -> None:
    made = entry(f"# Clone\n\nBefore.\n\n{directive}\n\nAfter.\n")
    assert [(link.type, link.target, link.line) for link in made.document.links] == [
        ("embeds", target, 5)
    ]
    assert "note" not in "".join(strip_markup(chunk.text) for chunk in made.chunks).lower()


@pytest.mark.parametrize(
    "text",
    [
        "{% include header.html %}",
        "{% include {{ page.part }} %}",
        "{% data variables.product.name %}",
        "{% if page.include %} shown {% endif %}",
        "import Tabs from '@theme/Tabs';",
        "`{% include note.md %}`",
        '```text\n{% include note.md %}\n\nimport N from "./n.mdx"\n--8<-- "n.md"\n```',
    ],
)
def test_directives_that_include_no_document_are_no_links(text: str) -> None:
    assert links(text) == []


@pytest.mark.parametrize(
    "heading, type",
    [
        ("See also", "related"), ("Related pages", "related"), ("Implements", "implements"),
        ("Implementation", "implements"), ("Tests", "tests"), ("Tested by", "tests"),
        ("Testing", "tests"), ("Relatedness", "links_to"), ("Contest", "links_to"),
    ],
)  # fmt: skip
def test_the_heading_sets_the_link_type(heading: str, type: str) -> None:
    found = links(
        f"[[x]]\n\n## {heading}\n\n[[a]] ![[b]]\n\n### Deeper\n\n[[c]]\n\n## Next\n\n[[d]]\n"
    )
    assert [kind for kind, *_ in found] == ["links_to", type, "embeds", type, "links_to"]


@pytest.mark.parametrize(
    "target, style, keys",
    [
        ("Page", Style.WIKI, ("page",)),
        ("folder/Page.md", Style.WIKI, ("folder/page.md",)),
        ("../x", Style.WIKI, ("guide/x", "guide/setup/x", "x")),
        ("next.md", Style.MARKDOWN, ("guide/setup/next.md", "guide/setup/page/next.md", "next.md")),
        ("../a%20b/", Style.MARKDOWN, ("guide/a b", "guide/setup/a b", "a b")),
        ("../../../out.md", Style.MARKDOWN, ("out.md",)),
        ("README.md", Style.MARKDOWN, ("guide/setup/readme.md", "guide/setup/page/readme.md")),
        ("..", Style.MARKDOWN, ("guide", "guide/setup")),
        ("/docs/concepts/pod/", Style.MARKDOWN, ("docs/concepts/pod", "concepts/pod", "pod")),
        ("/", Style.MARKDOWN, (".",)),
        ("x?query", Style.MARKDOWN, ("guide/setup/x", "guide/setup/page/x", "x")),
        ("Other Page", Style.RELATED, ("other page", "guide/setup/other page", "guide/setup/page/other page")),
        ("e\u0301.md", Style.WIKI, ("é.md",)),
        ("obsidian://x", Style.WIKI, ()),
    ],
)  # fmt: skip
def test_keys_are_candidates_best_first(target: str, style: Style, keys: tuple[str, ...]) -> None:
    assert keys_for(target, HERE, style) == keys


def test_names_are_the_path_then_its_suffixes_then_aliases() -> None:
    names = {name.key: name.strength for name in names_for("A/B/Index.md", ["Alias", "b"])}
    path, suffix, alias = NameStrength.PATH, NameStrength.SUFFIX, NameStrength.ALIAS
    assert names == {
        "a/b/index.md": path, "a/b/index": path, "a/b": path,
        "b/index.md": suffix, "index.md": suffix, "b/index": suffix, "index": suffix, "b": suffix,
        "alias": alias,
    }  # fmt: skip
    assert {name.key for name in names_for("README.md")} == {"readme.md", "readme", "."}


def resolved(documents: list[Document]) -> tuple[int, int]:
    """How many links lead to a document, by the rule that engines follow, and how many there are."""
    known: dict[str, tuple[str, int, str]] = {}
    for page in documents:
        for name in page.names:
            rank = (name.strength, len(page.id.path), page.id.path)
            known[name.key] = min(known.get(name.key, rank), rank)
    # What Kubernetes' pages include is not part of the collection.
    all_links: list[Link] = [
        link for page in documents for link in page.links if link.type is not LinkType.EMBEDS
    ]
    return sum(any(key in known for key in link.keys) for link in all_links), len(all_links)


@pytest.mark.parametrize(
    "corpus, share, least", [("kubernetes", 0.97, 7000), ("blue-book", 0.98, 11_000), ("fastapi", 0.99, 130)]
)  # fmt: skip
def test_the_links_of_real_documents_resolve(
    eval_root: Path, corpus: str, share: float, least: int
) -> None:
    root = eval_root / "corpora" / corpus
    documents = [
        document(read(path, 10**9).text, path.relative_to(root).as_posix())
        for path in root.rglob("*.md")
    ]
    found, total = resolved(documents)
    assert total >= least
    assert found / total >= share


@pytest.mark.parametrize("depth", [100, 1000, 4000])
def test_the_names_of_a_deep_document_are_bounded_in_size(depth: int) -> None:
    path = "d/" * depth + "readme.md"
    assert sum(len(name.key) for name in names_for(path)) < 100 * 16
    long = "folder name/" * depth + "page.md"
    assert sum(len(name.key) for name in names_for(long)) < 100 * 16 * 4


def test_the_links_of_a_deep_document_do_not_repeat_its_path() -> None:
    source = DocumentId("docs", "folder/" * 500 + "page.md")
    for target, style in [
        ("next.md", Style.MARKDOWN),
        ("Next", Style.RELATED),
        ("/" + "up/" * 2000 + "next.md", Style.MARKDOWN),
    ]:
        assert sum(map(len, keys_for(target, source, style))) < 3 * 255


@pytest.mark.parametrize("depth", [3, 17, 500])
@pytest.mark.parametrize("folder", ["d", "a folder with a long name"])
def test_a_document_of_any_depth_resolves_by_path_and_by_suffix(depth: int, folder: str) -> None:
    path = f"{folder}/" * depth + "page.md"
    names = {name.key: name.strength for name in names_for(path)}
    beside = DocumentId("docs", f"{folder}/" * depth + "other.md")
    above = DocumentId("docs", "readme.md")

    def meant(target: str, source: DocumentId, style: Style = Style.MARKDOWN) -> NameStrength:
        return next(names[key] for key in keys_for(target, source, style) if key in names)

    assert meant("page.md", beside) is NameStrength.PATH
    assert meant("./" + path.replace(" ", "%20"), above) is NameStrength.PATH
    assert meant(f"/{path}", beside) is NameStrength.PATH
    assert meant(f"/site/{path}", beside) is not None
    assert meant(path, above, Style.WIKI) is NameStrength.PATH
    for last in range(1, min(depth, 15)):
        end = "/".join([folder] * last + ["page"])
        assert meant(end, above, Style.WIKI) is NameStrength.SUFFIX


def grouped(links: dict[str, str]) -> dict[DocumentId, int]:
    """Of pages with one letter for a name, each with the letters that it links to."""
    engine = MemoryEngine()
    pages = (
        stored_entry(f"{name}.md", "word", links=tuple(map(link, ends)))
        for name, ends in links.items()
    )
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(pages)))
    with engine.snapshot() as snapshot:
        return dict(communities.find_communities(snapshot, communities.MAX_PAIRS) or {})


def named(groups: dict[DocumentId, int]) -> list[str]:
    found: dict[int, str] = defaultdict(str)
    for id, number in sorted(groups.items()):
        found[number] += id.path.removesuffix(".md")
    return [found[number] for number in sorted(found)]


def test_two_rings_with_one_bridge_are_two_communities() -> None:
    assert named(
        grouped({"a": "bc", "b": "c", "c": "ad", "d": "ef", "e": "f", "f": "d", "g": ""})
    ) == [
        "abc",
        "def",
    ]


def test_documents_without_links_have_no_communities() -> None:
    assert grouped({}) == grouped({"a": "", "b": ""}) == {}
    assert grouped({"a": "a", "b": "z"}) == {}
    assert named(grouped({"a": "b", "b": ""})) == ["ab"]


def test_no_communities_are_computed_above_the_limit_of_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    links = {"a": "bc", "b": "c", "c": ""}
    assert named(grouped(links)) == ["abc"]
    monkeypatch.setattr(communities, "MAX_PAIRS", 2)  # three pairs are one too many
    assert grouped(links) == {}


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.text("abcdefghz", max_size=4), max_size=8))
def test_every_community_has_members_and_every_member_a_link(links: dict[str, str]) -> None:
    groups = grouped(links)
    assert groups == grouped(dict(reversed(links.items())))
    assert sorted(set(groups.values())) == list(range(len(set(groups.values()))))
    linked = {
        id_of(f"{end}.md")
        for name, ends in links.items()
        for other in ends
        if other in links and other != name
        for end in (name, other)
    }
    assert set(groups) <= linked
    assert all(len(each) > 1 for each in named(groups))


SCRIPT = """
from tests.ingest.test_links import grouped
names = "abcdefghijklmnop"
links = {name: names[at // 4 * 4 :][:4] for at, name in enumerate(names)}
print(sorted(grouped(links).items()))
"""


def test_communities_are_the_same_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert "p.md" in outputs.pop()
