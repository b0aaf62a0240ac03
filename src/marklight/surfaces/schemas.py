"""JSON Schemas of the results of operations, the same for HTTP and MCP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]


def _of(kind: str, description: str = "", **more: Any) -> Schema:
    return {"type": kind, **({"description": description} if description else {}), **more}


def _list(items: Schema, description: str = "") -> Schema:
    return _of("array", description, items=items)


def object_of(properties: Mapping[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """Return the schema of an object; all properties but the optional ones are required, others are allowed."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


def _or_null(kind: str, description: str) -> Schema:
    return {"type": [kind, "null"], "description": description}


TEXT, INTEGER, NUMBER = _of("string"), _of("integer"), _of("number")
LINES: Schema = {
    **_list(INTEGER, "First and last line, starting at 1."),
    "minItems": 2,
    "maxItems": 2,
}
NOTICES = _list(TEXT, "Remarks: degraded results, omissions, problems.")
PLACE: Mapping[str, Schema] = {
    "path": _of("string", "Path of the document, relative to its collection."),
    "collection": _of("string", "Name of the collection."),
    "ref": _of("string", "The place, as all operations accept it."),
}
LEVEL = object_of({"level": TEXT, "lines": LINES, "characters": INTEGER, "tokens": INTEGER})
LEVELS = _list(LEVEL, "Context levels of the passage and their sizes.")

