"""Laws of compiled queries: lowering, explain, descriptors, parameters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.source import SourceText
from omnigraph.core.types import Scalar
from omnigraph.errors import ParameterError
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.compiler import compile_file, compile_query
from omnigraph.lang.query.explain import explain_ir
from omnigraph.lang.query.lint import lint_queries
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.signature import TypeRef, bind_params
from omnigraph.lang.schema.compiler import compile_schema, compile_schema_file
from support.strategies import attempt, json_values, typed_queries

GOLDEN = Path(__file__).parents[1] / "unit" / "lang" / "golden"
SCHEMA = GOLDEN / "reading.pg"
READING = compile_schema_file(SCHEMA).catalog


def _operand_variables(operand: object) -> set[str]:
    match operand:
        case ir.PropertyRef(variable) | ir.EntityRef(variable):
            return {variable}
        case ir.Aggregate(_, argument):
            return _operand_variables(argument)
        case ir.Nearest(field) | ir.Bm25(field):
            return {field.variable}
        case ir.Rrf(first, second):
            return _operand_variables(first) | _operand_variables(second)
    return set()


def _predicate_variables(predicate: ir.Predicate) -> set[str]:
    match predicate:
        case ir.Comparison(left, _, right):
            return _operand_variables(left) | _operand_variables(right)
        case ir.TextMatch(_, field):
            return {field.variable}


def _check_pipeline(pipeline: tuple[ir.Op, ...], bound: set[str]) -> set[str]:
    """Walk a pipeline as an engine would; every variable has to be there when it is used, and come once."""
    for op in pipeline:
        match op:
            case ir.NodeScan(variable, _, filters):
                assert variable not in bound
                bound = bound | {variable}
                for predicate in filters:
                    assert _predicate_variables(predicate) == {variable}
            case ir.Expand():
                assert op.source in bound
                assert op.target not in bound
                bound = bound | {op.target}
                for predicate in op.filters:
                    assert _predicate_variables(predicate) == {op.target}
                if op.edge_variable is not None:
                    assert op.edge_variable not in bound
                    assert (op.low, op.high) == (1, 1)
                    bound = bound | {op.edge_variable}
                for predicate in op.edge_filters:
                    assert _predicate_variables(predicate) == {op.edge_variable}
            case ir.Filter(predicate):
                assert _predicate_variables(predicate) <= bound
            case ir.AntiJoin(outer, inner):
                assert outer
                assert set(outer) <= bound
                _check_pipeline(inner, set(outer))
    return bound


def _touched(pipeline: tuple[ir.Op, ...]) -> set[TypeRef]:
    found: set[TypeRef] = set()
    for op in pipeline:
        match op:
            case ir.NodeScan(_, node_type):
                found.add(TypeRef("node", node_type))
            case ir.Expand():
                edge = READING.edges[op.edge_type]
                found |= {
                    TypeRef("edge", edge.name),
                    TypeRef("node", edge.source),
                    TypeRef("node", edge.target),
                    TypeRef("node", op.target_type),
                }
            case ir.AntiJoin(_, inner):
                found |= _touched(inner)
    return found


def _count_predicates(pipeline: tuple[ir.Op, ...]) -> int:
    total = 0
    for op in pipeline:
        match op:
            case ir.NodeScan(_, _, filters):
                total += len(filters)
            case ir.Expand():
                total += len(op.filters) + len(op.edge_filters)
            case ir.Filter(ir.Comparison(ir.EntityRef(), _, ir.EntityRef())):
                pass
            case ir.Filter():
                total += 1
            case ir.AntiJoin(_, inner):
                total += _count_predicates(inner)
    return total


@settings(max_examples=80)
@given(typed_queries())
def test_every_variable_is_introduced_once_and_before_its_use(text) -> None:
    query = compile_query(text, READING).ir
    bound = _check_pipeline(query.pipeline, set())
    for column in query.projections:
        assert _operand_variables(column.expression) <= bound
    for key in query.order:
        assert _operand_variables(key.expression) <= bound
    assert _operand_variables(query.rank) <= bound


def _count_conditions(clauses: tuple[ast.Clause, ...]) -> int:
    total = 0
    for clause in clauses:
        match clause:
            case ast.Filter() | ast.Condition():
                total += 1
            case ast.Binding(_, _, matches):
                total += len(matches)
            case ast.Negation(inner):
                total += _count_conditions(inner)
    return total


@settings(max_examples=80)
@given(typed_queries())
def test_no_condition_gets_lost_on_the_way_into_the_pipeline(text) -> None:
    body = parse_queries(SourceText(text)).queries[0].body
    pipeline = compile_query(text, READING).ir.pipeline
    assert _count_predicates(pipeline) == _count_conditions(body.clauses)


@settings(max_examples=60)
@given(typed_queries())
def test_the_descriptor_of_a_read_names_exactly_what_the_pipeline_touches(text) -> None:
    compiled = compile_query(text, READING)
    assert set(compiled.operation.reads) == _touched(compiled.ir.pipeline)
    assert list(compiled.operation.reads) == sorted(set(compiled.operation.reads))
    assert compiled.operation.writes == ()
    names = [field.name for field in compiled.operation.result]
    assert names == [column.name for column in compiled.ir.projections]


@settings(max_examples=40)
@given(typed_queries())
def test_compiling_and_explaining_again_gives_the_same(text) -> None:
    first, again = (compile_query(text, READING) for _ in range(2))
    assert first == again
    assert explain_ir(first.ir) == explain_ir(again.ir)
    report = lint_queries(SourceText(text), READING, "reading.pg")
    assert report.results[0].operation == first.operation


_SCRIPT = """
import sys
from pathlib import Path
from omnigraph.lang.query.compiler import compile_file
from omnigraph.lang.query.explain import explain_ir
from omnigraph.lang.schema.compiler import compile_schema_file
catalog = compile_schema_file(sys.argv[1]).catalog
for path in sys.argv[2:]:
    text = Path(path).read_text(encoding="utf-8")
    for query in compile_file(text, catalog):
        print(explain_ir(query.ir), query.operation)
