"""`marklight trust`: what it prints and records, when it no longer counts, and how a search reports what is ignored."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

import marklight
from tests.making import write
from tests.surfaces.saying import said, told

OUTSIDE = "[collections]\nall = '.'\nmore = '../more'\n[index]\nmax_bytes = 30000000\n"


@pytest.fixture
def more(folder: Path) -> Path:
    """A folder beside the library, which the library's own file names as a collection."""
    write(folder, {"marklight.toml": OUTSIDE})
    return write(folder.parent / "more", {"zebra.md": "# Zebra\n\nA zebra has stripes.\n"})


def _found(capsys: pytest.CaptureFixture[str]) -> list[str]:
    _, out, _ = said(capsys, "search", "zebra", "--mode", "keyword", "--format", "files")
    return out.splitlines()


@pytest.mark.usefixtures("more")
def test_what_is_ignored_is_a_notice_and_the_search_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, "search", "when do tokens expire")
    assert code == 0
    assert "guide/auth.md" in out
    expected = (
        f"note: ignored in {folder}/marklight.toml: collections.more (allowed: folders inside this one that are not hidden), index.max_bytes. A folder's file does not"
        f" decide these. If you trust its author, `marklight trust {folder}` lists and allows them.\n"
    )
    assert err.endswith(expected)
    assert err.count("ignored in") == 1
    for command in (("search", "tokens"), ("index",), ("status",), ("get", "espresso.md")):
        notices = told(capsys, *command, "--json")["notices"]
        assert [one for one in notices if one in expected], command


def test_trust_prints_what_it_allows_and_a_search_honours_it(
    folder: Path, more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _found(capsys) == []
    code, out, err = said(capsys, "trust", str(folder))
    assert code == 0
    assert out == 'collections = {"more": "../more"}\nindex.max_bytes = 30000000\n'
    assert f"{folder}/marklight.toml is trusted until it changes" in err
    assert _found(capsys) == [str(more / "zebra.md")]
    assert "ignored" not in said(capsys, "search", "zebra")[2]
    with marklight.open(folder) as library:
        assert library.settings["index.max_bytes"] == 30_000_000


@pytest.mark.usefixtures("more")
def test_a_file_that_changed_is_ignored_until_it_is_trusted_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "trust")
    write(folder, {"marklight.toml": OUTSIDE + "# changed\n"})
    code, _, err = said(capsys, "search", "when do tokens expire")
    assert code == 0
    assert "index.max_bytes. A folder's file does not decide these." in err
    assert "It changed since it was trusted." in err
    assert told(capsys, "trust", "--list", "--json")[0]["state"] == "changed"
    said(capsys, "trust")
    assert "ignored" not in said(capsys, "search", "when do tokens expire")[2]


@pytest.mark.usefixtures("more")
def test_a_revoked_folder_is_ignored_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "trust", str(folder))
    assert said(capsys, "trust", "--revoke", str(folder))[:2] == (
        0,
        f"{folder} is no longer trusted\n",
    )
    assert "collections.more" in said(capsys, "search", "zebra")[2]
    code, _, err = said(capsys, "trust", "--revoke", str(folder))
    assert code == 1
    assert f"{folder} is not trusted" in err


@pytest.mark.usefixtures("more")
def test_folders_that_are_trusted_are_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "trust", "--list", "--json") == []
    assert "No folder is trusted" in said(capsys, "trust", "--list")[2]
    assert told(capsys, "trust", "--json") == {
        "folder": str(folder),
        "file": str(folder / "marklight.toml"),
        "settings": {"collections": {"more": "../more"}, "index.max_bytes": 30_000_000},
    }
    (row,) = told(capsys, "trust", "--list", "--json")
    assert (row["folder"], row["file"], row["state"]) == (str(folder), "marklight.toml", "trusted")
    assert said(capsys, "trust", "--list")[1].startswith(
        f"{folder}  (marklight.toml, trusted, since "
    )
    (folder / "marklight.toml").unlink()
    assert told(capsys, "trust", "--list", "--json")[0]["state"] == "missing"
    moved = folder.rename(folder.parent / "moved")
    assert told(capsys, "trust", "--revoke", str(folder), "--json")["revoked"]
    assert moved.is_dir()


