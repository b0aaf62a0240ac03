"""Documents are rendered as safe HTML with line numbers and resolved links."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.ingest.document import parse_document
from marklight.ingest.read import Source
from marklight.ingest.render import MAX_LINES, Embed, Neighbours, Rendered, render
from marklight.model import Document, DocumentId, FileState
from tests.hostile import HOSTILE

TAGS = frozenset(
    "a abbr b bdi blockquote br caption cite code col colgroup dd del details dfn div dl dt em figcaption figure "
    "h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q rp rt ruby s samp small span strong sub summary sup table "
    "tbody td tfoot th thead time tr u ul var wbr "
    "math mrow mi mn mo ms mtext mspace msup msub msubsup mover munder munderover mfrac msqrt mroot mtable mtr mtd "
    "mstyle mpadded mphantom menclose mmultiscripts merror none".split()
)
ATTRIBUTES = frozenset(
    "id title lang dir data-lines data-plain href rel target alt start align colspan rowspan scope open datetime "
    "src width height class data-callout data-title data-embed data-footnotes data-formula data-image data-src data-file "
    "data-chip data-icon data-task data-language data-properties "
    "display displaystyle stretchy mathvariant columnalign scriptlevel linethickness fence form accent movablelimits "
    "lspace rspace depth minsize maxsize columnspacing rowspacing notation separator largeop mathsize".split()
)
LEADS = re.compile(r"(https?|mailto|marklight):|/api/files/")


class Tame(HTMLParser):
    """Fails on whatever is not text."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, f"{name} of {tag}"
            assert name != "href" or LEADS.match(value or ""), value
            assert name != "src" or (value or "").startswith("/api/files/")
            assert name != "class" or (tag == "span" and len(value or "") == 1)
            assert name != "id" or (value or "").startswith("part-")

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)


class Around(Neighbours):
    """Documents and images by name."""

    def __init__(self, targets: dict[str, str], texts: dict[str, str]) -> None:
        self.targets, self.texts = targets, texts

    def find(self, keys: tuple[str, ...]) -> str | None:
        return next((self.targets[key] for key in keys if key in self.targets), None)

    def file(self, target: str, *, wiki: bool) -> str | None:
        return self.targets.get(f"image {target}")

    def embed(self, keys: tuple[str, ...]) -> Embed | None:
        name = next((key for key in keys if key in self.texts), None)
        return Embed(parsed(self.texts[name], f"{name}.md"), f"{name}.md", self) if name else None


def parsed(text: str, path: str) -> Document:
    return parse_document(DocumentId("default", path), Source(text, FileState(1, 1)))[0]


def rendered(
    text: str,
    path: str = "guide/a.md",
    targets: dict[str, str] | None = None,
    line: int = 1,
    texts: dict[str, str] | None = None,
) -> Rendered:
    return render(parsed(text, path), path, Around(targets or {}, texts or {}), line)


def assert_safe(html: str) -> None:
    parser = Tame(convert_charrefs=True)
    parser.feed(html)
    parser.close()


@pytest.mark.parametrize("text", HOSTILE)
def test_no_html_of_a_document_runs_loads_or_imitates_the_page(text: str) -> None:
    assert_safe(rendered(f"# Before\n\n{text}\n\nAfter it.\n").html)
    assert_safe(rendered(text, "notes.txt").html)


@given(st.text(alphabet="<>/=\"'`&;:#()[]!*_-|{}%^~ \nabonsrcitpjvlemg0", max_size=200))
def test_arbitrary_text_yields_only_allowed_html(text: str) -> None:
    assert_safe(rendered(text).html)


@given(
    st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=4),
    st.sampled_from(["\n\n", " ", "\n> ", "\n- ", ""]),
)
def test_combined_attacks_yield_only_allowed_html(texts: list[str], between: str) -> None:
    assert_safe(rendered(between.join(texts)).html)


