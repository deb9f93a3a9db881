"""Small graphs for the tests of mutations, and a way to look at rows that does not go through the code under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.transaction import Transaction
from omnigraph.core.budget import CancelSignal
from omnigraph.core.ids import TableKey
from omnigraph.errors import BadRecord, LoadRejectedError, OmniError, QueryCancelledError
from omnigraph.graph import mutations as facade
from omnigraph.graph.graph import Graph
from omnigraph.policy.policy import Policy
from omnigraph.storage.datasets.tables import Table
from support.loads import files_of

#: One column of every scalar type, all of them nullable.
SCALARS = """
node Thing {
    name: String @key
    text: String?
    flag: Bool?
    i32: I32?
    i64: I64?
    u32: U32?
    u64: U64?
    f32: F32?
    f64: F64?
    day: Date?
    at: DateTime?
    stage: enum(draft, final)?
    camelCase: I32?
    order: I32?
    tags: [String]?
    counts: [I64]?
    days: [Date]?
    vec: Vector(3)?
    data: Blob?
    more: Blob?
}
"""

UTC_MS = pa.timestamp("ms", tz="UTC")
#: Its properties that a read can show, with their types in Arrow.
SCALAR_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("name", "text", "stage"), pa.string()),
    **{"flag": pa.bool_(), "i32": pa.int32(), "i64": pa.int64(), "u32": pa.uint32(), "u64": pa.uint64()},
    **{"f32": pa.float32(), "f64": pa.float64(), "day": pa.date32(), "at": UTC_MS},
    **{"tags": pa.list_(pa.string()), "counts": pa.list_(pa.int64()), "days": pa.list_(pa.date32())},
    "vec": pa.list_(pa.float32(), 3),
}

#: People, companies and three kinds of edges: two directions, and loops.
PEOPLE = """
node Person {
    name: String @key
    age: I32?
    city: String?
}
node Company {
    name: String @key
    size: I32?
}
node Note {
    text: String
    rank: I32?
}
edge Knows: Person -> Person {
    since: I32?
    kind: String?
}
edge WorksAt: Person -> Company {
    role: String?
}
edge Owns: Company -> Person
edge About: Note -> Note
"""


def new_graph(folder: Path, schema: str, name: str = "g.omni") -> Graph:
    return Graph.init(folder / name, schema)


def run(graph: Graph, statements: str, branch: str = "main", **params: object) -> Any:
    """Run statements; parameters are declared with the natural types of their values."""
    types = {bool: "Bool", int: "I64", float: "F64", str: "String"}
    declared = ", ".join(f"${name}: {types[type(value)]}" for name, value in params.items())
    return graph.mutate(f"query q({declared}) {{ {statements} }}", params, branch=branch)


def fork(graph: Graph, branch: str, key: str) -> Table:
    """A table where a branch writes, as its first write to the type makes it."""
    transaction = Transaction(graph._core.environment, branch, kind=WriterKind.MUTATION)
    return transaction.open_for_writing(transaction.snapshot.pins[TableKey(key)])


def run_typed(graph: Graph, declared: str, statements: str, **params: object) -> Any:
    """Run statements with parameters of exactly these types."""
    return graph.mutate(f"query q({declared}) {{ {statements} }}", params)


def table_of(root: str, snapshot: Snapshot, key: str, columns: list[str] | None = None) -> pa.Table:
    """The rows of a pin, straight from Lance."""
    pin = snapshot.pins[key]
    uri = f"{root}/{pin.location}"
    if pin.branch is not None:
        uri = f"{uri}/tree/{pin.branch}"
    dataset = lance.dataset(uri, version=pin.version)
    table = dataset.to_table(columns=columns, blob_handling="all_binary")
    assert table.num_rows == pin.row_count, "the pin counts the rows of its version"
    # PyArrow reads the milliseconds of a date64 as a bare day.
    moments = [item.name for item in table.schema if item.type == pa.date64()]
    for name in moments:
        exact = table[name].cast(pa.int64()).cast(pa.timestamp("ms"))
        table = table.set_column(table.column_names.index(name), name, exact)
    return table


def rows_of(graph: Graph, key: str, branch: str = "main", **options: Any) -> list[dict[str, Any]]:
    rows = table_of(graph.uri, graph.snapshot(branch), key, **options).to_pylist()
    return sorted(rows, key=lambda row: str(row.get("id", row)))


def ids_of(graph: Graph, key: str, branch: str = "main") -> set[str]:
    found = [row["id"] for row in rows_of(graph, key, branch, columns=["id"])]
    assert len(found) == len(set(found)), "ids are distinct"
    return set(found)


def ends_of(graph: Graph, key: str, branch: str = "main") -> list[tuple[str, str]]:
    rows = rows_of(graph, key, branch, columns=["id", "src", "dst"])
    return sorted((row["src"], row["dst"]) for row in rows)


def everything(graph: Graph, branch: str = "main") -> dict[str, list[dict[str, Any]]]:
    """All rows of all types."""
    return {key: rows_of(graph, key, branch) for key in graph.snapshot(branch).pins}


@contextmanager
def refused(
    graph: Graph, error: type[OmniError], *fragments: str, branch: str = "main"
) -> Iterator[pytest.ExceptionInfo[OmniError]]:
    """The block is refused; nothing was written, and no trace of the attempt is left."""
    rows, head = everything(graph, branch), graph.snapshot(branch)
    history = graph.commits(branch)
    with pytest.raises(error) as caught:
        yield caught
    for fragment in fragments:
        assert fragment in caught.value.message
    assert everything(graph, branch) == rows
    assert graph.snapshot(branch) == head
    assert graph.commits(branch) == history
    assert graph.pending_recoveries() == []


def rejected(graph: Graph, act: Callable[[], object]) -> list[BadRecord]:
    """The examples of a load that is refused and leaves no trace."""
    with refused(graph, LoadRejectedError) as caught:
        act()
    report = caught.value.report  # type: ignore[attr-defined]  # the error says which it is
    assert report.total == len(report.examples)
    return list(report.examples)


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> Iterator[list[int]]:
    """Between preparing and staging the first mutation in the block, `act` happens once.

    The list that is given counts how often mutations were prepared, those of `act` not included.
    """
    prepare = facade.prepare_mutation
    prepared: list[int] = []
    inside = False

    def prepare_and_act(*given: Any, **named: Any) -> Any:
        nonlocal inside
        result = prepare(*given, **named)
        if inside:
            return result
        prepared.append(1)
        if len(prepared) == 1:
            inside = True
            try:
                act()
            finally:
                inside = False
        return result

    with monkeypatch.context() as patch:
        patch.setattr(facade, "prepare_mutation", prepare_and_act)
        yield prepared


# ---- Signals that stop work at a certain point, and a way to stop it at each of them


#: More looks than work on a few rows has.
_MANY = 500
#: Vectors that were paid for stay for the next run.
_KEPT = "__derived"


class AtLook:
    """A signal that is set from the n-th look at it on."""

    def __init__(self, number: int) -> None:
        self._left = number

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def stored(root: str) -> dict[str, str]:
    """Every file of a graph that stopped work must not have touched."""
    files = files_of(Path(root))
    return {name: digest for name, digest in files.items() if not name.startswith(_KEPT)}


def stopped_everywhere(root: str, work: Callable[[CancelSignal], object]) -> int:
    """Stop some work at each of its looks, until none is left to stop it at; how many there are."""
    before = stored(root)
    for number in count():
        assert number < _MANY, "work that never ends"
        try:
            work(AtLook(number))
        except QueryCancelledError:
            assert stored(root) == before
        else:
            return number
    raise AssertionError("there is an end")


# ---- Policies that several tests use


#: The example of the specification.
PAPERS = """\
version: 1
groups: { curators: [act-nadia, act-ivo], readers: [act-bot] }
protected_branches: [main]
rules:
  - id: everyone-reads
    allow: { actors: { group: readers }, actions: [read, export], branch_scope: any }
  - id: curators-edit-drafts
    allow: { actors: { group: curators }, actions: [change], branch_scope: unprotected }
  - id: curators-publish
    allow: { actors: { group: curators }, actions: [branch_merge], target_branch_scope: protected }
"""


def papers() -> Policy:
    return Policy.from_text(PAPERS, "papers.yaml")
