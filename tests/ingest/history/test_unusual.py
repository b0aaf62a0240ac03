"""Unusual, damaged and hostile repositories: failures are reported and the rest is indexed."""

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
from marklight.ingest import commits, git
from marklight.ingest.git import find
from marklight.ingest.history import RepositoryState
from tests.ingest.history.reading import documents, history, read, texts
from tests.repository import Repository, needs_git

pytestmark = needs_git


def test_unusual_file_names_are_read_and_stay_distinct(repository: Repository) -> None:
    raw = os.fsencode(repository.folder)
    with open(raw + b"/caf\xe9.txt", "wb") as file:
        file.write(b"latin\n")
    odd = {"new\nline.txt": "broken\n", 'quo"te\\.txt': "quoted\n", "a b.txt": "blank\n"}
    hash = repository.commit("odd names", {**odd, "ü.txt": "umlaut\n"})
    ingest = history(repository.folder)
    read(ingest)
    assert set(documents(ingest)["odd names"].metadata["files"]) == {*odd, "ü.txt", "caf\\xe9.txt"}
    (_, diff) = texts(ingest, hash)
    for name, value in {**odd, "ü.txt": "umlaut\n", "caf\\xe9.txt": "latin\n"}.items():
        assert f"{name}\n@@ -0,0 +1 @@\n+{value}".rstrip("\n") in diff


def test_messages_and_names_in_other_encodings_are_read(repository: Repository) -> None:
    repository.commit("one", {"a": "1"})
    tree = repository.git("rev-parse", "HEAD^{tree}")
    made = (
        f"tree {tree}\nauthor Andr".encode()
        + b"\xe9 <a@b> 1 +0000\ncommitter X <x@y> 1 +0000\n\nCaf\xe9 f\xfcr alle\n"
    )
    hash = repository.git("hash-object", "-t", "commit", "-w", "--stdin", given=made)
    repository.git("update-ref", "refs/heads/odd", hash)
    ingest = history(repository.folder)
    read(ingest)
    document = documents(ingest)["Café für alle"]
    assert document.author == "André"
    assert document.remarks == ("its message is not valid UTF-8; decoded as Latin-1",)


def test_impossible_dates_become_the_nearest_possible_date(repository: Repository) -> None:
    repository.commit("one", {"a": "1"})
    tree = repository.git("rev-parse", "HEAD^{tree}")
    whens = ("99999999999999 +0000", "0 +0000", "1000000000 +9999", "-62135596801 -0100")
    for number, when in enumerate(whens):
        made = f"tree {tree}\nauthor A <a@b> {when}\ncommitter A <a@b> {when}\n\nat {number}\n"
        hash = repository.git(
            *("hash-object", "-t", "commit", "-w", "--literally", "--stdin"), given=made.encode()
        )
        repository.git("update-ref", f"refs/heads/odd{number}", hash)
    ingest = history(repository.folder, engines.open(repository.folder.parent / "index"))
    read(ingest)
    found = documents(ingest)
    assert found["at 1"].date == "1970-01-01T00:00:00+00:00"
    assert str(found["at 0"].date).startswith("9999-12-31")
    assert {"at 2", "at 3"} < set(found)
    ingest.engine.close()


@given(
    st.binary(max_size=300),
    st.sampled_from(["", "latin-1", "utf-16", "no such thing", "\0", "idna"]),
)
def test_any_commit_object_is_parsed(data: bytes, encoding: str) -> None:
    head = b"tree x\nencoding " + encoding.encode() + b"\nauthor " + data + b"\n\n"
    found = commits.parse_commit("0" * 40, head + data)
    (found.subject + found.message + found.name + found.email + found.date).encode()


def damage(repository: Repository, hash: str) -> None:
    path = repository.folder / ".git" / "objects" / hash[:2] / hash[2:]
    path.chmod(stat.S_IRWXU)
    path.write_bytes(b"damaged")


def test_a_damaged_object_affects_only_its_own_diff(repository: Repository) -> None:
    repository.commit("one", {"a.txt": "first\n"})
    repository.commit("two", {"b.txt": "second\n"})
    repository.commit("three", {"c.txt": "third\n"})
    damage(repository, repository.git("rev-parse", "HEAD:b.txt"))
    (repository.folder / "b.txt").unlink()  # git would take what it lacks from there
    ingest = history(repository.folder)
    read(ingest)
    found = documents(ingest)
    assert "+first" in found["one"].text
    assert "+third" in found["three"].text
    assert found["two"].text == "two"
    assert "its diff cannot be read" in found["two"].remarks[0]


def test_a_damaged_commit_hides_only_its_ancestors(repository: Repository) -> None:
    repository.commit("one", {"a.txt": "first\n"})
    bad = repository.commit("two", {"b.txt": "second\n"})
    repository.git("branch", "good", "HEAD~1")
    repository.commit("three", {"c.txt": "third\n"})
    damage(repository, bad)
    ingest = history(repository.folder)
    report = read(ingest)
    assert {"one", "three"} <= set(documents(ingest))
    with ingest.engine.snapshot() as snapshot:
        assert "problem" in snapshot.status.manifest()["history all"]
    assert [each.document.path for each in report.skipped] == [bad]
    assert not ingest.differs()


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
    ingest = history(clone)
    read(ingest)
    assert set(documents(ingest)) == {f"number {number}" for number in range(8)}
    assert subprocess.run(here, capture_output=True, check=True).stdout == before
    with ingest.engine.snapshot() as snapshot:
        assert RepositoryState.stored(snapshot.status.manifest(), "all").diff_problem


