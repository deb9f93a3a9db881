"""Results survive the wire: rows as an Arrow stream, everything else as JSON."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph.server.app  # registers every handler  # noqa: F401
from omnigraph.api.diffs import DiffFilter, ReportedDiff, diff_page
from omnigraph.api.graph_api import DIRECT_ONLY, GraphApi
from omnigraph.api.operations import OPERATIONS
from omnigraph.api.results import LoadResult, MergeResult, MutationResult, SchemaApplyResult
from omnigraph.api.row_streams import PIECE_BYTES, decode_result, encode_result
from omnigraph.api.rows import Result
from omnigraph.api.showing_api import ShowingApi
from omnigraph.branches.deltas import Operation
from omnigraph.branches.diffs import DiffPage, DiffStats, NetChange
from omnigraph.cli.main import app_with
from omnigraph.cli.scoped import _RENDERERS
from omnigraph.client.remote_graph import RemoteGraph
from omnigraph.codec import Document
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.snapshot import Snapshot
from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.errors import (
    ChangeCursorRejectedError,
    DirectOnlyError,
    HistoricalVersionReclaimedError,
    UnexpectedAnswerError,
)
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema.catalog import TypeKind
from omnigraph.lang.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    LintCode,
    RenameProperty,
    RenameType,
    Step,
    TightenNullability,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
    step_from_json,
)
from omnigraph.server.routing import _HANDLERS, openapi_document
from support.subtests import each_case

SCHEMA = """
node Paper { doi: String @key  year: I32? }
edge Cites: Paper -> Paper
"""
TYPES = (
    PropertyType(ScalarType(Scalar.I64)),
    PropertyType(EnumType(("a", "b")), nullable=True),
    PropertyType(ListType(Scalar.DATE)),
    PropertyType(VectorType(2)),
)
COLUMNS = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False, metadata={"own": "field"}),
        ("e", pa.utf8()),
        ("d", pa.list_(pa.date32())),
        ("v", pa.list_(pa.float32(), 2)),
    ],
    metadata={"own": "schema"},
)


def batch(first: int, count: int) -> pa.RecordBatch:
    rows = [{"n": first + number, "e": "a" if number % 2 else None, "d": [], "v": [0.5, 1]} for number in range(count)]
    return pa.RecordBatch.from_pylist(rows, schema=COLUMNS)


def result(batches: Iterator[pa.RecordBatch], target: Target | None = None) -> Result:
    return Result(
        COLUMNS,
        batches,
        query_name="all",
        target=target or Target(branch="draft"),
        commit_id="01K0000000000000000000000A",
        types=TYPES,
    )


def test_a_result_is_the_same_behind_the_wire() -> None:
    batches = [batch(0, 3), batch(3, 0), batch(3, 2)]
    sent = result(iter(batches))
    arrived = decode_result(encode_result(sent))
    expected = result(iter(batches))
    assert arrived.schema.equals(expected.schema, check_metadata=True)
    assert [item.num_rows for item in arrived] == [3, 0, 2]
    arrived = decode_result(encode_result(result(iter(batches))))
    assert arrived.to_arrow().equals(expected.to_arrow(), check_metadata=True)
    assert json.dumps(arrived.to_json()) == json.dumps(expected.to_json())
    assert (arrived.types, arrived.target) == (TYPES, Target(branch="draft"))


@each_case(
    "target",
    [
        Target(snapshot="01K0000000000000000000000A"),
        Target(branch="draft", version=7),
        Target(as_of="2026-05-01T12:00:00Z"),
        Target(as_of=datetime(2026, 5, 1, tzinfo=UTC)),
    ],
)
def test_a_target_reads_the_same_behind_the_wire(target: Target) -> None:
    arrived = decode_result(encode_result(result(iter(()), target)))
    assert arrived.target.to_json() == target.to_json()
    assert arrived.row_count == 0


def test_a_result_travels_in_pieces_of_bounded_size_and_in_any_cut() -> None:
    pieces = list(encode_result(result(iter([batch(0, 20_000)]))))
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= PIECE_BYTES
    whole = b"".join(pieces)
    crumbs = (whole[begin : begin + 997] for begin in range(0, len(whole), 997))
    assert decode_result(crumbs).row_count == 20_000


def test_a_failure_behind_the_first_rows_arrives_as_it_was_raised() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(0, 1)
        raise HistoricalVersionReclaimedError("node:Paper", 3)

    sent: list[bytes] = []
    with pytest.raises(HistoricalVersionReclaimedError):
        sent.extend(encode_result(result(failing())))
    arrived = decode_result(iter(sent))
    with pytest.raises(HistoricalVersionReclaimedError, match="version 3 of node:Paper"):
        arrived.to_arrow()


def test_a_stream_that_ends_early_is_no_short_result() -> None:
    whole = b"".join(encode_result(result(iter([batch(0, 2), batch(2, 2)]))))
    closed: list[bool] = []
    for end in range(0, len(whole), 8):
        with pytest.raises(UnexpectedAnswerError, match=r"ended too early"):
            decode_result(iter([whole[:end]]), close=lambda: closed.append(True)).to_arrow()
    assert len(closed) == len(range(0, len(whole), 8)), "every connection was given back once"


def test_an_arrow_stream_of_somebody_else_is_no_result() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, COLUMNS) as writer:
        writer.write_batch(batch(0, 1))
    with pytest.raises(UnexpectedAnswerError, match="no result of a graph"):
        decode_result(iter([sink.getvalue().to_pybytes()]))


def test_a_result_that_nobody_reads_gives_its_connection_back() -> None:
    closed: list[bool] = []
    pieces = encode_result(result(iter([batch(0, 1), batch(1, 1)])))
    arrived = decode_result(pieces, close=lambda: closed.append(True))
    assert not closed
    del arrived
    assert closed == [True]


STEPS: list[Step] = [
    AddType(type_kind=TypeKind.EDGE, type_name="Cites"),
    RenameType(type_kind=TypeKind.NODE, old_name="A", new_name="B"),
    AddProperty(type_kind=TypeKind.NODE, type_name="A", property_name="p", property_type="I32", backfill="1"),
    RenameProperty(type_kind=TypeKind.NODE, type_name="A", old_name="p", new_name="q"),
    AddConstraint(type_kind=TypeKind.NODE, type_name="A", constraint="unique", members=("p", "q"), validate=True),
    TightenNullability(type_kind=TypeKind.NODE, type_name="A", property_name="p", property_type="I32"),
    WidenProperty(type_kind=TypeKind.NODE, type_name="A", property_name="p", old_type="I32", new_type="I64"),
    ExtendEnum(type_kind=TypeKind.NODE, type_name="A", property_name="p", added_values=("x", "y")),
    UpdateTypeMetadata(type_kind=TypeKind.NODE, type_name="A", description=None, instruction="use it"),
    UpdatePropertyMetadata(type_kind=TypeKind.NODE, type_name="A", property_name="p", description=None),
    DropProperty(type_kind=TypeKind.NODE, type_name="A", property_name="p", mode=DropMode.SOFT),
    DropType(type_kind=TypeKind.NODE, type_name="A", mode=DropMode.HARD),
    UnsupportedChange(entity="node:A", reason="no", code=LintCode.DROP_NODE_TYPE),
    UnsupportedChange(entity="node:A", reason="no"),
]


@each_case("step", STEPS, ids=lambda step: step.kind)
def test_a_step_is_the_same_behind_the_wire(step: Step) -> None:
    rebuilt = step_from_json(json.loads(json.dumps(step.to_json())))
    assert rebuilt == step
    assert type(rebuilt) is type(step)
    assert rebuilt.describe() == step.describe()


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as made:
        yield made


def over_the_wire(body: dict[str, object]) -> dict[str, Any]:
    return json.loads(json.dumps(body))


ADD = "query add($d: String, $y: I32?) { insert Paper { doi: $d, year: $y } }"


def test_receipts_are_the_same_behind_the_wire(graph: Graph, tmp_path: Path) -> None:
    mutated = graph.mutate(ADD, {"d": "10.1"}, actor="act-ivo")
    assert MutationResult.from_json(over_the_wire(mutated.document())) == mutated
    lines = tmp_path / "papers.jsonl"
    lines.write_text('{"type": "Paper", "data": {"doi": "10.2"}}\n')
    loaded = graph.load(lines, mode="merge", branch="draft", base="main", engine="local")
    assert LoadResult.from_json(over_the_wire(loaded.document())) == loaded
    preview = graph.merge("draft", dry_run=True)
    assert MergeResult.from_json(over_the_wire(preview.document())) == preview
    merged = graph.merge("draft", delete_branch=True)
    assert MergeResult.from_json(over_the_wire(merged.document())) == merged
    applied = graph.apply_schema(SCHEMA + '@rename_from("Old") node Author { name: String @key }')
    rebuilt = SchemaApplyResult.from_json(over_the_wire(applied.document()))
    assert rebuilt.to_json() == applied.to_json()
    assert rebuilt.commit is not None
    assert applied.commit is not None
    assert rebuilt.commit.commit_id == applied.commit.commit_id
    assert rebuilt.plan.steps == applied.plan.steps
    assert [w.render() for w in rebuilt.plan.warnings] == [w.render() for w in applied.plan.warnings]
    assert rebuilt.plan.warnings, "the hint of the example has no effect, and says so"
    again = graph.apply_schema(graph.schema)
    assert SchemaApplyResult.from_json(over_the_wire(again.document())).applied is False


def test_history_is_the_same_behind_the_wire(graph: Graph) -> None:
    from omnigraph.branches.changes import ChangesPage
    from omnigraph.branches.feed import FeedPage

    graph.mutate(ADD, {"d": "10.1"}, actor="act-ivo")
    graph.create_branch("draft")
    commit = graph.mutate(ADD, {"d": "10.2"}, branch="draft").commit
    assert commit is not None
    assert GraphCommit.from_json(over_the_wire(commit.document())) == commit
    snapshot = graph.snapshot("draft")
    assert Snapshot.from_json(over_the_wire(snapshot.document())) == snapshot
    page = graph.changes(commit.commit_id)
    assert ChangesPage.from_json(over_the_wire(page.to_json())) == page
    for feed in (graph.feed("draft", start="beginning"), graph.feed("draft", start="beginning", limit=1)):
        assert FeedPage.from_json(over_the_wire(feed.to_json())) == feed


def test_a_diff_is_the_same_in_pages_and_behind_the_wire(graph: Graph) -> None:
    graph.create_branch("draft")
    for number in range(3):
        graph.mutate(ADD, {"d": f"10.{number}"}, branch="draft")
    graph.mutate('query c() { insert Cites { from: "10.0", to: "10.1" } }', branch="draft")
    diff = graph.diff("main", "draft")
    everything = DiffFilter()

    def page(token: str | None = None) -> DiffPage:
        told = diff_page(diff, everything, limit=2, page_token=token)
        return DiffPage.from_json(over_the_wire(told.document()))

    pages = [page()]
    while pages[-1].next_page_token is not None:
        pages.append(page(pages[-1].next_page_token))
    assert [len(page.changes) for page in pages] == [2, 2]
    arrived = ReportedDiff.from_pages(pages)
    assert arrived.to_json() == diff.to_json()
    assert list(arrived) == list(diff)
    assert len(arrived) == len(diff) == 4
    assert arrived.to_arrow().equals(diff.to_arrow())
    token = pages[0].next_page_token
    with pytest.raises(ChangeCursorRejectedError, match="another filter"):
        diff_page(diff, DiffFilter(kinds=["node"]), limit=2, page_token=token)
    with pytest.raises(ChangeCursorRejectedError, match="the commits that are compared are others"):
        diff_page(graph.diff("draft", "main"), everything, limit=2, page_token=token)


def test_a_diff_of_nothing_has_one_page(graph: Graph) -> None:
    arrived = ReportedDiff.from_pages([diff_page(graph.diff("main", "main"), DiffFilter(), limit=10)])
    assert arrived.graph_branch == "main"
    assert arrived.stats == DiffStats(inserts=0, updates=0, deletes=0, types_affected=())
    assert list(arrived) == []


def test_a_net_change_is_the_same_behind_the_wire() -> None:
    change = NetChange(
        kind="edge",
        type_name="Cites",
        id="e",
        op=Operation.DELETE,
        published_dataset_version=3,
        endpoints={"from": "a", "to": "b"},
    )
    assert NetChange.from_json(over_the_wire(change.to_json())) == change


# ---- The catalogue: every entry is answered, called and described, and both kinds of graphs have the same methods


METHODS = sorted(name for name in dir(GraphApi) if not name.startswith("_"))


@each_case("entry", OPERATIONS.values(), ids=lambda entry: entry.id)
def test_an_entry_names_what_exists(entry: Any) -> None:
    assert entry.id in _HANDLERS or entry.call is not None
    assert all(issubclass(cls, Document) for cls in entry.result_classes)
    members = set(entry.path_parameters)
    for model in (entry.query_model, entry.body_model):
        fields = {} if model is None else model.model_fields
        members |= {item.alias or name for name, item in fields.items()}
    if entry.call is not None:
        parameters = set(inspect.signature(getattr(GraphApi, entry.call)).parameters) - {"self"}
        assert set(entry.names) <= parameters
        assert {entry.member_of(name) for name in entry.names} <= members
        # Everything that a request may say reaches the method.
        assert members <= {entry.member_of(name) for name in parameters}
    if entry.member is not None:
        assert entry.member in inspect.signature(entry.result_class).parameters
    if entry.command is not None:
        app_with()  # registers every renderer
        assert (_RENDERERS[entry.id].__doc__ or "").endswith(".")


VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@each_case("name", METHODS)
def test_both_kinds_of_graphs_have_every_method(name: str) -> None:
    declared = getattr(GraphApi, name)
    for kind in (Graph, RemoteGraph):
        found = getattr(kind, name)
        # What is done with the methods of a graph is the same for both kinds.
        assert (found is not declared) or name in vars(ShowingApi), (kind, name)
        assert inspect.getdoc(found) == inspect.getdoc(declared), (kind, name)
        if inspect.isfunction(declared):
            wanted = inspect.signature(declared).parameters
            # A method shows the declared signature, whatever the function behind it takes: look at that one.
            behind = inspect.getclosurevars(found).nonlocals.get("function", found)
            given = list(inspect.signature(behind, follow_wrapped=False).parameters.values())
            named = {item.name: item.default for item in given[1:] if item.kind not in VARIABLE}
            assert named == {key: wanted[key].default for key in named}, (kind, name)
            # What is behind `**` is checked by mypy, or bound to the declared signature.
            is_open = any(item.kind in VARIABLE for item in given)
            assert is_open or list(named) == list(wanted)[1:], (kind, name)


def test_what_a_server_does_not_offer_is_told_apart() -> None:
    for name in DIRECT_ONLY:
        assert getattr(Graph, name) is not getattr(GraphApi, name)
        with pytest.raises(DirectOnlyError):
            getattr(RemoteGraph, name)()


def test_the_document_describes_every_key() -> None:
    """Every object of an answer or of a failure is closed, or maps names of the user to one kind of value."""
    schemas = openapi_document(is_open=False)["components"]["schemas"]
    for name, schema in schemas.items():
        assert schema.get("additionalProperties") is False, name
        assert schema["properties"], name
