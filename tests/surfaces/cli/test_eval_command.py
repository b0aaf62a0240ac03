"""The command eval, run on small datasets with the fake model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marklight.eval.dataset import CORPUS, QRELS, QUERIES, off_topic_queries
from marklight.eval.run import WARM_UP
from marklight.models.fake import FakeEmbedder
from marklight.surfaces.cli import run
from tests.making import write

TEXTS = {
    "d/1": ("Tokens", "Tokens expire after an hour; refresh them with the refresh call."),
    "d/2": ("Deploy", "Roll back a deployment with the undo command."),
    "d/3": ("Backups", "Backups are kept for thirty days in the vault."),
    "d/4": ("", "def get_user_by_id(id):\n    # no heading\n    return users[id]"),
}
EXPECTED = {
    "q1": ("when do tokens expire", "d/1"),
    "q2": ("roll back a deployment", "d/2"),
    "q3": ("how long are backups kept", "d/3"),
}
QUERY_TEXTS = [WARM_UP, *(text for text, _ in EXPECTED.values())]
BEIR = {
    CORPUS: "".join(
        json.dumps({"_id": id, "title": title, "text": text}) + "\n"
        for id, (title, text) in TEXTS.items()
    ),
    QUERIES: "".join(
        json.dumps({"_id": id, "text": text}) + "\n" for id, (text, _) in EXPECTED.items()
    ),
    QRELS: "query-id\tcorpus-id\tscore\n"
    + "".join(f"{id}\t{answer}\t1\n" for id, (_, answer) in EXPECTED.items()),
}
PAGES = {
    "docs/guide/auth.md": "# Auth\n\n## Token refresh\n\nTokens expire after an hour.\n\n## Logging in\n\nWith a password and a second factor.\n",
    "docs/deploy.md": "# Deploy\n\nRoll back a deployment with the undo command.\n",
    "docs/espresso.md": "# Espresso\n\nGrind the beans finely; tokens of love expire never.\n",
}
OWN = """\
corpus = "docs"
off_topic = ["zebra xylophone quark", "grind the beans"]

[[questions]]
text = "tokens expire after an hour"
answers = ["guide/auth.md#token-refresh"]

[[questions]]
text = "roll back a deployment"
answers = ["deploy"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "set", BEIR)
    return write(tmp_path, {**PAGES, "mine.toml": OWN})


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(("eval", *arguments))
    out, err = capsys.readouterr()
    return code, out, err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = run_cli(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_json_has_the_documented_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "set")
    assert (found["dataset"], found["documents"], found["queries"]) == ("set", 4, 3)
    assert {
        "ndcg@10", "ndcg@5", "mrr@10", "recall@10", "recall@100", "success@1", "ece", "answered",
        "abstained", "false_answers", "lost",
        "recall@500_tokens", "recall@1000_tokens", "recall@2000_tokens",
    } == set(found["metrics"])  # fmt: skip
    assert set(found["latency_ms"]) == {"p50", "p95"}
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["p95"]
    assert found["settings"]["model.name"] == "fake"
    assert found["off_topic"] == 40


