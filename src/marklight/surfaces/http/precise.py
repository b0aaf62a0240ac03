"""Schemas of values as exactly as the library takes them, so that what a description allows is never refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marklight.levels import LEVELS
from marklight.library.compose import SKIPPABLE, stage_name
from marklight.search import pipeline
from marklight.surfaces import operations
from marklight.surfaces.parameters import Parameter

Schema = dict[str, Any]

NO_NUL = "^[^\\u0000]*$"
_BLANK = "\\s\\u001c-\\u001f\\u0085"
WORDS = f"[^{_BLANK}]"
"""At least one sign that is no blank, to Python as to other readers of patterns."""
PAIR = f"^[^=\\u0000]*[^=\\u0000{_BLANK}][^=\\u0000]*=[^\\u0000]*$"
"""KEY=VALUE."""
_STARS = "(?:\\*\\*|[^/*\\u0000]*(?:\\*[^/*\\u0000]*){0,4})"
GLOB = f"^{_STARS}(?:/{_STARS}){{0,8}}$"
"""As many wildcards as can be tried (text/globs.py)."""
DAY = "^[1-9][0-9]{3}(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|1[0-9]|2[0-8]))?)?$"
"""The plain ones of dates.py: later days of a month, times and zones are taken too."""
_PLAIN = '"[^"\\\\\\u0000-\\u001f]*"'
NEXT = f"^(?:\\[{_PLAIN}, {_PLAIN}\\])?$"
"""What a part of a list calls the one that follows (library/register.py)."""


def precise(parameter: Parameter, collections: Sequence[str], reranks: bool) -> Schema:
    """A parameter's schema with what only the library knows of it."""
    schema = dict(parameter.schema)
    match parameter.name:
        case "q" | "query" | "hypothesis" | "ref":
            return {**schema, "minLength": 1, "pattern": WORDS}
        case "after" if parameter in operations.DOCUMENTS:
            return {**schema, "pattern": NEXT}
        case "after" | "before":
            return {**schema, "pattern": DAY}
        case "path" | "exclude" | "files" if schema["type"] == "array":
            return {**schema, "items": {**schema["items"], "pattern": GLOB}}
        case "tag" | "author":
            return {**schema, "items": {**schema["items"], "pattern": NO_NUL}}
        case "collection" if schema["type"] == "array":
            return {**schema, "items": {"type": "string", "enum": list(collections)}}
        case "collection":
            return {**schema, "enum": list(collections)}
        case "where":
            values = {**schema["additionalProperties"], "pattern": NO_NUL}
            names = {"pattern": NO_NUL}
            return {**schema, "additionalProperties": values, "propertyNames": names}
        case "rerank" if not reranks:
            return {
                **schema,
                "enum": [False],
                "description": f"{schema['description']} None is here.",
            }
        case "level":
            return {**schema, "enum": list(LEVELS)}
        case "settings":
            return _settings(schema)
    return schema


def _settings(schema: Schema) -> Schema:
    """Those that a question may want to change; any other of [search] is taken as well."""

    def table(**properties: Schema) -> Schema:
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def stages(names: Sequence[str]) -> Schema:
        return {"type": "array", "items": {"type": "string", "enum": sorted(names)}}

    share = {"type": "number", "minimum": 0, "maximum": 1}
    search = table(
        fuse={"type": "string", "enum": sorted(map(stage_name, pipeline.FUSE))},
        skip=stages([stage_name(each) for each in SKIPPABLE]),
        use=stages(pipeline.OFF),
        recency=table(strength=share),
        confidence=table(threshold=share, tail=share),
        per_document=table(most={"type": "integer", "minimum": 1, "maximum": 100}),
    )
    return {**schema, **table(search=search)}
