"""Libraries made of the training lists: documents of several sections, with queries that one section answers."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from benchmarks._measure import eval_root
from marklight.private_files import cache_folder

SOURCES = ("azure-devops", "boolq", "docker", "fairytale", "sql-docs", "windows-itpro")
PREFIX = "sections-"
ASKED = 160
"""Queries of each source, as many of each kind, at most one for each document."""
OTHERS = 1_500
"""Further paragraphs beside those of `boolq`, each of which is the only one of its document."""
MARKED = 80
"""Characters at the beginning and at the end of a section by which a passage of it is recognised."""
_NO_HEADING = ("-", "*", "|", "`", "1.", "!", ">")


def sections_folder(source: str) -> Path:
    return cache_folder() / "eval" / "sections" / source


@cache
def _passages() -> dict[int, str]:
    return {one["id"]: one["text"] for one in _lines("passages")}


def _lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(eval_root() / "train" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def _parts(id: int, kind: str) -> tuple[str, str, str]:
    """Return title, heading trail and text of a section; whether its second line is a heading is a guess."""
    title, _, rest = _passages()[id].partition("\n")
    first, _, body = rest.partition("\n")
    follows = body.lstrip()[:1]
    is_heading = (
        kind in ("heading", "question")
        and follows
        and not follows.islower()
        and len(first) < 160
        and not first.rstrip().endswith((".", ":", "|", "```"))
        and not first.startswith(_NO_HEADING)
    )
    return (title, first, body.strip()) if is_heading else (title, "", rest.strip())


def _chosen(source: str) -> list[dict[str, Any]]:
    chance = random.Random(source)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in _lines("lists"):
        if one["source"] == source and (one["negatives"] or source == "boolq"):
            kinds.setdefault(one["kind"], []).append(one)
    chosen = []
    for many in kinds.values():
        chance.shuffle(many)
        by_title = {_passages()[one["positive"]].partition("\n")[0]: one for one in reversed(many)}
        chosen += list(by_title.values())[-(ASKED // len(kinds)) :]
    return chosen


def sections(source: str) -> list[tuple[str, str, str, list[str]]]:
    """Write the documents of a source; return kind, text, path and strings of the right passage of each query."""
    chosen = _chosen(source)
    documents: dict[str, dict[str, str]] = {}
    wanted = [(id, one["kind"]) for one in chosen for id in (one["positive"], *one["negatives"])]
    if source == "boolq":
        every = sorted(one["positive"] for one in _lines("lists") if one["source"] == source)
        wanted += [(id, "boolq") for id in random.Random(source).sample(every, OTHERS)]
    for id, kind in wanted:
        title, heading, body = _parts(id, kind)
        documents.setdefault(title, {}).setdefault(body, heading)
    folder = sections_folder(source)
    folder.mkdir(parents=True, exist_ok=True)
    for title, parts in documents.items():
        lines = [f"# {title}"]
        for body in sorted(parts, key=_mixed):
            trail = parts[body].split(" > ") if parts[body] else []
            lines += [f"{'#' * min(6, depth)} {one}" for depth, one in enumerate(trail, 2)]
            lines.append(body)
        file, text = folder / _path(title), "\n\n".join(lines) + "\n"
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
    asked = []
    for one in chosen:
        title, _, body = _parts(one["positive"], one["kind"])
        if not body:
            continue
        first, *_, last = [line for line in body.split("\n") if line.strip()] * 2
        asked.append((one["kind"], one["query"], _path(title), [first[:MARKED], last[-MARKED:]]))
    return asked


def _path(title: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60]
    return f"{name}-{_mixed(title)[:4]}.md"


def _mixed(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()