def test_every_block_has_its_line_numbers() -> None:
    text = "---\ntags: [x]\n---\n# One\n\ntwo\nlines\n\n- item\n- other\n\n```py\ncode\n```\n\n| a |\n|---|\n| b |\n"
    html = rendered(text).html
    assert '<h1 data-lines="4-4" id="part-one">One</h1>' in html
    assert '<p data-lines="6-7">two\nlines</p>' in html
    assert (
        '<li data-lines="10-10">other</li>' in html or '<li data-lines="10-11">other</li>' in html
    )
    assert '<pre data-lines="12-14" data-language="py"><code>code\n</code></pre>' in html
    assert '<tr data-lines="18-18">' in html
    assert '<details data-properties="" data-lines="1-3">' in html
    assert html.count("tags") == 1


def test_a_heading_has_the_anchor_of_the_outline() -> None:
    text = "# A b\n\n# A b\n\n## Named {#own}\n\n# Part 1\n"
    html = rendered(text).html
    assert re.findall(r'id="([^"]+)"', html) == [
        "part-a-b",
        "part-a-b-1",
        "part-own",
        "part-part-1",
    ]
    assert "{#own}" not in html


def test_links_to_documents_are_internal_and_others_external() -> None:
    targets = {"guide/tokens.md": "guide/tokens.md", "auth": "docs/auth.md", "up.md": "up.md"}
    html = rendered(
        "[t](tokens.md#ex%20piry) [[Auth#Token refresh|auth]] <a href='../up.md'>up</a> [out](https://a.b/?c&d) "
        "[self](#part) [gone](gone.md) [[Gone]] ![[pic.png]] ![alt](pic.png) [m](mailto:a@b.c)",
        targets=targets,
    ).html
    found = re.findall(r"<a ([^>]*)>([^<]*)</a>", html)
    assert all(
        'target="_blank"' in each and 'rel="noopener noreferrer"' in each for each, _ in found
    )
    addresses = [(*re.findall(r'href="([^"]*)"', each), label) for each, label in found]
    assert addresses == [
        ("marklight:guide/tokens.md#ex%20piry", "t"),
        ("marklight:docs/auth.md#Token%20refresh", "auth"),
        ("marklight:up.md", "up"),
        ("https://a.b/?c&amp;d", "out"),
        ("marklight:guide/a.md#part", "self"),
        ("gone",),
        ("Gone",),
        ("mailto:a@b.c", "m"),
    ]
    assert html.count("<span data-image=") == 2
    assert "src=" not in html


def test_a_link_may_be_defined_below_its_use() -> None:
    html = rendered(
        "[t][r]\n\n[r]: tokens.md\n", targets={"guide/tokens.md": "guide/tokens.md"}
    ).html
    assert 'href="marklight:guide/tokens.md"' in html


def test_tasks_tables_and_details_are_rendered() -> None:
    html = rendered(
        "- [ ] open\n- [x] done\n\n|a|b|\n|-|-:|\n|1|2|\n\n<details><summary>S</summary>\n\n*in*\n\n</details>\n"
    ).html
    assert "☐ open" in html
    assert "☑ done" in html
    assert '<td align="right">2</td>' in html
    assert re.search(r"<details><summary>S</summary>\s*<p[^>]*><em>in</em></p>", html)


def test_plain_text_keeps_its_line_ends() -> None:
    html = rendered("one\n two < 3\n\nthree\n", "notes.txt").html
    assert html.splitlines()[0] == '<p data-lines="1-2" data-plain="">one'
    assert " two &lt; 3</p>" in html
    assert '<p data-lines="4-4" data-plain="">three</p>' in html


def test_a_plain_text_without_text_is_empty() -> None:
    assert rendered("\n\n", "notes.txt").html == ""


def test_frontmatter_that_cannot_be_read_is_shown_as_text() -> None:
    assert (
        '<pre data-lines="1-3">---\n: [broken\n---</pre>'
        in rendered("---\n: [broken\n---\n\n# A\n").html
    )


@pytest.mark.parametrize("line", [1, 5_000, 20_000])
def test_a_long_document_is_rendered_around_the_requested_line(line: int) -> None:
    text = "".join(f"# Part {number}\n\nSaid in {number}.\n\n" for number in range(5_000))
    found = rendered(text, line=line)
    first, last = found.lines
    assert first <= line <= last
    assert last - first < MAX_LINES
    assert f'data-lines="{min(line, 19_999) // 4 * 4 + 1}' in found.html


def test_a_document_of_one_huge_line_is_rendered() -> None:
    assert len(rendered("word " * 200_000).html) > 900_000


