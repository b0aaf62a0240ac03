"""Speed and quality of the history index: reading, indexing, searching and updating commits.

    python -m benchmarks.history          # some minutes; needs git, and this repository's own history

Speed on repositories of 1,000 and 10,000 commits that `git fast-import` makes; quality on this project's
own commits: 30 are sampled, and the query for each is the words of its message that do not occur in the
beginning of its diff.
"""

from __future__ import annotations

import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import marklight
from benchmarks._measure import ROOT, peak_megabytes, save
from marklight.ingest.commits import DiffReader, read_commits
from marklight.ingest.git import find
from marklight.model import Document
from marklight.text.analyzer import analyze, query_terms

SMALL, LARGE, SAMPLED = 1_000, 10_000, 30
AUTHORS = ("Ada Lovelace", "Grace Hopper", "Alan Turing", "Barbara Liskov")
FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "files": {"files": "src/alpha/**"},
    "author": {"author": "grace"},
    "after and before": {"after": "2017-09", "before": "2018-03"},
    "all": {"files": "*.md", "author": "ada", "before": "2018-06"},
}
WORDS = (
    "alpha cache token index reader writer merge filter query budget vector model engine batch commit"
    " graph link page server client proxy retry timeout lock thread queue parser lexer schema table"
    " column row cursor snapshot digest header anchor outline heading passage score ranking fusion"
    " recall precision latency memory buffer stream socket session cookie login password cipher"
    " certificate storage bucket volume container image cluster node ingress route gateway metric alert"
).split()


def repository_of(folder: Path, commits: int) -> Path:
    """Create a repository with this number of commits, the same in every run."""
    rng = random.Random(7)
    git = ("git", "-C", str(folder))
    folder.mkdir()
    subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
    paths = [f"src/{a}/{b}.py" for a in WORDS[:25] for b in WORDS[25:45]]
    paths += [f"docs/{word}.md" for word in WORDS]
    texts: dict[str, list[str]] = {}
    with subprocess.Popen([*git, "fast-import", "--quiet"], stdin=subprocess.PIPE) as importing:
        assert importing.stdin
        for number in range(1, commits + 1):
            importing.stdin.write(_commit(rng, number, rng.sample(paths, rng.randint(1, 4)), texts))
    return folder


def _commit(
    rng: random.Random, number: int, paths: list[str], texts: dict[str, list[str]]
) -> bytes:
    name = rng.choice(AUTHORS)
    person = f"{name} <{name.split()[0].lower()}@example.org> {1_500_000_000 + 3600 * number} +0000"
    message = f"{rng.choice(['Fix', 'Add', 'Explain'])} {' '.join(rng.choices(WORDS, k=5))}\n\n"
    message += f"{' '.join(rng.choices(WORDS, k=25))}.\nNumber {number}.\n"
    parts = [f"commit refs/heads/main\nmark :{number}\nauthor {person}\ncommitter {person}\n"]
    parts.append(f"data {len(message)}\n{message}")
    parts += [f"from :{number - 1}\n"] if number > 1 else []
    for path in paths:
        lines = texts.setdefault(path, [])
        at = rng.randint(0, len(lines))
        lines[at:at] = [
            f"    {rng.choice(WORDS)}_{rng.choice(WORDS)} = {rng.choice(WORDS)}({rng.randint(0, 999)})"
            for _ in range(rng.randint(3, 25))
        ]
        del lines[300:]
        text = "\n".join(lines) + "\n"
        parts.append(f"M 100644 inline {path}\ndata {len(text)}\n{text}")
    return ("".join(parts) + "\n").encode()


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def reading(folder: Path) -> dict[str, float]:
    """Read with git alone: messages, file names and the first 200 lines of each diff."""
    repository = find(folder)
    assert repository
    hashes, _ = repository.reachable(repository.tips())
    diffs = DiffReader(repository, 200)

    def read() -> None:
        for at in range(0, len(hashes), 256):
            list(read_commits(repository, hashes[at : at + 256]))
            list(diffs(hashes[at : at + 256]))

    seconds = timed(read)
    diffs.close()
    return {"seconds": round(seconds, 1), "commits_per_second": round(len(hashes) / seconds)}


def searching(library: marklight.Library, queries: list[str]) -> dict[str, Any]:
    """Search with each of the filters."""
    figures = {}
    for name, filters in FILTERS.items():
        times = [1000 * timed(partial(library.commits, each, **filters)) for each in queries]
        figures[name] = {
            "p50_ms": round(statistics.median(times), 1),
            "p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
        }
    return figures


