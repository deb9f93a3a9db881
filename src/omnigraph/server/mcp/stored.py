"""Stored queries as tools: typed parameters, and the branch apart from them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from omnigraph.policy.rules import Action
from omnigraph.query.descriptor import ValueKind
from omnigraph.server.mcp.tools import GraphTool, InnerRequest, segment

if TYPE_CHECKING:
    from omnigraph.query.descriptor import FieldDescriptor
    from omnigraph.server.mcp.tools import Arguments
    from omnigraph.serving.stored import StoredQuery

#: Where the query runs, and for how long. No parameter has such a name: two underscores at the beginning are reserved.
BRANCH, SNAPSHOT, TIMEOUT_S = "__branch", "__snapshot", "__timeout_s"


def stored_tool(query: StoredQuery) -> GraphTool:
    """The tool of a stored query."""
    return GraphTool(
        name=query.tool_name,
        description=_description(query),
        input_schema=_input_schema(query),
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


def _input_schema(query: StoredQuery) -> dict[str, Any]:
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
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
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
