"""Whatever a TOML file holds: our table comes and goes, every other line stays."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from marklight.surfaces.setup import within_toml

KEYS = ("mcp_servers", "marklight")
VALUE = {"command": "/usr/bin/marklight", "args": ["mcp", "/notes"]}
PIECES = (
    "# a comment\n",
    "\n",
    "[a]\nx = 1  # one\n",
    '[b."c d"]\ny = [\n  1,\n\n  2, # [mcp_servers.marklight]\n]\n',
    '[e]\nz = """\n[mcp_servers.marklight]\ncommand = "no"\n"""\n',
    "[[f]]\n[[f]]\ng = 'h'\n",
    '[mcp_servers.other]\ncommand = "x"\n[mcp_servers.other.env]\nA = "1"\n',
    "[mcp_servers.marklights]\nurl = 'u'\n",
)
FILES = st.permutations(PIECES).flatmap(
    lambda order: st.integers(0, len(order)).map(lambda many: "".join(order[:many]))
)


@given(FILES)
def test_a_table_comes_last_and_goes_without_a_trace(text: str) -> None:
    after = within_toml.put(text, KEYS, VALUE)
    assert after.startswith(text)
    found = tomllib.loads(after)
    assert found["mcp_servers"].pop("marklight") == VALUE
    assert within_toml.same(found, tomllib.loads(text))
    assert within_toml.take(after, KEYS) == text


@given(FILES, FILES)
def test_a_table_among_others_is_changed_in_its_place(before: str, after: str) -> None:
    after = "".join(piece for piece in PIECES if piece in after and piece not in before)
    own = "startup_timeout_sec = 9\n"
    text = f'{before}[mcp_servers.marklight]\nargs = [\n"a",\n]\n{own}command = "b"\n{after}'
    changed = within_toml.put(text, KEYS, VALUE)
    assert changed.startswith(f"{before}[mcp_servers.marklight]\n")
    assert changed.endswith(own + after)
    assert tomllib.loads(changed)["mcp_servers"]["marklight"] == {
        **VALUE,
        "startup_timeout_sec": 9,
    }


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_written(text: str) -> None:
    after = within_toml.put("", KEYS, {"command": text, "args": [text]})
    assert tomllib.loads(after)["mcp_servers"]["marklight"] == {"command": text, "args": [text]}