def with_vectors(folder: Path, queries: list[str]) -> dict[str, Any]:
    """Run hybrid searches with the vectors of a fake model."""
    with marklight.open(folder, {"model": {"name": "fake"}}) as library:
        library.index(history=True)
        return searching(library, queries)


def updating(folder: Path, queries: list[str]) -> dict[str, Any]:
    """Without vectors: index all commits, search with filters, search after one new commit."""
    settings = {"model": {"name": "none"}}
    with marklight.open(folder, settings) as library:
        first = timed(lambda: library.commits("cache token budget"))
        index = library.commits("cache token budget").index
        searches = searching(library, queries)
        new = []
        for number in range(7):
            message = ("commit", "--quiet", "--allow-empty", "-m", f"Zebra {number}")
            own = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
            subprocess.run(["git", "-C", str(folder), *own, *message], check=True)
            new.append(1000 * timed(lambda: library.commits("zebra", mode="keyword")))
        same = [1000 * timed(lambda: library.commits("zebra", mode="keyword")) for _ in range(7)]
    return {
        "commits": index.documents,
        "passages": index.chunks,
        "indexing_seconds": round(first, 1),
        "commits_per_second": round(index.documents / first),
        "searches": searches,
        "search_after_one_new_commit_ms": round(statistics.median(new), 1),
        "search_after_none_ms": round(statistics.median(same), 1),
    }


def query_for(document: Document) -> str:
    """Return the words of a message that do not occur in the first lines of its diff."""
    lines, last = document.text.split("\n"), document.outline[0].lines[1]
    shared = set(query_terms("\n".join(lines[last:])))
    words = re.findall(r"[\w'’-]+", " ".join(lines[:last]))
    kept = [each for each in words if (own := set(query_terms(each))) and not own & shared]
    return " ".join(dict.fromkeys(kept))


def has_three_terms(query: str) -> bool:
    """Return true if at least three words are not stop words."""
    return len(analyze(query)) >= 3


def quality(folder: Path) -> dict[str, Any]:
    """Return the share of 30 sampled commits that are the first result and among the first five."""
    with marklight.open(folder) as library:
        seconds = timed(lambda: library.index(history=True))
        with library.commits_engine.snapshot() as snapshot:
            documents = [
                each
                for id in sorted(snapshot.documents.files())
                if (each := snapshot.documents.get(id))
            ]
        status = library.status()["history"]
        candidates = [
            each
            for each in documents
            if len(each.outline) > 1 and len(query_for(each).split()) >= 3
        ]
        figures: dict[str, Any] = {
            "commits": status["commits"],
            "passages": status["chunks"],
            "embedding_seconds": round(seconds, 1),
        }
        for name, population in (
            ("any_three_words", candidates),
            (
                "three_words_without_stop_words",
                [e for e in candidates if has_three_terms(query_for(e))],
            ),
        ):
            sampled = random.Random(1).sample(population, min(SAMPLED, len(population)))
            ranks = [_rank(library, each) for each in sampled]
            figures[name] = {
                "queries": len(ranks),
                "success@1": round(sum(rank == 1 for rank in ranks) / len(ranks), 3),
                "success@5": round(sum(0 < rank <= 5 for rank in ranks) / len(ranks), 3),
            }
    return figures


def _rank(library: marklight.Library, document: Document) -> int:
    answer = library.commits(query_for(document), limit=5, refresh=False)
    ids = [hit.chunk.document for hit in answer.hits]
    return ids.index(document.id) + 1 if document.id in ids else 0


def main() -> None:
    rng = random.Random(3)
    queries = [" ".join(rng.sample(WORDS, 3)) for _ in range(60)]
    with tempfile.TemporaryDirectory() as folder:
        small = repository_of(Path(folder) / "small", SMALL)
        large = repository_of(Path(folder) / "large", LARGE)
        figures: dict[str, Any] = {
            "reading_by_git": reading(large),
            "small": updating(small, queries[:20]),
            "large": updating(large, queries),
            "large_with_vectors": with_vectors(large, queries),
        }
        one = "search_after_one_new_commit_ms"
        figures["one_new_commit_large_to_small"] = round(
            figures["large"][one] / figures["small"][one], 2
        )
        if "--no-quality" not in sys.argv[1:]:
            own = Path(folder) / "own"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(own)], check=True)
            figures["quality_on_own_history"] = quality(own)
    save("history", {**figures, "peak_mb": round(peak_megabytes())})


if __name__ == "__main__":
    main()
