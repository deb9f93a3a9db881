"""MCP over standard input and output: what a program gets that starts the server of its agent itself."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from omnigraph.errors import BadRequestError
from omnigraph.policy.policy import Policy
from omnigraph.policy.rules import Action
from omnigraph.server.boot import open_for_actor
from omnigraph.server.config import single_graph
from omnigraph.server.mcp_stdio import serve_lines
from omnigraph.server.settings import ServerSettings
from support.servers import make_graph

READ_ONLY = Policy.allowing("agent", [Action.READ, Action.INVOKE_QUERY])
QUERIES = """
query people() { match { $p: Person } return { $p.name as name } order { $p.name } }
query add_person($name: String) { insert Person { name: $name } }
"""
OTHERS = """
version: 1
groups: { g: [act-nadia] }
rules:
  - id: r
    allow: { actors: { group: g }, actions: [read] }
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("stdio")
    (root / "queries.gq").write_text(QUERIES)
    return make_graph(root)


@dataclass(frozen=True)
class Agent:
    """Sends messages as lines, all at once, and gives the answers by their ids."""

    store: str
    policy: Policy = READ_ONLY
    #: What is done to the service before.
    prepare: Callable[[Any], None] = lambda service: None

    def say(self, *messages: object) -> dict[object, Any]:
        config = single_graph(self.store, queries=Path(self.store).parent / "queries.gq")
        service, token = open_for_actor(config.graph(), "act-scout", self.policy, ServerSettings())
        lines = [item if isinstance(item, str) else json.dumps({"jsonrpc": "2.0", **item}) for item in messages]
        wire = io.BytesIO()
        with service:
            self.prepare(service)
            serve_lines(service, token, io.BytesIO("\n".join(lines).encode()), wire)
        answers = [json.loads(line) for line in wire.getvalue().splitlines()]
        return {answer["id"]: answer for answer in answers}

    def tools(self) -> set[str]:
        answer = self.say({"id": 1, "method": "tools/list"})[1]
        return {tool["name"] for tool in answer["result"]["tools"]}


def _call(id_: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id_, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_starts_the_command_and_talks_to_it(store: str, mode: str) -> None:
    page = (Path(__file__).parents[3] / "docs/guide/agents.md").read_text(encoding="utf-8")
    shown = json.loads(page.split("```json\n")[1].split("```")[0])["mcpServers"]["papers"]
    assert (shown["command"], shown["args"][0]) == ("omnigraph", "mcp")
    words = ["-m", "omnigraph", *(store if word.endswith(".omni") else word for word in shown["args"])]

    async def story() -> None:
        server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
        async with Client(stdio_client(server), mode=mode) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {"schema", "query", "explain"} <= tools
            assert not {"mutate", "load", "branch_create", "branch_delete", "branch_merge"} & tools
            found = await client.call_tool("query", {"query": "query q() { match { $p: Person } return { $p.name } }"})
            assert found.structured_content["row_count"] == 3
            plan = await client.call_tool("explain", {"query": "query q() { match { $p: Person } return { $p } }"})
            assert not plan.is_error

    anyio.run(story)


def test_an_agent_reads_by_default_and_writes_as_its_actor_where_it_may(store: str) -> None:
    assert {"people", "query"} <= Agent(store).tools()
    assert not {"add_person", "mutate"} & Agent(store).tools()
    writer = Agent(store, Policy.allowing("agent", [item for item in Action if not item.is_for_server]))
    assert {"people", "add_person", "mutate", "branch_merge"} <= writer.tools()
    written = writer.say(_call(1, "add_person", name="zoe"))[1]["result"]["structuredContent"]
    assert written["commit"]["actor_id"] == "act-scout"


def test_an_actor_without_rights_is_refused_before_anything_is_served(store: str) -> None:
    policy = Policy.from_text(OTHERS)
    with pytest.raises(BadRequestError, match="allows nothing to actor `act-scout`: name another one with --as"):
        Agent(store, policy).tools()


def test_requests_run_side_by_side_and_what_is_no_message_is_told(store: str) -> None:
    answers = Agent(store).say(
        "",
        "no message",
        {"method": "notifications/initialized"},
        {"id": "a", "method": "ping"},
        {"id": 2, "method": "no/such"},
        {"id": 3, "result": {}},
        _call(4, "no_such_tool"),
    )
    assert answers["a"]["result"] == {}
    codes = {id_: answer["error"]["code"] for id_, answer in answers.items() if "error" in answer}
    assert codes == {None: -32600, 2: -32601, 4: -32602}


def test_a_cancelled_request_stops_its_read_and_has_no_answer(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []

    def prepare(service: Any) -> None:
        def wait(*_: object, cancel: Any, **__: object) -> None:
            deadline = monotonic() + 60
            while not cancel.is_set() and monotonic() < deadline:
                os.sched_yield()
            stopped.append(cancel.is_set())
            raise BadRequestError("stopped")

        monkeypatch.setattr(service.graphs["default"].graph, "query", wait)

    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    answers = Agent(store, prepare=prepare).say(_call(1, "people"), cancelled, {"id": 2, "method": "ping"})
    assert (stopped, set(answers)) == ([True], {2})
