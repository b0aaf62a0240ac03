"""OpenAPI 3.1 description of the API, generated from the parameters and the schemas of results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from marklight import __version__
from marklight.lazy import dataclass
from marklight.library.configuration import SKIPPABLE, stage_name
from marklight.parameters import Parameter
from marklight.search import pipeline
from marklight.serialization import object_schema
from marklight.surfaces.host import result_schema
from marklight.surfaces.http import routes
from marklight.surfaces.http.routes import BLANK, NOT_BLANK, Endpoint

Schema = dict[str, Any]

DESCRIPTION = (
    "Search and read Markdown documents on this machine. Every response is the JSON that the command line"
    " prints. MCP is served at /mcp, the web page at /."
)
HEALTH = object_schema(
    {
        "ok": {"type": "boolean"},
        "version": {"type": "string"},
        "indexing": {
            "type": ["object", "null"],
            "description": "Progress of indexing; null when it is finished.",
        },
    },
    title="Health",
)
BINARY = {"type": "string", "format": "binary"}
"""Declared type of images: client generators do not accept `image/*`."""
STATUS_DESCRIPTIONS = {
    "400": "The request is malformed.",
    "401": "The token is missing or wrong.",
    "403": "The Host or Origin header is foreign.",
    "404": "No such document, or nothing is indexed yet.",
    "413": "The body is too large.",
    "422": "A value is invalid; the hint lists the allowed ones.",
    "503": "Too many requests at once, or the index is not available.",
}


def _events(names: Sequence[str], description: str) -> Schema:
    """Return the schema of a stream of server-sent events."""
    data = {"type": "string", "description": "JSON."}
    schema = object_schema({"event": {"type": "string", "enum": list(names)}, "data": data})
    return {**schema, "description": description}


EVENTS = {
    "search": _events(
        ("results", "error", "done"),
        "One `results` event per finished step, an answer with its `step`: keyword, fused or"
        " reranked; `error` if a step fails; finally `done`.",
    ),
    "ask": _events(
        ("sources", "sentence", "error", "done"),
        "`sources`: the search, whose results are the numbered passages; one `sentence` event per"
        " checked sentence; `error` if the model fails; finally `done`, with the whole answer unless it failed.",
    ),
}
OBJECT = {"type": "object"}
NO_NUL = "^[^\\u0000]*$"
KEY_VALUE = f"^[^=\\u0000]*[^=\\u0000{BLANK}][^=\\u0000]*=[^\\u0000]*$"
_GLOB_PART = "(?:\\*\\*|[^/*\\u0000]*(?:\\*[^/*\\u0000]*){0,4})"
GLOB = f"^{_GLOB_PART}(?:/{_GLOB_PART}){{0,8}}$"
"""At most as many wildcards as the library accepts (text/globs.py)."""
DATE = "^(?:[1-9][0-9]{3}(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|1[0-9]|2[0-8]))?)?)?$"
"""A subset of the accepted dates: days after the 28th, times and time zones are accepted too."""
ERROR = object_schema(
    {
        "error": object_schema(
            {
                "type": {"type": "string"},
                "message": {"type": "string", "description": "What happened."},
                "hint": {"type": "string", "description": "What to do."},
            },
            title="ErrorDetail",
        )
    },
    title="Error",
)
RECONNECTED = "The client has reconnected (it sends `Last-Event-ID`): nothing is repeated."


@dataclass(frozen=True, slots=True)
class Description:
    """Describe a server with these collections, and with or without a token."""

    collections: Sequence[str]
    token: bool

    def document(self) -> Schema:
        """Return the OpenAPI document."""
        paths: Schema = {
            "/health": {"get": {**self._get("Health", HEALTH), "security": []}},
            "/openapi.json": {"get": self._get("Description", OBJECT, statuses=("503",))},
            "/api/files/{path}": {"get": self._file("Image")},
            "/api/attachments/{path}": {"get": self._file("Attachment")},
        }
        for endpoint in routes.ENDPOINTS:
            paths[endpoint.path] = self._path_item(endpoint)
        error = {"application/json": {"schema": ERROR}}
        responses = {
            code: {"description": text, "content": error}
            for code, text in STATUS_DESCRIPTIONS.items()
        }
        schemas: dict[str, Schema] = {}
        description: Schema = {
            "openapi": "3.1.0",
            "info": {"title": "Marklight", "version": __version__, "description": DESCRIPTION},
            "paths": _referenced(paths, schemas),
            "components": {"responses": _referenced(responses, schemas), "schemas": schemas},
        }
        if self.token:
            description["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
            description["security"] = [{"token": []}]
            del description["paths"]["/health"]["get"]["responses"]["401"]
        return description

    def _file(self, summary: str) -> Schema:
        parameters = self._parameters([routes.DOCUMENT_PATH], "path")
        item = self._get(summary, BINARY, parameters, ("404", "503"), "application/octet-stream")
        item["responses"]["304"] = {"description": "The file has not changed."}
        return item

    def _path_item(self, endpoint: Endpoint) -> Schema:
        events = EVENTS[endpoint.operation] if endpoint.streams else None
        item: Schema = {}
        if endpoint.has_query:
            parameters = self._parameters(endpoint.query_parameters)
            if endpoint.prefix:
                parameters = [*self._parameters([routes.DOCUMENT_PATH], "path"), *parameters]
            result = events or result_schema(endpoint.operation)
            media_type = "text/event-stream" if events else "application/json"
            item["get"] = self._get(
                endpoint.summary, result, parameters, ("404", "503"), media_type
            )
            if events:
                item["get"]["responses"]["204"] = {"description": RECONNECTED}
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
        parameters = [(each, self.exact_schema(each)) for each in endpoint.parameters]
        body = _body(f"{endpoint.operation.title().replace('_', '')}Request", parameters)
        statuses = ("400", "403", "404", "413", "422", "503")
        return {
            "summary": endpoint.summary,
            "operationId": f"{_operation_id(endpoint.summary)}_by_body",
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": self._responses(result_schema(endpoint.operation), statuses),
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
            case "after" | "before":
                return {**schema, "pattern": DATE}
            case "path" | "exclude" | "files" if schema["type"] == "array":
                return {**schema, "items": {**schema["items"], "pattern": GLOB}}
            case "tag" | "author":
                return {**schema, "items": {**schema["items"], "pattern": NO_NUL}}
            case "collection" if schema["type"] == "array":
                return {**schema, "items": {**self._collection, "type": "string"}}
            case "collection":
                return {**schema, **self._collection}
            case "where":
                values = {**schema["additionalProperties"], "pattern": NO_NUL}
                keys = {"pattern": NO_NUL}
                return {**schema, "additionalProperties": values, "propertyNames": keys}
            case "settings":
                return _settings_schema(schema)
            case name if "enum" in schema:
                return {**schema, "title": f"{name.title()}Name"}
        return schema

    @property
    def _collection(self) -> Schema:
        return {"title": "Collection", "enum": list(self.collections)}


def _referenced(value: Any, schemas: dict[str, Schema]) -> Any:
    """Move schemas with a title to `schemas`, and return the value with references to them."""
    if isinstance(value, list):
        return [_referenced(item, schemas) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _referenced(item, schemas) for key, item in value.items()}
    if not isinstance(value.get("title"), str):
        return found
    name = found.pop("title")
    beside = {key: found.pop(key) for key in ("description", "default") if key in found}
    kind = found["type"]
    nullable = "null" in kind
    if nullable:
        found["type"] = kind[0]
    if "enum" in found:
        found.pop("maxLength", None)  # differs between a body and a query string, and means nothing
    assert schemas.setdefault(name, found) == found, f"two schemas are named {name}"
    reference = {"$ref": f"#/components/schemas/{name}"}
    return {**({"anyOf": [reference, {"type": "null"}]} if nullable else reference), **beside}


def _body(title: str, parameters: Iterable[tuple[Parameter, Schema]]) -> Schema:
    properties: Schema = {}
    required = []
    for parameter, schema in parameters:
        if parameter.required:
            required.append(parameter.name)
        else:
            schema = _nullable(schema)
        properties[parameter.name] = schema
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _nullable(schema: Schema) -> Schema:
    """Allow null, which counts as missing, and a single string in place of a list.

    The default is moved to the description: with the keyword, generators of TypeScript require the property.
    """
    null = {"type": "null"}
    default = schema.pop("default", False)
    if default is not False:
        text = json.dumps(default).strip('"')
        schema["description"] = f"{schema['description']} Default: {text}."
    if schema["type"] == "array":
        alternatives = [schema, schema["items"], null]
    elif isinstance(schema.get("additionalProperties"), dict):
        pairs = _for_query_string(schema)
        alternatives = [schema, pairs["items"], pairs, null]
    else:
        return {**schema, "type": [schema["type"], "null"]}
    return {"description": schema["description"], "anyOf": alternatives}


def _for_query_string(schema: Schema) -> Schema:
    """Describe an object as a list of KEY=VALUE strings."""
    if schema["type"] != "object":
        return schema
    pair = {"type": "string", "maxLength": 1000, "pattern": KEY_VALUE}
    return {"type": "array", "items": pair, "maxItems": schema["maxProperties"]}


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
    return {**schema, **table(search=search), "title": "SearchSettings"}
