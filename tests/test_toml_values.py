"""Parsing TOML of others takes memory in proportion to its length."""

from __future__ import annotations

import tomllib
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight import settings, toml_values
from marklight.errors import SettingsError
from marklight.toml_values import MAX_BYTES, MAX_KEY_PARTS, TooDeep
from tests.making import library, write

DEEP = "a." * 20_000 + "a = 1\n"
BOMBS = {
    "dotted": DEEP,
    "spaced": "a . " * 10_000 + "a = 1\n",
    "quoted": '"a".' * 10_000 + "a = 1\n",
    "literal": "'a'." * 10_000 + "a = 1\n",
    "table": "[" + "a." * 20_000 + "a]\n",
    "array of tables": "[[" + "a." * 20_000 + "a]]\n",
    "inline": "x = {" + DEEP.strip() + "}\n",
    "after a string": 'x = """a""""\n' + DEEP,
    "between marks": 'x = ["""a"""", {' + DEEP.strip() + ', b = ""}]\n',
    "after an apostrophe": "x = '''it's'''''\n" + DEEP,
    "after a comment": "# it's\n" + DEEP,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_key_of_thousands_of_parts_is_rejected_before_memory_is_allocated(bomb: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TooDeep, match=r"^line \d: a key has more than 20 parts$"):
            toml_values.loads(bomb)
        assert tracemalloc.get_traced_memory()[1] < 50 * len(bomb)
    finally:
        tracemalloc.stop()


def test_normal_depths_are_parsed() -> None:
    text = (
        ".".join("a" * MAX_KEY_PARTS) + " = 1.5\n"
        'text = "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w" # a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v\n'
        'long = """\n1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18.19.20.21.22 \\" """\n'
    )
    assert toml_values.loads(text) == tomllib.loads(text)


@given(st.text(alphabet="ab.\"'#=\\\n[]{}, 1", max_size=60))
def test_short_texts_are_parsed_as_by_tomllib(text: str) -> None:
    def outcome(loads: object) -> object:
        try:
            return loads(text)  # type: ignore[operator]
        except TooDeep:
            return None
        except (ValueError, RecursionError) as error:
            return str(error)

    found = outcome(toml_values.loads)
    assert found is None or found == outcome(tomllib.loads)


def test_settings_that_are_too_deep_or_too_large_are_one_error(tmp_path: Path) -> None:
    file = tmp_path / "marklight.toml"
    file.write_text(DEEP)
    with pytest.raises(SettingsError, match="line 1: a key has more than 20 parts"):
        settings.layer_of(file.read_bytes(), file)
    file.write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(SettingsError, match="more than 1,000,000 bytes"):
        settings.layer_of(file.read_bytes(), file)


def test_a_document_with_too_deep_frontmatter_is_indexed_without_it(tmp_path: Path) -> None:
    write(tmp_path, {"page.md": f"+++\n{DEEP}+++\n\n# Page\n\nA wombat.\n"})
    with library(tmp_path) as lib:
        report = lib.index()
        assert [message for _, message in report.remarks] == [
            "frontmatter could not be parsed: line 1: a key has more than 20 parts"
        ]
        assert lib.search("wombat", mode="keyword").hits
