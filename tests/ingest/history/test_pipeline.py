"""Commits become documents and passages; only new commits are read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from marklight.ingest import commits
from marklight.ingest.git import find
from marklight.model import DocumentId
from tests.ingest.history.reading import LINES, documents, history, read, texts
from tests.repository import Repository, needs_git

pytestmark = needs_git


def test_a_commit_becomes_a_document_with_its_message_files_and_diff(
    repository: Repository,
) -> None:
    hash = repository.commit(
        "Greet the world\n\nBecause it is polite.", {"hello.py": "print('hello')\n", "b.txt": "x\n"}
    )
    ingest = history(repository.folder)
    assert [id.path for id in read(ingest).added] == [hash]
    document = documents(ingest)["Greet the world"]
    assert document.text.startswith("Greet the world\n\nBecause it is polite.\n\n@@ ")
    assert document.metadata["files"] == ["b.txt", "hello.py"]
    assert document.metadata["author"][:2] == ["Ada Lovelace", "ada@example.org"]
    assert document.date == "2026-01-01T12:00:00+00:00"
    message, diff = texts(ingest, hash)
    assert message == "Greet the world\n\nBecause it is polite."
    assert "hello.py\n@@ -0,0 +1 @@\n+print('hello')" in diff


def test_every_branch_tag_and_detached_head_is_read(repository: Repository) -> None:
    repository.commit("one", {"a": "1"})
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit("two", {"b": "2"})
    repository.git("tag", "-m", "annotated", "v1")
    repository.git("checkout", "--quiet", "main")
    repository.git("branch", "--quiet", "-D", "side")
    repository.git("checkout", "--quiet", "--detach")
    repository.commit("three", {"c": "3"})
    ingest = history(repository.folder)
    read(ingest)
    assert set(documents(ingest)) == {"one", "two", "three"}
    repository.git("tag", "-d", "v1")
    repository.git("checkout", "--quiet", "main")
    read(ingest)
    assert set(documents(ingest)) == {"one"}


def test_worktrees_subfolders_and_bare_repositories_have_the_same_history(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit("one", {"docs/a.md": "1"})
    repository.git("worktree", "add", "--quiet", str(tmp_path / "tree"), "-b", "tree")
    repository.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    stores = set()
    for folder in (repository.folder / "docs", tmp_path / "tree", tmp_path / "bare.git"):
        ingest = history(folder)
        read(ingest)
        assert set(documents(ingest)) == {"one"}
        stores.add(ingest.repositories["all"].store)
    assert stores == {repository.folder / ".git", tmp_path / "bare.git"}


def test_only_new_commits_are_read(repository: Repository) -> None:
    for number in range(5):
        repository.commit(f"number {number}", {"a": str(number)})
    ingest = history(repository.folder)
    assert len(read(ingest).added) == 5
    assert not ingest.differs()
    new = repository.commit("six", {"b": "6"})
    assert ingest.differs()
    assert [id.path for id in read(ingest).added] == [new]
    assert not read(ingest).added


def test_an_interrupted_run_continues_where_it_stopped(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        repository.commit(f"number {number}", {"a": str(number)})
    monkeypatch.setattr("marklight.ingest.history.BATCH", 2)
    ingest = history(repository.folder)

    def stop(phase: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with ingest.engine.writing(0), pytest.raises(KeyboardInterrupt):
        ingest.index_text(stop)
    assert set(documents(ingest)) == {"number 4", "number 3"}
    assert ingest.differs()
    assert len(read(ingest).added) == 3
    assert len(documents(ingest)) == 5


def test_commits_of_rewritten_history_are_removed(repository: Repository) -> None:
    repository.commit("base", {"a": "1"})
    repository.commit("typo in teh message", {"a": "2"})
    ingest = history(repository.folder)
    read(ingest)
    repository.git("commit", "--quiet", "--amend", "-m", "no typo in the message")
    report = read(ingest)
    assert (len(report.added), len(report.removed)) == (1, 1)
    assert set(documents(ingest)) == {"base", "no typo in the message"}


def test_a_shallow_clone_reports_its_edge_and_can_be_deepened(
    repository: Repository, tmp_path: Path
) -> None:
    for number in range(4):
        repository.commit(f"number {number}", {f"{number}.txt": str(number)})
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", "--depth=2", f"file://{repository.folder}", str(clone))
    ingest = history(clone)
    read(ingest)
    found = documents(ingest)
    assert set(found) == {"number 3", "number 2"}
    # At the shallow edge git would show every file as new.
    assert found["number 2"].metadata["files"] == []
    assert ingest.repositories["all"].shallow_edge()
    subprocess.run(["git", "-C", str(clone), "fetch", "--quiet", "--unshallow"], check=True)
    read(ingest)
    found = documents(ingest)
    assert len(found) == 4
    assert found["number 2"].metadata["files"] == ["2.txt"]


def test_a_merge_has_its_message_but_no_diff(repository: Repository) -> None:
    repository.commit("base", {"a": "1"})
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit("on the side", {"b": "2"})
    repository.git("checkout", "--quiet", "main")
    repository.commit("on main", {"c": "3"})
    repository.git("merge", "--quiet", "--no-ff", "-m", "Bring the side in", "side")
    ingest = history(repository.folder)
    read(ingest)
    merged = documents(ingest)["Bring the side in"]
    assert (merged.metadata["files"], merged.text) == ([], "Bring the side in")


def test_diffs_and_lines_are_cut_at_their_limits(repository: Repository) -> None:
    long = "".join(f"line {number} {'x' * 1000 if number == 3 else ''}\n" for number in range(500))
    hash = repository.commit("much", {"a.txt": long})
    ingest = history(repository.folder)
    read(ingest)
    document = documents(ingest)["much"]
    diff = document.text.split("\n")[2:]
    assert len(diff) == LINES
    assert diff[-1] == f"+line {LINES - 2} "
    assert max(map(len, diff)) < 500
    assert all(len(text) <= commits.MAX_CHARS for text in texts(ingest, hash))


def test_with_diff_lines_zero_only_messages_and_file_names_are_indexed(
    repository: Repository,
) -> None:
    repository.commit("one", {"a.txt": "text\n"})
    ingest = history(repository.folder, lines=0)
    read(ingest)
    assert documents(ingest)["one"].text == "one"
    assert documents(ingest)["one"].metadata["files"] == ["a.txt"]


def test_generated_files_are_left_out_of_the_diff_but_not_of_the_file_names(
    repository: Repository,
) -> None:
    files: dict[str, str | bytes] = {
        ".gitattributes": "*.gen linguist-generated\n",
        "node_modules/x/index.js": "vendored\n",
        "package-lock.json": "locked\n",
        "app.min.js": "minified\n",
        "made.gen": "generated\n",
        "picture.png": b"\x89PNG\0\0binary",
        "src/app.js": "written\n",
    }
    repository.commit("all sorts", files)
    ingest = history(repository.folder)
    read(ingest)
    document = documents(ingest)["all sorts"]
    assert set(document.metadata["files"]) == set(files)
    assert "+written" in document.text
    for word in ("vendored", "locked", "minified", "+generated", "binary"):
        assert word not in document.text


def test_an_empty_repository_has_no_commits(repository: Repository) -> None:
    ingest = history(repository.folder)
    assert not read(ingest).added
    assert not documents(ingest)
    repository.commit("first", {"a": "1"})
    assert len(read(ingest).added) == 1


def test_a_folder_without_a_repository_has_none(tmp_path: Path) -> None:
    assert find(tmp_path) is None
    assert find(tmp_path / "missing") is None


def test_a_stored_commit_is_chunked_the_same_way(repository: Repository) -> None:
    lines = "".join(f"value_{number} = compute({number})\n" for number in range(100))
    hash = repository.commit(
        "values\n\nWhy.", {"a.py": lines, "b.py": "x = 1\n", "c.py": "y = 2\n"}
    )
    ingest = history(repository.folder)
    read(ingest)
    with ingest.engine.snapshot() as snapshot:
        document = snapshot.documents.get(DocumentId("all", hash))
        assert document
        again = commits.chunk_commit(document)
        assert list(again.chunks) == snapshot.documents.chunks_of(document.id)
    assert max(len(each.text) for each in again.chunks) <= commits.MAX_CHARS
    assert "\n".join(each.text for each in again.chunks).count("compute(") == 100
