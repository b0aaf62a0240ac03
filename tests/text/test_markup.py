"""Markup is removed from the text to embed; words and code stay."""

from __future__ import annotations

import pytest

from marklight.text.markdown import strip_markup
from tests.linear import demand_linear


@pytest.mark.parametrize(
    "text",
    [
        "Use `vector<int>` and `kubectl delete <pod>` with `a[0](b)` and `[[x]]`.",
        "```cpp\nstd::map<string, vector<int>> a; // <b>bold</b>\n```\n",
        "~~~html\n<div class='x'>\n\n[a](b.md) {{< note >}}\n~~~\n",
        "- ```\n  <b>bold</b>\n  ```\n",
        "> ```\n> <b>bold</b>\n> ```\n",
        "````md\n```\n<b>bold</b>\n```\n````\n",
        "```\nno end\n\n<b>bold</b>\n",
        "``a ` <b>bold</b>``",
        "Replace <name> and <your-token>, then run kubectl delete <pod> -n <NAMESPACE>.",
        "A vector<int>, a Map<String, List<Integer>> and a Promise<void>.",
        "if a <b and c> d",
        "Write to <me@example.com> or <https://example.com>.",
    ],
)
def test_code_and_text_that_resembles_tags_stay(text: str) -> None:
    assert strip_markup(text) == text


@pytest.mark.parametrize(
    "text, words",
    [
        ("one<br>two<br/>three", "one two three"),
        ("<div>open where the passage ends", "open where the passage ends"),
        ('<Tabs groupId="os"><TabItem value="a">Linux</TabItem></Tabs>', "Linux"),
        ("<Note>Mind the gap</Note>", "Mind the gap"),
        ("<Icon/> and <Icon name={x} />", "and"),
        ("end</b> <!-- <pod> -->of", "end of"),
        ("See [`vector<int>`](/docs/v.md) and [b](c.md)", "See `vector<int>` and b"),
        ("a ` b <b>bold</b>\n\nc ` d", "a ` b bold c ` d"),
        ("```a``` <b>bold</b> [b](c.md)", "```a``` bold b"),
        ("```\n<a>\n```\n<p>words</p> `<i>`", "``` <a> ``` words `<i>`"),
    ],
)
def test_markup_is_removed(text: str, words: str) -> None:
    assert " ".join(strip_markup(text).split()) == words


UNITS = [
    "`<a>",
    "``` ",
    "```\n",
    "~~~\n<b>",
    "> ",
    " ",
    "`a``b```c",
    "\n \n",
    "<a>",
    "</a",
    "a<b>`",
    "- 1. ",
]


@pytest.mark.parametrize("unit", [*UNITS, "backticks"])
def test_removing_markup_takes_linear_time(unit: str) -> None:
    def text(size: int) -> str:
        if unit == "backticks":
            return "<" + " ".join("`" * n for n in range(1, int((2 * size) ** 0.5)))
        return "<" + unit * (size // len(unit))

    demand_linear(strip_markup, text, 100_000)
