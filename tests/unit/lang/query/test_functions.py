"""The types of functions and operators, and what is refused."""

from __future__ import annotations

import pytest

from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.lang.query.functions.arguments import NULL, Argument, Fault, Misuse
from omnigraph.lang.query.functions.operand_types import arithmetic_type, common_type, negate_type
from omnigraph.lang.query.functions.table import function_named, moment_of, names
from support.subtests import each_case

_LISTS = {"[String]": ListType(Scalar.STRING), "[I32]": ListType(Scalar.I32), "[I64]": ListType(Scalar.I64)}
_OTHERS = {
    "enum": EnumType(("a", "b")),
    "enum2": EnumType(("b", "c")),
    "Vector(2)": VectorType(2),
    "Vector(3)": VectorType(3),
    **_LISTS,
}


def argument(word: str | int | float | tuple[object, ...] | Argument) -> Argument:
    """A column of a type that is spelled, or `="…"` and a number for a literal; `$String` for a parameter."""
    if isinstance(word, Argument):
        return word
    if isinstance(word, int):
        scalar = Scalar.I64 if word < 2**63 else Scalar.U64
        return Argument(PropertyType(ScalarType(scalar)), word, is_constant=True)
    if isinstance(word, float):
        return Argument(PropertyType(ScalarType(Scalar.F64)), word, is_constant=True)
    if isinstance(word, tuple):
        item = Scalar.I64 if word and isinstance(word[0], int) else Scalar.STRING
        return Argument(PropertyType(ListType(item)), word, is_constant=True)
    if word.startswith("="):
        return Argument(PropertyType(ScalarType(Scalar.STRING)), word[1:], is_constant=True)
    plain = word.removesuffix("?").removeprefix("$")
    base = _OTHERS.get(plain) or ScalarType(Scalar(plain))
    return Argument(PropertyType(base, word.endswith("?")), is_constant=word.startswith("$"))


def arguments(words):
    return [argument(word) for word in words]


def result(name: str, *words) -> str:
    function = function_named(name)
    assert function is not None
    return str(function.result(arguments(words)))


RESULTS = [
    ("lower", ["String"], "String"),
    ("lower", ["enum"], "String"),
    ("upper", ["String?"], "String?"),
    ("length", ["String"], "I64"),
    ("substring", ["String", "I32"], "String"),
    ("substring", ["String", "I32", "I64"], "String?"),
    ("substring", ["String", "I32", "U32"], "String"),
    ("substring", ["String", 1, 2], "String"),
    ("concat", ["String", "enum", "String?"], "String?"),
    ("split", ["String", "=,"], "[String]"),
    ("split", ["String", "="], "[String]?"),
    ("split", ["String", "String"], "[String]?"),
    ("matches", ["String", "=a+"], "Bool"),
    ("matches", ["String", "$String?"], "Bool?"),
    ("contains", ["String", "enum"], "Bool"),
    ("abs", ["I32"], "I64"),
    ("abs", ["I64"], "I64?"),
    ("abs", ["U64"], "U64"),
    ("abs", ["F32"], "F64"),
    ("round", ["F64", 2], "F64"),
    ("round", ["I32", -2], "I64"),
    ("floor", ["U64"], "U64"),
    ("sqrt", ["U32"], "F64"),
    ("sqrt", ["I32"], "F64?"),
    ("sqrt", [9], "F64"),
    ("ln", ["F64"], "F64?"),
    ("div", ["I64", "I64"], "I64?"),
    ("div", ["I64", 2], "I64"),
    ("div", ["I64", 0], "I64?"),
    ("least", ["I32", "I64"], "I64"),
    ("least", ["U64", "I64"], "I64?"),
    ("greatest", ["Date", "Date?"], "Date?"),
    ("greatest", ["Bool"], "Bool"),
    ("coalesce", ["String?", "String"], "String"),
    ("coalesce", ["String?", "String?"], "String?"),
    ("coalesce", [NULL, "I32?", 0], "I32"),
    ("coalesce", ["[I32]?", ()], "[I32]"),
    ("coalesce", ["U64?", "I64"], "I64?"),
    ("year", ["Date"], "I64"),
    ("hour", ["DateTime?"], "I64?"),
    ("date", ["String"], "Date?"),
    ("date", ["=2024-02-29"], "Date"),
    ("date", ["DateTime"], "Date"),
    ("datetime", ["Date?"], "DateTime?"),
    ("add_days", ["Date", 1], "Date?"),
    ("add_months", ["DateTime", "I32"], "DateTime?"),
    ("days_between", ["Date", "Date"], "I64"),
    ("seconds_between", ["DateTime", "DateTime?"], "I64?"),
    ("truncate", ["DateTime", "=hour"], "DateTime"),
    ("truncate", ["Date", "=week"], "Date"),
    ("size", ["[I32]"], "I64"),
    ("element", ["[I32]", 1], "I32?"),
    ("string", ["Bool"], "String"),
    ("i64", ["F64"], "I64?"),
    ("i64", ["I32"], "I64"),
    ("f64", ["U64"], "F64"),
    ("f64", ["String"], "F64?"),
    ("l2", ["Vector(2)", "Vector(2)"], "F64"),
    ("cosine", ["Vector(2)", "Vector(2)"], "F64?"),
]


