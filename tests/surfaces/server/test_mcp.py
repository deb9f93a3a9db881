"""The MCP endpoint: what agents see, what they can do, and what they cannot get around."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Tool

from omnigraph.errors import BadRequestError
from omnigraph.server import inner_requests
from omnigraph.server.agent_tools import BUILT_INS, stored_tool
from omnigraph.server.app import make_app
from omnigraph.server.boot import open_service
from omnigraph.server.config import single_graph
from omnigraph.server.service import Service
from omnigraph.server.settings import ServerSettings
from omnigraph.server.stored_queries import BUILT_IN_TOOLS, StoredQueries
from support.servers import POLICY_WITH_GUEST, TOKEN_SETTINGS, TOKENS, client_of, guarded_server, make_graph
from support.subtests import each_case

PATH = "/graphs/default/mcp"
READ_TOOLS = frozenset(
    ("health", "schema", "snapshot", "query", "explain", "branches", "tag_list", "commits", "diff", "changes")
)
QUERIES = """
query people() @description("Everybody, by name") @instruction("Takes nothing.") {
  match { $p: Person } return { $p.name as name } order { $p.name } }
query older_than($age: I32) { match { $p: Person  $p.age > $age } return { $p.name as name } order { $p.name } }
query add_person($name: String, $age: I32?) { insert Person { name: $name, age: $age } }
"""
#: One reads and runs stored queries; another also writes, but not on main.
POLICY = """
version: 1
groups: { readers: [act-bot, act-nadia], writers: [act-nadia] }
protected_branches: [main]
rules:
  - id: read
    allow: { actors: { group: readers }, actions: [read], branch_scope: any }
  - id: invoke
    allow: { actors: { group: readers }, actions: [invoke_query] }
  - id: write
    allow: { actors: { group: writers }, actions: [change], branch_scope: unprotected }
  - id: branch
    allow: { actors: { group: writers }, actions: [branch_create, branch_delete], target_branch_scope: unprotected }
  - id: merge
    allow: { actors: { group: writers }, actions: [branch_merge], target_branch_scope: any }
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp")