@pytest.mark.parametrize("text", ["", "\n", "---\na: 1\n---\n", "\ufffd", "<", "[", "`" * 50])
def test_a_nearly_empty_document_is_rendered(text: str) -> None:
    assert_safe(rendered(text).html)


def test_html_that_is_costly_to_parse_is_escaped() -> None:
    many = "<p " + " ".join(f"a{number}=1" for number in range(50_000)) + ">"
    assert "&lt;p a0=1" in rendered(many).html
    nested = rendered("<i>x</i>" * 50 + "\n\n" + ("x <b>y</b>" * 50 + "\n\n") * 250).html
    assert "<i>" in nested
    assert "&lt;b&gt;" in nested


def test_entities_and_escapes_are_rendered_as_characters() -> None:
    assert ">AT&amp;T, *not* ©</p>" in rendered("AT&amp;T, \\*not\\* &copy;\n").html


def test_invisible_and_reordering_characters_are_made_visible() -> None:
    html = rendered("a \u202e b &#x202e; <b>\u2066</b> <i>&#8238;</i>\n\n```\n\u202e\n```\n").html
    assert html.count("\\u202e") == 4
    assert html.count("\\u2066") == 1
    assert "\u202e" not in html


def test_hebrew_and_persian_text_is_unchanged() -> None:
    assert "שלום, می\u200cخواهم" in rendered("שלום, می\u200cخواهم\n").html


def test_no_element_reorders_its_text() -> None:
    assert rendered('<bdo dir="rtl">abc</bdo>\n').html.count("bdo") == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Use the <title> element.", "Use the &lt;title&gt; element."),
        ("<title> is an element.", "&lt;title&gt; is an element."),
        ("`a` <textarea> b", "</code> &lt;textarea&gt; b"),
        ("from <title> to </title>.", "from &lt;title&gt; to &lt;/title&gt;."),
        (
            "kubectl get <name> -n <namespace>",
            "kubectl get &lt;name&gt; -n &lt;namespace&gt;",
        ),
        ("<link to the test>: x", "&lt;link to the test&gt;: x"),
        ("all <a> and <b> elements", "all &lt;a&gt; and &lt;b&gt; elements"),
        ("a <b>c</b> <kbd>d</kbd><br>e", "a <b>c</b> <kbd>d</kbd><br>e"),
        ("A <note>x</note>", "A &lt;note&gt;x&lt;/note&gt;"),
        ('a <font color="red">b</font> c', "a b c"),
        ('a <svg width="1"><path d="M0"/></svg> b', "a  b"),
        ('<a name="x"/>after *it*', "after <em>it</em>"),
        ("<!-- open\n\nafter", "&lt;!-- open"),
    ],
)
def test_a_tag_is_markup_only_where_html_has_it_and_the_document_closes_it(
    text: str, shown: str
) -> None:
    html = rendered(f"{text}\n\nThe rest.\n").html
    assert shown in html
    assert "The rest." in html


def test_components_and_unclosed_elements_on_lines_of_their_own_hide_nothing() -> None:
    html = rendered(
        '<Tabs>\n\none\n\n</Tabs>\n\n<div class="x">\n\ntwo\n\n<details>\n\nthree\n\n<name>\n\nfour\n'
    ).html
    assert "Tabs" not in html
    assert "<div" not in html
    assert "&lt;details&gt;" in html
    assert "&lt;name&gt;" in html
    assert re.findall(r"<p [^>]*>(\w+)</p>", html) == ["one", "two", "three", "four"]


def test_an_element_is_closed_in_another_block() -> None:
    html = rendered("<details>\n<summary>More</summary>\n\nHidden.</details>\n\nAfter.\n").html
    assert "<details>" in html
    assert "&lt;" not in html


def test_scripts_and_styles_are_removed_with_their_content() -> None:
    html = rendered(
        "<style>\np { color: red }\n</style>\n\n<script>\nx <b> y\n</script>\n\nA.\n"
    ).html
    assert "color" not in html
    assert "y" not in html
    assert ">A.</p>" in html


@given(st.text(alphabet="<>/=\"' \nabit!-?[C", max_size=120))
def test_no_tag_swallows_the_rest_of_a_document(text: str) -> None:
    assert "The rest." in rendered(f"x {text}\n\n# The rest.\n").html or "`" in text


