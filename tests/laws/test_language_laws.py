"""Laws of compiled queries: lowering, explain, descriptors, parameters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.ids import derive_id, edge_table_key, node_table_key
from omnigraph.core.source import SourceText
from omnigraph.core.types import Scalar
from omnigraph.errors import BadRequestError, CompilerError, ParameterError
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_file, compile_query
from omnigraph.lang.query.describe.explain import explain_ir
from omnigraph.lang.query.describe.lint import lint_queries
from omnigraph.lang.query.signature import TypeRef, bind_params
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.parser import parse_queries
from omnigraph.lang.query.syntax.printing import print_queries
from omnigraph.lang.schema import ast as pg
from omnigraph.lang.schema.accepted import (
    AcceptedSchema,
    Identities,
    fresh_identities,
    read_contract,
    write_contract,
    write_state,
)
from omnigraph.lang.schema.ast import print_schema
from omnigraph.lang.schema.compiler import CompiledSchema, compile_schema, compile_schema_file
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.plan import plan_migration
from support.examples import examples
from support.strategies import (
    COMMENTS,
    DOMAIN,
    QUERY_WORDS,
    attempt,
    comments,
    gaps,
    json_values,
    query_trees,
    refused_migrations,
    reorderings,
    schema_trees,
    supported_migrations,
    tokens_of,
    typed_queries,
    valid_schemas,
    without_hints,
)
from support.subtests import each_case, named_cases

GOLDEN = Path(__file__).parents[1] / "unit" / "lang" / "golden"
SCHEMA = GOLDEN / "reading.pg"
READING = compile_schema_file(SCHEMA).catalog


def _variables_of(expression: object) -> set[str]:
    """The variables that an expression, a rank or an order key reads."""
    match expression:
        case None:
            return set()
        case ir.Nearest(field) | ir.Bm25(field):
            return {field.variable}
        case ir.Rrf(first, second):
            return _variables_of(first) | _variables_of(second)
    return set(ir.variables(expression))


def _check_pipeline(pipeline: tuple[ir.Op, ...], bound: set[str]) -> set[str]:
    """Walk a pipeline as an engine would; every variable has to be there when it is used, and come once."""
    for op in pipeline:
        match op:
            case ir.NodeScan(variable, _, filters):
                assert variable not in bound
                bound = bound | {variable}
                for predicate in filters:
                    assert _variables_of(predicate) == {variable}
            case ir.Expand():
                assert op.source in bound
                assert op.target not in bound
                bound = bound | {op.target}
                for predicate in op.filters:
                    assert _variables_of(predicate) == {op.target}
                if op.edge_variable is not None:
                    assert op.edge_variable not in bound
                    assert (op.low, op.high) == (1, 1)
                    bound = bound | {op.edge_variable}
                for predicate in op.edge_filters:
                    assert _variables_of(predicate) == {op.edge_variable}
            case ir.Filter(predicate):
                assert _variables_of(predicate) <= bound
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
        assert _variables_of(column.expression) <= bound
    for key in query.order:
        assert _variables_of(key.expression) <= bound
    assert _variables_of(query.rank) <= bound


def _count_conditions(clauses: tuple[ast.Clause, ...]) -> int:
    total = 0
    for clause in clauses:
        match clause:
            case ast.Condition(ast.Exists(_, inner)):
                total += _count_conditions(inner)
            case ast.Condition():
                total += 1
            case ast.Binding(_, _, matches):
                total += len(matches)
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
from omnigraph.lang.query.describe.explain import explain_ir
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


@examples(100, thorough=250)
@given(st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=3), json_values, max_size=6), st.booleans())
def test_any_json_as_parameters_gives_values_or_a_parameter_error(given_values, javascript) -> None:
    bound, failure = attempt(ParameterError, bind_params, _ALL_TYPES, given_values, javascript=javascript)
    if failure is not None:
        assert failure.problems
        assert set(failure.problems) <= set(given_values) | set(_NAMES)
        assert all(text.strip() for text in failure.problems.values())
    else:
        assert list(bound) == _NAMES


@examples(100, thorough=250)
@given(st.sampled_from(_NAMES), json_values, st.booleans())
def test_any_json_for_one_parameter_fits_its_type_or_is_named_as_the_problem(name, value, javascript) -> None:
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
    bound, failure = attempt(ParameterError, bind_params, query, {name: value}, javascript=javascript)
    if failure is not None:
        assert set(failure.problems) == {name}
        assert name in failure.message
    else:
        assert set(bound) == {name}
        assert bound[name] is not None or type_.nullable


def _nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@named_cases(
    ("type_", "value"),
    {
        "thousands of digits for an integer": ("I64", 10**5000),
        "thousands of digits for a float": ("F64", 10**5000),
        "a deeply nested value": ("I64", _nested(20_000)),
        "a lone surrogate": ("String", "\ud800"),
    },
)
def test_a_value_that_no_parameter_can_hold_is_a_problem_in_plain_words(type_, value) -> None:
    query = compile_file(f"query q($x: {type_}) {{ match {{ $p: Paper }} return {{ $p, $x }} }}", READING)[0]
    with pytest.raises(ParameterError) as failure:
        bind_params(query.ir, {"x": value})
    assert set(failure.value.problems) == {"x"}
    assert "set_int_max_str_digits" not in failure.value.message


@settings(max_examples=40)
@given(st.permutations(["$p: Paper", "$p cites $q", "$q appearsAt $v", "$q.year > 3", 'not { $v.city = "x" }']))
def test_the_order_of_clauses_never_changes_what_is_bound_and_read(clauses) -> None:
    text = f"query q() {{ match {{ {' '.join(clauses)} }} return {{ $p $q $v }} }}"
    compiled = compile_query(text, READING)
    assert _check_pipeline(compiled.ir.pipeline, set()) == {"p", "q", "v"}
    reads = {(ref.kind, ref.type_name) for ref in compiled.operation.reads}
    assert reads == {("node", "Paper"), ("node", "Venue"), ("edge", "Cites"), ("edge", "AppearsAt")}


@each_case("declared", ["Cites", "CITES", "CItEs"])
@each_case("written", ["cites", "cITES", "citeS"])
def test_an_edge_is_found_whatever_its_case(declared, written) -> None:
    catalog = compile_schema(f"node P {{}} edge {declared}: P -> P").catalog
    compiled = compile_query(f"query q() {{ match {{ $a {written} $b }} return {{ $a $b }} }}", catalog)
    assert TypeRef("edge", declared) in compiled.operation.reads


# ---- Laws that tie printing and parsing together, for both languages


def _schema(text: str):
    return parse_schema(SourceText(text))


def _queries(text: str):
    return parse_queries(SourceText(text))


def _respaced(draw: st.DrawFn, text: str) -> str:
    """The same tokens with other invisible text between them."""
    result = draw(st.just("") | gaps)
    for token in tokens_of(text):
        # A comment directly behind a division would begin at its sign.
        result += token + " " * (token == "/")
        result += draw(gaps)
    return result


respaced = st.composite(_respaced)


@settings(max_examples=80)
@given(schema_trees)
def test_a_printed_schema_parses_to_the_same_tree(tree) -> None:
    assert _schema(print_schema(tree)) == tree


@settings(max_examples=80)
@given(query_trees)
def test_a_printed_query_file_parses_to_the_same_tree(tree) -> None:
    assert _queries(print_queries(tree)) == tree


@settings(max_examples=60)
@given(st.data(), schema_trees)
def test_spaces_and_comments_between_the_tokens_of_a_schema_mean_nothing(data, tree) -> None:
    text = data.draw(respaced(print_schema(tree)))
    assert _schema(text) == tree


@settings(max_examples=60)
@given(st.data(), query_trees)
def test_spaces_and_comments_between_the_tokens_of_a_query_mean_nothing(data, tree) -> None:
    text = data.draw(respaced(print_queries(tree)))
    assert _queries(text) == tree


@each_case(
    "text", ["x: enum#(a, b)", "x: Vector#(8)?", *(f"x: String @{mark}#(x)" for mark in ("key", "unique", "index"))]
)
@each_case("comment", COMMENTS)
def test_a_comment_may_stand_before_a_parenthesis_of_a_schema(text, comment) -> None:
    plain, commented = (_schema(f"node A {{ {text.replace('#', gap)} }}") for gap in ("", comment))
    assert commented == plain


@each_case("comment", COMMENTS)
def test_a_comment_may_stand_before_the_parenthesis_of_a_vector_parameter(comment) -> None:
    body = "{ match { $p: Paper } return { $p } }"
    expected = _queries(f"query q($v: Vector(8)) {body}")
    assert _queries(f"query q($v: Vector{comment}(8)) {body}") == expected


@each_case("mark", ["key", "x"])
@each_case("comment", ["// the id (normalised)\n", "/* (a, b) */", "// a\n// (b)\n", "/**/ // (\n", "//(\n"])
def test_a_parenthesis_in_a_comment_behind_an_annotation_is_no_argument(mark, comment) -> None:
    expected = _schema(f"node A {{ x: String @{mark} y: I32 }}")
    assert _schema(f"node A {{ x: String @{mark} {comment} y: I32 }}") == expected


_RULERS = {"slashes": "/" * 80 + "\n", "openings": "// " * 40 + "\n", "blocks": "/**/" * 40, "lines": "// =\n" * 2000}


@pytest.mark.timeout(10, func_only=True)
@named_cases("ruler", _RULERS)
def test_a_ruler_of_comments_behind_a_constraint_word_costs_nothing(ruler) -> None:
    expected = _schema("node A { x: String @key y: I32 }")
    assert _schema(f"node A {{ x: String @key {ruler} y: I32 }}") == expected


@settings(max_examples=40)
@given(valid_schemas())
def test_every_valid_schema_compiles_again_from_its_print_to_the_same_shape(tree) -> None:
    first = compile_schema(print_schema(tree))
    again = compile_schema(print_schema(first.tree))
    assert again.catalog == first.catalog


@settings(max_examples=60)
@given(query_trees)
def test_windows_line_endings_do_not_change_the_tree(tree) -> None:
    text = print_queries(tree)
    assert _queries(text.replace("\n", "\r\n")) == tree


@each_case("word", ["node", "edge", "interface", "implements", "enum", "true", "false"])
def test_a_property_may_be_called_like_a_keyword_wherever_it_is_named(word) -> None:
    schema = compile_schema(f"node A {{ {word}: I32  @range({word}, 0..9)  @index({word}) }}")
    assert schema.catalog.nodes["A"].indexes[0].members == (word,)


@each_case("word", ["node", "edge", "interface", "implements", "enum", "true", "false"])
@each_case("mark", ["", "?", " @index", ' @x("a")', " @unique(a)"])
def test_a_property_behind_another_may_be_called_like_a_keyword(word, mark) -> None:
    schema = compile_schema(f"node A {{ a: String{mark} {word}: I32 }}")
    assert list(schema.catalog.nodes["A"].properties) == ["a", word]


@each_case("word", QUERY_WORDS)
def test_an_assignment_may_name_a_property_like_a_keyword_with_and_without_commas(word) -> None:
    plain = _queries(f"query q($x: I32) {{ insert A {{ a: $x, {word}: $x, b: 1 }} }}")
    assert _queries(f"query q($x: I32) {{ insert A {{ a: $x {word}: $x b: 1 }} }}") == plain


def test_not_is_the_one_word_that_no_edge_can_have() -> None:
    text = "query q() { match { $p: P  $p %s $q } return { $p } }"
    with pytest.raises(CompilerError):
        compile_file(text % "not", compile_schema("node P {} edge Not: P -> P").catalog)
    assert compile_file(text % "not_yet", compile_schema("node P {} edge Not_yet: P -> P").catalog)


@each_case("zeros", [1, 39, 40, 200])
def test_leading_zeros_never_change_a_number(zeros, reading) -> None:
    text = "query q() { match { $p: Paper } return { $p } limit %s7 }" % ("0" * zeros)
    assert compile_file(text, reading)[0].ir.limit.value == 7
    catalog = compile_schema(f"node A {{ v: Vector({'0' * zeros}7) }}").catalog
    assert str(catalog.nodes["A"].properties["v"].type) == "Vector(7)"


# ---- Laws of whole schemas: shape hashes, migration plans, stable identities, the persisted contract


def _compile(tree: pg.Schema) -> CompiledSchema:
    return compile_schema(print_schema(tree))


def _accept(compiled: CompiledSchema) -> AcceptedSchema:
    resolution = fresh_identities(compiled.catalog, DOMAIN, compiled.source)
    return AcceptedSchema(catalog=compiled.catalog, identities=resolution.identities)


def _numbers(identities: Identities) -> list[int]:
    return [
        number
        for identity in identities.types.values()
        for number in (identity.type_id, identity.incarnation, *identity.properties.values())
        if number is not None
    ]


# ---- the shape hash


@settings(max_examples=21)
@given(st.data(), valid_schemas())
def test_the_order_of_anything_in_a_schema_never_changes_its_hash(data, tree) -> None:
    other = data.draw(reorderings(tree))
    assert _compile(other).catalog.schema_hash == _compile(tree).catalog.schema_hash


@settings(max_examples=15)
@given(valid_schemas(), comments)
def test_comments_never_change_the_hash(tree, comment) -> None:
    text = print_schema(tree)
    commented = f"{comment}{text}{comment}"
    assert compile_schema(commented).catalog.schema_hash == compile_schema(text).catalog.schema_hash


@settings(max_examples=42)
@given(st.data(), valid_schemas())
def test_every_change_that_a_plan_carries_out_or_refuses_changes_the_hash(data, tree) -> None:
    change = data.draw(supported_migrations(tree) | refused_migrations(tree))
    assert _compile(change.schema).catalog.schema_hash != _compile(tree).catalog.schema_hash


@settings(max_examples=18)
@given(st.data(), valid_schemas())
def test_rename_hints_never_change_the_hash(data, tree) -> None:
    change = data.draw(supported_migrations(tree))
    with_hints, without = _compile(change.schema), _compile(without_hints(change.schema))
    assert with_hints.catalog.schema_hash == without.catalog.schema_hash


# ---- plans


@settings(max_examples=21)
@given(st.data(), valid_schemas())
def test_a_schema_needs_no_step_to_itself_however_it_is_written(data, tree) -> None:
    plan = plan_migration(_accept(_compile(tree)), _compile(data.draw(reorderings(tree))))
    assert plan.steps == ()
    assert plan.supported


@settings(max_examples=30)
@given(st.data(), valid_schemas())
def test_a_supported_change_gives_a_supported_plan_with_its_step(data, tree) -> None:
    change = data.draw(supported_migrations(tree))
    plan = plan_migration(_accept(_compile(tree)), _compile(change.schema))
    assert plan.supported, [str(step) for step in plan.refusals]
    assert change.step in [step.kind for step in plan.steps]


@settings(max_examples=30)
@given(st.data(), valid_schemas())
def test_a_refused_change_gives_a_refusal_with_its_code_also_beside_a_supported_one(data, tree) -> None:
    change = data.draw(refused_migrations(tree))
    extra = pg.NodeDecl(pg.Name("Unrelated"), (), (), ())
    for wanted in (change.schema, pg.Schema((*change.schema.declarations, extra))):
        plan = plan_migration(_accept(_compile(tree)), _compile(wanted))
        assert not plan.supported
        assert change.code is None or change.code in [step.code for step in plan.refusals]


@each_case(
    ("old", "new"),
    [
        ("x: I32? @unique @unique(x)", "x: I32? @unique"),
        ("x: I32? @unique @unique(x)", "x: I32? @unique(x)"),
        ("x: I32? @index @index(x)", "x: I32? @index"),
        ("x: I32 @range(x, 0..) @range(x, 0..)", "x: I32 @range(x, 0..)"),
    ],
)
def test_a_constraint_written_twice_cannot_lose_one_spelling_beside_another_change(old, new) -> None:
    accepted = _accept(compile_schema(f"node A {{ {old} }}"))
    alone = compile_schema(f"node A {{ {new} }}")
    assert alone.catalog.schema_hash == accepted.catalog.schema_hash or not plan_migration(accepted, alone).supported
    beside = compile_schema(f"node A {{ {new} y: I32? }}")
    assert plan_migration(accepted, beside).supported == plan_migration(accepted, alone).supported


@settings(max_examples=21)
@given(st.data(), valid_schemas())
def test_planning_twice_gives_the_same_plan_whatever_the_order_of_the_texts(data, tree) -> None:
    change = data.draw(supported_migrations(tree) | refused_migrations(tree))
    first = plan_migration(_accept(_compile(tree)), _compile(change.schema))
    shuffled, wanted = data.draw(reorderings(tree)), data.draw(reorderings(change.schema))
    again = plan_migration(_accept(_compile(shuffled)), _compile(wanted))
    assert json.dumps(again.to_json()) == json.dumps(first.to_json())
    assert again.resolution.identities == first.resolution.identities


@settings(max_examples=18)
@given(valid_schemas(), valid_schemas())
def test_any_two_schemas_have_a_plan_and_an_empty_one_only_when_they_mean_the_same(old, new) -> None:
    before, after = _compile(old), _compile(new)
    plan = plan_migration(_accept(before), after)
    assert (not plan.steps) == (before.catalog.schema_hash == after.catalog.schema_hash)
    json.dumps(plan.to_json())


@settings(max_examples=15)
@given(st.data(), valid_schemas())
def test_data_loss_changes_the_mode_of_the_drops_and_nothing_else(data, tree) -> None:
    change = data.draw(supported_migrations(tree))
    accepted, wanted = _accept(_compile(tree)), _compile(change.schema)
    soft = json.dumps(plan_migration(accepted, wanted).to_json())
    hard = plan_migration(accepted, wanted, allow_data_loss=True)
    assert '"hard"' not in soft
    assert soft.replace('"soft"', '"hard"') == json.dumps(hard.to_json())


# ---- identities


@settings(max_examples=21)
@given(valid_schemas())
def test_fresh_identities_count_from_one_without_gaps(tree) -> None:
    identities = _accept(_compile(tree)).identities
    assert sorted(_numbers(identities)) == list(range(1, identities.next_id))


@settings(max_examples=18)
@given(st.data(), valid_schemas())
def test_identities_survive_a_chain_of_migrations(data, tree) -> None:
    accepted = _accept(_compile(tree))
    ever = set(_numbers(accepted.identities))
    for _ in range(data.draw(st.integers(1, 4))):
        change = data.draw(supported_migrations(tree))
        wanted = _compile(change.schema)
        plan = plan_migration(accepted, wanted)
        old, new = accepted.identities, plan.resolution.identities
        numbers = _numbers(new)
        assert len(numbers) == len(set(numbers))
        assert new.next_id > max(numbers)
        assert new.next_id >= old.next_id
        assert new.domain == old.domain
        fresh = set(numbers) - set(_numbers(old))
        assert not fresh & ever
        assert all(number >= old.next_id for number in fresh)
        for key, identity in new.types.items():
            origin = plan.resolution.type_origins.get(key)
            if origin is None:
                assert identity.type_id in fresh
                continue
            before = old.types[key[0], origin]
            assert (identity.type_id, identity.incarnation) == (before.type_id, before.incarnation)
            origins = plan.resolution.property_origins[key]
            for name, number in identity.properties.items():
                kept = origins.get(name)
                assert number == before.properties[kept] if kept else number in fresh
        if change.step == "rename_type":
            assert not fresh
        ever |= set(numbers)
        accepted = AcceptedSchema(catalog=wanted.catalog, identities=new)
        tree = change.schema


@settings(max_examples=15)
@given(st.data(), valid_schemas())
def test_a_type_that_is_dropped_and_added_again_gets_new_numbers(data, tree) -> None:
    extra = pg.NodeDecl(pg.Name("Phoenix"), (), (), (pg.Property(pg.Name("p"), pg.TypeExpr("scalar", True, "I32")),))
    full = pg.Schema((*tree.declarations, extra))
    first = _accept(_compile(full))
    gone = _compile(data.draw(reorderings(tree)))
    second = AcceptedSchema(catalog=gone.catalog, identities=plan_migration(first, gone).resolution.identities)
    third = plan_migration(second, _compile(full)).resolution.identities
    used = set(_numbers(first.identities))
    again = next(i for (_, name), i in third.types.items() if name == "Phoenix")
    assert not {again.type_id, again.incarnation, *again.properties.values()} & used


@settings(max_examples=15)
@given(st.data(), valid_schemas())
def test_the_member_order_of_a_key_survives_every_rename(data, tree) -> None:
    compiled = _compile(tree)
    accepted = _accept(compiled)
    change = data.draw(supported_migrations(tree))
    wanted = _compile(change.schema)
    plan = plan_migration(accepted, wanted)
    for key, origin in plan.resolution.type_origins.items():
        if key[0] == "interface":
            continue
        table = {"node": node_table_key, "edge": edge_table_key}[key[0]]
        before = accepted.identities.key_members(accepted.catalog.types[table(origin)])
        after = plan.resolution.identities.key_members(wanted.catalog.types[table(key[1])])
        origins = {"src": "src", "dst": "dst"} | dict(plan.resolution.property_origins[key])
        assert tuple(origins[name] for name in after) == before
        if before:
            assert derive_id(before)


# ---- the contract


@settings(max_examples=18)
@given(st.data(), valid_schemas())
def test_a_contract_reads_back_through_json(data, tree) -> None:
    change = data.draw(supported_migrations(tree))
    wanted = _compile(change.schema)
    plan = plan_migration(_accept(_compile(tree)), wanted)
    accepted = AcceptedSchema(catalog=wanted.catalog, identities=plan.resolution.identities)
    contract = json.loads(json.dumps(write_contract(accepted)))
    source = compile_schema(wanted.source.text, accepted=True)
    again = read_contract(contract, source.catalog)
    assert again == accepted
    assert write_state(again, wanted.source.text) == write_state(accepted, wanted.source.text)


@settings(max_examples=18)
@given(st.data(), valid_schemas())
def test_a_contract_does_not_fit_any_other_schema(data, tree) -> None:
    contract = write_contract(_accept(_compile(tree)))
    change = data.draw(supported_migrations(tree) | refused_migrations(tree))
    with pytest.raises(BadRequestError):
        read_contract(contract, _compile(change.schema).catalog)


def _places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [] if not path else [path]
    for key, part in inside:
        found += _places(part, (*path, key))
    return found


@settings(max_examples=36)
@given(st.data(), valid_schemas(), json_values)
def test_a_damaged_contract_is_refused_and_never_crashes(data, tree, junk) -> None:
    compiled = _compile(tree)
    accepted = _accept(compiled)
    contract = json.loads(json.dumps(write_contract(accepted)))
    *path, last = data.draw(st.sampled_from(_places(contract)))
    spot = contract
    for key in path:
        spot = spot[key]
    if data.draw(st.booleans()):
        del spot[last]
    else:
        spot[last] = junk
    again, failure = attempt(BadRequestError, read_contract, contract, compiled.catalog)
    if failure is not None:
        assert failure.message
    else:
        numbers = _numbers(again.identities)
        assert again.catalog == compiled.catalog
        assert len(numbers) == len(set(numbers))
        assert again.identities.next_id > max(numbers)


@settings(max_examples=15)
@given(valid_schemas())
def test_a_type_may_not_be_renamed_in_an_accepted_source(tree) -> None:
    compiled = _compile(tree)
    contract = write_contract(_accept(compiled))
    words = tokens_of(compiled.source.text)
    renamed = " ".join("Node9" if word == "Node0" else word for word in words)
    with pytest.raises(BadRequestError):
        read_contract(contract, compile_schema(renamed).catalog)
