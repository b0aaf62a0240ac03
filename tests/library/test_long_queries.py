"""Queries as long as a pasted document: only their beginning is searched, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from marklight.search.pipeline import TOO_LONG
from marklight.text.analyzer import MAX_QUERY_CHARACTERS, MAX_QUERY_WORDS, first_words
from tests.making import library, write

WORDS = [f"{first}{second}{number}" for first in "bdfgklmnprst" for second in "aeiou" for number in range(150)]  # fmt: skip
"""9,000 different words."""

MEASURE = """
import json, sys
import marklight

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

words = json.load(sys.stdin)
with marklight.open(sys.argv[1], {"model": {"name": "fake"}}) as library:
    library.index()
    library.search(" ".join(words[:400]), mode="keyword")
    before = resident()
    library.search(" ".join(words), mode="keyword")
    print(resident() - before)
"""


def test_words_beyond_the_limit_are_not_searched_and_a_notice_says_so(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.md": "# Alpha\n\nrollback\n", "b.md": "# Beta\n\nespresso\n"})
    query = " ".join([*["rollback"] * MAX_QUERY_WORDS, "espresso"])
    with library(folder) as lib:
        answer = lib.search(query, mode="keyword")
        assert [hit.chunk.path for hit in answer] == ["a.md"]
        assert TOO_LONG in answer.notices
        assert answer.to_dict()["query"]["text"] == query
        shorter = lib.search(query.removesuffix("espresso"), mode="keyword")
        assert not shorter.notices


@pytest.mark.parametrize(
    ("typed", "searched"),
    [
        ("pod " * 600, ("pod " * MAX_QUERY_WORDS).rstrip()),
        ("漢" * 600, "漢" * MAX_QUERY_WORDS),
        ("漢字 pod " * 200, ("漢字 pod " * 171)[:-5]),
        ("x" * 20_000, "x" * MAX_QUERY_CHARACTERS),
        ("pod " * 500, "pod " * 500),
    ],
)
def test_the_beginning_of_a_query_has_so_many_words(typed: str, searched: str) -> None:
    assert first_words(typed) == searched


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_query_of_nine_thousand_words_takes_no_more_memory_than_one_of_four_hundred(
    tmp_path: Path,
) -> None:
    pages = {f"{at}.md": " ".join(WORDS[at : at + 100]) for at in range(0, len(WORDS), 50)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(write(tmp_path, pages))],
        input=json.dumps(WORDS),
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 20  # 512 × 9 clauses and their postings; all words take some 100
