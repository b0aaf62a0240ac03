"""Datasets in the BEIR layout and in TOML are read; errors name the line and what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.errors import UsageError
from marklight.eval.dataset import CORPUS, EXAMPLE, QRELS, QUERIES, off_topic_queries, read_dataset
from tests.making import write

GOOD = {
    CORPUS: '{"_id": "d1", "title": "Tokens", "text": "They expire."}\n{"_id": "d2", "text": "Rest"}\n',
    QUERIES: '{"_id": "q1", "text": "when do tokens expire"}\n{"_id": "q2", "text": "unjudged"}\n',
    QRELS: "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n",
}
OWN = '[[questions]]\ntext = "when"\nanswers = ["a.md"]\n'


def refusal(path: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read_dataset(path)
    return caught.value


def test_a_folder_in_the_beir_layout_is_read(tmp_path: Path) -> None:
    dataset = read_dataset(write(tmp_path / "small", GOOD))
    assert dataset.name == "small"
    assert [text.id for text in dataset.texts] == ["d1", "d2"]
    assert dataset.texts[1].title == ""
    [query] = dataset.queries
    assert {id: judgement.grade for id, judgement in query.answers.items()} == {"d1": 2}
    assert dataset.notices == ("queries left out because no judgement of them is above 0: 1 of 2",)


def test_numeric_ids_blank_lines_and_crlf_are_accepted(tmp_path: Path) -> None:
    files = {
        CORPUS: '\ufeff{"_id": 7, "title": null, "text": "a\u2028b"}\r\n\r\n',
        QUERIES: '{"_id": 1, "text": "x"}\r\n',
        QRELS: "1\t7\t1\r\n",
    }
    dataset = read_dataset(write(tmp_path, files))
    assert dataset.texts[0].id == "7"
    assert dataset.texts[0].text == "a\u2028b"
    assert set(dataset.queries[0].answers) == {"7"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (QUERIES, '{"_id": "q1", "text": "x"}\n{"_id": ', "queries.jsonl:2 is not JSON"),
        (QUERIES, "[]\n", "queries.jsonl:1: Expected `object`"),
        (QUERIES, "[" * 100_000, "queries.jsonl:1 is not JSON"),
        (QUERIES, '{"text": "x"}\n', "queries.jsonl:1: Object missing required field `_id`"),
        (QUERIES, '{"_id": true, "text": "x"}\n', "got `bool` - at `$._id`"),
        (QUERIES, '{"_id": "q1"}\n', "queries.jsonl:1: Object missing required field `text`"),
        (QUERIES, '{"_id": "q1", "text": "  "}\n', "at `$.text`"),
        (QUERIES, '{"_id": "q1", "text": "x", "sources": "a"}\n', "at `$.sources`"),
        (QUERIES, "\n\n", "queries.jsonl is empty"),
        (
            QUERIES,
            '{"_id": "q1", "text": "x"}\n\n{"_id": "q1", "text": "y"}\n',
            "queries.jsonl:3: the _id 'q1' is empty or not unique",
        ),
        (CORPUS, '{"_id": "d1"}\n', "corpus.jsonl:1: Object missing required field `text`"),
        (
            CORPUS,
            '{"_id": "d1", "text": 3}\n',
            "corpus.jsonl:1: Expected `str`, got `int` - at `$.text`",
        ),
        (CORPUS, "", "corpus.jsonl is empty"),
        (CORPUS, GOOD[CORPUS] * 2, "corpus.jsonl:3: the _id 'd1' is empty or not unique"),
        (QRELS, "", "No judgement in"),
        (QRELS, "query-id\tcorpus-id\tscore\nq1\td1\t0\n", "No judgement in"),
        (QRELS, "query-id\tcorpus-id\tscore\nq1\td1\n", "test.tsv:2 is 'q1\\td1'"),
        (QRELS, "q1\td1\t1\nq1\td2\tyes\n", "test.tsv:2 is 'q1\\td2\\tyes'"),
        (QRELS, "q1 0 d1 1\n", "test.tsv:1 is 'q1 0 d1 1'"),
        (QRELS, "q1\td1\t1\nq9\td1\t1\n", "test.tsv:2 judges the query 'q9'"),
        (QRELS, "q1\td9\t1\nq1\td8\t1\n", "test.tsv:1 judges the document 'd9'"),
        (QRELS, "q1\td1\t1\nq1\td1\t2\n", "test.tsv:2 gives 'd1' the score 2"),
    ],
)
def test_an_error_names_the_line_and_what_is_expected(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    error = refusal(write(tmp_path, {**GOOD, name: text}))
    assert message in error.message
    assert error.hint


def test_several_unknown_documents_are_reported_as_a_count(tmp_path: Path) -> None:
    error = refusal(write(tmp_path, {**GOOD, QRELS: "q1\td9\t1\nq1\td8\t1\nq1\td7\t1\n"}))
    assert "(and 2 more lines like it)" in error.message


def test_a_repeated_judgement_counts_once(tmp_path: Path) -> None:
    dataset = read_dataset(write(tmp_path, {**GOOD, QRELS: "q1\td1\t1\nq1\td1\t1\n"}))
    assert len(dataset.queries[0].answers) == 1


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    write(tmp_path, {**GOOD, CORPUS: b'{"_id": "d1", "text": "a"}\n{"_id": "\xff"}\n'})
    assert f"{CORPUS}:2 is not UTF-8" in refusal(tmp_path).message


@pytest.mark.parametrize("name", [CORPUS, QUERIES, QRELS])
def test_a_missing_file_is_named_with_its_expected_format(tmp_path: Path, name: str) -> None:
    error = refusal(write(tmp_path, {other: text for other, text in GOOD.items() if other != name}))
    assert f"There is no {name}" in error.message
    assert error.hint.startswith("Expected one ")


@pytest.mark.parametrize("path", ["nowhere", "notes.md", "empty", "a\0b"])
def test_a_path_that_is_no_dataset_yields_a_hint(tmp_path: Path, path: str) -> None:
    (tmp_path / "notes.md").touch()
    (tmp_path / "empty").mkdir()
    assert "`marklight eval` without" in refusal(tmp_path / path).hint


def test_a_toml_dataset_is_read(tmp_path: Path) -> None:
    text = 'corpus = "docs"\noff_topic = ["how do I prune roses"]\n' + OWN
    write(tmp_path, {"mine.toml": text, "docs/a.md": ""})
    dataset = read_dataset(tmp_path / "mine.toml")
    assert (dataset.name, dataset.folder) == ("mine", (tmp_path / "docs").resolve())
    assert dataset.references
    assert dataset.off_topic == ("how do I prune roses",)
    [query] = dataset.queries
    assert set(query.answers) == {"a.md"}
    assert query.answers["a.md"].where.endswith("mine.toml:3: question 1")


def test_a_described_folder_has_its_queries_in_beir_files(tmp_path: Path) -> None:
    described = 'corpus = "../pages"\ndrop_sources = true\n'
    queries = '{"_id": "q1", "text": "x", "sources": ["b.md"]}\n'
    files = {
        "set/dataset.toml": described,
        f"set/{QUERIES}": queries,
        f"set/{QRELS}": "q1\ta.md\t1\n",
        "pages/a.md": "",
    }
    write(tmp_path, files)
    for path in (tmp_path / "set", tmp_path / "set" / "dataset.toml"):
        dataset = read_dataset(path)
        assert dataset.name == "set"
        assert dataset.drop_sources
        assert not dataset.references
        assert dataset.queries[0].sources == ("b.md",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("corpus = ", "is not TOML"),
        (b"corpus = '\xff'", "is not TOML"),
        (OWN, "missing required field `corpus`"),
        ("corpus = 3\n" + OWN, "Expected `str`, got `int` - at `$.corpus`"),
        ('corpus = "nowhere"\n' + OWN, "is not a folder"),
        ('corpus = "a\\u0000b"\n' + OWN, "is not a "),
        ('corpus = "."\nanswer = 1\n' + OWN, "unknown field `answer`"),
        ('corpus = "."\noff_topic = "x"\n' + OWN, "Expected `array`, got `str` - at `$.off_topic`"),
        (
            'corpus = "."\ndrop_sources = "no"\n' + OWN,
            "Expected `bool`, got `str` - at `$.drop_sources`",
        ),
        ('corpus = "."\nquestions = []\n', "has no questions"),
        ('corpus = "."\nquestions = ["x"]\n', "question 1: Expected `object`, got `str`"),
        (
            'corpus = "."\n[[questions]]\nanswers = ["a.md"]\n',
            "mine.toml:2: question 1: Object missing required field `text`",
        ),
        (
            'corpus = "."\n',
            "mine.toml has no [[questions]], and there is no queries.jsonl beside it",
        ),
        (
            'corpus = "."\n[[questions]]\ntext = "x"\n',
            "mine.toml:2: question 1: Object missing required field `answers`",
        ),
        (
            'corpus = "."\n[[questions]]\ntext = "x"\nanswers = []\n',
            "mine.toml:2: question 1: Expected `array` of length >= 1",
        ),
        (
            'corpus = "."\n[[questions]]\ntext = "x"\nanswer = ["a.md"]\n',
            "mine.toml:2: question 1: Object contains unknown field `answer`",
        ),
        ('corpus = "."\n' + OWN + OWN, "mine.toml:5: question 2 is the same as question 1"),
    ],
)
def test_an_error_in_a_toml_dataset_names_the_line(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    write(tmp_path, {"mine.toml": text})
    assert message in refusal(tmp_path / "mine.toml").message


def test_the_printed_example_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, {"questions.toml": EXAMPLE, "docs/guides/database.md": "# Backups"})
    dataset = read_dataset(tmp_path / "questions.toml")
    assert len(dataset.queries) == 2
    assert dataset.off_topic == ("how do I prune roses",)


def test_a_sample_is_repeatable_and_in_order(tmp_path: Path) -> None:
    queries = "".join(f'{{"_id": "q{number}", "text": "x"}}\n' for number in range(50))
    judged = "".join(f"q{number}\td1\t1\n" for number in range(50))
    dataset = read_dataset(write(tmp_path, {**GOOD, QUERIES: queries, QRELS: judged}))
    sample = dataset.sampled(10).queries
    assert len(sample) == 10
    assert sample == dataset.sampled(10).queries
    assert list(sample) == sorted(sample, key=lambda query: int(query.id[1:]))
    assert dataset.sampled(None) == dataset.sampled(50) == dataset.sampled(99) == dataset


def test_built_in_off_topic_queries_are_distinct() -> None:
    queries = off_topic_queries()
    assert len(queries) == len(set(queries)) == 40
