from __future__ import annotations

import pytest

from omnigraph.errors import BadRequestError, CompilerError, ParameterError
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.signature import bind_params
from support.subtests import each_case


def statement(text: str, reading, params: str = ""):
    return compile_query(f"query q({params}) {{ {text} }}", reading).ir.statements[0]


def assigned(assignment: str, reading, params: str = ""):
    text = f'update Paper set {{ {assignment} }} where doi = "x"'
    return statement(text, reading, params).assignments[0].value


#: Beside `support.values`, which every literal goes through in `behaviour/values`.
ACCEPTED = [("year: 2020.0", 2020), ("counts: [1.0, 2.0]", (1, 2)), ('scan: "s3://bucket/x"', "s3://bucket/x")]


@each_case(("assignment", "stored"), ACCEPTED, ids=[item[0] for item in ACCEPTED])
def test_an_assigned_literal_is_in_the_stored_form_of_its_property(assignment, stored, reading):
    value = assigned(assignment, reading)

    assert value.value == stored
    assert type(value.value) is type(stored)
    if isinstance(stored, tuple):
        assert [type(item) for item in value.value] == [type(item) for item in stored]


REFUSED = [
    'year: "2020"',
    'counts: ["1"]',
    'released: "1970-01-02"',
    'released: datetime("1970-01-01T00:00:01Z")',
    'submitted: date("1970-01-01")',
    'submitted: "1970-01-01T00:00:01Z"',
    'scan: ["a"]',
]


@each_case("assignment", REFUSED)
def test_t3_a_literal_that_does_not_fit_is_refused(assignment, reading):
    with pytest.raises(CompilerError) as failure:
        assigned(assignment, reading)

    assert failure.value.codes == ("T3",)


PARAMETERS = [
    ("year", "I64", True),
    ("year", "F64", True),
    ("year", "String", False),
    ("year", "Bool", False),
    ("year", "[I32]", False),
    ("score", "I32", True),
    ("score", "U64", True),
    ("title", "String", True),
    ("title", "I32", False),
    ("stage", "String", True),
    ("open", "Bool", True),
    ("open", "I32", False),
    ("released", "Date", True),
    ("released", "DateTime", False),
    ("released", "String", False),
    ("submitted", "DateTime", True),
    ("submitted", "Date", False),
    ("scan", "Blob", True),
    ("scan", "String", True),
    ("scan", "I32", False),
    ("title", "Blob", False),
    ("topics", "[String]", True),
    ("topics", "String", False),
    ("topics", "[I64]", False),
    ("counts", "[I64]", True),
    ("counts", "[F64]", True),
    ("vec", "Vector(8)", True),
    ("vec", "Vector(4)", False),
    ("vec", "[F32]", False),
    ("vec", "String", False),
    ("abstract", "String?", True),
]


def _labels(cases):
    return [f"{type_} for {name}" for name, type_, _ in cases]


FITTING = [item for item in PARAMETERS if item[2]]
UNFITTING = [item for item in PARAMETERS if not item[2]]


@each_case(("name", "type_", "fits"), FITTING, ids=_labels(FITTING))
def test_t7_a_parameter_of_a_compatible_type_is_accepted(name, type_, fits, reading):
    value = assigned(f"{name}: $x", reading, f"$x: {type_}")

    assert value == ir.ParamRef("x", value.type)
    assert str(value.type) == type_


@each_case(("name", "type_", "fits"), UNFITTING, ids=_labels(UNFITTING))
def test_t7_a_parameter_of_another_type_is_refused(name, type_, fits, reading):
    with pytest.raises(CompilerError) as failure:
        assigned(f"{name}: $x", reading, f"$x: {type_}")

    assert failure.value.codes == ("T7",)


def test_now_fits_a_datetime(reading):
    assert assigned("submitted: now()", reading) == ir.ParamRef(ir.NOW, ir.INSTANT_TYPE)


@each_case("name", ["released", "title", "year", "open"])
def test_t7_now_fits_nothing_but_a_datetime(name, reading):
    with pytest.raises(CompilerError) as failure:
        assigned(f"{name}: now()", reading)

    assert failure.value.codes == ("T7",)


