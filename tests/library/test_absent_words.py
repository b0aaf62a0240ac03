"""A notice names the words of a query that no document of the library contains."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.operations import ModeName
from tests.making import library, write

PAGES = {
    "keys.md": (
        "---\ndate: 2026-03-01\n---\n# Keys\n\nThe key GOVUK_ROUTER_API_KEY is rotated every month."
        " GOVUK_NOTIFY is the sender of letters.\n"
    ),
    "hosts.md": "# Hosts\n\nEntitler runs on entitler.example.org; the log has ERR-4471 and v1.27.\n",
    "runbooks/kafka.md": "# Runbook\n\nRestart the brokers, which are parsed quickly.\n",
    "notes.md": "# Notes\n\n<!-- Ask the astronaut about it. -->\n\nTalk about 東京の天気.\n",
}


def absent(folder: Path, query: str, mode: ModeName = "keyword", **options: object) -> list[str]:
    """Return the notices about absent words."""
    with library(write(folder, PAGES)) as lib:
        answer = lib.search(query, mode=mode, **options)  # type: ignore[arg-type]
        assert [*answer.to_dict()["notices"]] == [*answer.notices]
        return [each for each in answer.notices if each.startswith("No document contains")]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("how do I restart Haskell brokers", '"Haskell"'),
        ("rotate SAP and Haskell keys", '"SAP" or "Haskell"'),
        ("what is GOVUK_NOTIFY_API_KEY", '"GOVUK_NOTIFY_API_KEY"'),
        ("owner of router.example.org", '"router.example.org"'),
        ("entitler.example.com runs", '"entitler.example.com"'),
        ("keys ERR-4472 and v1.28", '"ERR-4472" or "v1.28"'),
        ("brokers of 1871", '"1871"'),
        ("restart zebra.md", '"zebra.md"'),
    ],
)
def test_words_identifiers_and_literals_that_occur_nowhere_are_named(
    tmp_path: Path, query: str, words: str
) -> None:
    named = absent(tmp_path, query)
    assert [each for each in named if each.endswith(words)], named


@pytest.mark.parametrize(
    "query",
    [
        "how are keys rotating",  # in another inflection
        "restart kafka",  # in a path
        "restart kafka.md and runbooks/kafka.md",
        "astronaut",  # in text of a document that is in no passage
        "entitler.example.org log ERR-4471 v1.27",
        "GOVUK_ROUTER_API_KEY",
        "the 25 keys of 2026-03",  # a count, and a date that a document has
        "天気 大阪",  # written without spaces
        "keys path:hosts.md",  # a filter limits where to search, not what the library has
        "is it e.g. the key",
    ],
)
def test_nothing_is_reported_for_words_that_the_library_has(tmp_path: Path, query: str) -> None:
    assert absent(tmp_path, query) == []


def test_a_corrected_word_is_reported_once(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        [notice] = lib.search("brokrs of letters", mode="keyword").notices
        assert notice == 'No passage contains "brokrs". Did you mean "brokers"?'


def test_the_words_of_an_invented_answer_are_not_reported(tmp_path: Path) -> None:
    text = "The zebra restarts the brokers."
    assert absent(tmp_path, text, "hybrid", hypothesis=text) == []
    assert absent(tmp_path, text, "hybrid") == ['No document contains "zebra"']


def test_a_word_that_is_being_typed_is_not_reported(tmp_path: Path) -> None:
    assert absent(tmp_path, "restart zeb", prefix=True) == []


def test_of_many_absent_words_some_are_named(tmp_path: Path) -> None:
    names = [f"zebra_{number}_size" for number in range(9)]
    [notice] = absent(tmp_path, f"where are the keys of the {' '.join(names)}")
    assert notice.endswith('"zebra_4_size" or 4 other words')


def test_the_share_of_absent_words_is_that_of_their_idf(tmp_path: Path) -> None:
    with library(write(tmp_path, PAGES)) as lib:
        shares = [
            lib.search(text, mode="keyword").query.absent_share
            for text in ("restart the brokers", "restart the Haskell brokers", "Haskell")
        ]
    assert shares[0] == 0
    assert 1 / 3 <= shares[1] < 1 / 2  # one of three words, and the rarest
    assert shares[2] == 1
