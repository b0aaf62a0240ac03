"""A foreign folder cannot lead git to another repository of the user; links that git itself recorded are followed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from marklight.errors import HistoryError
from marklight.ingest.git import find
from tests.ingest.history.reading import documents, history, read
from tests.making import write
from tests.repository import Repository, needs_git

pytestmark = [
    needs_git,
    pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege there"),
]


@pytest.fixture
def private(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "private")
    made.commit("The secret merger", {"a.md": "1"})
    return made


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder that somebody else packed, with a repository of its own."""
    made = Repository(tmp_path / "hostile")
    made.commit("Harmless", {"a.md": "1"})
    return made.folder


def subjects(folder: Path) -> set[str]:
    ingest = history(folder)
    read(ingest)
    return set(documents(ingest))


def replace_by_link(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


def git_file(hostile: Path, private: Path) -> Path:
    shutil.rmtree(hostile / ".git")
    write(hostile, {".git": f"gitdir: {private}\n"})
    return private


def git_link(hostile: Path, private: Path) -> Path:
    replace_by_link(hostile / ".git", private)
    return private


def relative_git_file(hostile: Path, private: Path) -> Path:
    shutil.rmtree(hostile / ".git")
    write(hostile, {".git": "gitdir: ../private/.git\n"})
    return private


def commondir(hostile: Path, private: Path) -> Path:
    write(hostile, {".git/commondir": f"{private}\n"})
    return private


def bare_with_commondir(hostile: Path, private: Path) -> Path:
    """A bare repository among the files, which even a clone can bring."""
    shutil.rmtree(hostile / ".git")
    files = {"HEAD": "ref: refs/heads/main\n", "commondir": f"{private}\n", "refs/x": "x"}
    write(hostile, {**files, "objects/x": "x"})
    return private


def objects_and_refs(hostile: Path, private: Path) -> Path:
    replace_by_link(hostile / ".git" / "objects", private / "objects")
    replace_by_link(hostile / ".git" / "refs", private / "refs")
    return private / "objects"


def objects_by_a_link_inside(hostile: Path, private: Path) -> Path:
    shutil.copytree(private / "refs", hostile / ".git" / "refs", dirs_exist_ok=True)
    replace_by_link(hostile / ".git" / "objects", hostile / "data")
    (hostile / "data").mkdir()
    for each in (private / "objects").iterdir():
        (hostile / "data" / each.name).symlink_to(each)
    return private / "objects"


def alternates(hostile: Path, private: Path) -> Path:
    """With the hash of a private commit, which is all that has to be known."""
    shutil.copytree(private / "refs", hostile / ".git" / "refs", dirs_exist_ok=True)
    write(hostile, {".git/objects/info/alternates": "../../../private/.git/objects\n"})
    return private / "objects"


def quoted_alternates(hostile: Path, private: Path) -> Path:
    shutil.copytree(private / "refs", hostile / ".git" / "refs", dirs_exist_ok=True)
    path = str(private / "objects").replace("/", "\\057")
    write(hostile, {".git/objects/info/alternates": f'"{path}"\n'})
    return private / "objects"


def worktree_of_another(hostile: Path, private: Path) -> Path:
    """Its git directory exists and names a folder, which is not this one."""
    run = ["git", f"--git-dir={private}", "worktree", "add", "--quiet", str(hostile / "../tree")]
    subprocess.run(run, check=True, capture_output=True)
    return git_file(hostile, private / "worktrees" / "tree")


WAYS = [
    *(git_file, git_link, relative_git_file, commondir, bare_with_commondir, objects_and_refs),
    *(objects_by_a_link_inside, alternates, quoted_alternates, worktree_of_another),
]


@pytest.mark.parametrize("lead", WAYS, ids=lambda way: way.__name__)
def test_a_folder_that_leads_to_another_repository_is_rejected_with_the_target(
    hostile: Path, private: Repository, lead: Callable[[Path, Path], Path]
) -> None:
    target = lead(hostile, private.folder / ".git")
    with pytest.raises(HistoryError) as refused:
        find(hostile)
    assert refused.value.message.startswith(f"The repository at {hostile} is not indexed: ")
    assert f"leads out of the folder, to {target}" in refused.value.message
    assert "git worktree repair" in refused.value.hint or refused.value.hint == (
        f"If you trust it: git config --global --add safe.directory {hostile}"
    )


@pytest.mark.parametrize("lead", WAYS, ids=lambda way: way.__name__)
def test_a_subfolder_of_such_a_folder_is_rejected_too(
    hostile: Path, private: Repository, lead: Callable[[Path, Path], Path]
) -> None:
    lead(hostile, private.folder / ".git")
    docs = write(hostile / "docs", {"a.md": "1"})
    with pytest.raises(HistoryError, match="leads out of the folder"):
        find(docs)


@pytest.mark.parametrize("name", ["packed-refs", "shallow", "refs/heads/main"])
def test_a_file_of_git_that_is_a_link_to_another_repository_is_not_read(
    hostile: Path, private: Repository, name: str
) -> None:
    target = private.folder / ".git" / name
    target.touch()
    replace_by_link(hostile / ".git" / name, target)
    with pytest.raises(HistoryError, match=f"{name} leads out of the folder, to {target}"):
        find(hostile)


def test_a_core_worktree_above_does_not_lead_to_the_repository_there(
    private: Repository,
) -> None:
    inner = Repository(private.folder / "downloads" / "inner")
    inner.commit("Harmless", {"a.md": "1"})
    inner.git("config", "core.worktree", str(private.folder))
    assert subjects(inner.folder) == {"Harmless"}


def test_a_core_worktree_above_does_not_allow_more_links(
    hostile: Path, private: Repository
) -> None:
    objects_and_refs(hostile, private.folder / ".git")
    Repository.git(private, f"--git-dir={hostile / '.git'}", "config", "core.worktree", "/")
    with pytest.raises(HistoryError, match="leads out of the folder"):
        find(hostile)


@pytest.mark.parametrize("lead", [git_file, commondir])
def test_a_folder_changed_after_opening_yields_no_commits_of_another_repository(
    hostile: Path, private: Repository, lead: Callable[[Path, Path], Path]
) -> None:
    ingest = history(hostile)
    lead(hostile, private.folder / ".git")
    with suppress(HistoryError):
        read(ingest)
    assert not documents(ingest)


def test_a_path_with_a_line_break_is_rejected(private: Repository, tmp_path: Path) -> None:
    folder = tmp_path / "a\n" / str(private.folder).lstrip("/")
    Repository(folder).commit("Harmless", {"a.md": "1"})
    with pytest.raises(HistoryError, match="line break"):
        find(folder)


def test_git_environment_variables_are_ignored(
    hostile: Path, private: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(private.folder / ".git"))
    monkeypatch.setenv("GIT_COMMON_DIR", str(private.folder / ".git"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(private.folder / ".git" / "objects"))
    assert subjects(hostile) == {"Harmless"}


def test_a_worktree_is_read_and_a_moved_one_after_its_repair(
    private: Repository, tmp_path: Path
) -> None:
    tree, moved = tmp_path / "tree", tmp_path / "moved"
    private.git("worktree", "add", "--quiet", str(tree))
    assert subjects(tree) == {"The secret merger"}
    tree.rename(moved)
    with pytest.raises(HistoryError, match="run `git worktree repair` in it"):
        find(moved)
    subprocess.run(["git", "-C", str(moved), "worktree", "repair"], check=True, capture_output=True)
    assert subjects(moved) == {"The secret merger"}


def test_a_worktree_with_relative_links_is_read(private: Repository, tmp_path: Path) -> None:
    """As newer versions of git make it where `worktree.useRelativePaths` is set."""
    tree, own = tmp_path / "tree", private.folder / ".git" / "worktrees" / "tree"
    private.git("worktree", "add", "--quiet", str(tree))
    (own / "gitdir").write_text(f"{os.path.relpath(tree / '.git', own)}\n")
    (tree / ".git").write_text(f"gitdir: {os.path.relpath(own, tree)}\n")
    assert subjects(tree) == {"The secret merger"}


def test_submodules_are_read_in_the_repository_and_in_its_worktrees(
    private: Repository, tmp_path: Path
) -> None:
    outer = Repository(tmp_path / "outer")
    allow = ("-c", "protocol.file.allow=always")
    outer.git(*allow, "submodule", "--quiet", "add", str(private.folder), "sub")
    outer.commit("With a submodule")
    assert subjects(outer.folder / "sub") == {"The secret merger"}
    outer.git("worktree", "add", "--quiet", str(tmp_path / "tree"))
    tree = ["git", *allow, "-C", str(tmp_path / "tree")]
    subprocess.run([*tree, "submodule", "--quiet", "update", "--init"], check=True)
    assert subjects(tmp_path / "tree" / "sub") == {"The secret merger"}
    sub = ["git", "-C", str(outer.folder / "sub"), "worktree", "add", "--quiet", "--detach"]
    subprocess.run([*sub, str(tmp_path / "sub")], check=True, capture_output=True)
    assert subjects(tmp_path / "sub") == {"The secret merger"}


def test_a_separate_git_directory_is_read_once_it_names_the_folder(tmp_path: Path) -> None:
    store = tmp_path / "store.git"
    made = Repository(tmp_path / "work", f"--separate-git-dir={store}")
    made.commit("Apart", {"docs/a.md": "1"})
    with pytest.raises(HistoryError, match=f"its git directory leads out .* to {store}"):
        find(made.folder)
    made.git("config", "core.worktree", "../work")
    assert subjects(made.folder) == subjects(made.folder / "docs") == {"Apart"}


def test_a_git_directory_by_another_name_inside_the_folder_is_read(private: Repository) -> None:
    """As people have it who work in worktrees alone: `project/.bare` with a `.git` file beside it."""
    home = private.folder.parent / "project"
    private.git("clone", "--quiet", "--bare", ".", str(home / ".bare"))
    write(home, {".git": "gitdir: ./.bare\n"})
    assert subjects(home) == {"The secret merger"}
    add = ["git", "-C", str(home), "worktree", "add", "--quiet", "main"]
    subprocess.run(add, check=True, capture_output=True)
    assert subjects(home / "main") == {"The secret merger"}


def test_a_link_to_a_whole_repository_is_that_repository(
    private: Repository, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(private.folder)
    assert subjects(tmp_path / "link") == {"The secret merger"}


def test_links_and_alternates_that_stay_inside_are_followed(
    hostile: Path, private: Repository
) -> None:
    shutil.copytree(private.folder / ".git", hostile / "inner.git")
    shutil.copytree(private.folder / ".git" / "refs", hostile / ".git" / "refs", dirs_exist_ok=True)
    write(hostile, {".git/objects/info/alternates": f"{hostile / 'inner.git' / 'objects'}\n"})
    replace_by_link(hostile / ".git" / "HEAD", Path("refs/heads/main"))
    assert subjects(hostile) == {"The secret merger"}


def test_a_folder_in_safe_directory_is_read(
    private: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, settings = tmp_path / "clone", tmp_path / "gitconfig"
    private.git("clone", "--quiet", "--shared", ".", str(clone))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    subprocess.run(["git", "-C", str(clone), "config", "safe.directory", str(clone)], check=True)
    for value in ("*", str(private.folder), f"{clone}\n\tdirectory ="):
        settings.write_text(f"[safe]\n\tdirectory = {value}\n")
        with pytest.raises(HistoryError, match="objects/info/alternates leads out of the folder"):
            find(clone)
    settings.write_text(f"[safe]\n\tdirectory = {clone}\n")
    assert subjects(clone) == {"The secret merger"}