@each_case("op", ["=", "!=", "<", "<=", ">", ">="])
def test_a_where_takes_every_comparison(op, reading):
    predicate = statement(f"delete Paper where year {op} 2020", reading).predicate

    assert (predicate.left.property, str(predicate.op), predicate.right.value) == ("year", op, 2020)


@pytest.mark.parametrize(("written", "column"), [("from", "src"), ("to", "dst"), ("context", "context")])
def test_a_where_on_an_edge_names_its_ends_from_and_to(written, column, reading):
    predicate = statement(f'delete Cites where {written} = "x"', reading).predicate

    assert (predicate.left.variable, predicate.left.property) == (ir.OWN_ROW, column)


def test_a_where_compares_numbers_by_value_without_narrowing(reading):
    predicate = statement("delete Paper where year = 2.7", reading).predicate

    assert (predicate.right.value, str(predicate.right.type)) == (2.7, "F64")


def test_a_filter_compares_numbers_by_value_without_narrowing(reading):
    text = "query q() { match { $p: Paper $p.year = 2.7 } return { $p } }"

    (comparison,) = compile_query(text, reading).ir.pipeline[0].filters

    assert (comparison.right.value, str(comparison.right.type)) == (2.7, "F64")


@each_case(("list_", "code"), [('["a", 1]', "Q108"), ('["a", true]', "Q108"), ('[["a"]]', "Q108"), ("[now()]", "Q108")])
def test_q108_a_list_literal_holds_plain_values_of_one_type(list_, code, reading):
    with pytest.raises(CompilerError) as failure:
        assigned(f"topics: {list_}", reading)

    assert failure.value.codes == (code,)


def test_a_list_literal_may_hold_dates(reading):
    text = 'query q() { match { $p: Paper } return { [date("1970-01-02"), date("1970-01-03")] as days } }'

    (column,) = compile_query(text, reading).ir.projections

    assert (column.expression.value, str(column.type)) == ((1, 2), "[Date]")


@each_case(
    "text",
    [
        "insert Paper { doi: $d, title: $d, year: 2020 }",
        "insert Wrote { from: $d, position: 1 }",
        "insert Wrote { to: $d, position: 1 }",
        "insert Wrote { from: $d, to: $d }",
    ],
    ids=["stage", "to", "from", "position"],
)
def test_t12_an_insert_assigns_everything_that_is_not_nullable(text, reading):
    with pytest.raises(CompilerError) as failure:
        statement(text, reading, "$d: String")

    assert failure.value.codes == ("T12",)


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ('insert Note { body: "x" }', "", None),
        ('insert Note { body: "x" }', "no key is set", "`vec` would be embedded from `body`, but no key is set"),
        ('insert Note { title: "x" }', "", ""),
        ('insert Note { title: "x" }', "no key is set", ""),
    ],
)
def test_t12_a_non_null_embedding_needs_its_text_and_a_provider(text, reason, hint):
    from omnigraph.lang.schema.compiler import compile_schema

    schema = 'node Note {\n  title: String?\n  body: String?\n  vec: Vector(4) @embed("body", model="mock-4")\n}'
    catalog = compile_schema(schema).catalog
    query = f"query q() {{ {text} }}"
    if hint is None:
        assert compile_query(query, catalog, no_embedding=reason).is_mutation
        return

    with pytest.raises(CompilerError) as failure:
        compile_query(query, catalog, no_embedding=reason)

    assert failure.value.codes == ("T12",)
    assert (failure.value.diagnostics[0].hint or "") == hint


def test_a_nullable_embedding_may_be_omitted(reading):
    text = 'insert Paper { doi: "10.1", title: "x", year: 2020, stage: "accepted", abstract: "y" }'

    names = [item.property for item in statement(text, reading).assignments]

    assert "vec" not in names


def test_omitted_properties_are_not_assigned_so_that_an_insert_replaces_the_row(reading):
    text = 'insert Author { full_name: "x" }'

    assert [item.property for item in statement(text, reading).assignments] == ["full_name"]


@each_case(
    ("text", "kind"),
    [
        ('insert Author { full_name: "x" }', ir.InsertNode),
        ('insert Cites { from: "a", to: "b" }', ir.InsertEdge),
        ('update Author set { orcid: "x" } where full_name = "y"', ir.UpdateRows),
        ('delete Author where full_name = "x"', ir.DeleteNode),
        ('delete Cites where from = "x"', ir.DeleteEdge),
    ],
    ids=["insert node", "insert edge", "update node", "delete node", "delete edge"],
)
def test_every_statement_has_its_operator(text, kind, reading):
    assert type(statement(text, reading)) is kind


