"""The commands copy, export and import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making import write
from tests.surfaces.command_line import PAGES, run_cli, run_json


def test_an_index_is_exported_and_imported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli(capsys, "index")
    file, other = folder.parent / "docs.marklight", folder.parent / "other"
    code, out, err = run_cli(capsys, "export", str(file))
    assert (code, out.startswith("Exported 3 documents")) == (0, True)
    assert "Exporting documents …" in err
    report = run_json(capsys, "export", str(file), str(folder), "--json")
    assert report["digest"] in out
    write(other, PAGES)
    code, out, _ = run_cli(capsys, "import", str(file), str(other), "--digest", report["digest"])
    assert code == 0
    assert out.startswith(
        f"Imported 3 documents, {report['chunks']} passages and {report['vectors']} vectors into file:"
    )
    index = run_json(capsys, "index", str(other), "--json")
    assert (index["added"], index["changed"], index["pending"]) == ([], [], 0)
    code, out, err = run_cli(capsys, "import", str(file), "--in", str(other))
    assert (code, out) == (2, "")
    assert err.endswith(
        "already contains an index with 3 documents. Use --replace to replace it.\n"
    )
    replaced = run_json(capsys, "import", str(file), str(other), "--replace", "--json")
    assert (replaced["documents"], replaced["written"]) == (3, 0)


def test_an_index_is_copied(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_cli(capsys, "index")
    address = f"file:{folder.parent / 'elsewhere'}"
    report = run_json(capsys, "copy", str(folder), address, "--json")
    assert set(report) == {
        *("source", "target", "documents", "chunks", "vectors", "models", "digest", "written"),
        *("removed", "commits", "size", "notices", "took_ms"),
    }
    code, out, _ = run_cli(capsys, "copy", str(folder), address, "--replace")
    assert code == 0
    assert out.endswith(f"to {address}; both indexes are equal\n")


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["copy", ".", "."], 2, "both source and target"),
        (["copy", "."], 2, "Missing argument 'TO'"),
        (["copy", ".", "nowhere"], 2, "No such folder"),
        (["copy", ".", "postgresql://ada:secret@127.0.0.1/db"], 2, "contains a password"),
        (["copy", "postgresql://ada:secret@127.0.0.1/db", "."], 2, "contains a password"),
        (["copy", "file:a", "file:b", "--set", "quokka=1"], 2, "Unknown setting"),
        (["copy", "file:a", "file:b"], 1, "Nothing is indexed in file:"),
        (["export", "espresso.md"], 2, "is not an archive of Marklight"),
        (["export", "nowhere/file"], 3, "No such file or directory"),
        (["import", "espresso.md"], 2, "already contains an index"),
        (["import", "espresso.md", "--replace"], 3, "not an archive of Marklight"),
        (["import", "nowhere"], 2, "cannot be read"),
    ],
)
def test_an_error_is_one_line_without_the_password(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    part: str,
) -> None:
    run_cli(capsys, "index")
    found, out, err = run_cli(capsys, *arguments)
    lines = [line for line in err.splitlines() if not line.endswith("…")]
    assert (found, out, len(lines)) == (code, "", 1)
    assert part in lines[0]
    assert "secret" not in err
