"""Functions and arithmetic: the examples of the reference, and the numbers that the decisions name."""

from __future__ import annotations

import ast
import re
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.core.arrow import stored_values
from omnigraph.core.types import ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.core.values import StoredValue, parse_date, parse_datetime
from omnigraph.engine.values.arithmetic import calculate, negate
from omnigraph.engine.values.functions import KERNELS, apply, converted
from omnigraph.lang.parsing import pattern_problem
from omnigraph.lang.query.functions.arguments import NULL, Argument
from omnigraph.lang.query.functions.operand_types import arithmetic_type
from omnigraph.lang.query.functions.table import function_named, names
from support.engine_tables import column
from support.subtests import each_case

I64 = PropertyType(ScalarType(Scalar.I64))
F64 = PropertyType(ScalarType(Scalar.F64))
_READ = {"date": (parse_date, Scalar.DATE), "datetime": (parse_datetime, Scalar.DATETIME)}


def literal(value: Any) -> Argument:
    """A constant as the checker would describe it; a date is written as Python does."""
    match value:
        case None:
            return NULL
        case bool():
            scalar = Scalar.BOOL
        case int():
            scalar = Scalar.I64 if value < 2**63 else Scalar.U64
        case float():
            scalar = Scalar.F64
        case str():
            scalar = Scalar.STRING
        case list():
            item = literal(value[0]).scalar if value else Scalar.STRING
            assert item is not None
            return Argument(PropertyType(ListType(item)), tuple(value), is_constant=True)
        case _:
            raise AssertionError(value)
    return Argument(PropertyType(ScalarType(scalar)), value, is_constant=True)


def evaluated(name: str, *values: Any) -> StoredValue:
    """A call of constants: `("date", "2024-05-17")` is a moment, every other value a literal."""
    arguments, data = [], []
    for value in values:
        if isinstance(value, tuple):
            parse, scalar = _READ[value[0]]
            argument = Argument(PropertyType(ScalarType(scalar)), parse(value[1]), is_constant=True)
        else:
            argument = literal(value)
        arguments.append(argument)
        data.append(column(argument.base, [argument.literal])[0])
    if function_named(name).can_overflow:
        found, _ = calculate(name, *data, arithmetic_type(name, *arguments))
    else:
        found = apply(name, data, function_named(name).result(arguments), 1)
    return stored_values(pa.repeat(found, 1))[0]


# ---- the examples of the table


def _constant(text: str) -> Any:
    moment = re.fullmatch(r'(date|datetime)\("(.*)"\)', text)
    words: dict[str, Any] = {"true": True, "false": False, "null": None}
    if moment:
        return moment[1], moment[2]
    return words[text] if text in words else ast.literal_eval(text)


def _split(text: str) -> list[str]:
    """Arguments, parted at the commas that are not inside of a text, brackets or parentheses."""
    return [part for part in re.split(r',\s*(?=(?:[^"]*"[^"]*")*[^"]*$)(?![^\[(]*[\])])', text) if part]


EXAMPLES = [function_named(name).example for name in names() if function_named(name).group != "vectors"]
#: What the page of the reference says of its examples.
VECTORS = {"$a": [0.0, 3.0], "$b": [4.0, 3.0]}


@each_case("example", EXAMPLES)
def test_the_example_of_a_function_is_true(example):
    call, _, value = example.rpartition(" = ")
    shape = re.fullmatch(r"(\w+)\((.*)\)", call)
    found = evaluated(shape[1], *map(_constant, _split(shape[2])))

    wanted = _constant(value)
    if isinstance(wanted, tuple):
        wanted = _READ[wanted[0]][0](wanted[1])
    assert found == wanted
    assert type(found) is type(wanted)


@each_case("name", ["l2", "cosine"])
def test_the_example_of_a_function_of_vectors_is_true(name):
    call, _, value = function_named(name).example.rpartition(" = ")
    first, second = (column(VectorType(2), [VECTORS[word]])[0] for word in re.findall(r"\$\w", call))

    assert apply(name, [first, second], F64, 1).as_py() == pytest.approx(float(value))


def test_every_function_has_a_kernel_or_is_arithmetic():
    assert set(KERNELS) == {name for name in names() if not function_named(name).can_overflow}


# ---- the numbers of the decisions

