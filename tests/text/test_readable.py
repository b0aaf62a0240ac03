"""Passages are shown as readable text: no markup, aligned tables, code unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.text.markdown import only_embeds, readable


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("one\\\ntwo  \nthree<br>four", "one\ntwo\nthree\nfour"),
        ("| a | long |\n|---|:-:|\n| 1 | `x` |", "a  long\n1  x"),
        ("| " + "a" * 60 + " | " + "b" * 60 + " |\n|--|--|", "a" * 60 + " · " + "b" * 60),
        ('{{< note >}}\nA {{< term text="pod" id="pod" >}}.\n{{< /note >}}', "A pod."),
        (
            '{{< figure src="/x.svg" alt="A node" class="large" caption="Figure 1." >}}',
            "A node. Figure 1",
        ),
        ("> [!WARNING]- Hot\n> Do **not** touch.", "Warning: Hot\nDo not touch."),
        ('!!! note "Cold"\n    Touch.', "Note: Cold\n    Touch."),
        ("/// tip\n\nTry it.\n\n///", "Tip:\n\nTry it."),
        (":::danger\nNo.\n:::", "Danger:\nNo."),
        ("Use the <title> element, `<b>` and <b>c</b>.", "Use the <title> element, <b> and c."),
        ("![[Note]] and [[a|b]] and ![x](y.png) [z](w.md)", "Note and b and x z"),
        (r"\[a\] C:\Users &amp; \_b\_", r"[a] C:\Users & _b_"),
        ("```py\nx = '**' + a_b\n```\nafter", "x = '**' + a_b\nafter"),
        ("# A {#id}\n\n- [ ] b\n- [x] c\n* d", "A\n\n☐ b\n☑ c\n• d"),
        ("snake_case_name and 2*3*4 and *it*", "snake_case_name and 2*3*4 and it"),
        ("a\n\n***\n\n[ref]: http://x.y", "a"),
        ("See <https://a.b/c>.", "See https://a.b/c."),
        ("by [@robot[bot]](https://a.b/c), [a](b)", "by @robot[bot], a"),
        ("---", "---"),
    ],
)
def test_markup_becomes_readable_text(markdown: str, shown: str) -> None:
    assert readable(markdown) == shown


def test_lines_of_a_paragraph_are_joined_where_a_snippet_is_made() -> None:
    text = "# A\none\ntwo\n\nthree  \nfour\n- five\n  six\n1. seven\n\n> [!note]\n> eight\n> nine\n\n```\na\n\nb\n```\n"
    assert readable(text, reflow=True) == (
        "A\none two\nthree\nfour\n• five six\n1. seven\nNote:\neight nine\na\n\nb"
    )


@given(st.text(alphabet="ab |`*_~[]()<>!#-=:\\/{}%&;\n\x00", max_size=200))
def test_no_text_fails_and_none_becomes_empty(text: str) -> None:
    assert bool(readable(text)) == bool(text.strip())
    assert readable(text, reflow=True).split() == readable(text).split()


def test_a_passage_that_only_embeds_has_no_text_of_its_own() -> None:
    assert only_embeds("![[Note]]\n\n![[Other#Part|name]]\n")
    assert not only_embeds("![[Note]] is embedded")
    assert not only_embeds("")


def test_costly_text_takes_linear_time() -> None:
    for piece in ("**a ", "`", "[[", "| ", "<a ", "\\", "{{<", "> ", "![[", "_a*", "[a][", ":-"):
        assert readable(piece * 20_000)


def test_links_that_a_passage_cuts_in_two_leave_no_markup() -> None:
    assert (
        readable("breakthrough](https://example.org/a) of the year.") == "breakthrough of the year."
    )
    assert readable("See the [first part](https://exam") == "See the first part"
    assert readable("It is [good at\nall](https://example.org). Yes.") == "It is good at all. Yes."
    assert readable("```\na[1\n](x)\n```") == "a[1\n](x)"