def test_type_names_of_mutations_are_exact(reading):
    with pytest.raises(CompilerError) as failure:
        statement('delete AUTHOR where full_name = "x"', reading)

    assert failure.value.codes == ("T10",)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("insert Same { x: 1 }", ir.InsertNode),
        ("update Same set { x: 1 } where x = 2", ir.UpdateRows),
        ("delete Same where x = 1", ir.DeleteNode),
    ],
    ids=["insert", "update", "delete"],
)
def test_a_node_type_wins_over_an_edge_type_of_the_same_name(text, kind):
    from omnigraph.lang.schema.compiler import compile_schema

    catalog = compile_schema("node Same { x: I32? }\nedge Same: Same -> Same { x: I32? }").catalog

    compiled = compile_query(f"query q() {{ {text} }}", catalog)

    assert type(compiled.ir.statements[0]) is kind


SAFE = 2**53 - 1


@pytest.fixture
def bind(reading):
    def run(declared: str, given: object, *, javascript: bool = False):
        text = f"query q({declared}) {{ match {{ $p: Paper }} return {{ $p }} }}"
        return bind_params(compile_query(text, reading).ir, given, javascript=javascript)

    return run


PARAMETERS_ACCEPTED = [
    ("I32", "2024", 2024),
    ("I32", "-7", -7),
    ("I64", str(-(2**63)), -(2**63)),
    ("U64", str(2**63 - 1), 2**63 - 1),
    ("U64", str(2**63), 2**63),
    ("[I64]", [1, "9007199254740993"], (1, 9007199254740993)),
    ("String?", None, None),
    ("Vector(3)?", None, None),
    ("[I32]?", None, None),
]


@each_case(
    ("type_", "given", "stored"),
    PARAMETERS_ACCEPTED,
    ids=[f"{item[0]} from {item[1]!r}" for item in PARAMETERS_ACCEPTED],
)
def test_a_json_value_becomes_the_stored_value_of_its_type(type_, given, stored, bind):
    values = bind(f"$x: {type_}", {"x": given})

    assert values == {"x": stored}
    assert type(values["x"]) is type(stored)


PARAMETERS_REFUSED = [
    ("I32", 3.0),
    ("I32", " 5"),
    ("I32", "+5"),
    ("I64", "9" * 5000),
    ("U64", str(2**64)),
    ("String?", {"a": 1}),
    ("String", None),
    ("I32", None),
    ("[String]", None),
    ("Vector(3)", None),
]


@each_case(
    ("type_", "given"), PARAMETERS_REFUSED, ids=[f"{item[0]} from {str(item[1])[:24]!r}" for item in PARAMETERS_REFUSED]
)
def test_a_json_value_of_another_type_is_refused(type_, given, bind):
    with pytest.raises(ParameterError) as failure:
        bind(f"$x: {type_}", {"x": given})

    assert list(failure.value.problems) == ["x"]


JAVASCRIPT_ACCEPTED = [
    ("I32", 3.0, 3),
    ("I64", float(SAFE), SAFE),
    ("I64", SAFE, SAFE),
    ("I64", -SAFE, -SAFE),
    ("I64", str(2**53), 2**53),
    ("U64", str(2**63 - 1), 2**63 - 1),
    ("[I64]", [1.0, "9007199254740993"], (1, 9007199254740993)),
    ("F64", 1e300, 1e300),
]


@each_case(("type_", "given", "stored"), JAVASCRIPT_ACCEPTED, ids=str)
def test_javascript_sends_integers_as_floats_and_large_ones_as_strings(type_, given, stored, bind):
    values = bind(f"$x: {type_}", {"x": given}, javascript=True)

    assert values == {"x": stored}
    assert type(values["x"]) is type(stored)


JAVASCRIPT_REFUSED = [
    ("I64", SAFE + 1),
    ("I64", -SAFE - 1),
    ("I64", float(2**53)),
    ("U64", 2**60),
    ("I64", 2.5),
    ("I32", 2.0**40),
    ("I32", float("inf")),
    ("I32", float("nan")),
    ("I32", True),
    ("[I64]", [2**53]),
]


