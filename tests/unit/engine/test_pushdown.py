"""Which predicates storage evaluates, in which form, and which stay with the engine."""

from __future__ import annotations

from typing import Any

from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType
from omnigraph.engine.pushdown import push_down
from omnigraph.lang.query.ir import (
    CompareOp,
    Comparison,
    Constant,
    EntityRef,
    Operand,
    ParamRef,
    Predicate,
    PropertyRef,
    TextKind,
    TextMatch,
)
from omnigraph.storage.datasets.filters import AllOf, AnyOf, Compare, Filter, HasItem, HasText
from support.subtests import each_case

ENUM = EnumType(("draft", "final"))
S, I32, I64, F64 = (
    ScalarType(scalar) for scalar in (Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.F64)
)
#: What `$null` and `$two` are.
VALUES = {"null": None, "two": 2, "ab": ("a", None, "b")}


def field(base: BaseType, name: str = "x") -> PropertyRef:
    return PropertyRef("n", name, PropertyType(base, nullable=True))


def constant(base: BaseType, value: Any) -> Constant:
    return Constant(value, PropertyType(base))


def param(base: BaseType, name: str) -> ParamRef:
    return ParamRef(name, PropertyType(base, nullable=True))


def case(left: Operand, op: CompareOp, right: Operand) -> Comparison:
    return Comparison(left, op, right)


@each_case(
    ("predicate", "expected"),
    [
        (case(field(I32), CompareOp.EQ, constant(F64, 2.7)), Compare("x", I32, "=", 2.7)),
        (case(field(I32), CompareOp.LT, param(I64, "two")), Compare("x", I32, "<", 2)),
        (case(field(S), CompareOp.NE, param(S, "null")), Compare("x", S, "!=", None)),
        (case(field(ENUM), CompareOp.EQ, constant(S, "final")), Compare("x", ENUM, "=", "final")),
        # The property on the right turns the comparison round.
        (case(constant(I64, 5), CompareOp.LT, field(I64)), Compare("x", I64, ">", 5)),
        (case(constant(I64, 5), CompareOp.LE, field(I64)), Compare("x", I64, ">=", 5)),
        (case(constant(I64, 5), CompareOp.GT, field(I64)), Compare("x", I64, "<", 5)),
        (case(constant(I64, 5), CompareOp.GE, field(I64)), Compare("x", I64, "<=", 5)),
        (case(constant(I64, 5), CompareOp.EQ, field(I64)), Compare("x", I64, "=", 5)),
        (case(constant(I64, 5), CompareOp.NE, field(I64)), Compare("x", I64, "!=", 5)),
        # Parts of texts.
        (case(field(S), CompareOp.STRING_CONTAINS, constant(S, "a%")), HasText("x", "a%")),
        (
            case(field(S), CompareOp.STARTS_WITH, constant(S, "_")),
            HasText("x", "_", at_start=True),
        ),
        # Members of lists.
        (
            case(field(ListType(Scalar.STRING)), CompareOp.CONTAINS, constant(S, "a")),
            HasItem("x", Scalar.STRING, "a"),
        ),
        (
            case(field(ListType(Scalar.I32)), CompareOp.CONTAINS, param(I64, "two")),
            HasItem("x", Scalar.I32, 2),
        ),
        # Members of a given list, without its nulls.
        (
            case(param(ListType(Scalar.STRING), "ab"), CompareOp.CONTAINS, field(ENUM)),
            AnyOf((Compare("x", ENUM, "=", "a"), Compare("x", ENUM, "=", "b"))),
        ),
        (
            case(constant(ListType(Scalar.I64), ()), CompareOp.CONTAINS, field(I32)),
            AnyOf(()),
        ),
    ],
)
def test_a_comparison_with_a_known_value_goes_to_storage(
    predicate: Predicate, expected: Filter
) -> None:
    pushed = push_down([predicate], VALUES)
    assert pushed.filter == expected
    assert pushed.rest == ()


LONG = constant(ListType(Scalar.I64), tuple(range(1001)))


@each_case(
    "predicate",
    [
        # Storage would narrow the value to the width of the items, or drop its fraction.
        case(field(ListType(Scalar.F32)), CompareOp.CONTAINS, constant(F64, 0.1)),
        case(field(ListType(Scalar.F64)), CompareOp.CONTAINS, constant(F64, 0.1)),
        case(field(ListType(Scalar.I64)), CompareOp.CONTAINS, constant(F64, 2.5)),
        # Null never matches, and the engine knows.
        case(field(S), CompareOp.STARTS_WITH, param(S, "null")),
        case(param(ListType(Scalar.I64), "null"), CompareOp.CONTAINS, field(I64)),
        # No value is known before the rows are.
        case(field(I64), CompareOp.EQ, field(I64, "y")),
        case(field(I64), CompareOp.EQ, PropertyRef("m", "x", PropertyType(I64))),
        case(EntityRef("n", "Paper"), CompareOp.EQ, EntityRef("m", "Paper")),
        case(constant(S, "abc"), CompareOp.STRING_CONTAINS, field(S)),
        case(constant(S, "abc"), CompareOp.STARTS_WITH, field(S)),
        case(field(ListType(Scalar.I64)), CompareOp.CONTAINS, field(I64, "y")),
        case(constant(I64, 1), CompareOp.EQ, constant(I64, 1)),
        case(LONG, CompareOp.CONTAINS, field(I64)),
        TextMatch(TextKind.SEARCH, field(S), constant(S, "word")),
    ],
)
def test_what_storage_would_judge_differently_or_not_at_all_stays(predicate: Predicate) -> None:
    pushed = push_down([predicate], VALUES)
    assert pushed.filter is None
    assert pushed.rest == (predicate,)


def test_predicates_are_divided_and_the_rest_keeps_its_order() -> None:
    first = case(field(I64), CompareOp.GT, constant(I64, 1))
    second = case(field(S, "y"), CompareOp.EQ, constant(S, "a"))
    text = TextMatch(TextKind.SEARCH, field(S), constant(S, "word"))
    pair = case(field(I64), CompareOp.EQ, field(I64, "y"))
    pushed = push_down([text, first, pair, second], {})
    assert pushed.filter == AllOf((Compare("x", I64, ">", 1), Compare("y", S, "=", "a")))
    assert pushed.rest == (text, pair)
    assert push_down([], {}).filter is None


def test_a_list_of_a_thousand_still_goes_to_storage() -> None:
    listed = constant(ListType(Scalar.I64), tuple(range(1000)))
    pushed = push_down([case(listed, CompareOp.CONTAINS, field(I64))], {})
    assert isinstance(pushed.filter, AnyOf)
    assert len(pushed.filter.filters) == 1000
