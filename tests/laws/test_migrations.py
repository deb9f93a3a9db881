"""Random schemas with rows, changed in random ways: what goes on keeps every value, and the past stays as it was."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from omnigraph.core.types import EnumType, ListType, Scalar, ScalarType, VectorType
from omnigraph.errors import LoadKeyConflictError, LoadRejectedError, SchemaViolationsError
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema import ast as pg
from omnigraph.lang.schema.ast import print_schema
from omnigraph.lang.schema.catalog import Catalog, TypeKind
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.plan import MigrationPlan
from omnigraph.lang.schema.steps import TightenNullability
from support.examples import examples
from support.graphs import everything, rows_of
from support.strategies import supported_migrations, valid_schemas

Rows = dict[str, list[dict[str, Any]]]


# ---- rows


def _scalar(scalar: Scalar, number: int) -> object:
    """A value that differs from row to row and keeps the bounds and patterns of the schemas here."""
    match scalar:
        case Scalar.STRING:
            return f"a.{number}é"
        case Scalar.BOOL:
            return number % 2 == 0
        case Scalar.F32 | Scalar.F64:
            return number + 0.1
        case Scalar.DATE:
            return f"2020-01-0{number + 1}"
        case Scalar.DATETIME:
            return f"2020-01-01T00:00:0{number}.5Z"
        case Scalar.BLOB:
            return f"base64:{'YWJj' * number}"
        case _:
            return number + 1


def _value(base: object, number: int) -> object:
    match base:
        case ScalarType(scalar):
            return _scalar(scalar, number)
        case EnumType(values):
            return values[number % len(values)]
        case ListType(item):
            return [_scalar(item, number), _scalar(item, 0)][: number + 1]
        case VectorType(dimension):
            return [number + 0.5] * dimension
    raise TypeError(base)


def _data(properties: Any, number: int, is_null: Callable[[], bool]) -> dict[str, object]:
    return {
        name: None if definition.type.nullable and is_null() else _value(definition.type.base, number)
        for name, definition in properties.items()
    }


def _load(graph: Graph, lines: list[dict[str, object]]) -> None:
    """Load lines, or as many from their beginning as keep the rules of the schema."""
    path = Path(graph.uri).parent / "lines.jsonl"
    for count in (len(lines), 1):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines[:count]), "utf-8")
        try:
            graph.load(path, mode="append", engine="local")
        except (LoadRejectedError, LoadKeyConflictError):
            continue
        return


def _fill(graph: Graph, catalog: Catalog, is_null: Callable[[], bool]) -> None:
    """Up to two rows of each type, the second one in a fragment of its own."""
    for number in range(2):
        nodes: list[dict[str, object]] = [
            {"type": node.name, "data": _data(node.properties, number, is_null)} for node in catalog.nodes.values()
        ]
        _load(graph, nodes)
    edges: list[dict[str, object]] = []
    for edge in catalog.edges.values():
        ends = [rows_of(graph, f"node:{end}") for end in (edge.source, edge.target)]
        for number in range(max(1, edge.cardinality.low)):
            if all(len(rows) > number for rows in (ends[1], ends[0][:1] * 2)):
                source, target = ends[0][0]["id"], ends[1][number]["id"]
                data = _data(edge.properties, number, is_null)
                edges.append({"edge": edge.name, "from": source, "to": target, "data": data})
    _load(graph, edges)


# ---- what a change makes of them


def _moved(rows: Rows, plan: MigrationPlan, wanted: Catalog) -> Rows:
    """The rows as the new schema should show them."""
    result: Rows = {}
    for kind, definitions in ((TypeKind.NODE, wanted.nodes.values()), (TypeKind.EDGE, wanted.edges.values())):
        for definition in definitions:
            origin = plan.resolution.type_origins.get((kind, definition.name))
            names = plan.resolution.property_origins.get((kind, definition.name), {})
            result[definition.table_key] = [
                {
                    **{name: row[name] for name in ("id", "src", "dst") if name in row},
                    **{name: row.get(names.get(name, "")) for name in definition.properties},
                }
                for row in rows[f"{kind}:{origin}"]
            ] if origin is not None else []  # fmt: skip
    return result


def _ordered(rows: Rows) -> Rows:
    return {
        key: sorted((dict(sorted(row.items())) for row in some), key=lambda row: str(row.get("id")))
        for key, some in rows.items()
    }


def _violates(rows: Rows, plan: MigrationPlan, wanted: Catalog) -> bool:
    """Whether rows stand against what the plan asks of them; the changes here ask for values and for edges."""
    for step in plan.steps:
        if isinstance(step, TightenNullability) and step.type_kind is not TypeKind.INTERFACE:
            key = f"{step.type_kind}:{step.type_name}"
            if any(row[step.property_name] is None for row in _moved(rows, plan, wanted)[key]):
                return True
        if getattr(step, "constraint", None) == "card":
            edge = wanted.edges[step.type_name]  # type: ignore[union-attr]  # a step with a constraint has a type
            counts = Counter(row["src"] for row in _moved(rows, plan, wanted)[edge.table_key])
            if any(count < edge.cardinality.low for count in counts.values()):
                return True
    return False


def _export(graph: Graph, snapshot: str) -> str:
    out = io.StringIO()
    graph.export(out, snapshot=snapshot, engine="local")
    return out.getvalue()


# Without shrinking: an example that fails is small already, and each one takes a second.
@settings(examples(8, thorough=12), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data(), valid_schemas())
def test_what_goes_on_keeps_every_value(data: st.DataObject, tree: pg.Schema) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        graph = Graph.init(folder / "g", print_schema(tree))
        has_nulls = data.draw(st.booleans())
        catalog = compile_schema(print_schema(tree)).catalog
        _fill(graph, catalog, lambda: has_nulls and data.draw(st.booleans()))
        for _ in range(2):
            change = data.draw(supported_migrations(tree))
            if _migrate(graph, print_schema(change.schema)):
                tree = change.schema
    finally:
        shutil.rmtree(folder)


def _migrate(graph: Graph, text: str) -> bool:
    """Apply a schema and hold the outcome against the model; whether it was accepted."""
    before, old = everything(graph), graph.commits()[0].commit_id
    exported, schema = _export(graph, old), graph.schema
    wanted = compile_schema(text).catalog
    plan = graph.plan_schema(text)
    assert plan.supported
    if _violates(before, plan, wanted):
        with pytest.raises(SchemaViolationsError):
            graph.apply_schema(text, engine="local")
        assert (everything(graph), graph.schema) == (before, schema)
        return False
    assert graph.apply_schema(text, engine="local").plan.to_json() == plan.to_json()
    reopened = Graph.open(graph.uri)
    assert _ordered(everything(reopened)) == _ordered(_moved(before, plan, wanted))
    assert _export(reopened, old) == exported
    return True
