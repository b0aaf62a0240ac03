"""The description of the API (OpenAPI 3.1), made from the parameters that are read and the schemas of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marklight import __version__
from marklight.surfaces import operations, schemas
from marklight.surfaces.http import routes
from marklight.surfaces.http.precise import PAIR, precise
from marklight.surfaces.parameters import Parameter

Schema = dict[str, Any]

ABOUT = (
    "Search Markdown and read it, on this machine. Every answer is the JSON that the command line"
    " prints. Assistants speak MCP at /mcp; people open / in a browser."
)
HEALTH = schemas.object_of(
    {
        "ok": {"type": "boolean"},
        "version": {"type": "string"},
        "indexing": {
            "type": ["object", "null"],
            "description": "How far a run is; null when nothing is to do.",
        },
    }
)
SAID = {
    "400": "The request cannot be understood.",
    "401": "The token is missing or wrong.",
    "403": "The Host or Origin is not ours.",
    "404": "There is no such document, or nothing is indexed yet.",
    "413": "The body is too large.",
    "422": "A value makes no sense; the hint tells the known ones.",
    "503": "Too many ask at once, or the index cannot be used now.",
}
EVENT = {
    **schemas.object_of(
        {
            "event": {"type": "string", "enum": ["results", "error", "done"]},
            "data": {"type": "string", "description": "JSON."},
        }
    ),
    "description": "One `results` for each finished step: an answer with its `step`, keyword, fused or"
    " reranked; `error` if one fails; last `done`.",
}
OBJECT = {"type": "object"}


def describe(collections: Iterable[str], token: bool, reranks: bool) -> Schema:
    """What this server takes and answers; `collections` are the ones that it has."""
    names = list(collections)

    def taken(parameters: Sequence[Parameter], where: str = "query") -> list[Schema]:
        return [
            {
                "name": each.name,
                "in": where,
                "required": each.required or where == "path",
                "description": each.schema["description"],
                "schema": _in_address(precise(each, names, reranks)),
            }
            for each in parameters
        ]

    def get(
        summary: str,
        answer: Mapping[str, Any],
        parameters: Sequence[Parameter] = (),
        path: bool = False,
        statuses: Sequence[str] = ("404", "503"),
        kind: str = "application/json",
    ) -> Schema:
        given = [*taken([routes.NAMED], "path")] if path else []
        return {
            "summary": summary,
            "operationId": _operation(summary),
            "parameters": [*given, *taken(parameters)],
            "responses": answered(answer, ("400", "403", "422", *statuses), kind),
        }

    def answered(
        answer: Mapping[str, Any], statuses: Iterable[str], kind: str = "application/json"
    ) -> Schema:
        codes = sorted({*statuses, *(("401",) if token else ())})
        return {
            "200": {"description": "The answer.", "content": {kind: {"schema": answer}}},
            **{code: {"$ref": f"#/components/responses/{code}"} for code in codes},
        }

    def post(summary: str, answer: Mapping[str, Any], parameters: Sequence[Parameter]) -> Schema:
        body = _body([(each, precise(each, names, reranks)) for each in parameters])
        return {
            "summary": summary,
            "operationId": f"{_operation(summary)}_by_body",
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": answered(answer, ("400", "403", "404", "413", "422", "503")),
        }

    found: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "Marklight", "version": __version__, "description": ABOUT},
        "paths": {
            "/health": {"get": {**get("Health", HEALTH, statuses=()), "security": []}},
            "/openapi.json": {"get": get("Description", OBJECT, statuses=("503",))},
            "/api/search": {
                "get": get("Search", schemas.ANSWER, routes.SEARCH),
                "post": post("Search", schemas.ANSWER, operations.SEARCH),
            },
            "/api/search/stream": {
                "get": get(
                    "Search step by step",
                    EVENT,
                    routes.SEARCH,
                    kind="text/event-stream",
                )
            },
            "/api/commits": {"post": post("Commits", schemas.COMMITS, operations.COMMITS)},
            "/api/documents": {
                "get": get("List documents", schemas.DOCUMENTS, operations.DOCUMENTS)
            },
            "/api/documents/{path}": {
                "get": get("Read a document", schemas.EXTRACT, routes.PART, True)
            },
            "/api/outline/{path}": {"get": get("Outline", schemas.OUTLINE, (), True)},
            "/api/page/{path}": {
                "get": get("Read as HTML", OBJECT, routes.below(operations.PAGE), True)
            },
            "/api/related/{path}": {
                "get": get(
                    "Related documents", schemas.RELATED, routes.below(operations.RELATED), True
                )
            },
            "/api/links": {"get": get("Loose ends", schemas.LINKS, routes.below(operations.LINKS))},
            "/api/links/{path}": {
                "get": get("Links", schemas.LINKS, routes.below(operations.LINKS), True)
            },
            "/api/graph": {"get": get("Picture of links", schemas.GRAPH, operations.GRAPH)},
            "/api/tags": {"get": get("Tags", schemas.TAGS)},
            "/api/status": {"get": get("Status", schemas.STATUS)},
        },
        "components": {"responses": {code: _error(said) for code, said in SAID.items()}},
    }
    if token:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
        del found["paths"]["/health"]["get"]["responses"]["401"]
    return found


def _body(parameters: Iterable[tuple[Parameter, Schema]]) -> Schema:
    properties: Schema = {}
    required = []
    for each, schema in parameters:
        if each.required:
            required.append(each.name)
        else:
            schema = _or_null(schema)
        properties[each.name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _or_null(schema: Schema) -> Schema:
    """Null is the same as not given, and one text may stand where several may."""
    nothing = {"type": "null"}
    if schema["type"] == "array":
        found = [schema, schema["items"], nothing]
    elif isinstance(schema.get("additionalProperties"), dict):
        several = _in_address(schema)
        found = [schema, several["items"], several, nothing]
    else:
        null = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        return {**schema, "type": [schema["type"], "null"], **null}
    return {"description": schema["description"], "anyOf": found}


def _in_address(schema: Schema) -> Schema:
    """A table is written as KEY=VALUE there, as often as it has keys."""
    if schema["type"] != "object":
        return schema
    pair = {"type": "string", "maxLength": 1000, "pattern": PAIR}
    return {"type": "array", "items": pair, "maxItems": schema["maxProperties"]}


def _error(said: str) -> Schema:
    return {"description": said, "content": {"application/json": {"schema": schemas.ERROR}}}


def _operation(summary: str) -> str:
    return summary.lower().replace(" ", "_")