def test_a_missing_commit_is_reported_and_the_others_are_read(repository: Repository) -> None:
    here = repository.commit("one", {"a": "1"})
    place = find(repository.folder)
    assert place
    found = list(commits.read_commits(place, ["0" * 40, here]))
    assert isinstance(found[0], commits.UnreadableCommit)
    assert isinstance(found[1], commits.CommitObject)


def test_only_source_files_of_a_huge_diff_are_read(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "MAX_DIFF_BYTES", 200_000)
    noise = "".join(f"noise {number}\n" for number in range(60_000))
    repository.commit("huge", {"node_modules/a.js": noise, "src/b.py": "told = True\n"})
    repository.commit("small", {"c.txt": "small\n"})
    ingest = history(repository.folder)
    read(ingest)
    found = documents(ingest)
    assert "+told = True" in found["huge"].text
    assert set(found["huge"].metadata["files"]) == {"node_modules/a.js", "src/b.py"}
    assert "its diff is over" in found["huge"].remarks[0]
    assert "+small" in found["small"].text


def test_the_number_of_file_names_of_a_commit_is_bounded(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "MAX_FILES", 20)
    repository.commit("many", {f"{number:03}.txt": "x\n" for number in range(50)})
    ingest = history(repository.folder)
    read(ingest)
    document = documents(ingest)["many"]
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
    ingest = history(repository.folder)
    read(ingest)
    assert "+text" in documents(ingest)["one"].text
    assert not ran.exists()


def test_replace_refs_are_ignored(repository: Repository) -> None:
    old = repository.commit("as it was", {"a": "1"})
    tree = repository.git("rev-parse", "HEAD^{tree}")
    new = repository.git("commit-tree", "-m", "as others say", tree)
    repository.git("replace", old, new)
    ingest = history(repository.folder)
    read(ingest)
    assert set(documents(ingest)) == {"as it was"}


def test_a_submodule_is_listed_as_a_changed_file(repository: Repository, tmp_path: Path) -> None:
    other = Repository(tmp_path / "other")
    other.commit("inner", {"a": "1"})
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.folder))
    repository.git(*add, "sub")
    repository.commit("with a submodule")
    ingest = history(repository.folder)
    read(ingest)
    assert set(documents(ingest)) == {"with a submodule"}
    assert documents(ingest)["with a submodule"].metadata["files"] == [".gitmodules", "sub"]


def shim(folder: Path, lines: Iterable[str]) -> None:
    """A git that does something before it is the real one."""
    folder.mkdir()
    real = shutil.which("git")
    script = folder / "git"
    script.write_text("\n".join(["#!/bin/sh", *lines, f'exec {real} "$@"', ""]))
    script.chmod(0o755)


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for git")
def test_a_repository_of_another_user_is_reported_with_the_command_to_trust_it(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("one", {"a": "1"})
    # The variable that git's own tests use.
    shim(tmp_path / "bin", ["export GIT_TEST_ASSUME_DIFFERENT_OWNER=1"])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    with pytest.raises(HistoryError, match=r"belongs to another user.*safe\.directory"):
        find(repository.folder)


def test_a_missing_git_is_reported(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HistoryError, match="git is not installed"):
        find(repository.folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("name", ["HEAD", "packed-refs", "shallow"])
def test_a_pipe_among_the_files_of_git_does_not_block(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    repository.commit("One", {"a.md": "a"})
    monkeypatch.setattr(git, "QUICK", 0.5)
    file = repository.folder / ".git" / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    with pytest.raises(HistoryError, match=r"git did not respond within 0\.5 s|not a regular file"):
        read(history(repository.folder))


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for git")
@pytest.mark.parametrize("command", ["rev-list", "cat-file --batch", "diff-tree", "check-attr"])
def test_a_silent_git_process_is_killed_after_the_time_limit(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    repository.commit("one", {"a": "1"})
    shim(tmp_path / "bin", [f'case "$*" in *"{command}"*) exec sleep 600;; esac'])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(git, "PATIENCE", 0.3)
    with pytest.raises(HistoryError, match=r"git did not respond within 0\.3 s.*git fsck"):
        read(history(repository.folder))


@pytest.mark.skipif(os.name == "nt", reason="there the limit holds for the whole run")
def test_a_git_process_with_output_may_exceed_the_time_limit(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("one", {"a": "1"})
    slow = "for each in 1 2 3; do sleep 1; echo; done"
    shim(tmp_path / "bin", [f'case "$*" in *rev-list*) {slow};; esac'])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(git, "PATIENCE", 2.5)
    ingest = history(repository.folder)
    read(ingest)
    assert set(documents(ingest)) == {"one"}