CASES = [
    (40, "substring", ["abc", 0, 2], "a"),
    (40, "substring", ["abc", 4], ""),
    (40, "substring", ["abc", 2**40, 2**62], ""),
    (40, "substring", ["abc", -1, 3], "a"),
    (40, "substring", ["abc", 1, -1], None),
    (40, "substring", ["a𝔸b", 2, 1], "𝔸"),
    (40, "length", ["a𝔸e\u0301"], 4),
    (41, "upper", ["straße"], "STRAẞE"),
    (41, "trim", ["\u2003\u0085 a\x1f\u3000"], "a\x1f"),
    (41, "replace", ["aaa", "aa", "b"], "ba"),
    (41, "replace", ["aaa", "", "b"], "aaa"),
    (41, "split", ["", ","], [""]),
    (41, "split", ["a.b", "."], ["a", "b"]),
    (41, "split", ["abc", ""], None),
    (42, "matches", ["xay", "a"], True),
    (43, "round", [2.5], 3.0),
    (43, "round", [-2.5], -3.0),
    (43, "round", [-0.4], 0.0),
    (43, "round", [0.49999999999999994], 0.0),
    (43, "round", [1250.0, -2], 1300.0),
    (43, "round", [3e10, -11], 0.0),
    (43, "round", [1e308, 15], 1e308),
    (43, "round", [1.23456789012345, 13], 1.2345678901235),
    (43, "round", [25, -1], 25),
    (44, "i64", [2.9], 2),
    (44, "i64", [-2.9], -2),
    (44, "i64", [9223372036854775808.0], None),
    (44, "i64", [-9223372036854775808.0], -(2**63)),
    (44, "i64", ["9223372036854775807"], 2**63 - 1),
    (44, "i64", ["9223372036854775808"], None),
    (44, "i64", ["-9223372036854775808"], -(2**63)),
    (44, "i64", ["+007"], 7),
    (44, "i64", ["1.5"], None),
    (44, "i64", [" 1"], None),
    (44, "i64", ["٣"], None),
    (44, "f64", ["+2.5E-3"], 0.0025),
    (44, "f64", ["1e999"], None),
    (44, "f64", ["nan"], None),
    (44, "f64", [".5"], None),
    (44, "string", [1.0], "1"),
    (44, "string", [-0.0], "0"),
    (44, "string", [1e21], "1000000000000000000000"),
    (44, "string", [5e-324], f"0.{'0' * 323}5"),
    (44, "string", [("date", "0001-01-01")], "0001-01-01"),
    (44, "string", [("datetime", "2024-05-17T09:30:15.5Z")], "2024-05-17T09:30:15.500Z"),
    (44, "string", [True], "true"),
    (45, "date", [("datetime", "1969-12-31T23:59:59.999Z")], -1),
    (46, "days_between", [("datetime", "2024-01-02T00:00Z"), ("datetime", "2024-01-01T00:00:00.001Z")], 0),
    (46, "seconds_between", [("datetime", "2024-01-01T00:00:01.999Z"), ("datetime", "2024-01-01T00:00Z")], -1),
    (46, "add_days", [("date", "9999-12-31"), 1], None),
    (46, "add_days", [("date", "2024-01-01"), -(2**63)], None),
    (46, "add_months", [("date", "2023-12-31"), 2], date(2024, 2, 29).toordinal() - date(1970, 1, 1).toordinal()),
    (46, "add_months", [("date", "0001-01-31"), -1], None),
    (46, "truncate", [("date", "1970-01-01"), "week"], -3),
    (46, "truncate", [("datetime", "1969-12-31T23:59:59.999Z"), "hour"], -3_600_000),
    (47, "element", [["a", "b"], 0], None),
    (47, "element", [["a", "b"], 3], None),
    (28, "ln", [0], None),
    (28, "sqrt", [-1], None),
    (28, "exp", [1000], None),
    (28, "pow", [0, -1], None),
    (28, "abs", [-(2**63)], None),
    (37, "least", ["rome", "a", "Rome"], "Rome"),
    (35, "greatest", [1, 2.5], 2.5),
    (27, "coalesce", [None, 3], 3),
]


