"""The functions of single values: what they take, what they give, and what people read about them.

Pure data: the kernels are in `engine.functions`. Every function gives null where one of its arguments is null,
`coalesce` excepted; `null_when` of an entry says where else it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from omnigraph.core.source import did_you_mean
from omnigraph.core.types import FLOATS, BaseType, ListType, PropertyType, Scalar, ScalarType
from omnigraph.core.values import StoredValue, parse_date, parse_datetime, quote
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import pattern_problem
from omnigraph.lang.query.functions import arguments as kinds
from omnigraph.lang.query.functions.arguments import ONE_KIND_OF_MOMENT, Argument, Fault, Kind, Misuse
from omnigraph.lang.query.functions.operand_types import common_type

# ---- Entries


class Group(StrEnum):
    """The chapters of the functions."""

    TEXT = "text"
    NUMBERS = "numbers"
    NULL = "null"
    TIME = "time"
    LISTS = "lists"
    CASTS = "casts"
    VECTORS = "vectors"


Arguments = Sequence[Argument]


def _never(_arguments: Arguments) -> bool:
    return False


def _always(_arguments: Arguments) -> bool:
    return True


def _unchecked(_name: str, _arguments: Arguments) -> None:
    """There is nothing to check beyond the kinds of the arguments."""


@frozen(kw_only=True)
class Function:
    """One function: what people read about it, and how the type of its result follows from its arguments."""

    name: str
    group: Group
    signature: str
    summary: str
    #: A call of literals and its value, as the language writes them.
    example: str
    #: What the arguments may be; the last kind is that of all further ones.
    kinds: tuple[Kind, ...]
    #: How many of the last arguments may be left out, and whether any number may follow.
    optional: int = 0
    is_variadic: bool = False
    base: Callable[[Arguments], BaseType]
    #: Where the result is null although no argument is, in words; empty where it never is.
    null_when: str = ""
    #: Whether that can be so for arguments of these types.
    can_be_null: Callable[[Arguments], bool] = _never
    #: Refuses what the kinds alone let through.
    check: Callable[[str, Arguments], None] = _unchecked
    #: Whether integers can overflow: then `engine.arithmetic.calculate` computes it, which finds the rows.
    can_overflow: bool = False

    @property
    def least(self) -> int:
        """The fewest arguments."""
        return len(self.kinds) - self.optional

    @property
    def most(self) -> int | None:
        """The most arguments; None where there is no bound."""
        return None if self.is_variadic else len(self.kinds)

    def kind(self, position: int) -> Kind:
        """What the argument at this index may be."""
        return self.kinds[min(position, len(self.kinds) - 1)]

    def result(self, arguments: Arguments) -> PropertyType:
        """The type of the result.

        Raises:
            Misuse: the function does not take these arguments.
        """
        self._check_count(len(arguments))
        for position, argument in enumerate(arguments):
            if argument.is_null and self.name != "coalesce":
                raise Misuse(f"`{self.name}` of `null` is always null", position, fault=Fault.NULL)
            kind = self.kind(position)
            if not argument.is_null and not kind.accepts(argument.base):
                message = f"`{self.name}` needs {kind.words}, found {argument.base}"
                raise Misuse(message, position, kind.hint(argument.base))
        self.check(self.name, arguments)
        base = self.base(arguments)
        known_null = all if self.name == "coalesce" else any
        nullable = known_null(item.is_null or item.type.nullable for item in arguments)
        return PropertyType(base, nullable or self.can_be_null(arguments))

    def _check_count(self, count: int) -> None:
        if self.least <= count and (self.most is None or count <= self.most):
            return
        if self.most is None:
            wanted = f"at least {self.least}"
        else:
            wanted = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        plural = "" if wanted.endswith(" 1") or wanted == "1" else "s"
        raise Misuse(
            f"`{self.name}` takes {wanted} argument{plural}, found {count}", fault=Fault.COUNT, hint=self.signature
        )


# ---- What single functions give, check, and where they give null


_STRING_TYPE: Final = ScalarType(Scalar.STRING)
_I64_TYPE: Final = ScalarType(Scalar.I64)
_U64_TYPE: Final = ScalarType(Scalar.U64)
_F32_TYPE: Final = ScalarType(Scalar.F32)
_F64_TYPE: Final = ScalarType(Scalar.F64)


def _same(arguments: Arguments) -> BaseType:
    return arguments[0].base


def _widened(arguments: Arguments) -> BaseType:
    """A number as functions give it: F64, I64, or U64 where it is one already."""
    scalar = arguments[0].scalar
    if scalar in FLOATS:
        return _F64_TYPE
    return _U64_TYPE if scalar is Scalar.U64 else _I64_TYPE


def _loses_u64(arguments: Arguments) -> bool:
    """Whether a U64 becomes an I64, which not every one can be."""
    is_mixed = any(item.scalar is Scalar.U64 and item.literal is None for item in arguments if not item.is_null)
    return is_mixed and common_type(arguments).base == _I64_TYPE


#: The units of `truncate`, from long to short.
UNITS: Final = ("year", "month", "week", "day", "hour")
#: `round` takes as many digits behind the point, or before it where negative.
MAX_DIGITS: Final = 15


def moment_of(name: str, text: str) -> StoredValue:
    """The stored value of `date("…")` or `datetime("…")`, as `name` says.

    Raises:
        Misuse: the text is not a moment of that kind.
    """
    try:
        return parse_date(text) if name == "date" else parse_datetime(text)
    except ValueError as problem:
        raise Misuse(str(problem), 0, fault=Fault.VALUE) from problem


def _check_moment_literal(name: str, arguments: Arguments) -> None:
    literal = arguments[0].literal
    if isinstance(literal, str) and arguments[0].scalar is Scalar.STRING:
        moment_of(name, literal)


def _is_open_text(arguments: Arguments) -> bool:
    return arguments[0].scalar is Scalar.STRING and arguments[0].literal is None


def _check_pattern(name: str, arguments: Arguments) -> None:
    if not arguments[1].is_constant:
        raise Misuse(f"the pattern of `{name}` is a literal or a parameter", 1, "`contains(…)` takes any text")
    pattern = arguments[1].literal
    if isinstance(pattern, str) and (problem := pattern_problem(pattern)):
        raise Misuse(f"the pattern of `{name}` is no regular expression: {problem}", 1, fault=Fault.VALUE)


def _check_digits(name: str, arguments: Arguments) -> None:
    if len(arguments) < 2:
        return
    digits = arguments[1].literal
    if not isinstance(digits, int) or not -MAX_DIGITS <= digits <= MAX_DIGITS:
        message = f"the digits of `{name}` are an integer literal from {-MAX_DIGITS} to {MAX_DIGITS}"
        raise Misuse(message, 1, fault=Fault.VALUE)


def _check_unit(name: str, arguments: Arguments) -> None:
    unit = arguments[1].literal
    if not isinstance(unit, str) or unit not in UNITS:
        message = f"the unit of `{name}` is one of the literals {', '.join(map(quote, UNITS))}"
        hint = did_you_mean(unit, UNITS) if isinstance(unit, str) else None
        raise Misuse(message, 1, hint, Fault.TYPE if unit is None else Fault.VALUE)
    if unit == "hour" and arguments[0].scalar is Scalar.DATE:
        raise Misuse("a Date has no hours", 0, ONE_KIND_OF_MOMENT)


def _check_one_kind(name: str, arguments: Arguments) -> None:
    if arguments[0].scalar is not arguments[1].scalar:
        message = f"`{name}` needs two moments of one type, found {arguments[0].base} and {arguments[1].base}"
        raise Misuse(message, 1, ONE_KIND_OF_MOMENT)


def _check_dimensions(name: str, arguments: Arguments) -> None:
    if arguments[0].base != arguments[1].base:
        message = f"`{name}` needs vectors of one length, found {arguments[0].base} and {arguments[1].base}"
        raise Misuse(message, 1)


def _can_be_negative(argument: Argument) -> bool:
    if isinstance(argument.literal, int | float):
        return argument.literal < 0
    return argument.scalar not in (Scalar.U32, Scalar.U64)


def _common(arguments: Arguments) -> BaseType:
    return common_type(arguments).base


def _item(arguments: Arguments) -> BaseType:
    base = arguments[0].base
    assert isinstance(base, ListType), "the first argument is a list"
    return ScalarType(base.item)


# ---- The table


#: What the words of signatures stand for: before the arrow, and behind it.
_KINDS: Final = {
    "String": kinds.TEXT,
    "integer": kinds.INTEGER,
    "number": kinds.NUMBER,
    "Date | DateTime": kinds.MOMENT,
    "DateTime": kinds.DATETIME,
    "String | Date | DateTime": kinds.MOMENT_OR_TEXT,
    "[E]": kinds.LIST,
    "Vector": kinds.VECTOR,
    "scalar": kinds.SCALAR,
    "number | String": kinds.NUMBER_OR_TEXT,
    "ordered": kinds.ORDERED,
    "any": kinds.ANY,
}
_RESULTS: Final[Mapping[str, Callable[[Arguments], BaseType]]] = {
    "String": lambda _: _STRING_TYPE,
    "Bool": lambda _: ScalarType(Scalar.BOOL),
    "I64": lambda _: _I64_TYPE,
    "F64": lambda _: _F64_TYPE,
    "Date": lambda _: ScalarType(Scalar.DATE),
    "DateTime": lambda _: ScalarType(Scalar.DATETIME),
    "[String]": lambda _: ListType(Scalar.STRING),
    "number": _widened,
    "Date | DateTime": _same,
    "T": _common,
    "E": _item,
}
_SIGNATURE: Final = re.compile(r"(?P<name>\w+)\((?P<parameters>.*)\) -> (?P<result>.*)")


def _function(
    signature: str,
    summary: str,
    example: str,
    *,
    null_when: str = "",
    can_be_null: Callable[[Arguments], bool] = _never,
    check: Callable[[str, Arguments], None] = _unchecked,
    can_overflow: bool = False,
) -> Callable[[Group], Function]:
    """An entry; names, kinds and numbers of its arguments are read out of the signature."""
    shape = _SIGNATURE.fullmatch(signature)
    assert shape, "a signature is `name(parameters) -> result`"
    parameters, result = shape["parameters"], shape["result"]
    is_variadic, optional = parameters.endswith(", …"), parameters.count(" [, ")
    plain = parameters.removesuffix(", …").replace(" [, ", ", ").removesuffix("]" * optional)
    accepted = tuple(_KINDS[item.partition(": ")[2]] for item in plain.split(", "))
    return lambda group: Function(
        name=shape["name"],
        group=group,
        signature=signature,
        summary=summary,
        example=example,
        kinds=accepted,
        optional=optional,
        is_variadic=is_variadic,
        base=_RESULTS[result],
        null_when=null_when,
        can_be_null=can_be_null,
        check=check,
        can_overflow=can_overflow,
    )


_ENTRIES: Final = {
    Group.TEXT: (
        _function(
            "lower(s: String) -> String",
            "The text in lower case, character by character and in no language.",
            'lower("Ann") = "ann"',
        ),
        _function(
            "upper(s: String) -> String",
            "The text in upper case, character by character and in no language.",
            'upper("Ann") = "ANN"',
        ),
        _function(
            "trim(s: String) -> String",
            "The text without white space at both ends, all that Unicode calls so.",
            'trim("  Ann ") = "Ann"',
        ),
        _function(
            "length(s: String) -> I64", "The number of characters, which are Unicode code points.", 'length("Zoë") = 3'
        ),
        _function(
            "substring(s: String, from: integer [, n: integer]) -> String",
            "The characters from position `from`, counted from 1: the next `n`, or all; positions outside the text "
            "have none.",
            'substring("Ann Lee", 5, 2) = "Le"',
            null_when="`n` is negative",
            can_be_null=lambda arguments: len(arguments) == 3 and _can_be_negative(arguments[2]),
        ),
        _function(
            "concat(s: String, …) -> String", "The texts one after the other.", 'concat("Ann", " ", "Lee") = "Ann Lee"'
        ),
        _function(
            "replace(s: String, a: String, b: String) -> String",
            "The text with `b` for every `a`, from the left; unchanged where `a` is empty.",
            'replace("1-2-3", "-", ".") = "1.2.3"',
        ),
        _function(
            "split(s: String, separator: String) -> [String]",
            "The parts of the text between the separators, which are taken literally.",
            'split("a,b,,c", ",") = ["a", "b", "", "c"]',
            null_when="the separator is empty",
            can_be_null=lambda arguments: not arguments[1].literal,
        ),
        _function(
            "matches(s: String, pattern: String) -> Bool",
            "Whether a part of the text matches the regular expression, in the syntax of RE2; `^` and `$` bind it to "
            "the ends.",
            'matches("Ann Lee", "^A.*e$") = true',
            check=_check_pattern,
        ),
        _function(
            "contains(s: String, part: String) -> Bool",
            "Whether the text has the part.",
            'contains("Ann Lee", "n L") = true',
        ),
        _function(
            "starts_with(s: String, part: String) -> Bool",
            "Whether the text begins with the part.",
            'starts_with("Ann Lee", "Ann") = true',
        ),
        _function(
            "ends_with(s: String, part: String) -> Bool",
            "Whether the text ends with the part.",
            'ends_with("Ann Lee", "Lee") = true',
        ),
    ),
    Group.NUMBERS: (
        _function(
            "abs(x: number) -> number",
            "The number without its sign: F64 of a float, I64 of an integer, U64 of a U64.",
            "abs(-3) = 3",
            null_when="`x` is the smallest I64",
            can_be_null=lambda arguments: arguments[0].scalar is Scalar.I64 and arguments[0].literal is None,
        ),
        _function(
            "round(x: number [, digits: integer]) -> number",
            "The nearest number of so many digits behind the point, 0 if not given, before the point where negative; "
            "a half goes away from zero. Integers are unchanged.",
            "round(2.5) = 3.0",
            check=_check_digits,
        ),
        _function(
            "floor(x: number) -> number",
            "The largest whole number that is not above; F64 of a float. Integers are unchanged.",
            "floor(-1.5) = -2.0",
        ),
        _function(
            "ceil(x: number) -> number",
            "The smallest whole number that is not below; F64 of a float. Integers are unchanged.",
            "ceil(1.2) = 2.0",
        ),
        _function(
            "sqrt(x: number) -> F64",
            "The square root.",
            "sqrt(9) = 3.0",
            null_when="`x` is negative",
            can_be_null=lambda arguments: _can_be_negative(arguments[0]),
        ),
        _function(
            "pow(x: number, y: number) -> F64",
            "`x` to the power of `y`.",
            "pow(2, 10) = 1024.0",
            null_when="the result is not a finite real number",
            can_be_null=_always,
        ),
        _function(
            "ln(x: number) -> F64",
            "The natural logarithm.",
            "ln(1) = 0.0",
            null_when="`x` is 0 or negative",
            can_be_null=_always,
        ),
        _function(
            "exp(x: number) -> F64",
            "The number e to the power of `x`.",
            "exp(0) = 1.0",
            null_when="the result is too large",
            can_be_null=_always,
        ),
        _function(
            "div(a: integer, b: integer) -> I64",
            "The quotient of two integers without its fraction. A result beyond I64 is an error.",
            "div(-7, 2) = -3",
            null_when="`b` is 0",
            can_be_null=lambda arguments: not arguments[1].literal,
            can_overflow=True,
        ),
        _function(
            "least(x: ordered, …) -> T",
            "The smallest of the values, which have one common type.",
            "least(3, 1, 2) = 1",
            null_when="it is a U64 beyond I64, beside other integers",
            can_be_null=_loses_u64,
        ),
        _function(
            "greatest(x: ordered, …) -> T",
            "The largest of the values, which have one common type.",
            'greatest("a", "c", "b") = "c"',
            null_when="it is a U64 beyond I64, beside other integers",
            can_be_null=_loses_u64,
        ),
    ),
    Group.NULL: (
        _function(
            "coalesce(x: any, …) -> T",
            "The first value that is not null; the values have one common type.",
            'coalesce(null, "none") = "none"',
            null_when="all values are null, or the first other one is a U64 beyond I64, beside other integers",
            can_be_null=_loses_u64,
        ),
    ),
    Group.TIME: (
        _function("year(d: Date | DateTime) -> I64", "The year.", 'year(date("2024-05-17")) = 2024'),
        _function("month(d: Date | DateTime) -> I64", "The month, 1 to 12.", 'month(date("2024-05-17")) = 5'),
        _function("day(d: Date | DateTime) -> I64", "The day of the month, 1 to 31.", 'day(date("2024-05-17")) = 17'),
        _function(
            "hour(t: DateTime) -> I64", "The hour in UTC, 0 to 23.", 'hour(datetime("2024-05-17T09:30:15Z")) = 9'
        ),
        _function(
            "minute(t: DateTime) -> I64", "The minute, 0 to 59.", 'minute(datetime("2024-05-17T09:30:15Z")) = 30'
        ),
        _function(
            "second(t: DateTime) -> I64", "The second, 0 to 59.", 'second(datetime("2024-05-17T09:30:15Z")) = 15'
        ),
        _function(
            "date(x: String | Date | DateTime) -> Date",
            "The day that a text of the form `YYYY-MM-DD` names, or the day of a moment in UTC. A literal is checked "
            "when the query is compiled.",
            'date(datetime("2024-05-17T09:30:15Z")) = date("2024-05-17")',
            check=_check_moment_literal,
            null_when="the text is not such a day",
            can_be_null=_is_open_text,
        ),
        _function(
            "datetime(x: String | Date | DateTime) -> DateTime",
            "The moment that an ISO 8601 text names, in UTC without a zone and with at most milliseconds, or the "
            "midnight of a day. A literal is checked when the query is compiled.",
            'datetime(date("2024-05-17")) = datetime("2024-05-17T00:00:00Z")',
            check=_check_moment_literal,
            null_when="the text is not such a moment",
            can_be_null=_is_open_text,
        ),
        _function(
            "add_days(d: Date | DateTime, n: integer) -> Date | DateTime",
            "The moment so many days later, or earlier where `n` is negative; of the type of `d`.",
            'add_days(date("2024-02-28"), 2) = date("2024-03-01")',
            null_when="the result is outside the years 1 to 9999",
            can_be_null=_always,
        ),
        _function(
            "add_months(d: Date | DateTime, n: integer) -> Date | DateTime",
            "The moment so many months later, or earlier where `n` is negative, on the last day of the month where it"
            " is shorter; of the type of `d`.",
            'add_months(date("2024-01-31"), 1) = date("2024-02-29")',
            null_when="the result is outside the years 1 to 9999",
            can_be_null=_always,
        ),
        _function(
            "days_between(a: Date | DateTime, b: Date | DateTime) -> I64",
            "The days from `a` to `b`, negative where `b` is earlier; between two DateTimes whole periods of 24 "
            "hours, the rest cut off.",
            'days_between(date("2024-02-28"), date("2024-03-01")) = 2',
            check=_check_one_kind,
        ),
        _function(
            "seconds_between(a: Date | DateTime, b: Date | DateTime) -> I64",
            "The whole seconds from `a` to `b`, negative where `b` is earlier, the rest cut off; between two Dates "
            "from midnight to midnight.",
            'seconds_between(date("2024-05-17"), date("2024-05-18")) = 86400',
            check=_check_one_kind,
        ),
        _function(
            "truncate(d: Date | DateTime, unit: String) -> Date | DateTime",
            "The beginning of the year, month, week, day or hour of a moment, in UTC; weeks begin on Monday. The unit"
            " is a literal.",
            'truncate(date("2024-05-17"), "month") = date("2024-05-01")',
            check=_check_unit,
        ),
    ),
    Group.LISTS: (
        _function("size(l: [E]) -> I64", "The number of elements, nulls included.", 'size(["a", "b"]) = 2'),
        _function(
            "element(l: [E], i: integer) -> E",
            "The element at position `i`, counted from 1.",
            'element(["a", "b"], 2) = "b"',
            null_when="the list has no such position, or its element there is null",
            can_be_null=_always,
        ),
    ),
    Group.CASTS: (
        _function(
            "string(x: scalar) -> String",
            "The value as a text: integers in decimal, floats with the fewest digits that tell them apart and no "
            "exponent, moments as in JSON.",
            'string(1.0) = "1"',
        ),
        _function(
            "i64(x: number | String) -> I64",
            "The number without its fraction, or the number that a text of digits with or without a sign names.",
            "i64(2.9) = 2",
            null_when="the text is not such a number, or the number is out of range",
            can_be_null=lambda arguments: arguments[0].scalar not in (Scalar.I32, Scalar.I64, Scalar.U32),
        ),
        _function(
            "f64(x: number | String) -> F64",
            "The nearest F64, or the one that a text such as `-2.5` or `1e3` names.",
            'f64("-2.5") = -2.5',
            null_when="the text is not such a number, or the number is out of range",
            can_be_null=lambda arguments: arguments[0].scalar is Scalar.STRING,
        ),
    ),
    Group.VECTORS: (
        _function(
            "l2(a: Vector, b: Vector) -> F64",
            "The Euclidean distance of two vectors of one length.",
            "l2($a, $b) = 4.0",
            check=_check_dimensions,
        ),
        _function(
            "cosine(a: Vector, b: Vector) -> F64",
            "The cosine of the angle of two vectors of one length: 1 where they point the same way.",
            "cosine($a, $b) = 0.6",
            check=_check_dimensions,
            null_when="all numbers of a vector are 0",
            can_be_null=_always,
        ),
    ),
}

_FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {entry.name: entry for group, entries in _ENTRIES.items() for entry in (of(group) for of in entries)}
)


def function_named(name: str) -> Function | None:
    """The function of this name."""
    return _FUNCTIONS.get(name)


def names() -> tuple[str, ...]:
    """The names of all functions, in the order of the table."""
    return tuple(_FUNCTIONS)
