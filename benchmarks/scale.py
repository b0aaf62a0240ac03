"""Index folders of extreme size and shape: each ends with success or a clear refusal, in bounded memory.

`scripts/bench scale [CASE…]` makes the files, indexes them in a process of its own (fake model, so that the time is that of the
program), searches once, changes one file and searches again. A million empty files need about 4 GB of disk.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._measure import result_path, save
from benchmarks.serving import PROGRAM

WORDS = [
    f"{first}{second}"
    for first in ("ar", "bel", "cor", "dun", "el", "far")
    for second in ("mon", "ton", "vin", "dal", "gar")
]


ALLOWED = "a file of 100 MB, allowed by index.max_bytes"


def sentence(chance: random.Random, count: int = 12) -> str:
    return " ".join(chance.choices(WORDS, k=count))


def tiny_files(folder: Path, count: int = 200_000) -> None:
    chance = random.Random(1)
    for number in range(count):
        place = folder / f"{number // 1000:03d}"
        if number % 1000 == 0:
            place.mkdir()
        (place / f"{number}.md").write_text(f"# Note {number}\n\n{sentence(chance)}\n")


def empty_files(folder: Path, count: int = 1_000_000) -> None:
    for number in range(count):
        if number % 1000 == 0:
            (folder / str(number // 1000)).mkdir()
        (folder / str(number // 1000) / f"{number}.md").touch()
    (folder / "needle.md").write_text("# Needle\n\narmon belton\n")


def huge_file(folder: Path, megabytes: int = 100) -> None:
    chance = random.Random(2)
    with (folder / "huge.md").open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write(
                f"## {sentence(chance, 3)}\n\n"
                + "\n\n".join(sentence(chance, 250) for _ in range(12))
                + "\n\n"
            )
    (folder / "needle.md").write_text("# Needle\n\narmon belton\n")


def long_table(folder: Path, rows: int = 50_000) -> None:
    chance = random.Random(3)
    lines = ["# Table", "", "| name | first | second |", "|---|---|---|"]
    lines += [
        f"| row {number} | {sentence(chance, 3)} | {sentence(chance, 3)} |"
        for number in range(rows)
    ]
    (folder / "table.md").write_text("\n".join(lines) + "\n")


def many_links(folder: Path, count: int = 100_000) -> None:
    links = "\n".join(f"- [[note {number}]]" for number in range(count))
    (folder / "links.md").write_text(f"# Links\n\narmon belton\n\n{links}\n")
    (folder / "note 7.md").write_text("# Note 7\n\narmon belton\n")


def deep_folders(folder: Path, depth: int = 1_000) -> None:
    """Nest folders; their path is longer than the system accepts in one call, so they are made one by one."""
    here = os.open(folder, os.O_RDONLY)
    for level in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
        if level % 100 == 0:
            with open(os.open(f"{level}.md", os.O_WRONLY | os.O_CREAT, dir_fd=here), "w") as file:
                file.write(f"# Level {level}\n\narmon belton\n")
    os.close(here)


CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "200,000 tiny files": (tiny_files, "000/0.md"),
    "1,000,000 empty files": (empty_files, "needle.md"),
    "a file of 100 MB": (huge_file, "needle.md"),
    ALLOWED: (huge_file, "needle.md"),
    "a table of 50,000 rows": (long_table, "table.md"),
    "100,000 links in one note": (many_links, "links.md"),
    "folders 1,000 deep": (deep_folders, "top.md"),
}


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a command; return its time, its peak memory, its exit code and the last line that it prints."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [*PROGRAM, *arguments, "--in", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    lines = [line for line in output.splitlines() if line.strip()]
    assert "Traceback" not in output, output
    shown = [line for line in lines if line.startswith(str(folder))]
    return {
        "seconds": round(time.perf_counter() - started, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss * 1024 / 1e6),
        "exit_code": os.waitstatus_to_exitcode(status),
        "output": (shown or lines or [""])[0 if shown else -1].replace(str(folder), "FOLDER")[:160],
    }


def measure(name: str, root: Path) -> dict[str, Any]:
    make, edited = CASES[name]
    folder = root / "docs"
    folder.mkdir()
    (folder / "top.md").write_text("# Top\n\narmon belton cortton\n")
    make(folder)
    result = {
        "index": run(folder, "index"),
        "search": run(folder, "search", "armon belton", "--oneline"),
    }
    with (folder / edited).open("a") as file:
        file.write("\nquicksilver\n")
    # By keywords: the similarity of the fake model is random, and the edited file one of a million.
    options = ("--oneline", "--mode", "keyword", "--min-confidence", "0")
    result["search after an edit"] = run(folder, "search", "quicksilver", *options)
    return result


def main() -> None:
    names = sys.argv[1:] or list(CASES)
    os.environ |= {"MARKLIGHT_MODEL_NAME": "fake", "MARKLIGHT_DAEMON": "off"}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Results of cases that are not named are kept.
    figures = json.loads(result_path("scale").read_text()) if result_path("scale").exists() else {}
    for name in names:
        root = Path(tempfile.mkdtemp())
        os.environ["MARKLIGHT_DATA_DIR"] = str(root / "data")
        os.environ["MARKLIGHT_INDEX_MAX_BYTES"] = str(
            200_000_000 if name == ALLOWED else 20_000_000
        )
        try:
            figures[name] = measure(name, root)
            save("scale", figures)
        finally:
            subprocess.run(["rm", "-rf", str(root)], check=True)  # shutil recurses too deep


if __name__ == "__main__":
    main()
