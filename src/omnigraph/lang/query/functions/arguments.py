"""What arguments and operands may be: as the checker knows them, by kind, and what is wrong where one does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Final

from omnigraph.core.types import (
    FLOATS,
    INTEGERS,
    MOMENTS,
    NUMERICS,
    BaseType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    scalar_of,
)
from omnigraph.core.values import StoredValue
from omnigraph.frozen import frozen

# ---- What the checker knows of arguments, and what it is told


@frozen
class Argument:
    """What is known of an argument before a query runs."""

    type: PropertyType
    #: The value of a literal that is not `null`; None for everything else.
    literal: StoredValue | None = None
    #: A literal or a parameter: fixed before the query runs.
    is_constant: bool = False
    #: The literal `null`, which has no type: `type` means nothing then.
    is_null: bool = False

    @property
    def base(self) -> BaseType:
        """The type without nullability."""
        return self.type.base

    @property
    def scalar(self) -> Scalar | None:
        """The scalar that values compare as; None for lists and vectors."""
        return scalar_of(self.type.base)


#: The literal `null` as an argument.
NULL: Final = Argument(PropertyType(ScalarType(Scalar.STRING), True), is_constant=True, is_null=True)


class Fault(Enum):
    """What is wrong with a call; the checker has a code for each."""

    #: An argument is of another type.
    TYPE = "type"
    #: A literal is of the right type but not a value that is allowed.
    VALUE = "value"
    #: There are too few or too many arguments.
    COUNT = "count"
    #: A `null` stands where it has no type or no use.
    NULL = "null"


class Misuse(Exception):
    """A call or an operator that its arguments do not fit, in a sentence for people.

    `position` is the index of the argument at fault, None when the whole call is.
    """

    def __init__(
        self, message: str, position: int | None = None, hint: str | None = None, fault: Fault = Fault.TYPE
    ) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.hint = hint
        self.fault = fault


# ---- What to write instead of what never fits


AS_TEXT: Final = "write `string(…)` around it"
AS_NUMBER: Final = "`i64(…)` and `f64(…)` read a number from a text"
AS_MOMENT: Final = "`date(…)` and `datetime(…)` read a moment from a text"
BOOL_AS_NUMBER: Final = "write `case when … then 1 else 0 end`"
TIME_BETWEEN: Final = "`days_between(a, b)` and `seconds_between(a, b)` give the time between two moments"
ONE_KIND_OF_MOMENT: Final = "`date(…)` gives the day of a DateTime, `datetime(…)` the midnight of a Date"


# ---- Kinds of arguments


@frozen
class Kind:
    """What one argument of a function may be."""

    #: Completes the sentence "`f` needs …".
    words: str
    scalars: frozenset[Scalar] = frozenset()
    takes_lists: bool = False
    takes_vectors: bool = False
    #: What to write for an argument of another scalar, and for a list.
    hints: Mapping[Scalar, str] = field(default_factory=dict)
    list_hint: str | None = None

    def accepts(self, base: BaseType) -> bool:
        """Whether a type is of this kind."""
        match base:
            case ListType():
                return self.takes_lists
            case VectorType():
                return self.takes_vectors
            case _:
                return scalar_of(base) in self.scalars

    def hint(self, base: BaseType) -> str | None:
        """What to write for an argument of a type that is of another kind."""
        if isinstance(base, ListType):
            return self.list_hint
        scalar = scalar_of(base)
        return None if scalar is None else self.hints.get(scalar)


_TEXT_HINTS: Final = dict.fromkeys(NUMERICS | MOMENTS | {Scalar.BOOL}, AS_TEXT)
_NUMBER_HINTS: Final = {Scalar.STRING: AS_NUMBER, Scalar.BOOL: BOOL_AS_NUMBER} | dict.fromkeys(MOMENTS, TIME_BETWEEN)

TEXT: Final = Kind(
    "a String", frozenset({Scalar.STRING}), hints=_TEXT_HINTS, list_hint="`x in list` looks for an element of a list"
)
INTEGER: Final = Kind(
    "an integer", INTEGERS, hints=_NUMBER_HINTS | dict.fromkeys(FLOATS, "`i64(…)` cuts off the fraction")
)
NUMBER: Final = Kind("a number", NUMERICS, hints=_NUMBER_HINTS)
MOMENT: Final = Kind("a Date or a DateTime", MOMENTS, hints={Scalar.STRING: AS_MOMENT})
DATETIME: Final = Kind(
    "a DateTime",
    frozenset({Scalar.DATETIME}),
    hints={Scalar.DATE: "a Date has no time of day", Scalar.STRING: "`datetime(…)` reads one from a text"},
)
MOMENT_OR_TEXT: Final = Kind("a String, a Date or a DateTime", MOMENTS | {Scalar.STRING})
LIST: Final = Kind("a list", takes_lists=True, hints={Scalar.STRING: "`length(…)` counts the characters of a text"})
VECTOR: Final = Kind("a vector", takes_vectors=True)
SCALAR: Final = Kind(
    "a single value", frozenset(Scalar) - {Scalar.BLOB}, list_hint="`element(list, i)` gives one element"
)
NUMBER_OR_TEXT: Final = Kind(
    "a number or a String",
    NUMERICS | {Scalar.STRING},
    hints={Scalar.BOOL: BOOL_AS_NUMBER} | dict.fromkeys(MOMENTS, TIME_BETWEEN),
)
ORDERED: Final = Kind("values that have an order", frozenset(Scalar) - {Scalar.BLOB})
ANY: Final = Kind("a value other than a Blob", frozenset(Scalar) - {Scalar.BLOB}, takes_lists=True, takes_vectors=True)