"""

_QUERIES = """
query web($s: String) {
  match {
    $a: Paper  $b: Paper  $c: Author  $d: Venue { series: $s }
    $a cites $b  $b <cites> $a  $c $w:wrote $a  $c wrote $b  $x cites{1,3} $y
    $a.year < $b.year  $w.position = 1  $a.title starts_with $s
    not { $a appearsAt $d  $e wrote $a  $e.full_name = $c.full_name  not { $e wrote $b  $b appearsAt $d } }
    not { $x cites $a }
  }
  return { $a $b $c $d $w.position as place, count($x) as n }
  order { n desc, place }
}
query gone($s: String) { delete Paper where doi = $s  delete Author where orcid = $s }
"""


def _explain_in_process(paths: list[Path], seed: str) -> str:
    command = [sys.executable, "-c", _SCRIPT, str(SCHEMA), *map(str, paths)]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout


def test_plans_are_the_same_in_every_process(tmp_path) -> None:
    own = tmp_path / "own.gq"
    own.write_text(_QUERIES, encoding="utf-8")
    paths = [own, *sorted((GOLDEN / "plans").glob("*.gq"))]
    first = _explain_in_process(paths, "1")
    assert "AntiJoin" in first
    assert {_explain_in_process(paths, seed) for seed in ("2", "77")} == {first}


# ---- parameters

_ALL_TYPES = compile_file(
    "query q("
    + ", ".join(
        [
            *(f"$p{i}: {scalar.value}" for i, scalar in enumerate(Scalar)),
            *(f"$n{i}: {scalar.value}?" for i, scalar in enumerate(Scalar)),
            *(f"$l{i}: [{s.value}]" for i, s in enumerate(Scalar) if s is not Scalar.BLOB),
            "$v: Vector(2)",
            "$w: Vector(3)?",
        ]
    )
    + ") { match { $p: Paper } return { $p } }",
    READING,
)[0].ir
_NAMES = [parameter.name for parameter in _ALL_TYPES.params]


@settings(max_examples=250)
@given(
    st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=3), json_values, max_size=6),
    st.booleans(),
)
def test_any_json_as_parameters_gives_values_or_a_parameter_error(given_values, javascript) -> None:
    bound, failure = attempt(
        ParameterError, bind_params, _ALL_TYPES, given_values, javascript=javascript
    )
    if failure is not None:
        assert failure.problems
        assert set(failure.problems) <= set(given_values) | set(_NAMES)
        assert all(text.strip() for text in failure.problems.values())
    else:
        assert list(bound) == _NAMES


@settings(max_examples=250)
@given(st.sampled_from(_NAMES), json_values, st.booleans())
def test_any_json_for_one_parameter_fits_its_type_or_is_named_as_the_problem(
    name, value, javascript
) -> None:
    type_ = next(parameter.type for parameter in _ALL_TYPES.params if parameter.name == name)
    query = ir.ReadIR(
        name="q",
        params=(ir.Parameter(name=name, type=type_),),
        pipeline=(),
        projections=(),
        grouped=False,
        rank=None,
        order=(),
        limit=None,
    )
    bound, failure = attempt(
        ParameterError, bind_params, query, {name: value}, javascript=javascript
    )
    if failure is not None:
        assert set(failure.problems) == {name}
        assert name in failure.message
    else:
        assert set(bound) == {name}
        assert bound[name] is not None or type_.nullable


def test_a_number_with_thousands_of_digits_is_a_problem_in_plain_words() -> None:
    query = compile_file(
        "query q($x: I64, $f: F64) { match { $p: Paper { year: $x, score: $f } } return { $p } }",
        READING,
    )[0]
    with pytest.raises(ParameterError) as failure:
        bind_params(query.ir, {"x": 10**5000, "f": 10**5000})
    assert set(failure.value.problems) == {"x", "f"}
    assert "set_int_max_str_digits" not in failure.value.message


def test_a_deeply_nested_value_is_a_parameter_error() -> None:
    query = compile_file(
        "query q($x: I64) { match { $p: Paper { year: $x } } return { $p } }", READING
    )[0]
    value: list[object] = []
    for _ in range(20_000):
        value = [value]
    with pytest.raises(ParameterError):
        bind_params(query.ir, {"x": value})


def test_a_lone_surrogate_is_no_string_parameter() -> None:
    query = compile_file(
        "query q($x: String) { match { $p: Paper { doi: $x } } return { $p } }", READING
    )[0]
    with pytest.raises(ParameterError):
        bind_params(query.ir, {"x": "\ud800"})


@settings(max_examples=40)
@given(
    st.permutations(
        ["$p: Paper", "$p cites $q", "$q appearsAt $v", "$q.year > 3", 'not { $v.city = "x" }']
    )
)
def test_the_order_of_clauses_never_changes_what_is_bound_and_read(clauses) -> None:
    text = f"query q() {{ match {{ {' '.join(clauses)} }} return {{ $p $q $v }} }}"
    compiled = compile_query(text, READING)
    assert _check_pipeline(compiled.ir.pipeline, set()) == {"p", "q", "v"}
    reads = {(ref.kind, ref.type_name) for ref in compiled.operation.reads}
    assert reads == {("node", "Paper"), ("node", "Venue"), ("edge", "Cites"), ("edge", "AppearsAt")}


@settings(max_examples=40)
@given(st.sampled_from(["Cites", "CITES", "CItEs"]), st.sampled_from(["cites", "cITES", "citeS"]))
def test_an_edge_is_found_whatever_its_case(declared, written) -> None:
    catalog = compile_schema(f"node P {{}} edge {declared}: P -> P").catalog
    compiled = compile_query(
        f"query q() {{ match {{ $a {written} $b }} return {{ $a $b }} }}", catalog
    )
    assert TypeRef("edge", declared) in compiled.operation.reads
