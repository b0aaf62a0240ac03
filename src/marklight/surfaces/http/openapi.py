"""OpenAPI 3.1 description of the API, generated from the parameters and the schemas of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marklight import __version__
from marklight.levels import LEVELS
from marklight.library.configuration import SKIPPABLE, stage_name
from marklight.search import pipeline
from marklight.surfaces import operations, schemas
from marklight.surfaces.http import routes
from marklight.surfaces.http.routes import BLANK, NOT_BLANK
from marklight.surfaces.parameters import Parameter

Schema = dict[str, Any]

DESCRIPTION = (
    "Search and read Markdown documents on this machine. Every response is the JSON that the command line"
    " prints. MCP is served at /mcp, the web page at /."
)
HEALTH = schemas.object_of(
    {
        "ok": {"type": "boolean"},
        "version": {"type": "string"},
        "indexing": {
            "type": ["object", "null"],
            "description": "Progress of indexing; null when it is finished.",
        },
    }
)
STATUS_DESCRIPTIONS = {
    "400": "The request is malformed.",
    "401": "The token is missing or wrong.",
    "403": "The Host or Origin header is foreign.",
    "404": "No such document, or nothing is indexed yet.",
    "413": "The body is too large.",
    "422": "A value is invalid; the hint lists the allowed ones.",
    "503": "Too many requests at once, or the index is not available.",
}
EVENT = {
    **schemas.object_of(
        {
            "event": {"type": "string", "enum": ["results", "error", "done"]},
            "data": {"type": "string", "description": "JSON."},
        }
    ),
    "description": "One `results` event per finished step, an answer with its `step`: keyword, fused or"
    " reranked; `error` if a step fails; finally `done`.",
}
ANSWER_EVENT = {
    **schemas.object_of(
        {
            "event": {"type": "string", "enum": ["sources", "sentence", "error", "done"]},
            "data": {"type": "string", "description": "JSON."},
        }
    ),
    "description": "`sources`: the search, whose results are the numbered passages; one `sentence` event per"
    " checked sentence; `error` if the model fails; finally `done`, with the whole answer unless it failed.",
}
OBJECT = {"type": "object"}
NO_NUL = "^[^\\u0000]*$"
KEY_VALUE = f"^[^=\\u0000]*[^=\\u0000{BLANK}][^=\\u0000]*=[^\\u0000]*$"
_GLOB_PART = "(?:\\*\\*|[^/*\\u0000]*(?:\\*[^/*\\u0000]*){0,4})"
GLOB = f"^{_GLOB_PART}(?:/{_GLOB_PART}){{0,8}}$"
"""At most as many wildcards as the library accepts (text/globs.py)."""
DATE = "^(?:[1-9][0-9]{3}(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|1[0-9]|2[0-8]))?)?)?$"
"""A subset of the accepted dates: days after the 28th, times and time zones are accepted too."""
_PLAIN_STRING = '"[^"\\\\\\u0000-\\u001f]*"'
CURSOR = f"^(?:\\[{_PLAIN_STRING}, {_PLAIN_STRING}\\])?$"
"""The `next` value of a page of documents."""


def describe(collections: Iterable[str], token: bool, reranks: bool) -> Schema:
    """Return the OpenAPI description of a server with these collections, token and cross-encoder."""
    names = list(collections)

    def parameter_objects(parameters: Sequence[Parameter], where: str = "query") -> list[Schema]:
        return [
            {
                "name": parameter.name,
                "in": where,
                "required": parameter.required or where == "path",
                "description": parameter.schema["description"],
                "schema": _for_query_string(exact_schema(parameter, names, reranks)),
            }
            for parameter in parameters
        ]

    def responses(
        result: Mapping[str, Any], statuses: Iterable[str], media_type: str = "application/json"
    ) -> Schema:
        codes = sorted({*statuses, *(("401",) if token else ())})
        return {
            "200": {"description": "Success.", "content": {media_type: {"schema": result}}},
            **{code: {"$ref": f"#/components/responses/{code}"} for code in codes},
        }

    def get(
        summary: str,
        result: Mapping[str, Any],
        parameters: Sequence[Parameter] = (),
        path: bool = False,
        statuses: Sequence[str] = ("404", "503"),
        media_type: str = "application/json",
        operation_id: str = "",
    ) -> Schema:
        in_path = parameter_objects([routes.DOCUMENT_PATH], "path") if path else []
        return {
            "summary": summary,
            "operationId": operation_id or _operation_id(summary),
            "parameters": [*in_path, *parameter_objects(parameters)],
            "responses": responses(result, ("400", "403", "422", *statuses), media_type),
        }

    def post(summary: str, result: Mapping[str, Any], parameters: Sequence[Parameter]) -> Schema:
        body = _body([(item, exact_schema(item, names, reranks)) for item in parameters])
        return {
            "summary": summary,
            "operationId": f"{_operation_id(summary)}_by_body",
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": responses(result, ("400", "403", "404", "413", "422", "503")),
        }

    def get_document(summary: str, result: Schema, name: str, operation_id: str = "") -> Schema:
        parameters = routes.without_path(tuple(operations.OPERATIONS[name].parameters))
        return {"get": get(summary, result, parameters, path=True, operation_id=operation_id)}

    description: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "Marklight", "version": __version__, "description": DESCRIPTION},
        "paths": {
            "/health": {"get": {**get("Health", HEALTH, statuses=()), "security": []}},
            "/openapi.json": {"get": get("Description", OBJECT, statuses=("503",))},
            "/api/search": {
                "get": get("Search", schemas.ANSWER, routes.SEARCH),
                "post": post("Search", schemas.ANSWER, operations.SEARCH),
            },
            "/api/search/stream": {
                "get": get(
                    "Search step by step", EVENT, routes.SEARCH, media_type="text/event-stream"
                )
            },
            "/api/ask": {
                "get": get("Answer with sources", schemas.CITED_ANSWER, routes.ASK),
                "post": post("Answer with sources", schemas.CITED_ANSWER, operations.ASK),
            },
            "/api/ask/stream": {
                "get": get(
                    "Answer sentence by sentence",
                    ANSWER_EVENT,
                    routes.ASK,
                    media_type="text/event-stream",
                )
            },
            "/api/list": {
                "get": get("Matching documents", schemas.LISTING, routes.LIST),
                "post": post("Matching documents", schemas.LISTING, operations.LIST),
            },
            "/api/commits": {"post": post("Commits", schemas.COMMITS, operations.COMMITS)},
            "/api/documents": {
                "get": get("List documents", schemas.DOCUMENTS, operations.DOCUMENTS)
            },
            "/api/documents/{path}": {
                "get": get("Read a document", schemas.EXTRACT, routes.EXTRACT, path=True)
            },
            "/api/outline/{path}": get_document("Outline", schemas.OUTLINE, "outline"),
            "/api/page/{path}": get_document("Read as HTML", OBJECT, "page"),
            "/api/related/{path}": get_document("Related documents", schemas.RELATED, "related"),
            "/api/links": {
                "get": get(
                    "Broken links and orphan documents",
                    schemas.LINKS,
                    routes.without_path(operations.LINKS),
                    operation_id="loose_ends",
                )
            },
            "/api/links/{path}": get_document("Links", schemas.LINKS, "links"),
            "/api/graph": {
                "get": get(
                    "Link graph", schemas.GRAPH, operations.GRAPH, operation_id="picture_of_links"
                )
            },
            "/api/tags": {"get": get("Tags", schemas.TAGS)},
            "/api/status": {"get": get("Status", schemas.STATUS)},
        },
        "components": {
            "responses": {code: _error_response(text) for code, text in STATUS_DESCRIPTIONS.items()}
        },
    }
    if token:
        description["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"}
        }
        description["security"] = [{"token": []}]
        del description["paths"]["/health"]["get"]["responses"]["401"]
    return description


def _body(parameters: Iterable[tuple[Parameter, Schema]]) -> Schema:
    properties: Schema = {}
    required = []
    for parameter, schema in parameters:
        if parameter.required:
            required.append(parameter.name)
        else:
            schema = _nullable(schema)
        properties[parameter.name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _nullable(schema: Schema) -> Schema:
    """Allow null, which counts as missing, and a single string in place of a list."""
    null = {"type": "null"}
    if schema["type"] == "array":
        alternatives = [schema, schema["items"], null]
    elif isinstance(schema.get("additionalProperties"), dict):
        pairs = _for_query_string(schema)
        alternatives = [schema, pairs["items"], pairs, null]
    else:
        values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        return {**schema, "type": [schema["type"], "null"], **values}
    return {"description": schema["description"], "anyOf": alternatives}


def _for_query_string(schema: Schema) -> Schema:
    """Describe an object as a list of KEY=VALUE strings."""
    if schema["type"] != "object":
        return schema
    pair = {"type": "string", "maxLength": 1000, "pattern": KEY_VALUE}
    return {"type": "array", "items": pair, "maxItems": schema["maxProperties"]}


def _error_response(text: str) -> Schema:
    return {"description": text, "content": {"application/json": {"schema": schemas.ERROR}}}


def _operation_id(summary: str) -> str:
    return summary.lower().replace(" ", "_")


def exact_schema(parameter: Parameter, collections: Sequence[str], reranks: bool) -> Schema:
    """Return a parameter's schema with the library's own restrictions: every value it allows is accepted."""
    schema = dict(parameter.schema)
    match parameter.name:
        case "q" | "query" | "ref" if not parameter.required:
            return schema  # a blank one counts as missing
        case "q" | "query" | "hypothesis" | "ref":
            return {**schema, "minLength": 1, "pattern": NOT_BLANK}
        case "after" if parameter in operations.DOCUMENTS:
            return {**schema, "pattern": CURSOR}
        case "after" | "before":
            return {**schema, "pattern": DATE}
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
            keys = {"pattern": NO_NUL}
            return {**schema, "additionalProperties": values, "propertyNames": keys}
        case "rerank" if not reranks:
            description = f"{schema['description']} No cross-encoder is installed."
            return {**schema, "enum": [False], "description": description}
        case "level":
            return {**schema, "enum": list(LEVELS)}
        case "settings":
            return _settings_schema(schema)
    return schema


def _settings_schema(schema: Schema) -> Schema:
    """Describe the most useful settings of a search; all others of [search] are accepted too."""

    def table(**properties: Schema) -> Schema:
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def stages(names: Sequence[str]) -> Schema:
        return {"type": "array", "items": {"type": "string", "enum": sorted(names)}}

    fraction = {"type": "number", "minimum": 0, "maximum": 1}
    search = table(
        fuse={"type": "string", "enum": sorted(map(stage_name, pipeline.FUSE))},
        skip=stages([stage_name(stage) for stage in SKIPPABLE]),
        use=stages(pipeline.OFF),
        recency=table(strength={"type": "number", "minimum": 0, "maximum": 10}),
        confidence=table(threshold=fraction, tail=fraction),
        per_document=table(most={"type": "integer", "minimum": 1}),
    )
    return {**schema, **table(search=search)}
