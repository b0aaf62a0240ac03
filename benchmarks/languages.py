"""Measure search in other languages: success@1 and recall@10 by language, with keywords alone and with the multilingual model.

    python -m benchmarks.languages

Questions about FastAPI's manual in six languages (`benchmarks/questions`), in the documents' language and in English, and
descriptions of commands in six languages about English pages (`tldr-languages`), without abstention. For these queries only vectors of the
multilingual model are compared, so it is the only one that embeds here, which takes a minute. Also the accuracy of
language identification. Indexes are kept in a temporary folder.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import marklight
from benchmarks._measure import corpus, save, set_path
from benchmarks.everyday import OFF_TOPIC, read_questions
from marklight.library import Library
from marklight.models.record import MULTILINGUAL
from marklight.text.languages import detect

LANGUAGES = ("de", "es", "fr", "ja", "ru", "zh")
PAGES = 1_000
"""English pages of tldr besides the right ones."""
RESULTS = 10
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "keyword": {"mode": "keyword", "min_confidence": 0},
    "hybrid": {"mode": "hybrid", "min_confidence": 0},
}
_FENCE = re.compile(r"```.*?```", re.DOTALL)

Queries = Sequence[tuple[str, frozenset[str]]]
"""Texts, each with the paths of the documents that answer it; none for a query without an answer."""


@contextmanager
def opened(folder: Path, name: str, cache: Path) -> Iterator[Library]:
    settings = {"engine": f"file:{cache / name}", "model": {"name": MULTILINGUAL}}
    with marklight.open(folder, settings) as library:
        library.index()
        yield library


def figures(library: Library, queries: Queries, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the shares of the queries with the right document first, and with it among ten."""
    first, among = [], []
    for text, right in queries:
        hits = library.search(text, limit=RESULTS, refresh=False, **options).hits
        documents = list(dict.fromkeys(hit.chunk.path for hit in hits))
        if not right:
            continue
        first.append(bool(documents) and documents[0] in right)
        among.append(not right.isdisjoint(documents))
    values = {"success@1": fmean(first), "recall@10": fmean(among)}
    return {"queries": len(first)} | {name: round(value, 3) for name, value in values.items()}


def questions(name: str) -> dict[str, Queries]:
    """Return everyday questions by collection."""
    return {
        collection: [
            (each.text, frozenset() if each.kind == OFF_TOPIC else frozenset(each.answers))
            for each in own
        ]
        for collection, own in read_questions(name).items()
    }


def commands(folder: Path) -> dict[str, Queries]:
    """Copy a part of the English pages into a folder; return translated descriptions by language."""
    source, dataset = corpus("tldr"), set_path("tldr-languages")
    lines = (dataset / "queries.jsonl").read_text("utf-8").splitlines()
    texts = {query["_id"]: query for query in map(json.loads, lines)}
    judged: dict[str, set[str]] = {}
    for line in (dataset / "qrels" / "test.tsv").read_text("utf-8").splitlines()[1:]:
        query, document, _ = line.split("\t")
        judged.setdefault(query, set()).add(document)
    every = sorted(str(path.relative_to(source)) for path in source.rglob("*.md"))
    right = {document for documents in judged.values() for document in documents}
    for path in {*right, *every[:: max(1, len(every) // PAGES)]}:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, folder / path)
    by_language: dict[str, Queries] = {}
    for id, documents in judged.items():
        language = texts[id]["language"]
        by_language[language] = [
            *by_language.get(language, ()),
            (texts[id]["text"], frozenset(documents)),
        ]
    return by_language


def identification() -> dict[str, Any]:
    """Return the share of documents and of paragraphs of 60 to 200 characters whose language is detected, or wrong."""
    results: dict[str, Any] = {}
    for language in (*LANGUAGES, "en"):
        name = "fastapi" if language == "en" else f"fastapi-{language}"
        texts = [path.read_text("utf-8") for path in sorted(corpus(name).rglob("*.md"))]
        paragraphs = [
            part
            for text in texts
            for part in _FENCE.sub("", text).split("\n\n")
            if 60 <= len(part) <= 200 and part[0].isalpha()
        ][::5]
        for kind, own in (("documents", texts), ("paragraphs", paragraphs)):
            found = Counter(map(detect, own))
            wrong = len(own) - found[language] - found[""]
            results[f"{name}, {kind}"] = {
                "texts": len(own),
                "right": round(found[language] / len(own), 3),
                "wrong": round(wrong / len(own), 3),
            }
    return results


def measure(library: Library, queries: Queries) -> dict[str, Any]:
    results = {name: figures(library, queries, options) for name, options in VARIANTS.items()}
    print(json.dumps(results), flush=True)
    return results


def main() -> None:
    results: dict[str, Any] = {"identification": identification()}
    cross = questions("fastapi-english-about-languages")
    with tempfile.TemporaryDirectory(prefix="marklight-languages-") as place:
        cache = Path(place)
        by_language = commands(cache / "pages")
        with opened(cache / "pages", "tldr", cache) as library:
            for language, queries in by_language.items():
                results[f"tldr, in {language}"] = measure(library, queries)
        for language in LANGUAGES:
            name = f"fastapi-{language}"
            with opened(corpus(name), name, cache) as library:
                results[name] = measure(library, questions(name)[name])
                if name in cross:
                    results[f"{name}, in English"] = measure(library, cross[name])
    save("languages", results)


if __name__ == "__main__":
    main()