def test_all_metrics_are_1_if_every_answer_ranks_first(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mode in ("keyword", "semantic", "hybrid"):
        metrics = run_json(capsys, "set", "--mode", mode)["metrics"]
        shares = {name: value for name, value in metrics.items() if "@" in name}
        assert shares == dict.fromkeys(shares, 1), mode


def test_an_answer_at_rank_2_counts_half(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = '{"_id": "q1", "text": "tokens expire"}\n'
    texts = [("best", "tokens expire"), ("other", "tokens are long and many and never expire")]
    corpus = "".join(
        json.dumps({"_id": id, "title": "page", "text": text}) + "\n" for id, text in texts
    )
    write(folder / "set", {CORPUS: corpus, QUERIES: query, QRELS: "q1\tother\t1\n"})
    found = run_json(capsys, "set", "--mode", "keyword")
    assert found["metrics"]["mrr@10"] == 1 / 2
    assert found["metrics"]["success@1"] == 0
    assert found["metrics"]["recall@10"] == 1


def test_the_source_document_of_a_query_is_not_ranked_unless_it_is_relevant(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = {
        "_id": "q1",
        "text": "tokens of love expire never",
        "sources": ["espresso.md", "guide/auth.md"],
    }
    files = {
        "dataset.toml": 'corpus = "../docs"\ndrop_sources = true\n',
        QUERIES: json.dumps(query) + "\n",
        QRELS: "q1\tguide/auth.md\t1\n",
    }
    write(folder / "anchors", files)
    assert run_json(capsys, "anchors", "--mode", "keyword")["metrics"]["success@1"] == 1
    write(folder / "anchors", {"dataset.toml": 'corpus = "../docs"\n'})
    assert run_json(capsys, "anchors", "--mode", "keyword")["metrics"]["success@1"] == 0


def test_own_queries_accept_the_references_of_get(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(capsys, "mine.toml", "--mode", "keyword")
    assert found["metrics"]["success@1"] == 1
    assert found["off_topic"] == 2
    # The document on espresso answers one of the two.
    assert found["metrics"]["false_answers"] == 0.5


def test_the_example_dataset_in_the_repository_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[3] / "examples" / "questions.toml"
    found = run_json(capsys, str(example), "--mode", "keyword")
    assert (found["dataset"], found["documents"], found["off_topic"]) == ("questions", 8, 5)
    assert found["metrics"]["recall@10"] > 0.5
    assert found["notices"] == []


def test_another_section_of_the_right_document_is_not_relevant(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "Passwords are long. " * 120
    page = f"# Auth\n\n## Tokens\n\nVouchers lapse at noon. {long}\n\n## Login\n\nA second factor. {long}\n"
    own = 'corpus = "docs"\n[[questions]]\ntext = "vouchers lapse at noon"\nanswers = ["auth.md#login"]\n'
    write(folder, {"docs/auth.md": page, "one.toml": own})
    found = run_json(capsys, "one.toml", "--mode", "keyword")
    assert found["metrics"]["success@1"] == 0
    write(folder, {"one.toml": own.replace("#login", "#tokens")})
    assert run_json(capsys, "one.toml", "--mode", "keyword")["metrics"]["success@1"] == 1


def test_nothing_is_written_beside_the_documents(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.glob("docs/**/*"))
    run_json(capsys, "mine.toml")
    assert sorted(folder.glob("docs/**/*")) == before
    assert list(folder.glob("docs/**/.*")) == []


def test_a_second_run_reuses_the_index(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, err = run_cli(capsys, "set")
    assert "Reading text" in err
    texts = list((folder / "cache").rglob("*.txt"))
    written = {path: path.stat().st_ctime_ns for path in texts}
    assert len(written) == 4
    model = FakeEmbedder()
    known = {text: model.embed_query(text) for text in [*QUERY_TEXTS, *off_topic_queries()]}

    def never(*_: object) -> None:
        raise AssertionError("a passage was embedded again")

    monkeypatch.setattr(FakeEmbedder, "embed_query", lambda self, text: known[text])
    monkeypatch.setattr(FakeEmbedder, "embed_passages", never)
    code, _, err = run_cli(capsys, "set")
    assert code == 0, err
    assert "Reading text" not in err
    assert written == {path: path.stat().st_ctime_ns for path in texts}


def test_documents_missing_from_the_cache_are_written_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run_json(capsys, "set", "--mode", "keyword")["metrics"]
    next((folder / "cache").rglob("000002.txt")).unlink()
    again = run_json(capsys, "set", "--mode", "keyword")
    assert (again["documents"], again["metrics"]) == (4, first)


def test_an_unreadable_document_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"docs/binary.md": b"a\0b"})
    found = run_json(capsys, "mine.toml", "--mode", "keyword")
    assert found["notices"] == [
        "documents that could not be read: 1, such as binary.md, which contains NUL bytes, so it is not text"
    ]


def test_two_query_files_share_one_index(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, {"other.toml": OWN})
    run_json(capsys, "mine.toml", "--mode", "keyword")
    code, _, err = run_cli(capsys, "other.toml", "--mode", "keyword")
    assert code == 0
    assert "Reading text" not in err


def test_other_documents_get_another_cache_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_json(capsys, "set", "--mode", "keyword")
    corpus = BEIR[CORPUS] + '{"_id": "d/5", "title": "More", "text": "Tokens expire at noon."}\n'
    write(folder / "set", {CORPUS: corpus})
    assert run_json(capsys, "set", "--mode", "keyword")["documents"] == 5
    assert len(list((folder / "cache" / "eval").glob("set-*"))) == 2


def test_two_configurations_are_compared_per_query(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(capsys, "set", "--compare", "search.confidence.threshold=1")
    compared = found["compare"]
    assert compared["set"] == ["search.confidence.threshold=1"]
    assert compared["difference"]["ndcg@10"] == 0
    assert compared["p"]["ndcg@10"] == 1
    assert compared["metrics"]["false_answers"] == 0
    assert compared["difference"]["false_answers"] == -found["metrics"]["false_answers"]
    code, out, _ = run_cli(capsys, "set", "--compare", "chunk.max_chars=400")
    assert code == 0
    assert "changed: chunk.max_chars=400" in out


def test_ablation_leaves_out_each_active_stage(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(capsys, "set", "--ablate", "--set", "search.skip=recency")
    changes = {one["change"]: one for one in found["ablation"]}
    assert {
        "without keyword",
        "without exact_title",
        "with diversity",
        "fuse by reciprocal",
    } <= set(changes)
    assert "without recency" not in changes
    assert changes["without keyword"]["set"] == ["search.skip=recency,keyword"]
    assert all(set(one["p"]) >= {"ndcg@10", "false_answers"} for one in found["ablation"])
    # Without abstention, every query is answered.
    assert changes["without confidence"]["metrics"]["answered"] == 1
    alone = run_json(capsys, "set", "--ablate", "--mode", "keyword")
    assert "without keyword" not in {one["change"] for one in alone["ablation"]}


def test_a_sample_and_off_topic_queries_of_another_dataset(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(capsys, "set", "-n", "2", "--off-topic", "mine.toml")
    assert found["queries"] == 2
    # Its first query is in both datasets.
    assert found["off_topic"] in (1, 2)


def test_the_table_lists_metrics_and_missed_queries(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "set", {QRELS: BEIR[QRELS].replace("q1\td/1", "q1\td/4")})
    code, out, err = run_cli(capsys, "set", "--mode", "keyword", "--ablate")
    assert code == 0
    first, *lines = out.splitlines()
    assert first == "set: 3 queries, 4 documents, 4 passages (keyword)"
    assert any(line.startswith("nDCG@10") and "0.667" in line for line in lines)
    assert any(line.startswith("no difference") and "without exact_title" in line for line in lines)
    assert "No answer in the top 10 for 1 of 3 queries:" in lines
    assert "  'when do tokens expire': d/4 (first: d/1)" in lines
    assert "Running queries" in err


def test_queries_with_abstained_answers_are_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    never = ("--set", "search.confidence.threshold=1", "--mode", "keyword")
    lines = run_cli(capsys, "mine.toml", *never)[1].splitlines()
    found = run_json(capsys, "mine.toml", *never)
    count = found["queries"]
    assert f"Answer found but not shown for low confidence: {count} of {count} queries:" in lines
    for one in found["held_back"]:
        expected = ", ".join(one["expected"])
        assert f"  {one['text']!r}: {expected} (score {one['score']:.2f})" in lines
    assert len(found["held_back"]) == count
    assert found["missed"] == []


def test_an_invalid_query_counts_as_a_miss_and_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = BEIR[QUERIES].replace("when do tokens expire", "collection:nowhere")
    write(folder / "set", {QUERIES: queries})
    found = run_json(capsys, "set", "--mode", "keyword")
    assert found["metrics"]["recall@100"] == round(2 / 3, 4)
    assert found["notices"][0].startswith("queries that were rejected: 1, such as ")


def test_without_a_dataset_eval_explains_how_to_write_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys)
    assert (code, out) == (2, "")
    assert "[[questions]]" in err
    assert err.splitlines()[-1].startswith("marklight: ")


@pytest.mark.parametrize(
    ("files", "arguments", "line"),
    [
        ({f"set/{QRELS}": "q1\td/9\t1\n"}, ["set"], "test.tsv:1 judges the document 'd/9'"),
        ({f"set/{QUERIES}": "{\n"}, ["set"], "queries.jsonl:1 is not JSON"),
        ({"mine.toml": OWN.replace('"deploy"', '"nowhere.md"')}, ["mine.toml"], "mine.toml:8"),
        ({"mine.toml": OWN.replace("#token-refresh", "#tea")}, ["mine.toml"], "mine.toml:4"),
        (
            {"mine.toml": OWN.replace('"deploy"', '"draft.md"'), "docs/draft.md": "x", "docs/.gitignore": "draft.md"},
            ["mine.toml"],
            "draft.md is not in the index",
        ),
        (
            {"a/dataset.toml": 'corpus = "../docs"', f"a/{QUERIES}": BEIR[QUERIES], f"a/{QRELS}": "q1\tx.md\t1\n"},
            ["a"],
            "test.tsv:1 judges the document 'x.md', which is not in",
        ),
        ({"e.toml": OWN.replace("docs", "none"), "none/x.png": ""}, ["e.toml"], "There are no documents"),
        ({}, ["set", "-n", "0"], "The sample must have at least 1"),
        ({}, ["set", "--compare", "search.nothing=1"], "Unknown setting 'search.nothing'"),
        ({}, ["set", "--compare", "nothing"], "KEY=VALUE"),
        ({}, ["set", "--set", "model.name=none", "--mode", "semantic"], "Semantic search needs a model"),
        ({}, ["set", "--off-topic", "set"], "are in this dataset too"),
        ({}, ["set", "--off-topic", "nowhere"], "No such dataset: nowhere"),
        ({}, ["docs"], "neither corpus.jsonl nor dataset.toml"),
        ({}, ["nowhere"], "No such dataset: nowhere"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_a_hint(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    files: dict[str, str],
    arguments: list[str],
    line: str,
) -> None:
    write(folder, files)
    code, out, err = run_cli(capsys, *arguments)
    assert (code, out) == (2, "")
    [complaint] = [each for each in err.splitlines() if not each.endswith("…")]
    assert complaint.startswith("marklight: ")
    assert line in complaint


def test_a_relevant_document_that_is_not_indexed_is_a_miss_and_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "docs/.gitignore": "deploy.md",
        "a/dataset.toml": 'corpus = "../docs"',
        f"a/{QUERIES}": '{"_id": "q1", "text": "roll back"}',
        f"a/{QRELS}": "q1\tdeploy.md\t1\n",
    }
    write(folder, files)
    found = run_json(capsys, "a", "--mode", "keyword")
    assert found["metrics"]["recall@100"] == 0
    assert found["notices"] == ["answers that are not in the index: 1, such as deploy.md"]


def test_an_unwritable_cache_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cache").write_text("in the way")
    code, _, err = run_cli(capsys, "set")
    assert code == 3
    assert "MARKLIGHT_CACHE_DIR" in err