def test_trust_is_recorded_outside_the_folder_for_this_user_alone(
    folder: Path, more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    said(capsys, "trust")
    assert sorted(folder.rglob("*")) == before
    (record,) = (more.parent / "data" / "trust").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    # A record of another folder, or a damaged one, is no trust.
    for data in (record.read_text().replace(str(folder), "/other"), "{}", "[", '{"folder": 1}'):
        record.write_text(data)
        assert "collections.more" in said(capsys, "search", "zebra")[2]


def test_trust_does_not_move_with_a_copy_of_the_file(
    folder: Path, more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "trust")
    copy = write(more.parent / "copy", {"a.md": "# A\n\nApples.\n", "marklight.toml": OUTSIDE})
    assert "collections.more" in said(capsys, "search", "apples", str(copy))[2]


def test_settings_show_what_was_ignored_and_why(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'serve.token = "known"\nserve.start = true\nchunk.max_chars = 3\nsearch.exact_title.most = 4\n'
    write(folder, {"marklight.toml": text})
    found = told(capsys, "settings", "--json")
    source = str(folder / "marklight.toml")
    assert found["search.exact_title.most"] == {"value": 4, "source": source}
    assert found["serve.start"] == {
        "value": False,
        "source": "built-in",
        "ignored": {"value": True, "source": source, "reason": "only the user decides this"},
    }
    assert found["chunk.max_chars"]["ignored"]["reason"] == "allowed: 200 to 20000"
    assert found["serve.token"]["ignored"]["value"] == "…"
    _, out, err = said(capsys, "settings")
    assert f"false  (built-in)  [ignored: true in {source}: only the user decides this]" in out
    assert "known" not in out
    assert "note: ignored in" in err
    assert "known" not in said(capsys, "trust")[1]


def test_settings_that_need_no_trust_record_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"marklight.toml": "search.exact_title.most = 4\n"})
    code, out, err = said(capsys, "trust")
    assert (code, out) == (0, "")
    assert "needs trust. Nothing was changed" in err
    assert told(capsys, "trust", "--list", "--json") == []


def test_pyproject_is_trusted_in_the_same_way(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"pyproject.toml": "[tool.marklight.index]\nmax_bytes = 30000000\n"})
    assert "index.max_bytes" in said(capsys, "search", "tokens")[2]
    assert said(capsys, "trust", "pyproject.toml")[1] == "index.max_bytes = 30000000\n"
    assert "ignored" not in said(capsys, "search", "tokens")[2]


@pytest.mark.parametrize(
    ("prepare", "code", "why"),
    [
        (lambda _: None, 1, "No settings file in "),
        (
            lambda file: file.symlink_to("/dev/null"),
            2,
            ": it is not a regular file",
        ),
        (lambda file: (file.touch(), file.chmod(0o666)), 2, "can be written by every user"),
    ],
)
def test_a_file_that_is_not_obeyed_cannot_be_trusted(
    folder: Path, capsys: pytest.CaptureFixture[str], prepare: object, code: int, why: str
) -> None:
    prepare(folder / "marklight.toml")  # type: ignore[operator]
    found, _, err = said(capsys, "trust")
    assert found == code
    assert why in err


def test_revoke_and_list_together_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "trust", "--revoke", "--list")[0] == 2


def test_commits_report_what_is_ignored_too(
    folder: Path, more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.repository import Repository

    repository = Repository(folder)
    repository.commit("Teach zebras to refresh tokens")
    assert more.is_dir()
    found = json.loads(said(capsys, "commits", "zebras", "--json")[1])
    assert any("collections.more" in notice for notice in found["notices"])
