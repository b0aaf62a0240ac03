"""Malformed files, damaged parts, a full disk, two processes: one-line error, exit code, no loss of data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.making import index_of, library, write

GOOD = {
    f"good{number}.md": f"# Good {number}\n\nA fine page about lanterns, number {number}.\n"
    for number in range(5)
}
PROGRAM = [sys.executable, "-c", "from marklight.surfaces.cli import main; main()"]


def program(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "MARKLIGHT_MODEL_NAME": "fake"}
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


SEVERAL = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from marklight.surfaces.cli import run
for call in json.loads(sys.argv[1]):
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = run(call)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def several(folder: Path, *calls: list[str]) -> list[subprocess.CompletedProcess[str]]:
    """Run several commands in one process: starting it takes most of the time."""
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps(calls)],
        cwd=folder,
        env={**os.environ, "MARKLIGHT_MODEL_NAME": "fake"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    message = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        subprocess.CompletedProcess(call, *each) for call, each in zip(calls, message, strict=True)
    ]


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on standard error, without the lines of progress."""
    lines = [line for line in done.stderr.splitlines() if not line.endswith("…")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def test_files_that_break_parsers_are_indexed_or_skipped_with_a_reason(
    eval_root: Path, tmp_path: Path
) -> None:
    with library(eval_root / "robust", engine=f"file:{tmp_path / 'index'}") as lib:
        report = lib.index()
        assert len(report.added) + len(report.skipped) >= 250
        assert all(failure.reason for failure in report.skipped)
        assert report.index.pending == 0
        assert lib.search("list item emphasis").hits


def test_malformed_files_do_not_affect_other_documents(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "docs",
        {
            **GOOD,
            "utf16.md": "# Größe\n\nLaternen überall".encode("utf-16"),
            "cp1252.md": "# Café\n\nnaïve “quotes”".encode("cp1252"),
            "nul.md": b"# Nul\n\n\x00",
            "cr.md": b"# One\r\rtwo\rthree",
            "bom.md": b"\xef\xbb\xbf# Bom\n\ntext",
            "quotes.md": "> " * 10_000 + "deep",
            "lists.md": "\n".join("  " * depth + "- item" for depth in range(2_000)),
            "brackets.md": "[" * 100_000,
            "line.md": "word " * 1_000_000,
            "front.md": "---\ntitle: [unclosed\n---\n\nstill here: quokka\n",
            "bomb.md": "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
            "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d]\n---\n\nbomb\n",
            "new\nline.md": "# Newline in the name\n",
            "emoji 🙂.md": "# Emoji\n\nsmile\n",
            "empty.md": "",
            "blank.md": "\n \n\t\n",
        },
    )
    with (folder / "huge.md").open("wb") as file:
        file.write(b"x" * 50_000_000)
    (folder / "loop").symlink_to(folder)
    (folder / "dangling.md").symlink_to(folder / "nowhere.md")
    os.mkfifo(folder / "pipe.md")
    began = time.process_time()
    with library(folder) as lib:
        report = lib.index()
        failed = {one["path"]: one["reason"] for one in lib.status()["failed"]}
        assert {"nul.md", "huge.md", "dangling.md", "pipe.md"} <= set(failed)
        assert all(failed.values())
        assert {id.path for id in report.added} >= set(GOOD) | {
            "new\nline.md",
            "emoji 🙂.md",
            "empty.md",
        }
        assert lib.search("quokka").hits[0].chunk.path == "front.md"
        assert lib.search("Laternen Größe").hits[0].chunk.path == "utf16.md"
        assert lib.search("lanterns", mode="keyword").hits[0].chunk.path.startswith("good")
    assert time.process_time() - began < 120, "of its own time: not a slow machine"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="as root every file can be read")
def test_a_file_without_permission_is_listed(tmp_path: Path) -> None:
    folder = write(tmp_path, GOOD)
    (folder / "good0.md").chmod(0)
    with library(folder) as lib:
        assert "permission" in lib.index().skipped[0].reason


