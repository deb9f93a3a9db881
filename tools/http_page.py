"""The reference of the HTTP API, from the OpenAPI document: per route its parameters, body, answer and a curl line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from omnigraph.server.routing import openapi_document

#: A JSON object of the document.
Json = dict[str, Any]
#: Values of an example, by the name of a parameter or member.
EXAMPLES = {
    "graph_id": "default",
    "branch": "sale",
    "commit_id": "01M7R3VGP492VQSTQ3Q9FZTN4J",
    "name": "top_customers",
    "query": "query q() { match { $p: Product } return { $p.title } }",
    "type": "Product",
    "id": "K-1",
    "entity": "node",
    "property": "photo",
    "from": "main",
    "to": "sale",
    "source": "sale",
    "mode": "merge",
    "data": '{"type": "Customer", "data": {"email": "eve@example.org"}}',
    "schema": "node Product { sku: String @key }",
    "jsonrpc": "2.0",
    "method": "tools/list",
    "schema_source": "node Product { sku: String @key }",
    "if_graph_commit": "01M7R3VGP492VQSTQ3Q9FZTN4J",
}
#: Older forms of other routes: named at the end, without details.
OLDER = ("read", "change", "ingest")


def http_page(notice: str) -> str:
    """Every route, in the order of the document."""
    document = openapi_document(is_open=False)
    lines = [notice, "", "# HTTP API", ""]
    lines += [
        "A server answers JSON over HTTP/1.1. [openapi.json](openapi.json) describes the routes for programs; every",
        "server serves it at `/openapi.json`.",
        "",
        "- **Authentication**: send `Authorization: Bearer TOKEN`, unless the server runs with `--unauthenticated`.",
        "- **Bodies** are JSON with `Content-Type: application/json`. A member that is not listed is refused.",
        "- **Failures** have one form: `error` is a sentence, `kind` and `code` are for programs: [errors](errors.md).",
        "- **Pages** end with `next_page_token`; send it as `page_token` for the next page.",
        "- Every response carries `Omnigraph-Request-Id`, which the log of the server has too.",
        "",
        "The examples use a server at `127.0.0.1:8080` that serves one graph under the id `default`.",
    ]
    older = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path.rpartition("/")[2] in OLDER:
                older.append(f"- `{method.upper()} {path}`: {operation['summary']}.")
                continue
            lines += ["", *_route(document, path, method, operation)]
    lines += ["", "## Older forms", "", *older, "", "## Objects", ""]
    lines += ["Members that are not required may be missing or null."]
    for name, schema in document["components"]["schemas"].items():
        if schema.get("properties") and not name.endswith("Body"):
            lines += ["", f"### `{name}`", "", *_object(schema)]
    return "\n".join(lines) + "\n"


def _route(document: Json, path: str, method: str, operation: Json) -> Iterator[str]:
    yield f"## `{method.upper()} {path}`"
    yield ""
    yield f"{operation['summary']}."
    rows = [*_parameters(operation), *_members(document, operation)]
    if rows:
        yield from ("", "| Name | In | Type | Meaning |", "|---|---|---|---|")
        yield from rows
    yield ""
    yield f"Answers {_answer(operation)}."
    yield from ("", "```text", _curl(document, path, method, operation), "```")


def _object(schema: Json) -> Iterator[str]:
    yield from ("| Member | Type | Meaning |", "|---|---|---|")
    for name, member in schema["properties"].items():
        needed = "required" if name in schema.get("required", []) else ""
        meaning = "; ".join(filter(None, (member.get("description", "").rstrip("."), needed)))
        yield f"| `{name}` | {_type(member)} | {' '.join(meaning.split()).replace('|', '&#124;')} |"


def _parameters(operation: Json) -> Iterator[str]:
    for it in operation.get("parameters", []):
        if it["in"] != "path":
            yield _row(
                it["name"], it["in"], it["schema"], it.get("description", ""), is_required=it.get("required", False)
            )


def _members(document: Json, operation: Json) -> Iterator[str]:
    schema = _body(document, operation)
    for name, member in schema.get("properties", {}).items():
        needed = name in schema.get("required", [])
        yield _row(name, "body", member, member.get("description", ""), is_required=needed)


def _row(name: str, place: str, schema: Json, meaning: str, *, is_required: bool) -> str:
    text = "; ".join(filter(None, (meaning.rstrip("."), "required" if is_required else "")))
    return f"| `{name}` | {place} | {_type(schema)} | {text.replace('|', '&#124;')} |"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(it) for it in choices if it.get("type") != "null")) or "any"
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        kind = " or ".join(it for it in kind if it != "null")
    return f"list of {_type(schema['items'])}" if kind == "array" and schema.get("items") else str(kind)


def _body(document: Json, operation: Json) -> Json:
    content = operation.get("requestBody", {}).get("content", {})
    schema: Json = content.get("application/json", {}).get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _answer(operation: Json) -> str:
    found = operation["responses"]["200"].get("content", {})
    shown = [
        f"`{kind}`" if "$ref" not in content.get("schema", {}) else content["schema"]["$ref"].rpartition("/")[2]
        for kind, content in found.items()
    ]
    return " or ".join(f"[`{it}`](#{it.lower()})" if not it.startswith("`") else it for it in shown) or "without a body"


def _curl(document: Json, path: str, method: str, operation: Json) -> str:
    query = [
        f"{it['name']}={EXAMPLES.get(it['name'], 'VALUE')}"
        for it in operation.get("parameters", [])
        if it["in"] == "query" and it.get("required")
    ]
    headers = [
        f"-H '{it['name']}: {EXAMPLES['commit_id']}'"
        for it in operation.get("parameters", [])
        if it["in"] == "header" and it.get("required")
    ]
    words = [
        "curl -s",
        *(["-I"] if method == "head" else [f"-X {method.upper()}"] if method == "delete" else []),
        *headers,
    ]
    if method in ("post", "put") and "application/x-ndjson" in operation.get("requestBody", {}).get("content", {}):
        words += ["-H 'Content-Type: application/x-ndjson' --data-binary @records.jsonl"]
    elif method in ("post", "put"):
        body = {name: EXAMPLES[name] for name in _body(document, operation).get("required", []) if name in EXAMPLES}
        words += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(body)}'"]
    address = path
    for name, value in EXAMPLES.items():
        address = address.replace(f"{{{name}}}", value)
    question = f"?{'&'.join(query)}" if query else ""
    return " ".join([*words, f"'http://127.0.0.1:8080{address}{question}'"])