SIMILAR = object_of(
    {
        "chunk_id": _of("string", "ID of the passage."),
        **PLACE,
        "title": _of("string", "Title of the document."),
        "anchor": _of("string", "Anchor of the innermost heading."),
        "lines": LINES,
        "score": NUMBER,
    }
)
LINKED = object_of(
    {
        **PLACE,
        "title": _of("string", "Title of the document."),
        "anchor": _of("string", "Anchor of the passage nearest to the query."),
        "lines": LINES,
    }
)
RESULT = object_of(
    {
        "rank": INTEGER,
        "score": _of("number", "Probability that this answers the query, 0 to 1."),
        "chunk_id": _of("string", "ID of the passage."),
        **PLACE,
        "title": _of("string", "Title of the document."),
        "headings": _list(TEXT, "Headings above the passage, outermost first."),
        "anchor": _of("string", "Anchor of the innermost heading."),
        "lines": LINES,
        "kind": _of("string", "Kind of passage: prose, code, list, table or another."),
        "content": _of("string", "The passage, as it is in the document."),
        "snippet": _of("string", "The part with the most query terms, as text without markup."),
        "modified": _of("string", "Modification time of the file, in UTC."),
        "dated": _of(
            "string",
            "Date that the filters after and before use, in UTC: the document's own date, else the modification time.",
        ),
        "levels": LEVELS,
        "similar": _list(SIMILAR, "Duplicates that were merged into this result."),
        "linked": _list(LINKED, "Documents linked with this one that are no results themselves."),
        "boilerplate": _list(
            {**_list(INTEGER), "minItems": 2, "maxItems": 2},
            "Parts of `content` that many documents share and that are not ranked: first character, and the one after the last.",
        ),
        "why": _list(
            object_of(
                {
                    "stage": TEXT,
                    "value": NUMBER,
                    "formula": _of("string", "How the value was computed from `inputs`."),
                    "inputs": _of("object", "Numbers by name.", additionalProperties=NUMBER),
                },
                optional=("formula", "inputs"),
            ),
            "Contributions to the score; empty without explain.",
        ),
    }
)
INDEX = object_of(
    {
        "documents": INTEGER,
        "chunks": _of("integer", "Passages."),
        "embedded": _of("integer", "Passages with embeddings."),
        "pending": _of("integer", "Passages without embeddings yet; found by keywords only."),
        "generation": _of("integer", "Increases with every change of the index."),
    }
)
ANSWER = object_of(
    {
        "query": object_of(
            {
                "text": TEXT,
                "kind": _of("string", "factual, navigational or exploratory."),
                "expanded_with": _list(
                    TEXT, "Terms added to the query: synonyms and spelling corrections."
                ),
                "filters": _of("object", "Filters of the search."),
            }
        ),
        "results": _list(RESULT, "Results, best first."),
        "abstained": _or_null("string", "Why there are no results; null if there are some."),
        "nearest": _list(RESULT, "The closest passages, if the search abstained; else empty."),
        "advice": _or_null("string", "How to see the results that were below the threshold."),
        "stats": _of(
            "object", "Number of candidates left after each step.", additionalProperties=INTEGER
        ),
        "steps": _list(
            object_of({"stage": TEXT, "count": INTEGER, "ms": NUMBER}),
            "Stages with their timings; empty without explain.",
        ),
        "index": INDEX,
        "notices": NOTICES,
        "took_ms": NUMBER,
    }
)
LISTING = object_of(
    {
        "query": ANSWER["properties"]["query"],
        "sort": _of("string", "relevance, date or path."),
        "total": _of("integer", "Number of all matching documents, on all pages."),
        "passages": _of("integer", "Number of their matching passages."),
        "page": INTEGER,
        "pages": INTEGER,
        "documents": _list(
            object_of(
                {
                    "rank": INTEGER,
                    "score": _or_null(
                        "number",
                        "Probability that the best passage answers the query; null if it was not computed.",
                    ),
                    **PLACE,
                    "title": TEXT,
                    "passages": _of("integer", "Number of passages that match."),
                    "match": _of(
                        "string",
                        "`words` if the document contains all words of the query, else `meaning`.",
                    ),
                    "dated": RESULT["properties"]["dated"],
                    "chunk_id": _of("string", "ID of the best passage."),
                    "lines": LINES,
                }
            ),
            "Documents on this page.",
        ),
        "abstained": _or_null("string", "Why there are no documents; null if there are some."),
        "index": INDEX,
        "notices": NOTICES,
        "took_ms": NUMBER,
    }
)
COMMIT = object_of(
    {
        "rank": INTEGER,
        "score": _of("number", "Probability that this answers the query, 0 to 1."),
        "commit": _of("string", "Full hash."),
        "short": _of("string", "Abbreviated hash."),
        "repository": _of("string", "Name of the first collection in the repository."),
        "subject": _of("string", "First paragraph of the message."),
        "author": object_of({"name": TEXT, "email": TEXT}),
        "date": _of("string", "Author date, ISO 8601 with time zone."),
        "files": _list(TEXT, "First changed files; empty for a merge."),
        "more_files": _of("integer", "Number of further changed files."),
        "refs": _list(TEXT, "Branches and tags that point to the commit."),
        "kind": _of("string", "Part of the commit that matches: message or diff."),
        "paths": _list(TEXT, "Files in the matching part of the diff."),
        "content": _of("string", "The matching passage."),
        "why": RESULT["properties"]["why"],
    }
)
COMMITS = {
    **ANSWER,
    "properties": {
        **ANSWER["properties"],
        "results": _list(COMMIT, "Commits, best first."),
        "nearest": _list(COMMIT, "The closest commits, if the search abstained; else empty."),
    },
}
EXTRACT = object_of(
    {
        **PLACE,
        "title": TEXT,
        "headings": _list(TEXT),
        "lines": LINES,
        "content": _of("string", "Text of these lines."),
        "chunk_id": _or_null("string", "ID of the passage that was read or expanded."),
        "levels": LEVELS,
        "notices": NOTICES,
    }
)
OUTLINE = object_of(
    {
        **PLACE,
        "outline": _list(
            object_of({"level": INTEGER, "text": TEXT, "anchor": TEXT, "lines": LINES})
        ),
        "notices": NOTICES,
    }
)
LINK = object_of(
    {**PLACE, "line": INTEGER, "type": TEXT, "target": TEXT, "fragment": TEXT, "text": TEXT}
)
LINKS = object_of(
    {
        **PLACE,
        "out": _list(LINK, "Links to other documents."),
        "in": _list(LINK, "Links from other documents."),
        "orphans": _list(object_of(PLACE), "Documents without any link; only without a path."),
        "unresolved": _list(LINK, "Broken links."),
        "more": _of("object", "Number of omitted items by list.", additionalProperties=INTEGER),
        "notices": NOTICES,
    },
    optional=("path", "collection", "ref", "out", "in", "orphans"),
)
RELATED = object_of(
    {
        **PLACE,
        "related": _list(
            object_of({**PLACE, "title": TEXT, "score": NUMBER, "reasons": _list(TEXT)}),
            "Related documents, best first.",
        ),
        "notices": NOTICES,
    }
)
GRAPH = object_of(
    {
        **PLACE,
        "nodes": _list(
            object_of(
                {
                    **PLACE,
                    "title": TEXT,
                    "degree": _of("integer", "Number of linked documents, both directions."),
                    "community": _or_null("integer", "Community of linked documents."),
                    "distance": _or_null(
                        "integer", "Number of links from the document in the centre."
                    ),
                }
            )
        ),
        "edges": _list(
            object_of({"from": INTEGER, "to": INTEGER}),
            "Links between documents, as indexes into nodes, starting at 0.",
        ),
        "more": _of("object", "Number of omitted documents.", additionalProperties=INTEGER),
        "notices": NOTICES,
    },
    optional=("path", "collection", "ref"),
)
STATUS = object_of(
    {
        "documents": INTEGER,
        "chunks": _of("integer", "Passages."),
        "embedded": INTEGER,
        "pending": INTEGER,
        "outdated": _of("integer", "Documents that keep passages of earlier chunk settings."),
        "boilerplate": object_of(
            {
                "passages": _of("integer", "Passages of nothing else, which are not embedded."),
                "blocks": _of(
                    "integer",
                    "Paragraphs, list items, headings and code blocks that many documents share.",
                ),
                "most_shared": _list(object_of({"text": TEXT, "documents": INTEGER})),
            }
        ),
        "failed": _list(object_of({**PLACE, "reason": TEXT}), "Files that could not be indexed."),
        "remarks": _list(
            object_of({**PLACE, "remark": TEXT}), "Documents that were indexed with a remark."
        ),
        "languages": _of(
            "object", "Documents by language (ISO 639-1).", additionalProperties=INTEGER
        ),
        "generation": INTEGER,
        "model": TEXT,
        "model_problem": TEXT,
        "multilingual": _of("object", "Second model for other languages, and its vectors."),
        "calibrated": _of("boolean", "Whether scores are calibrated for this model."),
        "reranker": TEXT,
        "reranker_problem": TEXT,
        "ask": _of("string", "Language model that writes answers with sources; none if off."),
        "engine": _of("string", "Storage engine of the index."),
        "location": _of("string", "Folder of the index, or its address on a server."),
        "server": _of("object", "Server of the index: version, library, role, replicas."),
        "queue": _of("object", "Passages that wait for workers, and those that failed."),
        "sizes": _of("object", "Sizes in bytes.", additionalProperties=INTEGER),
        "unused_vectors": INTEGER,
        "following": object_of(
            {
                "indexing": _or_null(
                    "object", "Indexing in progress: phase, done, total and seconds left."
                ),
                "watching": _of("boolean", "Whether file-system events are received."),
                "problem": _of("string", "Why indexing failed; empty if it did not."),
            }
        ),
        "indexing": _of(
            "object", "Indexing by another process: phase, done, total and seconds left."
        ),
        "collections": _of(
            "object",
            "Collections by name.",
            additionalProperties=object_of({"path": TEXT, "documents": INTEGER}),
        ),
        "notices": NOTICES,
    },
    optional=(
        *("model_problem", "multilingual", "reranker_problem", "server", "queue"),
        *("following", "indexing", "outdated"),
    ),
)
SENTENCE = object_of(
    {
        "text": _of("string", "Sentence or code block, without citations."),
        "lead": _of("string", "White space and list mark before it."),
        "citations": _list(INTEGER, "Numbers of the cited passages: ranks of `sources`."),
        "supported": _of("boolean", "Whether the cited passages support it."),
        "support": _of("number", "Estimated probability of that."),
        "problem": _or_null("string", "Why it is not supported."),
    }
)
CITED_ANSWER = object_of(
    {
        "query": ANSWER["properties"]["query"],
        "answer": _or_null("string", "The answer with citations; null if there is none."),
        "sentences": _list(SENTENCE),
        "removed": _list(SENTENCE, "Unsupported sentences that were removed."),
        "sources": _list(
            {
                **RESULT,
                "properties": {
                    **RESULT["properties"],
                    "cited": _of("boolean", "Whether a sentence cites it."),
                },
            },
            "The passages that the model got, numbered by `rank`.",
        ),
        "abstained": _or_null("string", "Why there is no answer."),
        "nearest": ANSWER["properties"]["nearest"],
        "model": _or_null("string", "The language model; null if none was called."),
        "incomplete": _or_null("string", "Why the answer ends early."),
        "index": ANSWER["properties"]["index"],
        "notices": NOTICES,
        "took_ms": NUMBER,
    }
)
DOCUMENTS = object_of(
    {
        "documents": _list(object_of({**PLACE, "size": INTEGER, "modified": TEXT})),
        "total": _of("integer", "Number of all matching documents."),
        "next": _or_null("string", "Cursor of the next page, for `after`; null on the last page."),
    }
)
TAGS = object_of(
    {
        "tags": _of("object", "Number of documents by tag.", additionalProperties=INTEGER),
    }
)
ERROR = object_of(
    {
        "error": object_of(
            {
                "type": TEXT,
                "message": _of("string", "What happened."),
                "hint": _of("string", "What to do."),
            }
        )
    }
)
