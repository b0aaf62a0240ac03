"""JSON Schemas of what programs are answered with, the same for every way in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]


def _of(kind: str, description: str = "", **more: Any) -> Schema:
    return {"type": kind, **({"description": description} if description else {}), **more}


def _list(items: Schema, description: str = "") -> Schema:
    return _of("array", description, items=items)


def object_of(properties: Mapping[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """All are there but the optional ones; later versions may add to them."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


def _or_null(kind: str, description: str) -> Schema:
    return {"type": [kind, "null"], "description": description}


TEXT, WHOLE, NUMBER, YES = _of("string"), _of("integer"), _of("number"), _of("boolean")
LINES: Schema = {
    **_list(WHOLE, "The first and the last line, counted from 1."),
    "minItems": 2,
    "maxItems": 2,
}
NOTICES = _list(TEXT, "What the asker should know besides: what is degraded, left out or odd.")
PLACE: Mapping[str, Schema] = {
    "path": _of("string", "The document's path below its collection."),
    "collection": _of("string", "The collection's name."),
}
LEVEL = object_of({"level": TEXT, "lines": LINES, "characters": WHOLE, "tokens": WHOLE})
LEVELS = _list(LEVEL, "How far the passage can be widened, and how much one would get.")

RESULT = object_of(
    {
        "rank": WHOLE,
        "score": _of("number", "How likely this answers the question, 0 to 1."),
        "chunk_id": _of("string", "The passage's id."),
        **PLACE,
        "title": _of("string", "The document's title."),
        "headings": _list(TEXT, "The headings above the passage, outermost first."),
        "anchor": _of("string", "The anchor of the heading it stands under."),
        "lines": LINES,
        "kind": _of("string", "prose, code, table or another."),
        "content": _of("string", "The passage."),
        "modified": _of("string", "When the file was last written, in UTC."),
        "dated": _of(
            "string", "When it is from, in UTC, as after and before count: its own date, else that."
        ),
        "levels": LEVELS,
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
            "Each stage's part in the score; empty unless an explanation is asked for.",
        ),
    }
)
INDEX = object_of(
    {
        "documents": WHOLE,
        "chunks": _of("integer", "Passages."),
        "embedded": _of("integer", "Passages that can be found by their meaning."),
        "pending": _of("integer", "Passages that are found by their words only, until embedded."),
        "generation": _of("integer", "Grows with every change of the index."),
    }
)
ANSWER = object_of(
    {
        "query": object_of(
            {
                "text": TEXT,
                "kind": _of("string", "factual, navigational or exploratory."),
                "expanded_with": _list(
                    TEXT, "Words of the library that mean the same, or are spelled in another way."
                ),
                "filters": _of("object", "The filters that were in force."),
            }
        ),
        "results": _list(RESULT, "The best first."),
        "abstained": _or_null("string", "Why nothing is said; null when there are results."),
        "advice": _or_null("string", "What shows results that were held back as unlikely."),
        "stats": _of("object", "How many were left after each step.", additionalProperties=WHOLE),
        "steps": _list(
            object_of({"stage": TEXT, "count": WHOLE, "ms": NUMBER}),
            "The stages; empty unless an explanation is asked for.",
        ),
        "index": INDEX,
        "notices": NOTICES,
        "took_ms": NUMBER,
    }
)
COMMIT = object_of(
    {
        "rank": WHOLE,
        "score": _of("number", "How likely this answers the question, 0 to 1."),
        "commit": _of("string", "The whole hash."),
        "short": _of("string", "Its beginning, as people write it."),
        "repository": _of("string", "The name of the first collection in its repository."),
        "subject": _of("string", "The first paragraph of the message."),
        "author": object_of({"name": TEXT, "email": TEXT}),
        "date": _of("string", "When it was written, ISO 8601 with the author's zone."),
        "files": _list(TEXT, "The first files that it changed; of a merge none."),
        "more_files": _of("integer", "How many more it changed."),
        "refs": _list(TEXT, "Branches and tags that mean it."),
        "kind": _of("string", "Where it was found: message or diff."),
        "paths": _list(TEXT, "The files that the piece of the diff shows."),
        "content": _of("string", "The passage that was found."),
        "why": RESULT["properties"]["why"],
    }
)
COMMITS = {
    **ANSWER,
    "properties": {**ANSWER["properties"], "results": _list(COMMIT, "The best first.")},
}
EXTRACT = object_of(
    {
        **PLACE,
        "title": TEXT,
        "headings": _list(TEXT),
        "lines": LINES,
        "content": _of("string", "These lines as they stand in the file."),
        "chunk_id": _or_null("string", "The id of the passage that this is or was widened from."),
        "levels": LEVELS,
        "notices": NOTICES,
    }
)
OUTLINE = object_of(
    {
        **PLACE,
        "outline": _list(object_of({"level": WHOLE, "text": TEXT, "anchor": TEXT, "lines": LINES})),
        "notices": NOTICES,
    }
)
LINK = object_of(
    {**PLACE, "line": WHOLE, "type": TEXT, "target": TEXT, "fragment": TEXT, "text": TEXT}
)
LINKS = object_of(
    {
        **PLACE,
        "out": _list(LINK, "Links to other documents."),
        "in": _list(LINK, "Links from other documents."),
        "orphans": _list(object_of(PLACE), "Documents without any link; of a library only."),
        "unresolved": _list(LINK, "Links that lead nowhere."),
        "more": _of("object", "How many of which list are left out.", additionalProperties=WHOLE),
        "notices": NOTICES,
    },
    optional=("path", "collection", "out", "in", "orphans"),
)
RELATED = object_of(
    {
        **PLACE,
        "related": _list(
            object_of({**PLACE, "title": TEXT, "score": NUMBER, "reasons": _list(TEXT)}),
            "Documents that belong to this one, the surest first.",
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
                    "degree": _of("integer", "Documents linked to and from."),
                    "community": _or_null("integer", "Those that belong together have the same."),
                    "distance": _or_null("integer", "Links away from the document in the middle."),
                }
            )
        ),
        "edges": _list(
            object_of({"from": WHOLE, "to": WHOLE}),
            "A link from one document to another, each by its place among the nodes, from 0.",
        ),
        "more": _of("object", "How many documents are left out.", additionalProperties=WHOLE),
        "notices": NOTICES,
    },
    optional=("path", "collection"),
)
STATUS = object_of(
    {
        "documents": WHOLE,
        "chunks": _of("integer", "Passages."),
        "embedded": WHOLE,
        "pending": WHOLE,
        "failed": _list(object_of({**PLACE, "reason": TEXT}), "Files that could not be indexed."),
        "remarks": _list(object_of({**PLACE, "remark": TEXT}), "What was odd about documents."),
        "generation": WHOLE,
        "model": TEXT,
        "model_problem": TEXT,
        "calibrated": _of("boolean", "Whether scores were measured with this model."),
        "reranker": TEXT,
        "reranker_problem": TEXT,
        "engine": _of("string", "Where the index lives."),
        "sizes": _of("object", "Bytes by part.", additionalProperties=WHOLE),
        "unused_vectors": WHOLE,
        "following": object_of(
            {
                "indexing": _or_null("object", "The run that goes on: phase, done and total."),
                "watching": _of("boolean", "Whether the system tells what changes."),
                "problem": _of("string", "What is in the way; empty if nothing is."),
            }
        ),
        "collections": _of(
            "object",
            "Collections by name.",
            additionalProperties=object_of({"path": TEXT, "documents": WHOLE}),
        ),
        "notices": NOTICES,
    },
    optional=("model_problem", "reranker_problem", "following"),
)
DOCUMENTS = object_of(
    {
        "documents": _list(object_of({**PLACE, "size": WHOLE, "modified": TEXT})),
        "total": _of("integer", "How many there are altogether."),
        "next": _or_null("string", "What to ask with, as `after`, for the part that follows."),
    }
)
TAGS = object_of(
    {
        "tags": _of(
            "object", "Tags with the number of their documents.", additionalProperties=WHOLE
        ),
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