@each_case(("name", "words", "type_"), RESULTS)
def test_the_type_of_a_result_follows_from_the_arguments(name, words, type_):
    assert result(name, *words) == type_


def test_every_function_has_a_case_above_or_shares_its_rule():
    shared = {"trim", "replace", "starts_with", "ends_with", "ceil", "pow", "exp", "month", "day", "minute", "second"}
    assert {name for name, _, _ in RESULTS} | shared == set(names())


REFUSED = [
    ("lower", ["I64"], Fault.TYPE, 0, "string("),
    ("lower", [NULL], Fault.NULL, 0, None),
    ("lower", [], Fault.COUNT, None, "lower(s: String)"),
    ("concat", [], Fault.COUNT, None, "concat("),
    ("substring", ["String", "F64"], Fault.TYPE, 1, "i64("),
    ("contains", ["[String]", "String"], Fault.TYPE, 0, "in list"),
    ("matches", ["String", "String"], Fault.TYPE, 1, "contains"),
    ("round", ["F64", "I64"], Fault.VALUE, 1, None),
    ("round", ["F64", 16], Fault.VALUE, 1, None),
    ("round", ["F64", -16], Fault.VALUE, 1, None),
    ("div", ["F64", "I64"], Fault.TYPE, 0, "i64("),
    ("least", ["[I32]"], Fault.TYPE, 0, None),
    ("least", [NULL, "I64"], Fault.NULL, 0, None),
    ("coalesce", [NULL, NULL], Fault.NULL, None, "type"),
    ("coalesce", ["String", "I64"], Fault.TYPE, 1, "string("),
    ("coalesce", ["Blob"], Fault.TYPE, 0, None),
    ("hour", ["Date"], Fault.TYPE, 0, "no time of day"),
    ("year", ["String"], Fault.TYPE, 0, "date("),
    ("date", ["=2024-02-30"], Fault.VALUE, 0, None),
    ("datetime", ["=2024-02-03T10:00:00.0001Z"], Fault.VALUE, 0, None),
    ("days_between", ["Date", "DateTime"], Fault.TYPE, 1, "datetime("),
    ("truncate", ["Date", "=hour"], Fault.TYPE, 0, "datetime("),
    ("truncate", ["Date", "=moth"], Fault.VALUE, 1, "`month`"),
    ("truncate", ["Date", "String"], Fault.TYPE, 1, None),
    ("size", ["String"], Fault.TYPE, 0, "length("),
    ("i64", ["Bool"], Fault.TYPE, 0, "case when"),
    ("string", ["[String]"], Fault.TYPE, 0, "element("),
    ("l2", ["Vector(2)", "Vector(3)"], Fault.TYPE, 1, None),
]


@each_case(("name", "words", "fault", "position", "hint"), REFUSED)
def test_a_misuse_says_where_and_what_to_write(name, words, fault, position, hint):
    with pytest.raises(Misuse) as failure:
        result(name, *words)

    assert (failure.value.fault, failure.value.position) == (fault, position)
    assert hint is None or hint in str(failure.value.hint)


