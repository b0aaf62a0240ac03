"""Repositories of every sort: what is read of them, what is said of what cannot be read."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight import engines
from marklight.errors import HistoryError
from marklight.ingest.history import changes, cut, objects
from marklight.ingest.history.news import known
from marklight.ingest.history.pipeline import History
from marklight.ingest.history.repository import find
from marklight.model import Document, DocumentId
from marklight.ports import Engine
from marklight.report import Report
from tests.repository import Repository, needs_git

pytestmark = needs_git
LINES = 200


def history(folder: Path, engine: Engine | None = None, lines: int = LINES) -> History:
    found = find(folder)
    assert found
    return History(engine or engines.open("memory:"), None, {"all": found}, lines)


def read(kept: History) -> Report:
    with kept.engine.writing(0):
        return kept.text()


def documents(kept: History) -> dict[str, Document]:
    with kept.engine.snapshot() as reader:
        found = (reader.document(id) for id in reader.files())
        return {each.title: each for each in found if each}


def texts(kept: History, hash: str) -> list[str]:
    with kept.engine.snapshot() as reader:
        return [each.text for each in reader.chunks_of(DocumentId("all", hash))]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "work")


def test_a_commit_becomes_a_document_with_its_message_files_and_diff(
    repository: Repository,
) -> None:
    hash = repository.commit(
        "Greet the world\n\nBecause it is polite.", {"hello.py": "print('hello')\n", "b.txt": "x\n"}
    )
    kept = history(repository.folder)
    assert [id.path for id in read(kept).added] == [hash]
    document = documents(kept)["Greet the world"]
    assert document.text.startswith("Greet the world\n\nBecause it is polite.\n\n@@ ")
    assert document.metadata["files"] == ["b.txt", "hello.py"]
    assert document.metadata["author"][:2] == ["Ada Lovelace", "ada@example.org"]
    assert document.date == "2026-01-01T12:00:00+00:00"
    message, diff = texts(kept, hash)
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
    kept = history(repository.folder)
    read(kept)
    assert set(documents(kept)) == {"one", "two", "three"}
    repository.git("tag", "-d", "v1")
    repository.git("checkout", "--quiet", "main")
    read(kept)
    assert set(documents(kept)) == {"one"}


def test_worktrees_subfolders_and_bare_repositories_have_the_same_history(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit("one", {"docs/a.md": "1"})
    repository.git("worktree", "add", "--quiet", str(tmp_path / "tree"), "-b", "tree")
    repository.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    stores = set()
    for folder in (repository.folder / "docs", tmp_path / "tree", tmp_path / "bare.git"):
        kept = history(folder)
        read(kept)
        assert set(documents(kept)) == {"one"}
        stores.add(kept.repositories["all"].store)
    assert stores == {repository.folder / ".git", tmp_path / "bare.git"}


def test_only_what_is_new_is_read(repository: Repository) -> None:
    for number in range(5):
        repository.commit(f"number {number}", {"a": str(number)})
    kept = history(repository.folder)
    assert len(read(kept).added) == 5
    assert not kept.differs()
    new = repository.commit("six", {"b": "6"})
    assert kept.differs()
    assert [id.path for id in read(kept).added] == [new]
    assert not read(kept).added


def test_a_run_that_was_stopped_goes_on_where_it_was(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        repository.commit(f"number {number}", {"a": str(number)})
    monkeypatch.setattr("marklight.ingest.history.pipeline.BATCH", 2)
    kept = history(repository.folder)

    def stop(phase: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with kept.engine.writing(0), pytest.raises(KeyboardInterrupt):
        kept.text(stop)
    assert set(documents(kept)) == {"number 4", "number 3"}
    assert kept.differs()
    assert len(read(kept).added) == 3
    assert len(documents(kept)) == 5


def test_rewritten_history_is_gone(repository: Repository) -> None:
    repository.commit("base", {"a": "1"})
    repository.commit("typo in teh message", {"a": "2"})
    kept = history(repository.folder)
    read(kept)
    repository.git("commit", "--quiet", "--amend", "-m", "no typo in the message")
    report = read(kept)
    assert (len(report.added), len(report.removed)) == (1, 1)
    assert set(documents(kept)) == {"base", "no typo in the message"}


def test_a_shallow_clone_says_where_it_ends_and_grows(
    repository: Repository, tmp_path: Path
) -> None:
    for number in range(4):
        repository.commit(f"number {number}", {f"{number}.txt": str(number)})
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", "--depth=2", f"file://{repository.folder}", str(clone))
    kept = history(clone)
    read(kept)
    found = documents(kept)
    assert set(found) == {"number 3", "number 2"}
    # At the edge git would call every file new.
    assert found["number 2"].metadata["files"] == []
    assert kept.repositories["all"].edge()
    subprocess.run(["git", "-C", str(clone), "fetch", "--quiet", "--unshallow"], check=True)
    read(kept)
    found = documents(kept)
    assert len(found) == 4
    assert found["number 2"].metadata["files"] == ["2.txt"]


def test_merges_have_their_message_alone(repository: Repository) -> None:
    repository.commit("base", {"a": "1"})
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit("on the side", {"b": "2"})
    repository.git("checkout", "--quiet", "main")
    repository.commit("on main", {"c": "3"})
    repository.git("merge", "--quiet", "--no-ff", "-m", "Bring the side in", "side")
    kept = history(repository.folder)
    read(kept)
    merged = documents(kept)["Bring the side in"]
    assert (merged.metadata["files"], merged.text) == ([], "Bring the side in")


def test_no_more_than_the_first_lines_of_a_diff_and_of_a_line(repository: Repository) -> None:
    long = "".join(f"line {number} {'x' * 1000 if number == 3 else ''}\n" for number in range(500))
    hash = repository.commit("much", {"a.txt": long})
    kept = history(repository.folder)
    read(kept)
    document = documents(kept)["much"]
    diff = document.text.split("\n")[2:]
    assert len(diff) == LINES
    assert diff[-1] == f"+line {LINES - 2} "
    assert max(map(len, diff)) < 500
    assert all(len(text) <= cut.MOST_CHARS for text in texts(kept, hash))


def test_without_diff_lines_there_are_messages_and_files_alone(repository: Repository) -> None:
    repository.commit("one", {"a.txt": "text\n"})
    kept = history(repository.folder, lines=0)
    read(kept)
    assert documents(kept)["one"].text == "one"
    assert documents(kept)["one"].metadata["files"] == ["a.txt"]


def test_what_tells_nothing_is_left_out_of_the_diff_but_not_of_the_files(
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
    kept = history(repository.folder)
    read(kept)
    document = documents(kept)["all sorts"]
    assert set(document.metadata["files"]) == set(files)
    assert "+written" in document.text
    for word in ("vendored", "locked", "minified", "+generated", "binary"):
        assert word not in document.text


def test_odd_names_of_files_are_read_and_can_be_told_apart(repository: Repository) -> None:
    raw = os.fsencode(repository.folder)
    with open(raw + b"/caf\xe9.txt", "wb") as file:
        file.write(b"latin\n")
    odd = {"new\nline.txt": "broken\n", 'quo"te\\.txt': "quoted\n", "a b.txt": "blank\n"}
    hash = repository.commit("odd names", {**odd, "ü.txt": "umlaut\n"})
    kept = history(repository.folder)
    read(kept)
    assert set(documents(kept)["odd names"].metadata["files"]) == {*odd, "ü.txt", "caf\\xe9.txt"}
    (_, diff) = texts(kept, hash)
    for name, said in {**odd, "ü.txt": "umlaut\n", "caf\\xe9.txt": "latin\n"}.items():
        assert f"{name}\n@@ -0,0 +1 @@\n+{said}".rstrip("\n") in diff


def test_messages_and_names_that_are_no_utf8_are_read(repository: Repository) -> None:
    repository.commit("one", {"a": "1"})
    tree = repository.git("rev-parse", "HEAD^{tree}")
    made = (
        f"tree {tree}\nauthor Andr".encode()
        + b"\xe9 <a@b> 1 +0000\ncommitter X <x@y> 1 +0000\n\nCaf\xe9 f\xfcr alle\n"
    )
    hash = repository.git("hash-object", "-t", "commit", "-w", "--stdin", given=made)
    repository.git("update-ref", "refs/heads/odd", hash)
    kept = history(repository.folder)
    read(kept)
    document = documents(kept)["Café für alle"]
    assert document.author == "André"
    assert document.remarks == ("its message is no UTF-8; read as Latin-1",)


def test_times_that_no_calendar_has_are_the_nearest(repository: Repository) -> None:
    repository.commit("one", {"a": "1"})
    tree = repository.git("rev-parse", "HEAD^{tree}")
    whens = ("99999999999999 +0000", "0 +0000", "1000000000 +9999", "-62135596801 -0100")
    for number, when in enumerate(whens):
        made = f"tree {tree}\nauthor A <a@b> {when}\ncommitter A <a@b> {when}\n\nat {number}\n"
        hash = repository.git(
            *("hash-object", "-t", "commit", "-w", "--literally", "--stdin"), given=made.encode()
        )
        repository.git("update-ref", f"refs/heads/odd{number}", hash)
    for engine in ("memory:", f"file:{repository.folder.parent / 'index'}"):
        kept = history(repository.folder, engines.open(engine))
        read(kept)
        found = documents(kept)
        assert found["at 1"].date == "1970-01-01T00:00:00+00:00"
        assert str(found["at 0"].date).startswith("9999-12-31")
        assert {"at 2", "at 3"} < set(found)
        kept.engine.close()


@given(
    st.binary(max_size=300),
    st.sampled_from(["", "latin-1", "utf-16", "no such thing", "\0", "idna"]),
)
def test_whatever_a_commit_object_holds_it_is_understood(data: bytes, encoding: str) -> None:
    head = b"tree x\nencoding " + encoding.encode() + b"\nauthor " + data + b"\n\n"
    found = objects.understand("0" * 40, head + data)
    (found.subject + found.message + found.name + found.email + found.date).encode()


def test_an_empty_repository_has_no_commits(repository: Repository) -> None:
    kept = history(repository.folder)
    assert not read(kept).added
    assert not documents(kept)
    repository.commit("first", {"a": "1"})
    assert len(read(kept).added) == 1


def test_a_folder_without_a_repository_has_none(tmp_path: Path) -> None:
    assert find(tmp_path) is None
    assert find(tmp_path / "missing") is None


def damage(repository: Repository, hash: str) -> None:
    path = repository.folder / ".git" / "objects" / hash[:2] / hash[2:]
    path.chmod(stat.S_IRWXU)
    path.write_bytes(b"damaged")


def test_a_damaged_file_costs_its_own_diff_alone(repository: Repository) -> None:
    repository.commit("one", {"a.txt": "first\n"})
    repository.commit("two", {"b.txt": "second\n"})
    repository.commit("three", {"c.txt": "third\n"})
    damage(repository, repository.git("rev-parse", "HEAD:b.txt"))
    (repository.folder / "b.txt").unlink()  # git would take what it lacks from there
    kept = history(repository.folder)
    read(kept)
    found = documents(kept)
    assert "+first" in found["one"].text
    assert "+third" in found["three"].text
    assert found["two"].text == "two"
    assert "its diff cannot be read" in found["two"].remarks[0]


def test_a_damaged_commit_hides_what_is_behind_it_and_no_more(repository: Repository) -> None:
    repository.commit("one", {"a.txt": "first\n"})
    bad = repository.commit("two", {"b.txt": "second\n"})
    repository.git("branch", "good", "HEAD~1")
    repository.commit("three", {"c.txt": "third\n"})
    damage(repository, bad)
    kept = history(repository.folder)
    report = read(kept)
    assert {"one", "three"} <= set(documents(kept))
    with kept.engine.snapshot() as reader:
        assert "problem" in reader.manifest()["history all"]
    assert [each.document.path for each in report.skipped] == [bad]
    assert not kept.differs()


def test_a_partial_clone_is_searched_by_messages_and_fetches_nothing(
    repository: Repository, tmp_path: Path
) -> None:
    for number in range(8):
        repository.commit(f"number {number}", {f"{number}.txt": f"{number}\n"})
    repository.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    lean = ("--no-checkout", "--filter=tree:0")
    repository.git("clone", "--quiet", *lean, f"file://{repository.folder}", str(clone))
    here = ["git", "-C", str(clone), "count-objects", "-v"]
    before = subprocess.run(here, capture_output=True, check=True).stdout
    kept = history(clone)
    read(kept)
    assert set(documents(kept)) == {f"number {number}" for number in range(8)}
    assert subprocess.run(here, capture_output=True, check=True).stdout == before
    with kept.engine.snapshot() as reader:
        assert known(reader.manifest(), "all").lacking


def test_a_missing_commit_is_told_and_the_others_are_read(repository: Repository) -> None:
    here = repository.commit("one", {"a": "1"})
    found = list(objects.written(repository.folder, ["0" * 40, here]))
    assert isinstance(found[0], objects.Unreadable)
    assert isinstance(found[1], objects.Written)


def test_of_a_huge_diff_the_files_that_tell_something_are_read(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "LARGEST_DIFF", 200_000)
    noise = "".join(f"noise {number}\n" for number in range(60_000))
    repository.commit("huge", {"node_modules/a.js": noise, "src/b.py": "told = True\n"})
    repository.commit("small", {"c.txt": "small\n"})
    kept = history(repository.folder)
    read(kept)
    found = documents(kept)
    assert "+told = True" in found["huge"].text
    assert set(found["huge"].metadata["files"]) == {"node_modules/a.js", "src/b.py"}
    assert "its diff is over" in found["huge"].remarks[0]
    assert "+small" in found["small"].text


def test_of_very_many_files_the_first_are_known(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST_FILES", 20)
    repository.commit("many", {f"{number:03}.txt": "x\n" for number in range(50)})
    kept = history(repository.folder)
    read(kept)
    document = documents(kept)["many"]
    assert len(document.metadata["files"]) == 20
    assert "it changed 50 files" in document.remarks[0]


def test_nothing_that_a_repository_configures_is_run(
    repository: Repository, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f'#!/bin/sh\ntouch {ran}\ncat "$1"\n')
    script.chmod(0o755)
    for key in ("diff.external", "diff.odd.textconv", "diff.odd.command", "core.fsmonitor"):
        repository.git("config", key, str(script))
    repository.git("config", "core.pager", str(script))
    repository.commit("one", {".gitattributes": "* diff=odd\n", "a.txt": "text\n"})
    ran.unlink(missing_ok=True)
    kept = history(repository.folder)
    read(kept)
    assert "+text" in documents(kept)["one"].text
    assert not ran.exists()


def test_replaced_commits_are_read_as_they_were(repository: Repository) -> None:
    old = repository.commit("as it was", {"a": "1"})
    tree = repository.git("rev-parse", "HEAD^{tree}")
    new = repository.git("commit-tree", "-m", "as others say", tree)
    repository.git("replace", old, new)
    kept = history(repository.folder)
    read(kept)
    assert set(documents(kept)) == {"as it was"}


def test_submodules_are_files_like_others(repository: Repository, tmp_path: Path) -> None:
    other = Repository(tmp_path / "other")
    other.commit("inner", {"a": "1"})
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.folder))
    repository.git(*add, "sub")
    repository.commit("with a submodule")
    kept = history(repository.folder)
    read(kept)
    assert set(documents(kept)) == {"with a submodule"}
    assert documents(kept)["with a submodule"].metadata["files"] == [".gitmodules", "sub"]


def shim(folder: Path, lines: Iterable[str]) -> None:
    """A git that does something before it is the real one."""
    folder.mkdir()
    real = shutil.which("git")
    script = folder / "git"
    script.write_text("\n".join(["#!/bin/sh", *lines, f'exec {real} "$@"', ""]))
    script.chmod(0o755)


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for git")
def test_the_repository_of_someone_else_is_told_with_what_to_do(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("one", {"a": "1"})
    # As git's own tests do it.
    shim(tmp_path / "bin", ["export GIT_TEST_ASSUME_DIFFERENT_OWNER=1"])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    with pytest.raises(HistoryError, match=r"belongs to someone else.*safe\.directory"):
        find(repository.folder)


def test_without_git_it_is_said(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HistoryError, match="git is not installed"):
        find(repository.folder)


def test_a_commit_is_cut_the_same_from_what_was_stored_of_it(repository: Repository) -> None:
    lines = "".join(f"value_{number} = compute({number})\n" for number in range(100))
    hash = repository.commit(
        "values\n\nWhy.", {"a.py": lines, "b.py": "x = 1\n", "c.py": "y = 2\n"}
    )
    kept = history(repository.folder)
    read(kept)
    with kept.engine.snapshot() as reader:
        document = reader.document(DocumentId("all", hash))
        assert document
        again = cut.cut(document)
        assert list(again.chunks) == reader.chunks_of(document.id)
        smaller = cut.cut(document, 300)
    assert max(len(each.text) for each in smaller.chunks) <= 300
    assert "\n".join(each.text for each in smaller.chunks).count("compute(") == 100
