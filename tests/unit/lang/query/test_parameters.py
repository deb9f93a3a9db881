from __future__ import annotations

import pytest

from omnigraph.errors import BadRequestError, ParameterError
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.signature import bind_params
from support.subtests import each_case

SAFE = 2**53 - 1


@pytest.fixture
def bind(reading):
    def run(declared: str, given: object, *, javascript: bool = False):
        text = f"query q({declared}) {{ match {{ $p: Paper }} return {{ $p }} }}"
        return bind_params(compile_query(text, reading).ir, given, javascript=javascript)

    return run


ACCEPTED = [
    ("I32", "2024", 2024),
    ("I32", "-7", -7),
    ("I64", str(-(2**63)), -(2**63)),
    ("U64", str(2**63 - 1), 2**63 - 1),
    ("U64", str(2**63), 2**63),
    ("F32", 3, 3.0),
    ("F64", 7, 7.0),
    ("[I64]", [1, "9007199254740993"], (1, 9007199254740993)),
    ("[Bool]", [True], (True,)),
    ("[Date]", ["1970-01-01"], (0,)),
    ("String?", None, None),
    ("Vector(3)?", None, None),
    ("[I32]?", None, None),
]


@each_case(
    ("type_", "given", "stored"), ACCEPTED, ids=[f"{item[0]} from {item[1]!r}" for item in ACCEPTED]
)
def test_a_json_value_becomes_the_stored_value_of_its_type(type_, given, stored, bind):
    values = bind(f"$x: {type_}", {"x": given})

    assert values == {"x": stored}
    assert type(values["x"]) is type(stored)


REFUSED = [
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
    ("type_", "given"), REFUSED, ids=[f"{item[0]} from {str(item[1])[:24]!r}" for item in REFUSED]
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
        bind(
            "$a: I32, $b: String, $c: Date, $d: Bool?, $e: I32", {"a": "x", "c": 5, "z": 1, "e": 3}
        )

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
    assert (failure.value.http_status, body["kind"], list(body["parameters"])) == (
        400,
        "bad_request",
        ["a"],
    )


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
