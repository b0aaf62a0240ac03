"""OpenAPI 3.1 description of the API, generated from the parameters and the schemas of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marklight import __version__
from marklight.library.configuration import SKIPPABLE, stage_name
from marklight.parameters import Parameter
from marklight.search import pipeline
from marklight.surfaces import schemas
from marklight.surfaces.http import routes
from marklight.surfaces.http.routes import BLANK, NOT_BLANK, Endpoint

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


RESULTS: Mapping[str, Schema] = {
    "search": schemas.ANSWER,
    "ask": schemas.CITED_ANSWER,
    "list_documents": schemas.LISTING,
    "commits": schemas.COMMITS,
    "documents": schemas.DOCUMENTS,
    "get": schemas.EXTRACT,
    "outline": schemas.OUTLINE,
    "page": OBJECT,
    "related": schemas.RELATED,
    "links": schemas.LINKS,
    "graph": schemas.GRAPH,
    "tags": schemas.TAGS,
    "status": schemas.STATUS,
}
EVENTS = {"search": EVENT, "ask": ANSWER_EVENT}


@dataclass(frozen=True, slots=True)
class Description:
    """Describe a server with these collections, token and cross-encoder."""

    collections: Sequence[str]
    token: bool
    reranks: bool

    def document(self) -> Schema:
        """Return the OpenAPI document."""
        paths: Schema = {
            "/health": {"get": {**self._get("Health", HEALTH), "security": []}},
            "/openapi.json": {"get": self._get("Description", OBJECT, statuses=("503",))},
        }
        for endpoint in routes.ENDPOINTS:
            paths[endpoint.path] = self._path_item(endpoint)
        responses = {code: _error_response(text) for code, text in STATUS_DESCRIPTIONS.items()}
        description: Schema = {
            "openapi": "3.1.0",
            "info": {"title": "Marklight", "version": __version__, "description": DESCRIPTION},
            "paths": paths,
            "components": {"responses": responses},
        }
        if self.token:
            description["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
            description["security"] = [{"token": []}]
            del paths["/health"]["get"]["responses"]["401"]
        return description

    def _path_item(self, endpoint: Endpoint) -> Schema:
        events = EVENTS[endpoint.operation] if endpoint.streams else None
        item: Schema = {}
        if endpoint.has_query:
            parameters = self._parameters(endpoint.query_parameters)
            if endpoint.prefix:
                parameters = [*self._parameters([routes.DOCUMENT_PATH], "path"), *parameters]
            result = events or RESULTS[endpoint.operation]
            media_type = "text/event-stream" if events else "application/json"
            item["get"] = self._get(
                endpoint.summary, result, parameters, ("404", "503"), media_type
            )
        if endpoint.has_body:
            item["post"] = self._post(endpoint)
        return item

    def _get(
        self,
        summary: str,
        result: Schema,
        parameters: Sequence[Schema] = (),
        statuses: Sequence[str] = (),
        media_type: str = "application/json",
    ) -> Schema:
        return {
            "summary": summary,
            "operationId": _operation_id(summary),
            "parameters": list(parameters),
            "responses": self._responses(result, ("400", "403", "422", *statuses), media_type),
        }

    def _post(self, endpoint: Endpoint) -> Schema:
        body = _body([(each, self.exact_schema(each)) for each in endpoint.parameters])
        statuses = ("400", "403", "404", "413", "422", "503")
        return {
            "summary": endpoint.summary,
            "operationId": f"{_operation_id(endpoint.summary)}_by_body",
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": self._responses(RESULTS[endpoint.operation], statuses),
        }

    def _responses(
        self, result: Schema, statuses: Iterable[str], media_type: str = "application/json"
    ) -> Schema:
        codes = sorted({*statuses, *(("401",) if self.token else ())})
        return {
            "200": {"description": "Success.", "content": {media_type: {"schema": result}}},
            **{code: {"$ref": f"#/components/responses/{code}"} for code in codes},
        }

    def _parameters(self, parameters: Sequence[Parameter], where: str = "query") -> list[Schema]:
        return [
            {
                "name": parameter.name,
                "in": where,
                "required": parameter.required or where == "path",
                "description": parameter.description,
                "schema": _for_query_string(self.exact_schema(parameter)),
            }
            for parameter in parameters
        ]

    def exact_schema(self, parameter: Parameter) -> Schema:
        """Return a parameter's schema with the library's own restrictions: every value it allows is accepted."""
        schema = dict(parameter.schema)
        match parameter.name:
            case "q" | "query" | "ref" if not parameter.required:
                return schema  # a blank one counts as missing
            case "q" | "query" | "hypothesis" | "ref":
                return {**schema, "minLength": 1, "pattern": NOT_BLANK}
            case "after" if "Cursor" in parameter.description:
                return {**schema, "pattern": CURSOR}
            case "after" | "before":
                return {**schema, "pattern": DATE}
            case "path" | "exclude" | "files" if schema["type"] == "array":
                return {**schema, "items": {**schema["items"], "pattern": GLOB}}
            case "tag" | "author":
                return {**schema, "items": {**schema["items"], "pattern": NO_NUL}}
            case "collection" if schema["type"] == "array":
                return {**schema, "items": {"type": "string", "enum": list(self.collections)}}
            case "collection":
                return {**schema, "enum": list(self.collections)}
            case "where":
                values = {**schema["additionalProperties"], "pattern": NO_NUL}
                keys = {"pattern": NO_NUL}
                return {**schema, "additionalProperties": values, "propertyNames": keys}
            case "rerank" if not self.reranks:
                description = f"{schema['description']} No cross-encoder is installed."
                return {**schema, "enum": [False], "description": description}
            case "settings":
                return _settings_schema(schema)
        return schema


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
        confidence=table(threshold=fraction),
        per_document=table(max_passages={"type": "integer", "minimum": 1}),
    )
    return {**schema, **table(search=search)}
