"""The types of expressions, as far as values depend on them: written as in a schema, without question marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from support.oracle.graphs import Shape
from support.oracle.queries import (
    ARITHMETIC,
    Aggregate,
    Binary,
    Case,
    Column,
    Exists,
    Expression,
    Function,
    IsNull,
    ListOf,
    Literal,
    Now,
    Parameter,
    Property,
    Text,
    Unary,
    Variable,
)

INTEGERS = ("I32", "I64", "U32", "U64")
FLOATS = ("F32", "F64")
NUMBERS = (*INTEGERS, *FLOATS)

_RESULTS: Mapping[str, str] = (
    dict.fromkeys(("lower", "upper", "trim", "substring", "concat", "replace", "string"), "String")
    | dict.fromkeys(("length", "size", "div", "i64", "year", "month", "day", "hour", "minute", "second"), "I64")
    | dict.fromkeys(("days_between", "seconds_between"), "I64")
    | dict.fromkeys(("matches", "contains", "starts_with", "ends_with"), "Bool")
    | dict.fromkeys(("sqrt", "pow", "ln", "exp", "f64", "l2", "cosine"), "F64")
    | {"split": "[String]", "nodes": "[String]", "edges": "[String]", "date": "Date", "datetime": "DateTime"}
    | {"object": "object"}
)


def literal_type(value: Any) -> str:
    """The type of a literal."""
    match value:
        case bool():
            return "Bool"
        case int():
            return "I64" if value < 2**63 else "U64"
        case float():
            return "F64"
        case datetime():
            return "DateTime"
        case date():
            return "Date"
        case str():
            return "String"
    raise ValueError(f"{value} has no type")


@dataclass(frozen=True, slots=True)
class Known:
    """A part of an expression whose value is known already."""

    value: Any
    type: str


@dataclass(frozen=True, slots=True)
class Types:
    """What is known of the names in an expression."""

    shape: Shape
    #: The node or edge types of every variable.
    variables: Mapping[str, tuple[str, ...]]
    params: Mapping[str, str]
    columns: Mapping[str, str]
    #: The types inside of a block.
    inside: Callable[[Aggregate, Types], Types]

    def of(self, expression: Expression) -> str:
        """The type of an expression; a node or an edge is its id."""
        match expression:
            case Variable():
                return "String"
            case Property(_, name) if name.startswith("@"):
                return "String"
            case Property(variable, name):
                item = self.shape.common(self.variables[variable])[name]
                return item.scalar or item.type
            case Parameter(name):
                return self.params[name]
            case Literal(value):
                return literal_type(value)
            case Now():
                return "DateTime"
            case Column(name):
                return self.columns[name]
            case Known(_, type_):
                return type_
            case ListOf(items):
                return f"[{self.common(items)}]" if items else "[String]"
            case Binary(left, operator, right) if operator in ARITHMETIC:
                is_float = operator == "/" or {self.of(left), self.of(right)} & set(FLOATS)
                return "F64" if is_float else "I64"
            case Unary("-", operand):
                return "F64" if self.of(operand) in FLOATS else "I64"
            case Binary() | Unary() | IsNull() | Exists() | Text():
                return "Bool"
            case Case(branches, otherwise):
                values = [value for _, value in branches]
                return self.common(values if otherwise is None else [*values, otherwise])
            case Function(name, arguments):
                return self._result(name, arguments)
            case Aggregate():
                return self._aggregate(expression)
        raise ValueError(f"{expression} has no type")

    def _result(self, name: str, arguments: Sequence[Expression]) -> str:
        if name in _RESULTS:
            return _RESULTS[name]
        if name in ("coalesce", "least", "greatest"):
            return self.common(arguments)
        first = self.of(arguments[0])
        if name == "element":
            return first[1:-1]
        if name in ("abs", "round", "floor", "ceil"):
            return "F64" if first in FLOATS else "U64" if first == "U64" else "I64"
        return first

    def _aggregate(self, call: Aggregate) -> str:
        match call.function:
            case "count":
                return "I64"
            case "min" | "max" | "collect":
                assert call.argument is not None, "only `count` takes none"
                known = self if call.clauses is None else self.inside(call, self)
                inner = known.of(call.argument)
                return f"[{inner}]" if call.function == "collect" else inner
        return "F64"

    def common(self, values: Iterable[Expression]) -> str:
        """The one type of values that stand side by side."""
        present = [item for item in values if item != Literal(None)]
        found = [self.of(item) for item in present]
        if not set(found) <= set(NUMBERS):
            return next((type_ for type_ in found if type_ != "[String]"), found[0])
        literals = [item.value for item in present if isinstance(item, Literal)]
        others = {type_ for type_, item in zip(found, present, strict=True) if not isinstance(item, Literal)}
        if not others:
            others = set(found)
        if others == {"F32"}:
            return "F32"
        if others & set(FLOATS) or any(isinstance(value, float) for value in literals):
            return "F64"
        if len(others) == 1:
            (only,) = others
            low, high = _RANGES[only]
            return only if all(low <= value <= high for value in literals) else "I64"
        return "I64"


_RANGES = {"I32": (-(2**31), 2**31 - 1), "I64": (-(2**63), 2**63 - 1), "U32": (0, 2**32 - 1), "U64": (0, 2**64 - 1)}