@each_case(("decision", "name", "values", "wanted"), CASES)
def test_a_call_of_the_decisions(decision, name, values, wanted):
    found = evaluated(name, *values)

    assert found == wanted
    assert type(found) is type(wanted)


M = 2**63 - 1
OVERFLOWS = "overflows"
ARITHMETIC = [
    ("+", M, 1, OVERFLOWS),
    ("-", -M, 2, OVERFLOWS),
    ("*", 2**32, 2**31, OVERFLOWS),
    ("*", -(2**32), 2**31, -(2**63)),
    ("*", 3037000500, 3037000500, OVERFLOWS),
    ("*", 3037000499, 3037000499, 9223372030926249001),
    ("%", -7, 3, -1),
    ("%", 7, -3, 1),
    ("%", -(2**63), -1, 0),
    ("%", 1, 0, None),
    ("%", 7.5, -2.0, 1.5),
    ("div", -7, 2, -3),
    ("div", -(2**63), -1, OVERFLOWS),
    ("div", 1, 0, None),
    ("/", 1, 2, 0.5),
    ("/", 2**64 - 1, 1, 18446744073709551616.0),
    ("/", 0, 0, None),
    ("*", 1e308, 10, None),
    ("*", -1.0, 0, 0.0),
    ("-", 2**63, 1, OVERFLOWS),
    ("+", 2**53, 1.0, 9007199254740992.0),
]


@each_case(("operator", "left", "right", "wanted"), ARITHMETIC)
def test_31_arithmetic_of_constants(operator, left, right, wanted):
    first, second = literal(left), literal(right)
    values = [column(item.base, [item.literal])[0] for item in (first, second)]
    found, overflows = calculate(operator, *values, arithmetic_type(operator, first, second))

    assert (OVERFLOWS if overflows is not None else found.as_py()) == wanted
    assert overflows is None or (overflows.as_py() is True and found.as_py() is None)
    assert str(found.as_py()) != "-0.0"


def test_32_an_overflow_is_found_in_its_row_and_nowhere_else():
    found, overflows = calculate("+", pa.array([1, M, None, M]), pa.array([1, 1, 1, None]), I64)

    assert found.to_pylist() == [2, None, None, None]
    assert overflows.to_pylist() == [False, True, False, False]


def test_32_without_an_overflow_there_is_no_mask():
    assert calculate("+", pa.array([1, None]), pa.scalar(1), I64)[1] is None
    assert calculate("+", pa.array([], pa.int64()), pa.scalar(M), I64)[1] is None
    assert negate(pa.array([1.5]), F64)[1] is None


def test_31_the_least_integer_has_no_negation():
    found, overflows = negate(pa.array([-(2**63), 5, None]), I64)

    assert found.to_pylist() == [None, -5, None]
    assert overflows.to_pylist() == [True, False, False]


def test_a_null_that_all_rows_share_gives_one_null():
    found = apply("concat", [pa.array(["a", "b"]), pa.scalar(None, pa.utf8())], literal("").type, 2)

    assert isinstance(found, pa.Scalar)
    assert not found.is_valid
    assert found.type == pa.utf8()


def test_42_a_pattern_is_judged_before_anything_runs():
    assert pattern_problem("a+") is None
    assert "(?=" in pattern_problem("(?=a)")


@pytest.mark.parametrize("is_fixed", [True, False])
def test_35_a_list_is_converted_item_by_item(is_fixed):
    lists = pa.array([[1], [2**64 - 1, 5, None], None, []], pa.list_(pa.uint64()))[1:]
    found = converted(lists[0] if is_fixed else lists, ListType(Scalar.I64))

    assert found.type == pa.list_(pa.field("item", pa.int64()))
    assert (found.as_py() if is_fixed else found.to_pylist()[0]) == [None, 5, None]
    assert is_fixed or found.to_pylist()[1:] == [None, []]


def test_47_vectors_of_many_rows_are_measured_some_at_a_time():
    size = 1 << 19
    type_ = VectorType(size)
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array([1.0, 2.0, 3.0] * size, pa.float32()), type=column(type_, []).type
    )
    zero = column(type_, [[0.0] * size])[0]

    assert apply("l2", [vectors, vectors], F64, 3).to_pylist() == [0.0, 0.0, 0.0]
    assert apply("cosine", [vectors, zero], F64, 3).to_pylist() == [None, None, None]
