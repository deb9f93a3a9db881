"""Every value of the table, in every way into a graph and out of it: the same is stored, and the same is refused."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.core.parameters import json_params
from omnigraph.core.types import PropertyType
from omnigraph.core.values import coerce_json, to_f32
from omnigraph.errors import BadRequestError, CompilerError, LoadRejectedError, ParameterError
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.signature import bind_params
from omnigraph.lang.schema.backfill import Constant, read_backfill
from omnigraph.lang.schema.compiler import compile_schema
from support.graphs import refused
from support.subtests import each_case
from support.values import (
    ACCEPTED,
    COLUMNS,
    NOT_FINITE,
    OBJECTS,
    REFUSALS,
    REFUSED_OBJECTS,
    SCHEMA,
    Value,
    label,
    literal,
)

CATALOG = compile_schema(SCHEMA).catalog
THING = CATALOG.nodes["Thing"]

every_value = each_case("value", ACCEPTED, ids=str)
every_refusal = each_case(("type_", "given"), REFUSALS + NOT_FINITE, ids=[label(it) for it in REFUSALS + NOT_FINITE])
every_json_refusal = each_case(("type_", "given"), REFUSALS, ids=[label(it) for it in REFUSALS])


def type_of(type_: str) -> PropertyType:
    return THING.properties[COLUMNS[type_]].type


def declared(type_: str) -> str:
    """The type of a parameter: an enum has none of its own."""
    return "String" if type_.startswith("enum") else type_


def reading(type_: str) -> Any:
    text = f"query q($x: {declared(type_)}) {{ match {{ $t: Thing }} return {{ $t }} }}"
    return compile_query(text, CATALOG).ir


def assigned(type_: str, text: str) -> Any:
    """The value that an update assigns to the property of a type."""
    query = f'query q() {{ update Thing set {{ {COLUMNS[type_]}: {text} }} where name = "x" }}'
    return compile_query(query, CATALOG).ir.statements[0].assignments[0].value.value


def plain(value: Any) -> Any:
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def rounded(type_: str, value: Any) -> Any:
    """A JSON number as its type stores it: floats of 32 bits are shown with as many digits as they need."""
    if isinstance(value, list):
        return [rounded(type_, item) for item in value]
    is_narrow = type_ in ("F32", "Vector(3)") and value is not None
    return to_f32(value) if is_narrow else value


def insert(graph: Graph, type_: str, given: Any, name: str = "x") -> None:
    text = f"insert Thing {{ name: $name, {COLUMNS[type_]}: $v }}"
    query = f"query q($name: String, $v: {declared(type_)}) {{ {text} }}"
    graph.mutate(query, {"name": name, "v": given})


def exported(graph: Graph) -> dict[str, dict[str, Any]]:
    out = io.StringIO()
    graph.export(out)
    lines = [json.loads(line) for line in out.getvalue().split("\n")[:-1]]
    return {line["data"]["name"]: line["data"] for line in lines}


def check_stored(graph: Graph) -> None:
    rows = exported(graph)
    assert rows.keys() == {f"v{number}" for number in range(len(ACCEPTED))}
    for number, value in enumerate(ACCEPTED):
        shown = rounded(value.type, rows[f"v{number}"][value.column])
        assert shown == value.stored, value
        assert isinstance(shown, bool) is isinstance(value.stored, bool), value


def lines(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps({"type": "Thing", "data": record}) + "\n" for record in records))
    return path


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """The whole table in one load."""
    folder = tmp_path_factory.mktemp("loaded")
    graph = Graph.init(folder / "g.omni", SCHEMA)
    records = [{"name": f"v{number}", value.column: value.given} for number, value in enumerate(ACCEPTED)]
    graph.load(lines(folder, *records), mode="append", engine="local")
    return graph


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(tmp_path_factory.mktemp("kept") / "g.omni", SCHEMA)
    graph.mutate('query q() { insert Thing { name: "kept" } }')
    return graph


# ---- what fits


@every_value
def test_a_json_value_has_its_stored_form(value: Value) -> None:
    if value.type == "Blob":
        return
    for nullable in (False, True):
        found = plain(coerce_json(PropertyType(type_of(value.type).base, nullable), value.given))
        assert (found, type(found)) == (value.stored, type(value.stored))


@every_value
def test_a_parameter_has_its_stored_form(value: Value) -> None:
    found = plain(bind_params(reading(value.type), {"x": value.given})["x"])
    assert (found, type(found)) == (value.stored, type(value.stored))


@each_case(("type_", "given", "meant"), OBJECTS, ids=[f"{type_} {given!r:.60}" for type_, given, _ in OBJECTS])
def test_a_python_object_is_the_json_value_that_it_means(type_: str, given: Any, meant: Any) -> None:
    query = reading(f"{declared(type_)}?")
    wanted = bind_params(query, {"x": meant})["x"]
    # Also when a request carried it.
    for params in ({"x": given}, json.loads(json.dumps(json_params({"x": given}), allow_nan=False))):
        found = bind_params(query, params)["x"]
        assert (found, type(found)) == (wanted, type(wanted))


@every_value
def test_a_literal_has_its_stored_form(value: Value) -> None:
    text = literal(value.type, value.given)
    if text is not None:
        found = plain(assigned(value.type, text))
        assert (found, type(found)) == (value.stored, type(value.stored))


@every_value
def test_a_constant_of_a_backfill_has_its_stored_form(value: Value) -> None:
    expression = read_backfill(f"Thing.{value.column}", json.dumps(value.given), type_of(value.type), THING).expression
    assert isinstance(expression, Constant)
    wanted = value.stored
    if value.type == "Blob":
        wanted = base64.b64decode(wanted.removeprefix("base64:"))
    assert plain(expression.value) == wanted


def test_every_value_is_loaded_and_exported(loaded: Graph) -> None:
    check_stored(loaded)


def test_every_value_is_written_by_a_mutation_and_exported(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        for number, value in enumerate(ACCEPTED):
            insert(graph, value.type, value.given, f"v{number}")
        check_stored(graph)


def test_every_exported_value_is_loaded_again(loaded: Graph, tmp_path: Path) -> None:
    with (tmp_path / "out.jsonl").open("w", encoding="utf-8") as out:
        loaded.export(out)
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.load(tmp_path / "out.jsonl", mode="append", engine="local")
        check_stored(graph)


# ---- what does not fit


@every_refusal
def test_a_json_value_that_does_not_fit_has_no_stored_form(type_: str, given: Any) -> None:
    if type_ != "Blob":
        with pytest.raises(ValueError):
            coerce_json(type_of(type_), given)


@every_refusal
def test_a_parameter_that_does_not_fit_is_named(type_: str, given: Any) -> None:
    if type_.startswith("enum"):
        return
    if type_ == "Blob" and isinstance(given, str):
        return  # read when it is written
    with pytest.raises(ParameterError) as failure:
        bind_params(reading(type_), {"x": given})
    assert list(failure.value.problems) == ["x"]


@each_case(
    ("type_", "given", "message"),
    REFUSED_OBJECTS,
    ids=[f"{type_} {given!r:.60}" for type_, given, _ in REFUSED_OBJECTS],
)
def test_a_python_object_that_does_not_fit_is_named_with_its_type(type_: str, given: Any, message: str) -> None:
    for params in ({"x": given}, json.loads(json.dumps(json_params({"x": given}), allow_nan=False))):
        with pytest.raises(ParameterError) as failure:
            bind_params(reading(type_), params)
        assert message in failure.value.problems["x"]


@every_refusal
def test_a_literal_that_does_not_fit_is_refused(type_: str, given: Any) -> None:
    text = literal(type_, given)
    if text is None or (type_ == "Blob" and isinstance(given, str)):
        return  # there is no such literal, or it is read when it is written
    with pytest.raises(CompilerError) as failure:
        assigned(type_, text)
    # Wrong as such: half a character, a nested list or one of several types, a number or a moment out of range.
    assert failure.value.codes in {("T3",), ("Q000",), ("Q108",), ("Q109",)}


@every_refusal
def test_a_mutation_refuses_a_value_that_does_not_fit(kept: Graph, type_: str, given: Any) -> None:
    """Also an update, and also one that matches no row."""
    name = COLUMNS[type_]
    for statement in (
        f'insert Thing {{ name: "x", {name}: $v }}',
        f'update Thing set {{ {name}: $v }} where name = "kept"',
        f'update Thing set {{ {name}: $v }} where name = "nowhere"',
    ):
        with refused(kept, BadRequestError):
            kept.mutate(f"query q($v: {declared(type_)}) {{ {statement} }}", {"v": given})


@every_json_refusal
def test_a_constant_of_a_backfill_that_does_not_fit_is_refused(type_: str, given: Any) -> None:
    with pytest.raises(BadRequestError):
        read_backfill(f"Thing.{COLUMNS[type_]}", json.dumps(given), type_of(type_), THING)


def test_a_load_names_every_value_that_does_not_fit(kept: Graph, tmp_path: Path) -> None:
    # Exports write days and instants as numbers, so files may hold them.
    wrong = [it for it in REFUSALS if not (it[0] in ("Date", "DateTime") and type(it[1]) is int)]
    records = [{"name": f"r{n}", COLUMNS[type_]: given} for n, (type_, given) in enumerate(wrong)]
    with refused(kept, LoadRejectedError) as caught:
        kept.load(lines(tmp_path, *records), mode="append", engine="local")
    named = {(item.line, item.field) for item in caught.value.report.examples}
    assert named == {(n + 1, COLUMNS[type_]) for n, (type_, _) in enumerate(wrong)}
