"""Backfill expressions: the value that existing rows get for a property which they lack.

    Paper.lang = "en"                       a constant, in JSON
    Paper.label = title                     another property of the same row, under its name before the change
    Paper.label = coalesce(subtitle, title, "untitled")
    Paper.label = concat(series, " ", title)       also lower(…), upper(…), trim(…)

Pure data and pure functions; evaluating an expression over rows is the work of the pipeline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from typing import Any

from lark import Lark, Transformer
from lark.exceptions import UnexpectedInput, VisitError

from omnigraph.core.source import did_you_mean
from omnigraph.core.types import EnumType, PropertyType, Scalar, ScalarType, is_wider
from omnigraph.core.values import MANAGED, StoredValue, coerce_json, spelled_cell
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef, TypeKind

_GRAMMAR = r"""
start: expression
expression: constant | call | property
call: NAME "(" expression ("," expression)* ")"
property: NAME
constant: ESCAPED_STRING -> json
    | SIGNED_NUMBER -> json
    | "true" -> true
    | "false" -> false
    | "[" [constant ("," constant)*] "]" -> items
NAME: /[a-z_][A-Za-z0-9_]*/
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
"""
_MAX_CHARACTERS = 10_000
_MAX_DEPTH = 100
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_TEXT = ScalarType(Scalar.STRING)
_BLOB = ScalarType(Scalar.BLOB)
#: What a function takes: at least so many arguments, at most so many.
_FUNCTIONS: dict[str, tuple[int, int | None]] = {
    "coalesce": (2, None),
    "concat": (2, None),
    "lower": (1, 1),
    "upper": (1, 1),
    "trim": (1, 1),
}


@frozen
class Constant:
    """One value for every row, in stored form."""

    value: StoredValue


@frozen
class PropertyValue:
    """The value of another property of the row; `name` is the one before the change."""

    name: str


@frozen
class Call:
    """A function of other expressions."""

    function: str
    arguments: tuple[Expression, ...]


Expression = Constant | PropertyValue | Call


@frozen(kw_only=True)
class Backfill:
    """The value of one property: as it was written, and as it is computed."""

    text: str
    expression: Expression


def split_backfill(assignment: str) -> tuple[str, str]:
    """`Type.property=expression` as its two sides.

    >>> split_backfill('Paper.lang="en"')
    ('Paper.lang', '"en"')

    Raises:
        BadRequestError: there is no such form.
    """
    target, equals, text = assignment.partition("=")
    if not equals or "." not in target:
        raise BadRequestError(
            f"the backfill {assignment!r} is not of the form Type.property=value, such as 'Paper.lang=\"en\"'"
        )
    return target.strip(), text.strip()


def split_target(target: str) -> tuple[TypeKind | None, str, str]:
    """`Paper.lang` or `node:Paper.lang` as kind, type and property.

    Raises:
        BadRequestError: there is no such form.
    """
    owner, dot, name = target.strip().partition(".")
    kind, colon, type_name = owner.rpartition(":")
    kinds = {"": None, "node": TypeKind.NODE, "edge": TypeKind.EDGE}
    if not dot or not name or not type_name or kind not in kinds or (colon and not kind):
        raise BadRequestError(f"the backfill target {target!r} is not of the form Type.property")
    return kinds[kind], type_name, name


def read_backfill(target: str, value: object, type_: PropertyType, accepted: NodeDef | EdgeDef) -> Backfill:
    """The backfill of a property of a type, checked against what its rows have.

    A text is an expression; any other value is a constant.

    Raises:
        BadRequestError: it cannot be read, or does not fit the property.
    """
    reader = _Reader(target, PropertyType(type_.base, nullable=False), accepted)
    text = value if isinstance(value, str) else reader.spell(value)
    return Backfill(text=text, expression=reader.read(text))


class _Reader:
    def __init__(self, target: str, type_: PropertyType, accepted: NodeDef | EdgeDef) -> None:
        self._target = target
        self._type = type_
        self._accepted = accepted

    def spell(self, value: object) -> str:
        if value is None:
            raise self._wrong("null is what rows hold without one")
        try:
            return json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise self._wrong(
                f"a {type(value).__name__} is not a JSON value: give a text in double quotes, such as '\"2024-01-31\"'"
            ) from error

    def read(self, text: str) -> Expression:
        if len(text) > _MAX_CHARACTERS:
            raise self._wrong(f"it is longer than {_MAX_CHARACTERS} characters")
        if _depth(text) > _MAX_DEPTH:
            raise self._wrong(f"it is nested more than {_MAX_DEPTH} levels deep")
        try:
            tree: Any = _Tree().transform(_parser().parse(text))
        except UnexpectedInput as error:
            raise self._wrong(
                f"{text!r} cannot be read at column {error.column}; a text is written in double quotes"
            ) from error
        except VisitError as error:
            raise self._wrong(str(error.orig_exc)) from error
        expression, is_fitting = self._resolve(tree, self._type)
        if not is_fitting:
            raise self._wrong(f"{text} does not fit {self._type}")
        return expression

    def _resolve(self, tree: Any, wanted: PropertyType) -> tuple[Expression, bool]:
        """An expression with its names looked up, and whether its values are of the wanted type."""
        match tree:
            case ("constant", value):
                try:
                    return Constant(_stored(wanted, value)), True
                except ValueError as error:
                    raise self._wrong(str(error)) from error
            case ("property", name):
                return PropertyValue(name), self._fits(name, wanted)
            case ("call", function, arguments):
                return self._call(function, arguments, wanted)
        raise AssertionError(f"unknown expression {tree!r}")

    def _call(self, function: str, arguments: list[Any], wanted: PropertyType) -> tuple[Expression, bool]:
        if function not in _FUNCTIONS:
            hint = did_you_mean(function, _FUNCTIONS) or f"there are {', '.join(_FUNCTIONS)}"
            raise self._wrong(f"there is no function `{function}`: {hint}")
        least, most = _FUNCTIONS[function]
        if len(arguments) < least or (most is not None and len(arguments) > most):
            count = f"{least} argument{'' if least == 1 else 's'}"
            raise self._wrong(f"`{function}` takes {count}{'' if most else ' or more'}")
        inner = wanted if function == "coalesce" else PropertyType(_TEXT, nullable=False)
        resolved = [self._resolve(argument, inner) for argument in arguments]
        is_text = function == "coalesce" or wanted.base == _TEXT
        call = Call(function, tuple(expression for expression, _ in resolved))
        return call, is_text and all(fits for _, fits in resolved)

    def _fits(self, name: str, wanted: PropertyType) -> bool:
        definition = self._accepted.properties.get(name)
        if definition is None:
            hint = did_you_mean(name, self._accepted.properties)
            why = f'{self._accepted.name} has no property `{name}`, and a text is written "{name}"'
            raise self._wrong(f"{why}: {hint}" if hint else why)
        have = definition.type.base
        if have == wanted.base or (isinstance(have, EnumType) and wanted.base == _TEXT):
            return have != _BLOB
        return is_wider(wanted.base, have)

    def _wrong(self, why: str) -> BadRequestError:
        return BadRequestError(f"the backfill of {self._target} is wrong: {why}")


def _depth(text: str) -> int:
    """The maximal depth of brackets outside of strings."""
    steps = [1 if sign in "([" else -1 for sign in _STRING.sub("", text) if sign in "()[]"]
    return max(accumulate(steps), default=0)


def _stored(type_: PropertyType, value: object) -> StoredValue:
    if type_.base != _BLOB or value is None:
        return coerce_json(type_, value)
    if not isinstance(value, str) or not value.startswith(MANAGED):
        raise ValueError("the bytes of a blob are given as `base64:…`")
    return spelled_cell(value)


class _Tree(Transformer[Any, Any]):
    """Parsed text as plain tuples."""

    def start(self, children: list[Any]) -> Any:
        return children[0]

    expression = start

    def json(self, children: list[Any]) -> Any:
        return ("constant", json.loads(children[0]))

    def true(self, _: list[Any]) -> Any:
        return ("constant", True)

    def false(self, _: list[Any]) -> Any:
        return ("constant", False)

    def items(self, children: list[Any]) -> Any:
        return ("constant", [child[1] for child in children if child is not None])

    def property(self, children: list[Any]) -> Any:
        return ("property", str(children[0]))

    def call(self, children: list[Any]) -> Any:
        return ("call", str(children[0]), children[1:])


@cache
def _parser() -> Lark:
    # Made when it is needed: hardly any process reads a backfill.
    return Lark(_GRAMMAR, parser="lalr")


def used_properties(expression: Expression) -> frozenset[str]:
    """The properties that an expression reads."""
    match expression:
        case Constant():
            return frozenset()
        case PropertyValue(name):
            return frozenset([name])
        case Call(arguments=arguments):
            return frozenset().union(*map(used_properties, arguments))


def pick_backfill(given: Mapping[str, object], kind: TypeKind, type_name: str, name: str) -> tuple[str, object] | None:
    """The entry of a mapping that is about a property, by its full or its short target.

    Raises:
        BadRequestError: two entries are about it.
    """
    found = [
        (target, value)
        for target, value in given.items()
        if split_target(target) in ((None, type_name, name), (kind, type_name, name))
    ]
    if len(found) > 1:
        raise BadRequestError(f"the backfill of {type_name}.{name} is given twice")
    return found[0] if found else None