@pytest.fixture(scope="module")
def uri(root: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        return make_graph(root)


@pytest.fixture(scope="module")
def guarded(uri: str, root: Path) -> Iterator[Service]:
    (root / "policy.yaml").write_text(POLICY)
    (root / "queries.gq").write_text(QUERIES)
    config = single_graph(uri, policy=root / "policy.yaml", queries=root / "queries.gq")
    with open_service(config, ServerSettings(), environment=TOKEN_SETTINGS) as service:
        yield service


@asynccontextmanager
async def _agent(service: Service, actor: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {} if actor is None else {"Authorization": f"Bearer {TOKENS[actor]}"}
    transport = httpx2.ASGITransport(app=make_app(service))
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http,
        Client(streamable_http_client(f"http://127.0.0.1{PATH}", http_client=http), mode=mode) as client,
    ):
        yield client


def _tools(service: Service, actor: str | None = None, mode: str = "auto") -> dict[str, Tool]:
    async def listing() -> dict[str, Tool]:
        async with _agent(service, actor, mode) as agent:
            return {tool.name: tool for tool in (await agent.list_tools()).tools}

    return anyio.run(listing)


def _call(service: Service, actor: str, tool: str, version: str = "auto", /, **arguments: Any) -> CallToolResult:
    async def calling() -> CallToolResult:
        async with _agent(service, actor, version) as agent:
            return await agent.call_tool(tool, arguments)

    return anyio.run(calling)


# ---- what agents see


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_an_agent_that_may_read_sees_what_reads(guarded: Service, mode: str) -> None:
    tools = _tools(guarded, "act-bot", mode)
    assert set(tools) == READ_TOOLS | {"people", "older_than"}
    assert all(tool.annotations.read_only_hint for tool in tools.values())


def test_an_agent_that_may_write_sees_what_writes(guarded: Service) -> None:
    tools = _tools(guarded, "act-nadia")
    assert set(tools) == BUILT_IN_TOOLS | {"people", "older_than", "add_person"}
    hints = {name: tool.annotations for name, tool in tools.items()}
    writing = {name for name, hint in hints.items() if not hint.read_only_hint}
    assert writing == BUILT_IN_TOOLS - READ_TOOLS | {"add_person"}
    additive = {name for name in writing if not hints[name].destructive_hint}
    assert additive == {"branch_create", "tag_create", "add_person"}


def test_an_actor_that_may_do_nothing_here_has_no_tools_of_the_graph(uri: str, root: Path) -> None:
    (root / "guest").mkdir()
    with guarded_server(uri, root / "guest", policy=POLICY_WITH_GUEST) as service:
        assert set(_tools(service, "act-stranger")) == {"health"}


def test_an_actor_of_no_group_is_told_that_there_is_no_graph(guarded: Service) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with client_of(guarded, "act-stranger") as stranger:
        assert stranger.post(PATH, json=message).status_code == 404


@pytest.mark.usefixtures("guarded")
def test_without_a_policy_stored_queries_stay_hidden_and_nothing_writes(uri: str, root: Path) -> None:
    config = single_graph(uri, queries=root / "queries.gq")
    with open_service(config, ServerSettings(), environment=TOKEN_SETTINGS) as service:
        assert set(_tools(service, "act-nadia")) == READ_TOOLS


def test_the_built_in_tools_are_the_names_that_stored_queries_may_not_have() -> None:
    assert set(BUILT_INS) == BUILT_IN_TOOLS


def test_a_graph_whose_stored_query_is_named_as_a_built_in_tool_is_not_served(uri: str, tmp_path: Path) -> None:
    (tmp_path / "q.gq").write_text("query schema() { match { $p: Person } return { $p.name } }")
    config = single_graph(uri, queries=tmp_path / "q.gq")
    with pytest.raises(BadRequestError, match=r"q\.gq:1:7: R103: .*`schema`"):
        open_service(config, ServerSettings(), environment=TOKEN_SETTINGS)


def test_a_stored_query_is_described_with_its_parameters_and_the_branch_apart(guarded: Service) -> None:
    tools = _tools(guarded, "act-nadia")
    assert tools["people"].description == "Everybody, by name\n\nTakes nothing."
    assert tools["older_than"].input_schema["required"] == ["age"]
    assert tools["older_than"].input_schema["properties"]["age"] == {"type": "integer"}
    assert set(tools["older_than"].input_schema["properties"]) == {
        "age",
        "__branch",
        "__snapshot",
        "__timeout_s",
        "__first",
    }
    written = tools["add_person"].input_schema
    assert written["properties"]["age"] == {"type": ["integer", "null"]}
    assert written["required"] == ["name"]
    assert "__snapshot" not in written["properties"]
    assert "__timeout_s" not in written["properties"]


def test_every_tool_that_runs_a_read_takes_the_time_that_it_may_work(guarded: Service) -> None:
    tools = _tools(guarded, "act-nadia")
    for tool, name in (("query", "timeout_s"), ("explain", "timeout_s"), ("people", "__timeout_s")):
        assert tools[tool].input_schema["properties"][name]["exclusiveMinimum"] == 0
    done = _call(guarded, "act-nadia", "people", __timeout_s=1e-9)
    assert done.is_error
    assert done.structured_content["kind"] == "query_timeout"
    assert not _call(guarded, "act-nadia", "people", __timeout_s=60).is_error


@each_case(
    ("declared", "schema"),
    [
        ("String", {"type": "string"}),
        ("Bool", {"type": "boolean"}),
        ("F64", {"type": "number"}),
        ("[Bool]", {"type": "array", "items": {"type": "boolean"}}),
        ("Vector(2)", {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
        # What JSON has no type for travels as text, however it is described.
        *((name, None) for name in ("I64", "U64", "Date", "DateTime", "Blob")),
    ],
)
def test_parameters_have_the_schema_of_their_type(tmp_path: Path, declared: str, schema: Any) -> None:
    found = _parameter(tmp_path, declared)
    assert found["type"] == "string" if schema is None else found == schema


def _parameter(folder: Path, declared: str) -> dict[str, object]:
    text = f"query q($x: {declared}) {{ match {{ $p: Person }} return {{ $p.name }} }}"
    (folder / "q.gq").write_text(text)
    (query,) = StoredQueries.read([folder / "q.gq"])
    return stored_tool(query).input_schema["properties"]["x"]


# ---- what they can do


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_stored_query_answers_as_its_route_does(guarded: Service, mode: str) -> None:
    done = _call(guarded, "act-bot", "older_than", mode, age=40)
    with client_of(guarded, "act-bot") as client:
        body = client.post("/graphs/default/queries/older_than", json={"params": {"age": 40}, "first": 100})
    assert done.structured_content == body.json()
    assert json.loads(done.content[0].text) == body.json()
    assert [row["name"] for row in done.structured_content["rows"]] == ["alan", "grace"]
    assert not done.is_error


def test_work_goes_through_a_branch_and_carries_the_actor(guarded: Service) -> None:
    async def story() -> None:
        async with _agent(guarded, "act-nadia") as agent:
            created = await agent.call_tool("branch_create", {"name": "draft"})
            assert not created.is_error, created
            written = await agent.call_tool("add_person", {"name": "emmy", "__branch": "draft"})
            assert written.structured_content["commit"]["actor_id"] == "act-nadia"
            seen = await agent.call_tool("people", {"__branch": "draft"})
            assert seen.structured_content["row_count"] == 4
            before = written.structured_content["commit"]["parent_commit_id"]
            past = await agent.call_tool("people", {"__snapshot": before})
            assert past.structured_content["row_count"] == 3
            diff = await agent.call_tool("diff", {"from": "main", "to": "draft", "kind": ["node"]})
            assert len(diff.structured_content["changes"]) == 1
            merge = {"source": "draft", "dry_run": True}
            assert not (await agent.call_tool("branch_merge", merge)).is_error
            gone = await agent.call_tool("branch_delete", {"branch": "draft"})
            assert not gone.is_error

    anyio.run(story)


@each_case(
    ("tool", "arguments", "member"),
    [
        ("health", {}, "version"),
        ("schema", {}, "schema_source"),
        ("snapshot", {"branch": "main"}, "graph_commit_id"),
        ("query", {"query": "query q() { match { $p: Person } return { $p.name } }"}, "rows"),
        ("explain", {"query": "query q() { match { $p: Person } return { $p.name } }"}, "plan"),
        ("branches", {}, "branches"),
        ("commits", {}, "commits"),
        ("changes", {"start": "beginning", "limit": 2}, "blocks"),
    ],
)
def test_a_built_in_tool_answers_what_its_route_answers(
    guarded: Service, tool: str, arguments: dict[str, Any], member: str
) -> None:
    done = _call(guarded, "act-bot", tool, **arguments)
    assert not done.is_error, done.structured_content
    assert member in done.structured_content


def test_records_are_loaded(guarded: Service) -> None:
    data = json.dumps({"type": "Person", "data": {"name": "lise"}})
    done = _call(guarded, "act-nadia", "load", data=data, branch="loaded", **{"from": "main"})
    assert done.structured_content["branch_created"] is True


# ---- what they cannot get around


@each_case("mode", ["legacy", "auto"])
@each_case("tool", ["add_person", "mutate", "branch_delete", "no_such_tool"])
def test_a_tool_that_may_not_be_seen_is_one_that_does_not_exist(guarded: Service, tool: str, mode: str) -> None:
    async def calling() -> MCPError:
        async with _agent(guarded, "act-bot", mode) as agent:
            with pytest.raises(MCPError) as raised:
                await agent.call_tool(tool, {"name": "eve", "branch": "draft"})
            return raised.value

    error = anyio.run(calling)
    assert error.message == f"there is no tool {tool!r}"
    assert (error.code, error.data) == (-32602, None)


@each_case(
    ("tool", "arguments"),
    [
        ("add_person", {"name": "eve"}),
        ("add_person", {"name": "eve", "__branch": "main"}),
        ("mutate", {"query": 'query q() { insert Person { name: "eve" } }'}),
        ("load", {"data": "", "mode": "overwrite"}),
        ("branch_delete", {"branch": "main"}),
    ],
)
def test_a_protected_branch_stays_protected_whatever_names_it(
    guarded: Service, tool: str, arguments: dict[str, Any]
) -> None:
    head = guarded.graphs["default"].graph.snapshot()
    done = _call(guarded, "act-nadia", tool, **arguments)
    assert done.is_error
    assert done.structured_content["code"] == "forbidden"
    assert guarded.graphs["default"].graph.snapshot() == head


@each_case(
    ("tool", "arguments", "code"),
    [
        ("older_than", {}, "bad_request"),
        ("older_than", {"age": "many"}, "bad_request"),
        ("older_than", {"age": 3, "more": 4}, "bad_request"),
        ("older_than", {"age": 3, "__branch": "nowhere"}, "not_found"),
        ("older_than", {"age": 3, "__branch": "main", "__snapshot": "x"}, "bad_request"),
        ("add_person", {"name": "eve", "__snapshot": "x"}, "bad_request"),
        ("query", {"query": "query q( {"}, "bad_request"),
        ("query", {"query": 'query q() { insert Person { name: "eve" } }'}, "bad_request"),
        ("mutate", {"query": "query q() {}", "actor": "act-bot"}, "bad_request"),
        ("snapshot", {"branch": ["a", "b"]}, "bad_request"),
        ("snapshot", {"branch": {"a": 1}}, "bad_request"),
        ("branch_delete", {}, "bad_request"),
        ("branch_delete", {"branch": "../../healthz"}, "bad_request"),
        ("schema", {"path": "../../healthz"}, "bad_request"),
    ],
)
def test_a_refusal_is_an_error_of_the_tool_with_the_body_of_the_api(
    guarded: Service, tool: str, arguments: dict[str, Any], code: str
) -> None:
    done = _call(guarded, "act-nadia", tool, **arguments)
    assert done.is_error
    assert done.structured_content["code"] == code
    assert done.structured_content["error"]
    assert "Traceback" not in done.content[0].text


def test_writes_in_flight_are_limited_as_elsewhere(guarded: Service) -> None:
    limit = guarded.settings.actor_inflight_max
    with ExitStack() as held:
        for _ in range(limit):
            held.enter_context(guarded.admission.admitted("act-nadia", 1))
        done = _call(guarded, "act-nadia", "branch_create", name="late")
    assert (done.is_error, done.structured_content["code"]) == (True, "too_many_requests")


def test_an_answer_that_is_too_large_is_refused_with_advice(guarded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_requests, "MAX_ANSWER_BYTES", 50)
    done = _call(guarded, "act-bot", "people")
    assert done.structured_content["resource_limit"]["resource"] == "mcp_answer_bytes"


def test_an_agent_gets_few_rows_and_the_way_to_more(guarded: Service) -> None:
    done = _call(guarded, "act-bot", "people", __first=2).structured_content
    assert (len(done["rows"]), done["row_count"], done["truncated"]) == (2, 2, True)
    assert done["note"] == "the first 2 rows: for more give a larger `first`, a condition, or count instead"
    whole = _call(guarded, "act-bot", "people").structured_content
    assert (whole["row_count"], whole["truncated"], whole.get("note")) == (3, False, None)


@each_case("limit", [1, 25])
def test_rows_that_are_too_long_for_an_agent_are_cut(
    guarded: Service, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(guarded, "settings", replace(guarded.settings, tool_max_bytes=limit))
    done = _call(guarded, "act-bot", "people").structured_content
    assert [row["name"] for row in done["rows"]] == ["ada"]
    assert (done["row_count"], done["truncated"]) == (1, True)
    assert done["note"].startswith(f"the first 1 rows, cut at {limit} B: narrow the question")


def test_every_tool_with_arguments_shows_a_call_that_its_schema_allows() -> None:
    for tool in BUILT_INS.values():
        described, _, example = tool.description.partition("\n\nExample: ")
        assert described
        assert example or not tool.required
        if example:
            arguments = json.loads(example)
            assert set(tool.required) <= set(arguments) <= set(tool.properties)


def test_a_failure_that_nobody_foresaw_tells_nothing(
    guarded: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(guarded.graphs["default"].graph, "query", fail)
    done = _call(guarded, "act-bot", "people")
    assert done.is_error
    assert done.structured_content["code"] == "internal"
    assert "secret" not in done.model_dump_json()
    assert "unexpected failure" in caplog.text


# ---- what is no message


@each_case(
    ("content", "status"),
    [
        (b"", 400),
        (b"no json", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]', 400),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}', 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 3}', 400),
        (b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', 400),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}', 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}', 400),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\\ud800"}}', 400),
        (b"[" * 100_000, 400),
        (b'{"jsonrpc": "2.0", "method": "' + b"x" * 1024 * 1024 + b'"}', 413),
    ],
)
def test_a_body_that_is_no_message_is_refused_as_elsewhere(guarded: Service, content: bytes, status: int) -> None:
    with client_of(guarded, "act-bot") as client:
        answer = client.post(PATH, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["code"] == "bad_request"


@each_case(
    ("message", "code"),
    [
        ({"id": 1, "method": "no/such"}, -32601),
        ({"id": 1, "method": "tools/call"}, -32602),
        ({"id": 1, "method": "tools/call", "params": {"name": 3}}, -32602),
        ({"id": 1, "method": "tools/call", "params": {"name": "people", "arguments": 3}}, -32602),
    ],
)
def test_a_message_that_makes_no_sense_is_an_error_of_the_protocol(
    guarded: Service, message: dict[str, Any], code: int
) -> None:
    with client_of(guarded, "act-bot") as client:
        answer = client.post(PATH, json={"jsonrpc": "2.0", **message})
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == code
    assert "Traceback" not in answer.text


REVISION = "io.modelcontextprotocol/protocolVersion"
META = {REVISION: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HEADERS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
CALL = {"Mcp-Method": "tools/call", "Mcp-Name": "=?base64?cGVvcGxl?="}


@each_case(
    ("method", "meta", "headers", "status", "code"),
    [
        ("tools/list", META, HEADERS, 200, None),
        ("tools/call", META, HEADERS | CALL, 200, None),
        ("tools/call", META, HEADERS | CALL | {"Mcp-Name": "schema"}, 400, -32020),
        ("tools/call", META, HEADERS | CALL | {"Mcp-Name": "=?base64?%?="}, 400, -32020),
        ("tools/list", META, HEADERS | {"Mcp-Method": "tools/call"}, 400, -32020),
        ("tools/list", META, {}, 400, -32020),
        ("tools/list", META | {REVISION: "2099-01-01"}, HEADERS, 400, -32022),
        ("tools/list", META | {REVISION: 3}, HEADERS, 400, -32602),
        ("tools/list", {REVISION: "2026-07-28"}, HEADERS, 400, -32602),
        ("tools/list", {}, HEADERS, 400, -32602),
        ("initialize", META, HEADERS | {"Mcp-Method": "initialize"}, 404, -32601),
        ("server/discover", {}, {}, 200, -32601),
    ],
)
def test_a_request_that_stands_alone_says_what_its_headers_say(
    guarded: Service, method: str, meta: dict[str, Any], headers: dict[str, str], status: int, code: int | None
) -> None:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"name": "people", "_meta": meta}}
    with client_of(guarded, "act-bot") as client:
        answer = client.post(PATH, json=message, headers=headers)
    told = answer.json()
    assert (answer.status_code, told["id"], told.get("error", {}).get("code")) == (status, 7, code)


def test_a_notification_is_taken(guarded: Service) -> None:
    with client_of(guarded, "act-bot") as client:
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert client.post(PATH, json=message).status_code == 202


def test_only_json_is_taken_and_only_by_post(guarded: Service) -> None:
    message = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    with client_of(guarded, "act-bot") as client:
        assert client.post(PATH, content=message).status_code == 415
        assert client.get(PATH).status_code == 405
        assert client.delete(PATH).status_code == 405
        accept = {"Accept": "text/html", "Content-Type": "application/json"}
        assert client.post(PATH, content=message, headers=accept).status_code == 200
        bogus = {"MCP-Protocol-Version": "bogus", "Content-Type": "application/json"}
        assert client.post(PATH, content=message, headers=bogus).status_code == 400


def test_nobody_enters_without_a_token_or_without_a_graph(guarded: Service) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with client_of(guarded) as client:
        assert client.post(PATH, json=message).status_code == 401
    with client_of(guarded, "act-bot") as client:
        assert client.post("/graphs/other/mcp", json=message).status_code == 404
