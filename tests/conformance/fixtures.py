"""Our server with the tools, resources and prompts that the MCP conformance suite requires."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.server import LibraryServer, make_server

Context = ServerRequestContext[Any]
Contents = list[types.ContentBlock]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="


def text(content: str) -> types.TextContent:
    return types.TextContent(text=content)


def image() -> types.ImageContent:
    return types.ImageContent(data=PIXEL, mime_type="image/png")


def embedded(uri: str, content: str, kind: str = "text/plain") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, text=content, mime_type=kind)
    return types.EmbeddedResource(resource=contents)


# Tools


async def simple(ctx: Context, arguments: dict[str, Any]) -> Contents:
    return [text("This is a simple text response for testing.")]


async def image_tool(ctx: Context, arguments: dict[str, Any]) -> Contents:
    return [image()]


async def audio_tool(ctx: Context, arguments: dict[str, Any]) -> Contents:
    return [types.AudioContent(data=SILENCE, mime_type="audio/wav")]


async def resource_tool(ctx: Context, arguments: dict[str, Any]) -> Contents:
    return [embedded("test://embedded-resource", "This is an embedded resource content.")]


async def mixed(ctx: Context, arguments: dict[str, Any]) -> Contents:
    data = embedded(
        "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
    )
    return [text("Multiple content types test:"), image(), data]


async def logging(ctx: Context, arguments: dict[str, Any]) -> Contents:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        params = types.LoggingMessageNotificationParams(level="info", data=line)
        message = types.LoggingMessageNotification(params=params)
        await ctx.session.send_notification(message, related_request_id=ctx.request_id)
        await anyio.sleep(0.05)
    return [text("logged")]


async def failing(ctx: Context, arguments: dict[str, Any]) -> Contents:
    raise ValueError("This tool intentionally returns an error for testing")


async def progressing(ctx: Context, arguments: dict[str, Any]) -> Contents:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"Completed step {done} of 100")
        await anyio.sleep(0.05)
    return [text("done")]


async def sampling(ctx: Context, arguments: dict[str, Any]) -> Contents:
    request = types.SamplingMessage(role="user", content=text(str(arguments.get("prompt"))))
    params = types.CreateMessageRequestParams(messages=[request], max_tokens=100)
    answer = await ctx.session.send_request(
        types.CreateMessageRequest(params=params),
        types.CreateMessageResult,
        metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
    )
    return [text(f"LLM response: {getattr(answer.content, 'text', '')}")]


def eliciting(message: str, schema: dict[str, Any]) -> Tool:
    async def elicit(ctx: Context, arguments: dict[str, Any]) -> Contents:
        answer = await ctx.session.elicit_form(
            str(arguments.get("message", message)), schema, related_request_id=ctx.request_id
        )
        return [text(f"action={answer.action}, content={json.dumps(answer.content)}")]

    return elicit


Tool = Callable[[Context, dict[str, Any]], Awaitable[Contents]]


def form(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def titled(**titles: str) -> list[dict[str, str]]:
    return [{"const": name, "title": title} for name, title in titles.items()]


RESPONSE = form(["response"], response={"type": "string", "description": "The user's response"})
DEFAULTS = form(
    [],
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
ENUMS = form(
    [],
    untitledSingle={"type": "string", "enum": ["option1", "option2", "option3"]},
    titledSingle={
        "type": "string",
        "oneOf": titled(value1="First", value2="Second", value3="Third"),
    },
    legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]},
    untitledMulti={"type": "array", "items": {"type": "string", "enum": ["option1", "option2"]}},
    titledMulti={"type": "array", "items": {"anyOf": titled(value1="First", value2="Second")}},
)
TOOLS: dict[str, Tool] = {
    "test_simple_text": simple,
    "test_image_content": image_tool,
    "test_audio_content": audio_tool,
    "test_embedded_resource": resource_tool,
    "test_multiple_content_types": mixed,
    "test_tool_with_logging": logging,
    "test_error_handling": failing,
    "test_tool_with_progress": progressing,
    "test_sampling": sampling,
    "test_elicitation": eliciting("Tell", RESPONSE),
    "test_elicitation_sep1034_defaults": eliciting("Review", DEFAULTS),
    "test_elicitation_sep1330_enums": eliciting("Choose", ENUMS),
    "json_schema_2020_12_tool": simple,
}
ADDRESS = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
DIALECT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
INPUT = {"json_schema_2020_12_tool": DIALECT}

# Resources and prompts

STATIC = "This is the content of the static text resource."
RESOURCES = ("test://static-text", "test://static-binary", "test://watched-resource")


def resource(uri: str) -> types.TextResourceContents | types.BlobResourceContents:
    if uri == "test://static-binary":
        return types.BlobResourceContents(uri=uri, blob=PIXEL, mime_type="image/png")
    if uri.startswith("test://template/"):
        id = uri.split("/")[3]
        content = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
        return types.TextResourceContents(uri=uri, text=content, mime_type="application/json")
    return types.TextResourceContents(uri=uri, text=STATIC, mime_type="text/plain")


def prompt(name: str, arguments: dict[str, str]) -> list[types.ContentBlock]:
    if name == "test_simple_prompt":
        return [text("This is a simple prompt for testing.")]
    if name == "test_prompt_with_arguments":
        shown = ", ".join(f"{name}='{arguments.get(name, '')}'" for name in ("arg1", "arg2"))
        return [text(f"Prompt with arguments: {shown}")]
    if name == "test_prompt_with_embedded_resource":
        return [
            embedded(arguments["resourceUri"], "Embedded resource content for testing."),
            text("?"),
        ]
    return [image(), text("Please analyze the image above.")]


PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
}


def make_fixture_server(host: LibraryHost) -> LibraryServer:
    """Create the server of a library with the fixtures added."""
    server = make_server(host)

    def own(method: str) -> Callable[[Context, Any], Awaitable[Any]]:
        entry = server.get_request_handler(method)
        assert entry
        return entry.handler

    def replace_handler(method: str, handler: Callable[[Context, Any], Awaitable[Any]]) -> None:
        entry = server.get_request_handler(method)
        assert entry
        server.add_request_handler(method, entry.params_type, handler)

    tools, call = own("tools/list"), own("tools/call")
    resources, templates, read = (
        own(f"resources/{each}") for each in ("list", "templates/list", "read")
    )
    subscribe, unsubscribe = own("resources/subscribe"), own("resources/unsubscribe")
    prompts, get = own("prompts/list"), own("prompts/get")

    async def list_tools(ctx: Context, params: Any) -> types.ListToolsResult:
        result: types.ListToolsResult = await tools(ctx, params)
        more = [
            types.Tool(
                name=name, description=name, input_schema=INPUT.get(name, {"type": "object"})
            )
            for name in TOOLS
        ]
        return types.ListToolsResult(tools=[*result.tools, *more])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Any:
        if params.name not in TOOLS:
            return await call(ctx, params)
        try:
            return types.CallToolResult(
                content=await TOOLS[params.name](ctx, params.arguments or {})
            )
        except ValueError as error:
            return types.CallToolResult(content=[text(str(error))], is_error=True)

    async def list_resources(ctx: Context, params: Any) -> types.ListResourcesResult:
        result: types.ListResourcesResult = await resources(ctx, params)
        more = [types.Resource(uri=uri, name=uri, mime_type="text/plain") for uri in RESOURCES]
        return types.ListResourcesResult(resources=[*result.resources, *more])

    async def list_templates(ctx: Context, params: Any) -> types.ListResourceTemplatesResult:
        result: types.ListResourceTemplatesResult = await templates(ctx, params)
        more = types.ResourceTemplate(name="data", uri_template="test://template/{id}/data")
        return types.ListResourceTemplatesResult(
            resource_templates=[*result.resource_templates, more]
        )

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        if not uri.startswith("test://"):
            return await read(ctx, params)
        return types.ReadResourceResult(contents=[resource(uri)])

    def watched(
        own: Callable[[Context, Any], Awaitable[Any]],
    ) -> Callable[[Context, Any], Awaitable[Any]]:
        async def change(ctx: Context, params: Any) -> Any:
            return types.EmptyResult() if str(params.uri) in RESOURCES else await own(ctx, params)

        return change

    async def list_prompts(ctx: Context, params: Any) -> types.ListPromptsResult:
        result: types.ListPromptsResult = await prompts(ctx, params)
        more = [
            types.Prompt(
                name=name,
                description=name,
                arguments=[types.PromptArgument(name=each, required=True) for each in arguments],
            )
            for name, arguments in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=[*result.prompts, *more])

    async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Any:
        if params.name not in PROMPTS:
            return await get(ctx, params)
        if set(params.arguments or {}) < set(PROMPTS[params.name]):
            raise MCPError(types.INVALID_PARAMS, "an argument is missing")
        messages = [
            types.PromptMessage(role="user", content=each)
            for each in prompt(params.name, params.arguments or {})
        ]
        return types.GetPromptResult(messages=messages)

    handlers: dict[str, Callable[[Context, Any], Awaitable[Any]]] = {
        "tools/list": list_tools,
        "tools/call": call_tool,
        "resources/list": list_resources,
        "resources/templates/list": list_templates,
        "resources/read": read_resource,
        "resources/subscribe": watched(subscribe),
        "resources/unsubscribe": watched(unsubscribe),
        "prompts/list": list_prompts,
        "prompts/get": get_prompt,
    }
    for method, handler in handlers.items():
        replace_handler(method, handler)
    server.get_tool_input_schema = None
    return server