@each_case(("type_", "given"), JAVASCRIPT_REFUSED, ids=str)
def test_javascript_numbers_beyond_the_safe_range_are_refused(type_, given, bind):
    with pytest.raises(ParameterError) as failure:
        bind(f"$x: {type_}", {"x": given}, javascript=True)

    assert list(failure.value.problems) == ["x"]


def test_the_refusal_of_an_unsafe_number_names_the_way_out(bind):
    with pytest.raises(ParameterError, match="decimal string"):
        bind("$x: I64", {"x": 2**53}, javascript=True)


def test_an_omitted_nullable_parameter_is_null(bind):
    assert bind("$x: String?, $y: [I32]?", {}) == {"x": None, "y": None}


def test_a_null_parameter_is_not_an_absent_filter(reading):
    text = "query q($y: I32?) { match { $p: Paper { year: $y } } return { $p } }"

    query = compile_query(text, reading)

    assert bind_params(query.ir, None) == {"y": None}
    assert len(query.ir.pipeline[0].filters) == 1


def test_an_omitted_non_null_parameter_is_an_error(bind):
    with pytest.raises(ParameterError, match="`x` is missing: it is I32"):
        bind("$x: I32", {})


def test_a_null_for_a_non_null_parameter_is_an_error(bind):
    with pytest.raises(ParameterError, match="null does not fit I32"):
        bind("$x: I32", {"x": None})


def test_a_key_that_is_not_declared_is_an_error(bind):
    with pytest.raises(ParameterError, match=r"`yeer` is not declared \(did you mean `year`\?\)"):
        bind("$year: I32", {"year": 1, "yeer": 2})


@pytest.mark.parametrize("name", ["__now", "p", "$year"])
def test_reserved_and_bound_names_are_no_keys(name, bind):
    with pytest.raises(ParameterError) as failure:
        bind("$year: I32", {"year": 1, name: 2})

    assert list(failure.value.problems) == [name]


def test_all_problems_are_reported_at_once(bind):
    with pytest.raises(ParameterError) as failure:
        bind("$a: I32, $b: String, $c: Date, $d: Bool?, $e: I32", {"a": "x", "c": 5, "z": 1, "e": 3})

    assert sorted(failure.value.problems) == ["a", "b", "c", "z"]


def test_the_message_names_the_query_and_every_parameter(bind):
    with pytest.raises(ParameterError) as failure:
        bind("$a: I32, $b: String", {})

    message = str(failure.value)
    assert all(part in message for part in ("query `q`", "`a` is missing", "`b` is missing"))


def test_a_parameter_error_is_a_bad_request_with_its_parameters(bind):
    with pytest.raises(BadRequestError) as failure:
        bind("$a: I32", {})

    body = failure.value.to_json()
    assert (failure.value.http_status, body["kind"], list(body["parameters"])) == (400, "bad_request", ["a"])


@pytest.mark.parametrize("given", [None, {}])
def test_a_query_without_parameters_takes_nothing(given, bind):
    assert bind("", given) == {}


def test_values_follow_the_order_of_the_declaration(bind):
    assert list(bind("$b: I32, $a: I32", {"a": 1, "b": 2})) == ["b", "a"]


def test_mutations_bind_like_reads(reading):
    text = "query q($d: String) { delete Paper where doi = $d }"

    assert bind_params(compile_query(text, reading).ir, {"d": "10.5/a1"}) == {"d": "10.5/a1"}


@pytest.mark.parametrize(
    "text",
    [
        "query q() { match { $p: Paper { submitted: now() } } return { now() as at } }",
        'query q() { update Paper set { submitted: now() } where doi = "x" }',
    ],
    ids=["read", "mutation"],
)
def test_now_is_the_reserved_parameter_and_never_given_by_the_caller(text, reading):
    query = compile_query(text, reading)

    assert query.ir.params == ()
    assert bind_params(query.ir, {}) == {}


def test_binding_does_not_change_what_it_is_given(bind):
    given = {"x": [1, "2"]}

    bind("$x: [I64]", given)

    assert given == {"x": [1, "2"]}
