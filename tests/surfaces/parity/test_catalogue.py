"""Every entry of the catalogue gives the same embedded, through the client, and over HTTP as it is declared."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from omnigraph import Graph
from omnigraph.api.operation import IF_GRAPH_COMMIT, JSON, NDJSON, Operation
from omnigraph.api.operations import OPERATIONS
from omnigraph.api.rows import Result
from omnigraph.client.connection import list_graphs
from omnigraph.codec import Document
from omnigraph.errors import DirectOnlyError
from omnigraph.server.boot import open_service
from omnigraph.server.config import ServerConfig, single_graph
from omnigraph.server.routing import openapi_document
from omnigraph.server.settings import ServerSettings
from support.parity import ADD, QUERIES, SCHEMA, Pair, exported, neutral, outcome
from support.servers import copy_graph, listening
from support.subtests import each_case

NAMES = "query names() { match { $p: Person } return { $p.name as name } order { $p.name } }"
PEOPLE, _, ADD_PERSON = QUERIES.strip().splitlines()
WIDER = SCHEMA.replace("year: I32?", "year: I32?  title: String?")
PHOTO = {"entity": "node", "type": "Person", "id": "ada", "property": "photo"}


def row(name: str) -> str:
    return json.dumps({"type": "Person", "data": {"name": name}}) + "\n"


@dataclass(frozen=True, kw_only=True)
class Story:
    """One operation: as a method of a graph, and as a request. Both are asked for the state that they find."""

    #: None: only a server has it.
    call: Callable[[Any], object] | None
    #: Where the method of a remote graph is another one.
    remote: Callable[[Any], object] | None = None
    path: Callable[[Any], Mapping[str, str]] = lambda _: {}
    request: Mapping[str, Any] = field(default_factory=dict)
    headers: Callable[[Any], Mapping[str, str]] = lambda _: {}


def loaded(name: str) -> Callable[[Any], object]:
    def load(graph: Any) -> object:
        with NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write(row(name))
            file.flush()
            return graph.load(file.name, mode="merge")

    return load


def at_head(graph: Any) -> Mapping[str, str]:
    return {IF_GRAPH_COMMIT: graph.snapshot().commit_id}


def newest(graph: Any) -> Mapping[str, str]:
    return {"commit_id": graph.commits()[0].commit_id}


def baseline(graph: Any) -> object:
    out = io.StringIO()
    return graph.baseline(out=out).to_json(), out.getvalue()


def name_of(name: str) -> Callable[[Any], Mapping[str, str]]:
    return lambda _: {"name": name}


def mutation(name: str) -> Story:
    return Story(
        call=lambda g: g.mutate(ADD, {"name": name}), request={"json": {"query": ADD, "params": {"name": name}}}
    )


#: Those that write are told in this order: each finds what those before it left.
STORIES: Mapping[str, Story] = {
    # ---- the server
    "health": Story(call=None),
    "metrics": Story(call=None),
    "openapi": Story(call=None),
    "list_graphs": Story(call=None, remote=lambda g: list_graphs(g._connection.base)),
    "list_queries": Story(call=None, remote=lambda g: g.queries()),
    "mcp": Story(call=None, request={"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}),
    # ---- reads
    "query": Story(call=lambda g: g.query(NAMES), request={"json": {"query": NAMES}}),
    "read": Story(call=lambda g: g.query(NAMES), request={"json": {"query_source": NAMES}}),
    "explain": Story(call=lambda g: g.explain(NAMES), request={"json": {"query": NAMES}}),
    "get_entity": Story(
        call=lambda g: g.entity_at("node:Person", "ada"), request={"params": {"type": "node:Person", "id": "ada"}}
    ),
    "get_snapshot": Story(call=lambda g: g.snapshot("draft/one"), request={"params": {"branch": "draft/one"}}),
    "export": Story(call=exported, request={"json": {}}),
    "get_blob": Story(call=lambda g: g.read_blob("node:Person", "ada", "photo"), request={"params": PHOTO}),
    "head_blob": Story(call=lambda g: g.stat_blob("node:Person", "ada", "photo"), request={"params": PHOTO}),
    "get_schema": Story(call=lambda g: (g.schema, g.catalog())),
    "list_branches": Story(call=lambda g: g.branches()),
    "list_commits": Story(call=lambda g: g.commits()),
    "get_log": Story(call=lambda g: g.log()),
    "get_commit": Story(call=lambda g: g.commit(newest(g)["commit_id"]), path=newest),
    "get_diff": Story(
        call=lambda g: g.diff("main", "draft/one"), request={"params": {"from": "main", "to": "draft/one"}}
    ),
    "get_commit_changes": Story(call=lambda g: g.changes(newest(g)["commit_id"]), path=newest),
    "poll_changes": Story(call=lambda g: g.feed(start="beginning"), request={"params": {"start": "beginning"}}),
    "get_changes_baseline": Story(call=baseline, request={"json": {}}),
    # ---- writes
    "invoke_query": Story(call=lambda g: g.query(PEOPLE), remote=lambda g: g.run("people"), path=name_of("people")),
    "invoke_query_if_graph_commit": Story(
        call=lambda g: g.mutate(ADD_PERSON, {"name": "if"}, if_commit=g.snapshot().commit_id),
        remote=lambda g: g.run("add_person", {"name": "if"}, if_commit=g.snapshot().commit_id),
        path=name_of("add_person"),
        request={"json": {"params": {"name": "if"}}},
        headers=at_head,
    ),
    "mutate": mutation("one"),
    "mutate_if_graph_commit": replace(
        mutation("two"),
        call=lambda g: g.mutate(ADD, {"name": "two"}, if_commit=g.snapshot().commit_id),
        headers=at_head,
    ),
    "change": mutation("three"),
    "load": Story(call=loaded("four"), request={"json": {"data": row("four")}}),
    "ingest": Story(call=loaded("five"), request={"json": {"data": row("five")}}),
    "load_ndjson": Story(call=loaded("six"), request={"content": row("six"), "headers": {"Content-Type": NDJSON}}),
    "create_branch": Story(call=lambda g: g.create_branch("fresh"), request={"json": {"name": "fresh"}}),
    "merge_branches": Story(
        call=lambda g: g.merge("draft/one", delete_branch=True),
        request={"json": {"source": "draft/one", "delete_branch": True}},
    ),
    "list_tags": Story(call=lambda g: g.tags()),
    "create_tag": Story(
        call=lambda g: g.create_tag("v2", "main~1", message="so", metadata={"n": 1}),
        request={"json": {"name": "v2", "commit": "main~1", "message": "so", "metadata": {"n": 1}}},
    ),
    "delete_tag": Story(call=lambda g: g.delete_tag("v2"), path=lambda _: {"tag": "v2"}),
    "delete_branch": Story(call=lambda g: g.delete_branch("fresh"), path=lambda _: {"branch": "fresh"}),
    "apply_schema": Story(call=lambda g: g.apply_schema(WIDER), request={"json": {"schema_source": WIDER}}),
}


@dataclass(frozen=True, kw_only=True)
class Three:
    """The same graph three times: embedded, for the client, and for plain requests."""

    embedded: Graph
    remote: Any
    asked: Any


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, queries: Path, history: str) -> Iterator[Three]:
    folder = tmp_path_factory.mktemp("three")
    served = [
        *single_graph(copy_graph(history, folder / "remote"), "remote", queries=queries).graphs,
        *single_graph(copy_graph(history, folder / "asked"), "asked", queries=queries).graphs,
    ]
    service = open_service(ServerConfig(graphs=tuple(served)), ServerSettings(), unauthenticated=True, environment={})
    with (
        listening(service) as url,
        Graph.open(copy_graph(history, folder / "embedded")) as embedded,
        Graph.connect(url, graph="remote") as remote,
        Graph.connect(url, graph="asked") as asked,
    ):
        yield Three(embedded=embedded, remote=remote, asked=asked)


def test_every_entry_has_a_story() -> None:
    assert STORIES.keys() == OPERATIONS.keys()


def ask(graph: Any, entry: Operation, story: Story) -> httpx.Response:
    path = entry.path_of(story.path(graph))
    headers = {**story.headers(graph), **story.request.get("headers", {})}
    address = graph._connection.base if entry.is_flat else graph.uri
    return httpx.request(entry.method, f"{address}{path}", **{**story.request, "headers": headers})


def check_form(entry: Operation, answer: httpx.Response) -> None:
    """An answer has the media type and the closed schema that are declared."""
    assert answer.status_code == 200, answer.text
    document = openapi_document(is_open=True)
    declared = document["paths"][entry.route.replace(":path}", "}")][entry.method.lower()]["responses"]["200"]
    if entry.result is None:
        assert not answer.content
        return
    media = answer.headers["content-type"].partition(";")[0]
    assert media in declared["content"]
    if media == JSON:
        schema = {**declared["content"][JSON]["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(answer.json())


def body_of(entry: Operation, value: object, address: str) -> object:
    """What the request of an operation has to answer; None where its method tells something else."""
    match value:
        case Result():
            body = value.to_json()
            return body if entry.successor is None else {k: body[k] for k in body if k != "graph_commit_id"}
        case Document() if entry.result_classes:
            return (replace(value, uri=address) if hasattr(value, "uri") else value).document()
        case _:
            return None


@each_case("entry", [OPERATIONS[name] for name in STORIES if name in OPERATIONS], ids=lambda entry: entry.id)
def test_an_entry_is_the_same_everywhere(three: Three, entry: Operation) -> None:
    story = STORIES[entry.id]
    check = ask(three.asked, entry, story)
    check_form(entry, check)
    if story.remote is not None and story.call is None:
        assert story.remote(three.remote)
    if story.call is None:
        return
    kept: list[object] = []

    def keep(graph: Any) -> object:
        kept.append(story.call(graph))
        return kept[-1]

    embedded = outcome(keep, three.embedded)
    assert neutral(outcome(story.remote or story.call, three.remote)) == neutral(embedded)
    expected = body_of(entry, kept[0], "/graphs/asked")
    if expected is not None:
        assert neutral(json.dumps(check.json())) == neutral(json.dumps(expected))
    if entry.member is not None:
        assert entry.member in check.json()


def test_the_catalog_of_an_earlier_schema_is_read_beside_the_storage(twins: Pair) -> None:
    for graph in (twins.embedded, twins.remote):
        before = graph.snapshot().commit_id
        graph.delete_branch("draft/one")
        graph.apply_schema(WIDER)
        assert "title" in graph.catalog().nodes["Paper"].properties
        assert graph.catalog(snapshot=graph.snapshot().commit_id) == graph.catalog("main")
    assert (
        "title" not in twins.embedded.catalog(snapshot=twins.embedded.commits()[1].commit_id).nodes["Paper"].properties
    )
    with pytest.raises(DirectOnlyError, match="catalog of an earlier schema"):
        twins.remote.catalog(snapshot=before)
