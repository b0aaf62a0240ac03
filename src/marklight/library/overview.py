"""Collect what surrounds results and documents on the web page: folders, tags, recent documents, backlinks with their sentence."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from marklight.answer import iso_time
from marklight.model import DocumentId, Link
from marklight.report import Graph, Links, Related
from marklight.text.markdown import readable

if TYPE_CHECKING:
    from marklight.library import Library

RECENT = 12
MAX_FOLDERS = 200
MAX_TAGS = 60
MAX_BACKLINKS = 20
MAX_RELATED = 8
MAX_NAMES = 3
MAX_NODES = 15
_SENTENCE_CHARS = 180
_STATUS = "documents chunks pending calibrated ask generation model_problem failed collections"


def overview(library: Library) -> dict[str, Any]:
    """Return the state of a library, its folders and tags with the number of documents, and the documents changed last."""
    status = library.run("status", {})
    several = library.files.several
    with library.engine.snapshot() as snapshot:
        files = snapshot.documents.files()
        tags = Counter(snapshot.metadata.tags()).most_common(MAX_TAGS)
        recent = [
            {
                "ref": id.named(several),
                "title": document.title,
                "modified": iso_time(files[id].file.mtime_ns),
            }
            for id in nlargest(RECENT, files, key=lambda each: files[each].file.mtime_ns)
            if (document := snapshot.documents.get(id))
        ]
    folders: Counter[str] = Counter()
    for id in files:
        parts = id.named(several).split("/")[:-1]
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    shown = sorted(folders, key=lambda name: (name.count("/"), -folders[name]))[:MAX_FOLDERS]
    return {
        **{name: status[name] for name in _STATUS.split() if name in status},
        "failed": len(status["failed"]),
        "editor": library.link_address,
        "folders": {name: folders[name] for name in sorted(shown)},
        "tags": dict(tags),
        "recent": recent,
    }


def names(library: Library, text: str) -> dict[str, Any]:
    """Return the documents whose title, alias or path contains the words of a text, the best matches first."""
    with library.engine.snapshot() as snapshot:
        ids = snapshot.documents.find_by_words_of_name(text, MAX_NAMES)
        documents = [document for id in ids if (document := snapshot.documents.get(id))]
    several = library.files.several
    return {
        "documents": [{"ref": each.id.named(several), "title": each.title} for each in documents]
    }


def around(library: Library, ref: str) -> dict[str, Any]:
    """Return the documents that link to a document, with the sentence of the link, related ones, and the link graph."""
    links: Links = library.run("links", {"ref": ref, "limit": 10 * MAX_BACKLINKS})
    related: Related = library.run("related", {"ref": ref, "limit": MAX_RELATED})
    graph: Graph = library.run("graph", {"ref": ref, "depth": 1, "limit": MAX_NODES})
    several = library.files.several
    first: dict[DocumentId, Link] = {}
    for back in links.back:
        first.setdefault(back.source, back.link)
    linked = []
    with library.engine.snapshot() as snapshot:
        for id, link in list(first.items())[:MAX_BACKLINKS]:
            if document := snapshot.documents.get(id):
                lines = document.text.split("\n")[link.line - 1 : link.line]
                linked.append(
                    {
                        "ref": id.named(several),
                        "title": document.title or id.path,
                        "line": link.line,
                        "sentence": _sentence(" ".join(lines), link.text),
                    }
                )
    return {
        "linked": linked,
        "more": max(0, len(first) - MAX_BACKLINKS),
        "related": [
            {"ref": each.document.named(several), "title": each.title or each.document.path}
            for each in related.relatives
        ],
        "graph": graph.to_dict(),
    }


def _sentence(line: str, label: str) -> str:
    """Return the sentence of a line that contains the text of a link."""
    text = " ".join(readable(line).split())
    at = max(text.find(label), 0)
    start = max(text.rfind(mark, 0, at) + 2 for mark in (". ", "? ", "! ", "  "))
    start = 0 if start <= 1 else start
    ends = [end for mark in (". ", "? ", "! ") if (end := text.find(mark, at)) >= 0]
    sentence = text[start : min(ends) + 1 if ends else len(text)].strip()
    if len(sentence) <= _SENTENCE_CHARS:
        return sentence
    return sentence[:_SENTENCE_CHARS].rpartition(" ")[0].rstrip(".,;:") + " …"
