"""The command trust, and notices about ignored settings."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

import marklight
from tests.making import write
from tests.surfaces.command_line import run_cli, run_json

OUTSIDE = "[collections]\nall = '.'\nmore = '../more'\n[index]\nmax_bytes = 30000000\n"


@pytest.fixture
def more(folder: Path) -> Path:
    """Create a folder outside the library and configure it as a collection."""
    write(folder, {"marklight.toml": OUTSIDE})
    return write(folder.parent / "more", {"zebra.md": "# Zebra\n\nA zebra has stripes.\n"})


def _found(capsys: pytest.CaptureFixture[str]) -> list[str]:
    _, out, _ = run_cli(capsys, "search", "zebra", "--mode", "keyword", "--format", "files")
    return out.splitlines()


@pytest.mark.usefixtures("more")
def test_ignored_settings_are_a_notice_and_the_search_continues(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys, "search", "when do tokens expire")
    assert code == 0
    assert "guide/auth.md" in out
    expected = (
        f"note: Ignored in {folder}/marklight.toml: collections.more (allowed: folders inside this one that are not hidden), index.max_bytes. A folder's file may not"
        f" set these. If you trust its author, `marklight settings --trust {folder}` lists and allows them.\n"
    )
    assert err.endswith(expected)
    assert err.count("Ignored in") == 1
    for command in (("search", "tokens"), ("index",), ("status",), ("get", "espresso.md")):
        notices = run_json(capsys, *command, "--json")["notices"]
        assert [one for one in notices if one in expected], command


def test_a_name_in_place_of_a_folder_lists_these_settings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, "settings", "search.recency")
    assert (code, out) == (0, "search.recency.strength  1.0  (built-in)\n")
    assert list(run_json(capsys, "settings", "serve.port", "--json")) == ["serve.port"]
    code, _, err = run_cli(capsys, "settings", "nowhere")
    assert code == 2
    assert "No such folder" in err


def test_trust_prints_and_enables_settings(
    folder: Path, more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _found(capsys) == []
    code, out, err = run_cli(capsys, "settings", "--trust", str(folder))
    assert code == 0
    assert out == 'collections = {"more": "../more"}\nindex.max_bytes = 30000000\n'
    assert f"{folder}/marklight.toml is trusted until it changes" in err
    assert f"Undo with `marklight settings {folder} --revoke`" in err
    assert _found(capsys) == [str(more / "zebra.md")]
    assert "ignored" not in run_cli(capsys, "search", "zebra")[2]
    with marklight.open(folder) as library:
        assert library.settings["index.max_bytes"] == 30_000_000


@pytest.mark.usefixtures("more")
def test_a_changed_file_must_be_trusted_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli(capsys, "settings", "--trust")
    write(folder, {"marklight.toml": OUTSIDE + "# changed\n"})
    code, _, err = run_cli(capsys, "search", "when do tokens expire")
    assert code == 0
    assert "index.max_bytes. A folder's file may not set these." in err
    assert "It changed since it was trusted." in err
    assert run_json(capsys, "settings", "--trusted", "--json")[0]["state"] == "changed"
    run_cli(capsys, "settings", "--trust")
    assert "ignored" not in run_cli(capsys, "search", "when do tokens expire")[2]


@pytest.mark.usefixtures("more")
def test_revoke_ignores_the_settings_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli(capsys, "settings", "--trust", str(folder))
    assert run_cli(capsys, "settings", "--revoke", str(folder))[:2] == (
        0,
        f"{folder} is no longer trusted\n",
    )
    assert "collections.more" in run_cli(capsys, "search", "zebra")[2]
    code, _, err = run_cli(capsys, "settings", "--revoke", str(folder))
    assert code == 1
    assert f"{folder} is not trusted" in err


@pytest.mark.usefixtures("more")
def test_trusted_folders_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_json(capsys, "settings", "--trusted", "--json") == []
    assert "No folder is trusted" in run_cli(capsys, "settings", "--trusted")[2]
    assert run_json(capsys, "settings", "--trust", "--json") == {
        "folder": str(folder),
        "file": str(folder / "marklight.toml"),
        "settings": {"collections": {"more": "../more"}, "index.max_bytes": 30_000_000},
    }
    (row,) = run_json(capsys, "settings", "--trusted", "--json")
    assert (row["folder"], row["file"], row["state"]) == (str(folder), "marklight.toml", "trusted")
    assert run_cli(capsys, "settings", "--trusted")[1].startswith(
        f"{folder}  (marklight.toml, trusted, since "
    )
    (folder / "marklight.toml").unlink()
    assert run_json(capsys, "settings", "--trusted", "--json")[0]["state"] == "missing"
    moved = folder.rename(folder.parent / "moved")
    assert run_json(capsys, "settings", "--revoke", str(folder), "--json")["revoked"]
    assert moved.is_dir()


def test_trust_is_recorded_outside_the_folder_for_this_user_only(
    folder: Path, more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    run_cli(capsys, "settings", "--trust")
    assert sorted(folder.rglob("*")) == before
    (record,) = (more.parent / "data" / "trust").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    # A record of another folder, or a damaged one, does not count.
    for data in (record.read_text().replace(str(folder), "/other"), "{}", "[", '{"folder": 1}'):
        record.write_text(data)
        assert "collections.more" in run_cli(capsys, "search", "zebra")[2]


def test_a_copy_of_a_trusted_file_is_not_trusted(
    folder: Path, more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli(capsys, "settings", "--trust")
    copy = write(more.parent / "copy", {"a.md": "# A\n\nApples.\n", "marklight.toml": OUTSIDE})
    assert "collections.more" in run_cli(capsys, "search", "apples", str(copy))[2]


def test_settings_show_ignored_values_with_reasons(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'serve.token = "known"\nserve.start = true\nchunk.max_chars = 3\nsearch.per_document.max_passages = 4\n'
    write(folder, {"marklight.toml": text})
    found = run_json(capsys, "settings", "--json")
    source = str(folder / "marklight.toml")
    assert found["search.per_document.max_passages"] == {"value": 4, "source": source}
    assert found["serve.start"] == {
        "value": False,
        "source": "built-in",
        "ignored": {
            "value": True,
            "source": source,
            "reason": "requires `marklight settings --trust`",
        },
    }
    assert found["chunk.max_chars"]["ignored"]["reason"] == "allowed: 200 to 20000"
    assert found["serve.token"]["ignored"]["value"] == "…"
    _, out, err = run_cli(capsys, "settings")
    assert (
        f"false  (built-in)  [ignored: true in {source}: requires `marklight settings --trust`]"
        in out
    )
    assert "known" not in out
    assert "note: Ignored in" in err
    assert "known" not in run_cli(capsys, "settings", "--trust")[1]


def test_settings_that_need_no_trust_are_not_recorded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"marklight.toml": "search.per_document.max_passages = 4\n"})
    code, out, err = run_cli(capsys, "settings", "--trust")
    assert (code, out) == (0, "")
    assert "already apply without trust. Nothing was changed" in err
    assert run_json(capsys, "settings", "--trusted", "--json") == []


def test_pyproject_can_be_trusted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, {"pyproject.toml": "[tool.marklight.index]\nmax_bytes = 30000000\n"})
    assert "index.max_bytes" in run_cli(capsys, "search", "tokens")[2]
    assert (
        run_cli(capsys, "settings", "--trust", "pyproject.toml")[1]
        == "index.max_bytes = 30000000\n"
    )
    assert "ignored" not in run_cli(capsys, "search", "tokens")[2]


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
def test_an_unusable_file_cannot_be_trusted(
    folder: Path, capsys: pytest.CaptureFixture[str], prepare: object, code: int, why: str
) -> None:
    prepare(folder / "marklight.toml")  # type: ignore[operator]
    found, _, err = run_cli(capsys, "settings", "--trust")
    assert found == code
    assert why in err


def test_revoke_and_trusted_together_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(capsys, "settings", "--revoke", "--trusted")[0] == 2


def test_commits_report_ignored_settings(
    folder: Path, more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.repository import Repository

    repository = Repository(folder)
    repository.commit("Teach zebras to refresh tokens")
    assert more.is_dir()
    found = json.loads(run_cli(capsys, "commits", "zebras", "--json")[1])
    assert any("collections.more" in notice for notice in found["notices"])


def test_the_password_of_an_engine_is_never_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "postgresql://ann:s3cr3t@127.0.0.1:1/x?library=docs&password=s3cr3t"
    write(folder, {"marklight.toml": f'engine = "{address}"\n'})
    outputs = [run_cli(capsys, *words) for words in (("settings",), ("settings", "--json"))]
    outputs += [
        run_cli(capsys, "settings", "--trust", "--json"),
        run_cli(capsys, "settings", "--trust"),
    ]
    for words in (("settings",), ("search", "x"), ("--debug", "status"), ("doctor",), ("index",)):
        outputs.append(run_cli(capsys, *words))
    for code, out, err in outputs:
        assert "s3cr3t" not in out + err, code
    assert "postgresql://ann@127.0.0.1:1/x?library=docs" in outputs[0][1]
    monkeypatch.setenv("MARKLIGHT_ENGINE", "postgresql://ann:s3/cr3t@db/x")
    code, out, err = run_cli(capsys, "search", "x")
    assert code == 2
    assert "cr3t" not in out + err


def test_a_password_on_the_command_line_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_cli(
        capsys, "status", "--in", str(folder), "--set", "engine=postgresql://a:s3cr3t@h/x"
    )
    assert code == 2
    assert "s3cr3t" not in err
    assert "PGPASSWORD" in err


def test_settings_are_listed_although_one_is_unknown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"marklight.toml": '[models]\nembedder = "x"\n'})
    code, out, err = run_cli(capsys, "settings")
    assert code == 2
    assert err.startswith("marklight: Unknown setting 'models.embedder'")
    assert "`marklight settings` lists all" in err
    assert re.search(r'^search\.fuse +"learned"  \(built-in\)$', out, re.MULTILINE)
    assert run_cli(capsys, "settings", "--json")[:2] == (2, "")