COMMON = [
    (["I32", "I32?"], "I32?"),
    (["I32", "U32"], "I64"),
    (["I32", "F32"], "F64"),
    (["F32", 0.1], "F32"),
    (["F32", 1], "F32"),
    (["F32", 1e300], "F64"),
    (["F32", "F32", 0.5], "F32"),
    (["F32", "$F64"], "F64"),
    (["U64", 0], "U64"),
    (["U64", -1], "I64"),
    (["I32", 2**40], "I64"),
    (["I32", 7, 1.5], "F64"),
    ([1, 2**63], "U64"),
    ([1, 2], "I64"),
    ([1, 2.5], "F64"),
    (["enum", "enum"], "enum(a, b)"),
    (["enum", "enum2"], "String"),
    (["enum", "=a"], "String"),
    (["[I32]", (1, 2)], "[I32]"),
    (["[I32]", (2**40,)], "[I64]"),
    (["[I32]", "[I64]"], "[I64]"),
    (["[String]", ()], "[String]"),
    (["Vector(2)", "Vector(2)"], "Vector(2)"),
    (["I32", NULL], "I32?"),
]


@each_case(("words", "type_"), COMMON)
def test_35_values_side_by_side_have_a_common_type(words, type_):
    assert str(common_type(arguments(words))) == type_
    assert str(common_type(arguments(reversed(words)))) == type_


NOT_COMMON = [
    (["String", "I64"], "string("),
    (["Date", "DateTime"], "date("),
    (["Bool", "I64"], "case when"),
    (["String", "Date"], "date("),
    (["Vector(2)", "Vector(3)"], None),
    (["[String]", "String"], None),
    (["[String]", "[I32]"], "string("),
    (["I64", 2**63], None),
    ([-1, 2**63], None),
]


@each_case(("words", "hint"), NOT_COMMON)
def test_35_values_without_a_common_type_are_refused(words, hint):
    for order in (words, words[::-1]):
        with pytest.raises(Misuse) as failure:
            common_type(arguments(order))
        assert hint is None or hint in str(failure.value.hint)


ARITHMETIC = [
    ("+", "I32", "U32", "I64"),
    ("-", "U64", "U64?", "I64?"),
    ("*", "I64", "F32", "F64?"),
    ("/", "I64", "I64", "F64?"),
    ("/", "I64", 2, "F64"),
    ("/", "F64", 2, "F64?"),
    ("%", "I64", "I64", "I64?"),
    ("%", "I64", 3, "I64"),
    ("%", "F64", 3, "F64"),
    ("%", "I64", 0, "I64?"),
    ("div", "I64", 3, "I64"),
]


@each_case(("operator", "left", "right", "type_"), ARITHMETIC)
def test_31_the_type_of_arithmetic(operator, left, right, type_):
    assert str(arithmetic_type(operator, argument(left), argument(right))) == type_


NO_ARITHMETIC = [
    ("+", "String", "String", "concat("),
    ("+", "Date", 1, "add_days("),
    ("-", "Date", "Date", "days_between("),
    ("-", "Date", "DateTime", "datetime("),
    ("+", "Bool", 1, "case when"),
    ("+", "String", 1, "string("),
    ("*", 2, "String", "i64("),
    ("div", "F64", 2, "i64("),
    ("+", NULL, 1, None),
    ("+", "[I32]", 1, None),
]


@each_case(("operator", "left", "right", "hint"), NO_ARITHMETIC)
def test_36_types_never_mix_silently(operator, left, right, hint):
    with pytest.raises(Misuse) as failure:
        arithmetic_type(operator, argument(left), argument(right))
    assert hint is None or hint in str(failure.value.hint)


@each_case(("word", "type_"), [("I32", "I64"), ("U64?", "I64?"), ("F32", "F64")])
def test_31_the_type_of_a_negation(word, type_):
    assert str(negate_type(argument(word))) == type_


@each_case("word", ["String", "Bool", "Date", NULL])
def test_36_only_numbers_are_negated(word):
    with pytest.raises(Misuse):
        negate_type(argument(word))


def test_45_a_moment_literal_is_read_when_the_query_is_compiled():
    assert moment_of("date", "1970-01-02") == 1
    assert moment_of("datetime", "1970-01-01T00:00:01Z") == 1000
    with pytest.raises(Misuse, match="2024-1-1"):
        moment_of("date", "2024-1-1")


def test_there_is_no_function_of_an_unknown_name():
    assert function_named("lowr") is None
    assert function_named("lower").name == "lower"
