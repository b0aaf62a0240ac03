"""Markdown is parsed into headings, code, tags and block ids, and no text is lost."""

from __future__ import annotations

import pytest

from marklight.model import Kind
from tests.ingest.reading import chunks, document, entry, parsed, uncovered


def test_directives_in_frontmatter_and_headings_are_no_text() -> None:
    page = document(
        "---\ntitle: About {% data variables.product.prodname_copilot %}{% ifversion fpt %} today{% endif %}\n---\n"
        "## Set up {% data variables.copilot.cli %}\n"
    )
    assert page.title == "About prodname_copilot today"
    assert [heading.text for heading in page.outline] == ["Set up cli"]


def test_headings_have_unique_anchors_as_on_github() -> None:
    page = document("# Über *uns* & `code`!\n\n## Same\n\n## Same\n\n## Same-1\n\n## Sâme\n")
    assert [heading.anchor for heading in page.outline] == [
        "über-uns--code", "same", "same-1", "same-1-1", "sâme",
    ]  # fmt: skip
    assert page.outline[0].text == "Über uns & code!"


def test_anchors_that_collide_with_numbered_ones_stay_unique() -> None:
    names = ["x" + "-1" * depth for depth in range(1500)]
    page = document("".join(f"# {name}\n# {name}\n" for name in names if len(name) < 290))
    assert len({heading.anchor for heading in page.outline}) == len(page.outline)


def test_hugos_own_anchors_are_kept() -> None:
    page = document("## Before you begin {#before}\n\n## Path { #path-params }\n\n## A {b}\n")
    assert [(h.text, h.anchor) for h in page.outline] == [
        ("Before you begin", "before"),
        ("Path", "path-params"),
        ("A {b}", "a-b"),
    ]


def test_a_shortcode_in_a_heading_becomes_its_text() -> None:
    page = document('## {{% heading "whatsnext" %}}\n\n## {{< tip text="Pods" id="pod" >}} now\n')
    assert [heading.text for heading in page.outline] == ["whatsnext", "Pods now"]


def test_a_heading_has_the_lines_of_its_section() -> None:
    page = document("# One\n\ntext\n\n## Two\n\ntext\n\nThree\n=====\n\ntext")
    assert [(h.text, h.lines) for h in page.outline] == [
        ("One", (1, 8)),
        ("Two", (5, 8)),
        ("Three", (9, 12)),
    ]


def test_a_heading_ends_where_the_file_does_with_or_without_a_last_line_break() -> None:
    for end in ("", "\n"):
        page = document(f"# One\n\ntext\n\n## Two\n\ntext{end}")
        assert [h.lines for h in page.outline] == [(1, 7), (5, 7)]


def test_lines_count_from_the_top_of_the_file_under_frontmatter() -> None:
    page = document("---\ntitle: x\n---\n# One\n\n[a](b.md)\nand [c](d.md) ^mark\n")
    assert page.outline[0].lines[0] == 4
    assert [link.line for link in page.links] == [6, 7]
    assert page.blocks == {"mark": 7}


@pytest.mark.parametrize(
    "fence, language",
    [
        ('```python title="x.py"', "python"),
        ("```{.python .numberLines}", "python"),
        ("~~~ruby", "ruby"),
        ("``` C++", "c++"),
        ("```", ""),
        ("```js {1,3}", "js"),
        ("```js{1,3}", "js"),
        ("```title=x.py", ""),
    ],
)
def test_code_blocks_have_a_language(fence: str, language: str) -> None:
    closing = fence[:3]
    found = chunks(f"# A\n\ntext\n\n{fence}\ncode()\n{closing}\n")[0]
    assert found.code == "code()"
    assert found.languages == ((language,) if language else ())


def test_indented_nested_and_unclosed_code_is_code() -> None:
    assert chunks("text\n\n    indented()\n")[0].code == "indented()"
    assert chunks("- item\n\n  ```sh\n  nested\n    more\n  ```\n")[0].code == "nested\n  more"
    assert chunks("> ```\n> quoted()\n> ```\n")[0].code == "quoted()"
    assert chunks("```py\nnever closed()\n# no heading\n")[0].code == "never closed()\n# no heading"
    assert document("```py\n# no heading\n").outline == ()


def test_the_kind_of_a_passage_is_that_of_most_of_its_text() -> None:
    assert chunks("Some words.\n\n```\n" + "code\n" * 20 + "```\n")[0].kind is Kind.CODE
    assert chunks("| a | b |\n|---|---|\n" + "| c | d |\n" * 9)[0].kind is Kind.TABLE
    assert chunks("- one\n- two\n- three\n")[0].kind is Kind.LIST
    assert chunks("Just words.")[0].kind is Kind.PROSE


def test_tags_are_recognised_only_where_they_are_tags() -> None:
    page = document(
        "#start and #nested/tag, #über #日本 #with-dash_1 (#no) a#no #123 #1a\n\n"
        "`#no` <b title='#no'> [#no](x#no) https://a.b/#no &#35; \\#no #/ #-\n\n"
        "```\n#no\n```\n\n    #no\n\n# Heading #in-heading\n\n- #item\n\n| #cell |\n|---|\n| a #row |\n"
    )
    assert page.tags == (
        "start", "nested/tag", "über", "日本", "with-dash_1", "1a",
        "in-heading", "item", "cell", "row",
    )  # fmt: skip


def test_frontmatter_tags_come_first_and_each_counts_once() -> None:
    assert document("---\ntags: [A, '#b']\n---\n#a #B #c").tags == ("A", "b", "c")


SITE = """\
import Tabs from '@theme/Tabs';

{{< note >}}
A note about pods.
{{< /note >}}

{{% tab name="Linux" %}}
Run `apt` first.
{{% /tab %}}

<Tabs>
<TabItem value="one">

## Inside tabs

Text inside tabs.

</TabItem>
</Tabs>

<details>
<summary>More</summary>
Hidden words here.

### Inside details

Even more words.
</details>

:::warning
Mind the gap.
:::

!!! note "Admonition"
    Indented words.

<!-- a comment
over lines -->

{{- define "x" -}} macro text {{- end -}}
{% raw %}liquid words{% endraw %}

[ref]: other.md "A title"

export const value = {a: 1}
"""


def test_no_text_is_lost_around_shortcodes_tags_and_macros() -> None:
    made = entry(SITE)
    assert uncovered(parsed(SITE)[1], made.chunks) == []
    assert [h.text for h in made.document.outline] == ["Inside tabs", "Inside details"]


def test_no_text_is_lost_in_containers() -> None:
    deep = (
        "".join("  " * level + f"- level {level}\n" for level in range(70)) + "\n# After\n\nend\n"
    )
    made = entry(deep)
    assert uncovered(parsed(deep)[1], made.chunks) == []
    assert [h.text for h in made.document.outline] == ["After"]


def test_plain_text_is_paragraphs_and_nothing_else() -> None:
    document, made = parsed("# no heading\n\n[[no]] #no\nmore\n\n\nlast", "notes.txt")
    assert not document.outline
    assert not document.links
    assert not document.tags
    assert [block.line for block in made.blocks] == [0, 2, 6]


def test_a_very_long_heading_is_cut_but_its_text_is_indexed() -> None:
    text = "# " + "word " * 500 + "last\n\nbody\n"
    made = entry(text)
    assert len(made.document.title) <= 300
    assert len(made.document.outline[0].text) <= 300
    assert "last" in " ".join(chunk.text for chunk in made.chunks)
