"""Operations and stored queries as tools of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import quote, urlencode

from mcp_types import Tool as McpTool
from mcp_types import ToolAnnotations

from omnigraph.api.operations import OPERATIONS, Operation, Tool
from omnigraph.core.source import did_you_mean
from omnigraph.errors import BadRequestError
from omnigraph.lang.query.signature import ValueKind
from omnigraph.policy.rules import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnigraph.lang.query.signature import FieldDescriptor
    from omnigraph.server.stored_queries import StoredQuery


# ---- Tool definitions


if TYPE_CHECKING:
    Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerRequest:
    """A request to a route of this server. `path` is below the graph unless it is `is_flat`."""

    method: str
    path: str
    query: str = ""
    #: The JSON body; None: there is none.
    body: Mapping[str, Any] | None = None
    is_flat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTool:
    """One tool, hidden from callers that may do none of `needs` on any branch."""

    name: str
    description: str
    input_schema: dict[str, Any]
    request: Callable[[Arguments], InnerRequest]
    needs: Action | None
    is_read: bool = True
    is_destructive: bool = False

    def request_of(self, arguments: Arguments) -> InnerRequest:
        """The request that a call stands for.

        Raises:
            BadRequestError: the tool has no such argument.
        """
        known = self.input_schema["properties"]
        for name in arguments:
            if name not in known:
                hint = did_you_mean(name, known)
                raise BadRequestError(f"`{self.name}` has no argument `{name}`" + (f": {hint}" if hint else ""))
        return self.request(arguments)

    def definition(self) -> McpTool:
        """The tool as it is listed."""
        return McpTool(
            name=self.name,
            description=self.description,
            input_schema=self.input_schema,
            annotations=ToolAnnotations(
                read_only_hint=self.is_read, destructive_hint=self.is_destructive, open_world_hint=False
            ),
        )


def query_string(arguments: Arguments) -> str:
    """Arguments as the query string of a route; lists are repeated, nulls left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in arguments.items():
        items = value if isinstance(value, list) else [value]
        pairs += [(name, _text(item)) for item in items if item is not None]
    return urlencode(pairs)


def segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


# ---- The built-in tools of every graph


def _built_in(operation: Operation, tool: Tool) -> GraphTool:
    return GraphTool(
        name=tool.name,
        description=tool.description,
        input_schema=_input_schema(operation),
        request=partial(_operation_request, operation),
        needs=operation.action,
        is_read=not operation.cost.writes,
        is_destructive=tool.is_destructive,
    )


def _operation_request(operation: Operation, arguments: Arguments) -> InnerRequest:
    """The request that arguments stand for: parts of the path, then the query string or the body."""
    rest = dict(arguments)
    values = {name: rest.pop(name, None) for name in operation.path_parameters}
    for name, value in values.items():
        if not isinstance(value, str):
            raise BadRequestError(f"give `{name}`, a text")
    path = operation.path_of(values)
    if operation.body is not None:
        return InnerRequest(method=operation.method, path=path, body=rest)
    return InnerRequest(method=operation.method, path=path, query=query_string(rest), is_flat=operation.is_flat)


def _input_schema(operation: Operation) -> dict[str, Any]:
    """The JSON schema of a request as agents read it best: flat, and without a null where leaving out is meant."""
    properties: dict[str, Any] = {name: {"type": "string"} for name in operation.path_parameters}
    required = list(properties)
    for model in (operation.query_model, operation.body_model):
        document = {} if model is None else model.model_json_schema(by_alias=True)
        properties |= {name: _plain(value) for name, value in document.get("properties", {}).items()}
        required += document.get("required", [])
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {})


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    options = [item for item in schema.get("anyOf", ()) if item.get("type") != "null"]
    found = {**schema, **(options[0] if options else {})}
    return {
        name: value
        for name, value in found.items()
        if name not in ("anyOf", "title") and not (name == "default" and value is None)
    }


#: Every tool that is not a stored query, by name.
BUILT_INS: dict[str, GraphTool] = {
    entry.tool.name: _built_in(entry, entry.tool) for entry in OPERATIONS.values() if entry.tool is not None
}


# ---- Stored queries as tools


#: Where the query runs, and for how long. No parameter has such a name: two underscores at the beginning are reserved.
BRANCH, SNAPSHOT, TIMEOUT_S = "__branch", "__snapshot", "__timeout_s"


def stored_tool(query: StoredQuery) -> GraphTool:
    """The tool of a stored query."""
    return GraphTool(
        name=query.tool_name,
        description=_description(query),
        input_schema=_stored_input_schema(query),
        request=partial(_request, query),
        needs=Action.CHANGE if query.is_mutation else Action.READ,
        is_read=not query.is_mutation,
        is_destructive=query.is_destructive,
    )


def _request(query: StoredQuery, arguments: Arguments) -> InnerRequest:
    routing = {BRANCH: "branch", SNAPSHOT: "snapshot", TIMEOUT_S: "timeout_s"}
    body: dict[str, Any] = {routing[name]: arguments[name] for name in routing if name in arguments}
    body["params"] = {name: value for name, value in arguments.items() if name not in routing}
    body["expect_mutation"] = query.is_mutation
    return InnerRequest(method="POST", path=f"/queries/{segment(query.name)}", body=body)


def _description(query: StoredQuery) -> str:
    texts = [query.description, query.instruction]
    return "\n\n".join(text for text in texts if text) or f"The stored {query.kind} `{query.name}`."


def _stored_input_schema(query: StoredQuery) -> dict[str, Any]:
    properties = {param.name: _parameter(param) for param in query.params}
    properties[BRANCH] = {"type": "string", "description": "branch to work on, instead of main"}
    if not query.is_mutation:
        properties[SNAPSHOT] = {
            "type": "string",
            "description": "commit id: read the graph as it was right after it, instead of a branch",
        }
        properties[TIMEOUT_S] = {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "seconds that it may work, instead of the default of the server",
        }
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [param.name for param in query.params if not param.nullable]:
        schema["required"] = required
    return schema


def _parameter(param: FieldDescriptor) -> dict[str, Any]:
    schema = _value(param.kind, param)
    if param.nullable:
        schema["type"] = [schema["type"], "null"]
    return schema


def _value(kind: ValueKind, param: FieldDescriptor) -> dict[str, Any]:
    match kind:
        case ValueKind.STRING:
            return {"type": "string"}
        case ValueKind.BOOL:
            return {"type": "boolean"}
        case ValueKind.INT:
            return {"type": "integer"}
        case ValueKind.BIGINT:
            text = "a whole number of up to 64 bits, as text"
            return {"type": "string", "pattern": "^-?[0-9]{1,20}$", "description": text}
        case ValueKind.FLOAT:
            return {"type": "number"}
        case ValueKind.DATE:
            return {"type": "string", "format": "date", "description": "YYYY-MM-DD"}
        case ValueKind.DATETIME:
            return {"type": "string", "format": "date-time", "description": "ISO 8601"}
        case ValueKind.BLOB:
            return {"type": "string", "description": "`base64:` and the bytes, or an address"}
        case ValueKind.VECTOR:
            size = param.vector_dim
            items = {"type": "number"}
            return {"type": "array", "items": items, "minItems": size, "maxItems": size}
        case ValueKind.LIST:
            item = param.item_kind or ValueKind.STRING
            return {"type": "array", "items": _value(item, param)}
        case _:
            assert_never(kind)