def test_files_that_change_or_vanish_while_they_are_read_do_no_harm(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "docs", {f"page{number}.md": "# P\n\ntext\n" for number in range(200)}
    )
    stop = threading.Event()

    def churn() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            path = folder / f"page{step % 200}.md"
            if step % 3:
                path.write_text(f"# P\n\ntext {step} " + "more " * (step % 500))
            else:
                path.unlink(missing_ok=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        with library(folder, engine=f"file:{tmp_path / 'index'}") as lib:
            for _ in range(5):
                lib.index()
    finally:
        stop.set()
        thread.join()
    with library(folder, engine=f"file:{tmp_path / 'index'}") as lib:
        lib.index()
        assert lib.ingest.counts().documents == len(list(folder.glob("*.md")))


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    folder = write(tmp_path / "docs", GOOD)
    with library(folder) as lib:
        lib.index()
    return folder


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "emptied"])
def test_a_damaged_database_is_reported_and_never_emptied(indexed: Path, damage: str) -> None:
    store = index_of(indexed) / "library.db"
    data = store.read_bytes()
    damaged = {
        "truncated": data[: len(data) // 3],
        "overwritten": data[:100] + os.urandom(len(data) - 100),
        "emptied": b"",
    }[damage]
    store.write_bytes(damaged)
    for done in several(indexed, ["search", "lanterns"], ["index"], ["status"]):
        assert done.returncode == 3, (done.args, done.stdout, done.stderr)
        assert "library.db" in complaint(done)
        assert done.stdout == ""
    assert store.read_bytes() == damaged


@pytest.mark.parametrize("part", ["lexical", "vectors"])
@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_a_damaged_derived_part_is_rebuilt(indexed: Path, part: str, damage: str) -> None:
    before = json.loads(program(indexed, "search", "lanterns number 3", "--json").stdout)
    touched = 0
    for path in (index_of(indexed) / part).rglob("*"):
        if path.is_file() and path.stat().st_size:
            touched += 1
            if damage == "deleted":
                path.unlink()
            else:
                os.truncate(path, path.stat().st_size // 2)
    assert touched
    done = program(indexed, "search", "lanterns number 3", "--json")
    assert done.returncode == 0, done.stderr
    if part == "vectors":  # they are embedded again after the first search, which says so
        assert "found by their words alone" in done.stdout
        done = program(indexed, "search", "lanterns number 3", "--json")
    after = json.loads(done.stdout)
    assert [hit["path"] for hit in after["results"]] == [hit["path"] for hit in before["results"]]
    assert after["results"][0]["score"] == pytest.approx(before["results"][0]["score"], abs=1e-3)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a tmpfs")
def test_a_full_disk_is_a_one_line_error_and_loses_nothing(
    small_disk: Path, tmp_path: Path
) -> None:
    folder = write(tmp_path / "docs", GOOD)
    engine = f"engine=file:{small_disk / 'index'}"
    assert program(folder, "index", "--set", engine).returncode == 0
    write(
        folder,
        {
            f"big{number}.md": f"# Big {number}\n\n" + f"lantern{number} " * 20_000
            for number in range(20)
        },
    )
    done = program(folder, "index", "--set", engine)
    assert done.returncode == 3, done.stdout
    assert "full" in complaint(done) or "space" in complaint(done)
    found = program(
        folder, "search", "lanterns number 3", "--no-refresh", "--set", engine, "--json"
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["results"][0]["path"] == "good3.md"
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    assert program(folder, "index", "--set", engine).returncode == 0
    status = program(folder, "search", "lantern7", "--set", engine, "--json")
    assert json.loads(status.stdout)["results"][0]["path"] == "big7.md"


def test_two_processes_can_index_one_library(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "docs",
        {
            f"page{number}.md": f"# Page {number}\n\n" + "lantern light " * 300
            for number in range(150)
        },
    )
    environ = {**os.environ, "MARKLIGHT_MODEL_NAME": "fake"}
    both = [
        subprocess.Popen(
            [*PROGRAM, "index", "--json"], cwd=folder, env=environ, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    reports = [json.loads(process.communicate(timeout=120)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(len(report["added"]) for report in reports) == [0, 150]


def test_an_interrupt_keeps_what_was_done(tmp_path: Path) -> None:
    import signal

    folder = write(
        tmp_path / "docs",
        {
            f"page{number}.md": f"# Page {number}\n\n" + f"lantern{number} light " * 900
            for number in range(300)
        },
    )
    environ = {**os.environ, "MARKLIGHT_MODEL_NAME": "fake"}
    process = subprocess.Popen(
        [*PROGRAM, "index"], cwd=folder, env=environ, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    assert process.stderr.readline().startswith("Indexing /")
    assert process.stderr.readline() == "Reading text …\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, (
        "it finished before it was interrupted: add documents to the test"
    )
    assert "kept" in err
    assert "Traceback" not in err
    done = program(folder, "index", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == 300