def test_unclosed_tags_take_linear_time() -> None:
    for piece in ("<a ", '<a "', "<!-- ", "<svg x=1>", "<?", "<![CDATA[", "<title>", "<b>"):
        assert rendered(f"<div>\n{piece * 20_000}").html


def test_a_list_after_a_paragraph_and_a_fence_keeps_its_number() -> None:
    assert '<ol start="2"' in rendered("Text:\n```yaml\n```\n2. two\n").html


CALLOUTS = {
    "> [!warning] Hot\n> Text\n": ("warning", "Hot"),
    "> [!NOTE]\n> Text\n": ("note", "Note"),
    '!!! danger "Hot"\n    Text\n': ("danger", "Hot"),
    ":::tip[Hot]\nText\n:::\n": ("tip", "Hot"),
    "::: tip Hot\nText\n:::\n": ("tip", "Hot"),
    "/// check | Hot\n\nText\n\n///\n": ("tip", "Hot"),
}


@pytest.mark.parametrize("text", CALLOUTS)
def test_callouts_of_notes_and_documentation_sites_have_kind_and_title(text: str) -> None:
    kind, title = CALLOUTS[text]
    html = rendered(text).html
    assert f'<div data-callout="{kind}"' in html
    assert f'<p data-title="">{title}</p>' in html
    assert ">Text</p>" in html
    assert not re.search(r"\[!|!!!|:::|///", html)


@pytest.mark.parametrize(
    ("text", "opened"),
    [("> [!tip]- T\n> x\n", False), ("> [!tip]+ T\n> x\n", True), ("??? tip\n    x\n", False)],
)
def test_callouts_fold(text: str, opened: bool) -> None:
    html = rendered(text).html
    assert '<details data-callout="tip"' in html
    assert ("open" in html) == opened
    assert "<summary>T" in html


def test_a_callout_contains_another_and_a_footnote_its_own_blocks() -> None:
    html = rendered(
        "> [!note]\n> > [!tip]\n> > Inner.\n\nText[^a].\n\n[^a]: Note\n\n    - item\n"
    ).html
    assert re.search(r'data-callout="note".*<div data-callout="tip".*Inner', html, re.DOTALL)
    assert 'href="marklight:guide/a.md#fn-1" id="part-fnref-1"' in html
    assert re.search(r'data-footnotes.*<li id="part-fn-1">.*Note.*<li[^>]*>item', html, re.DOTALL)


def test_what_only_looks_like_a_container_or_a_formula_is_text() -> None:
    text = "/// unclosed\n\nIt costs $5 or $10 in $HOME/$USER, if a == b == c.\n\n::: note\n"
    html = rendered(text).html
    assert "callout" not in html
    assert "$5 or $10 in $HOME/$USER, if a == b == c." in html


def test_formulas_are_mathml_and_those_that_fail_are_source() -> None:
    html = rendered(
        "Let $a^2$ and\n\n$$\n\\frac{1}{2}\n$$\n\n$\\newcommand{x}{y}$ $\\frac{$\n"
    ).html
    assert '<math display="inline"><mrow><msup><mi>a</mi><mn>2</mn></msup></mrow></math>' in html
    assert '<math display="block"><mrow><mfrac>' in html
    assert "<code>\\newcommand{x}{y}</code>" in html


def test_formulas_of_several_lines_are_aligned_and_labels_are_not_shown() -> None:
    latex = r"\begin{aligned} a &= \arg\max b \\ c &= d \label{eq:1} \end{aligned}"
    html = rendered(f"$$\n{latex}\n$$\n").html
    assert html.count("<mtr>") == 2
    assert html.count("<mtd") == 4
    assert not re.search(r"\\|&amp;|eq:1", html)


@pytest.mark.parametrize(
    "latex",
    [
        "<script>window.ran=1</script>",
        "\\href{javascript:window.ran=1}{x}",
        "\\class{x}{y} \\style{color:red}{z} \\color{red} x",
        "\\text{<img src=x onerror=window.ran=1>}",
        "&lt;script&gt; \\&#x3c;b\\&#x3e; &#xd800;",
    ],
)
def test_a_formula_contains_no_other_markup(latex: str) -> None:
    html = rendered(f"A ${latex}$ b.\n").html
    assert_safe(html)
    assert not re.search(r"<(script|img|b)\b", html)


def test_code_is_coloured_by_classes_and_its_text_is_unchanged() -> None:
    code = "def f(x):\n    return '<b>' # c\n"
    html = rendered(f"```python\n{code}```\n").html
    assert '<span class="k">def</span> <span class="f">f</span>(x)' in html
    assert unescape(re.sub("<[^>]+>", "", html)).strip("\n") == code.strip("\n")
    assert "<span" not in rendered("```unknown\ndef\n```\n").html
    assert '<span class="k">graph</span>' in rendered("```mermaid\ngraph TD\n```\n").html


def test_images_of_the_collection_have_an_address_and_a_size_and_others_do_not() -> None:
    targets = {"image pic.png": "guide/pic.png", "image b c.png": "b c.png", "image i.svg": "i.svg"}
    html = rendered(
        '![A|120](pic.png) ![[b c.png|80x40]] ![[i.svg#icon]] <img src="pic.png" width="50%" onerror="x"> '
        "![far](https://outside.invalid/x.png) ![gone](gone.png) ![d](data:image/png;base64,AAAA) ![[a.pdf]]\n",
        targets=targets,
    ).html
    assert_safe(html)
    assert '<img src="/api/files/guide/pic.png" alt="A" width="120">' in html
    assert '<img src="/api/files/b%20c.png" alt="b c.png" width="80" height="40">' in html
    assert '<img src="/api/files/i.svg" alt="i.svg" data-icon="">' in html
    assert '<img src="/api/files/guide/pic.png" alt="pic.png" width="50%">' in html
    assert (
        '<span data-image="outside.invalid" data-src="https://outside.invalid/x.png">far</span>'
        in html
    )
    assert '<span data-image="">gone</span>' in html
    assert '<span data-file="pdf">a.pdf</span>' in html
    assert html.count(" src=") == 4


def test_embeds_show_a_document_a_section_or_a_block_once() -> None:
    texts = {
        "other": "---\na: 1\n---\n# Other\n\nFirst.\n\n## Part\n\nSecond.\n\n- one ^id\n- two\n\n![[a]] [[deep]]\n"
    }
    for target, shown, hidden in (
        ("other", "First", "nothing"),
        ("other#Part", "Second", "First"),
        ("other#^id", "one", "two"),
    ):
        html = rendered(f"# A\n\n![[{target}]]\n", texts=texts, targets={"deep": "deep.md"}).html
        embedded = html.partition('data-embed=""')[2]
        assert shown in embedded, target
        assert hidden not in embedded, target
        assert "data-lines" not in embedded
        assert 'href="marklight:other.md' in embedded
    assert (
        'href="marklight:deep.md"'
        in rendered("![[other]]\n", texts=texts, targets={"deep": "deep.md"}).html
    )


def test_comments_are_hidden_and_marks_scripts_and_definitions_rendered() -> None:
    html = rendered("A %%secret%% ==b== H~2~O m^2^\n\n%%\nsecret\n%%\n\nTerm\n: What\n").html
    assert "secret" not in html
    for part in ("<mark>b</mark>", "<sub>2</sub>", "<sup>2</sup>", "<dt", "<dd"):
        assert part in html


def test_shortcodes_and_includes_are_quiet() -> None:
    html = rendered(
        '{{< tabs >}} {{< figure caption="C" >}} {{< /tabs >}} {* ../a.py hl[1] *}\n'
    ).html
    assert '<span data-chip="">tabs</span> C  <span data-chip="">../a.py hl[1]</span>' in html


@pytest.mark.parametrize(
    "piece",
    ["> [!a] ", "!!! a\n", "[^a]: ", "$a ", "$$ a\n", "==a ", "::: a\n", "/// a\n", "~a ", "^a ", "a\n: ", "![[a]]\n\n",
     "$\\frac{", "^[a", "$$\\sqrt{\n"],
)  # fmt: skip
def test_extended_syntax_takes_linear_time(piece: str) -> None:
    assert rendered(piece * (20_000 // len(piece)) + "\n\nThe rest.\n").html
