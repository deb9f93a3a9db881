"""Random expressions of a wanted type over the variables in scope, and random values for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from hypothesis import strategies as st

from support.oracle.graphs import (
    COMPONENTS,
    POOLS,
    TEXT_PROPERTIES,
    TEXTS,
    WORDS,
    PropertyShape,
    World,
    often_first,
    read_shape,
)
from support.oracle.kinds import FLOATS, INTEGERS, NUMBERS
from support.oracle.patterns import PATH, Members
from support.oracle.queries import (
    COMPARISONS,
    Aggregate,
    Binary,
    Case,
    Clause,
    Declared,
    Exists,
    Expression,
    Function,
    IsNull,
    ListOf,
    Literal,
    Named,
    Parameter,
    Property,
    Sort,
    Text,
    Unary,
    Variable,
    moment_text,
)

#: What an expression is wanted to be; numbers are whole or not, whatever their width.
KINDS = ("Bool", "whole", "float", "String", "Date", "DateTime")
#: Inequalities are true more often.
OPERATORS = (*COMPARISONS, "!=", "!=", "<=", ">=")
#: Words that are near to those of the texts, or not.
_TYPOS = ("grap", "garph", "lanse", "vectr", "tensro", "graph", "xyz", "lance vektor")
_SCALARS_OF = {"whole": INTEGERS, "float": FLOATS}
_SMALL = [Literal(value) for value in (1, 2, 0, 3, -1, 7, 5)]
_PARTS = ("a", "b", "", "%", "_", "graph", "\u0308", "lo", "A")


def kind_of(scalar: str) -> str:
    """The kind of the values of a scalar."""
    return "whole" if scalar in INTEGERS else "float" if scalar in FLOATS else scalar


def family_of(scalar: str) -> str:
    """Scalars of one family compare with each other."""
    return "number" if scalar in NUMBERS else scalar


def _fits(type_: str, value: Any) -> bool:
    """Whether a number is a value of a type of parameters; a 32-bit float may round it."""
    if type_ == "F64":
        return True
    if type_ == "F32":
        return abs(value) < 3e38
    low, high = _RANGES[type_]
    return value == math.floor(value) and low <= value <= high


_RANGES = {"I32": (-(2**31), 2**31 - 1), "I64": (-(2**63), 2**63 - 1), "U32": (0, 2**32 - 1), "U64": (0, 2**64 - 1)}


def scalar_of(item: PropertyShape) -> str:
    """What one value of a property, or one item of its list, compares as."""
    found = item.scalar or item.item
    assert found is not None, f"{item.name} has no comparable values"
    return found


_LITERALS = {
    family: [Literal(value) for value in often_first(pool)]
    for family, pool in (*POOLS.items(), ("number", (*POOLS["I64"], *POOLS["F64"])))
}


@dataclass(slots=True)
class Scope:
    """The variables that a block sees."""

    nodes: dict[str, Members] = field(default_factory=dict)
    edges: dict[str, Members] = field(default_factory=dict)
    #: The kind of every name of `let`.
    lets: dict[str, str] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    #: Variables of optional blocks beside the clauses, and of those around them.
    optional: set[str] = field(default_factory=set)
    outer_optional: set[str] = field(default_factory=set)
    #: The clauses of the block so far, and the types of the variables around it.
    clauses: list[Clause] = field(default_factory=list)
    outer: dict[str, Members] = field(default_factory=dict)
    #: The types that variables are written with.
    declared: dict[str, Members] = field(default_factory=dict)

    def child(self) -> Scope:
        """A scope for a block: it sees everything here and adds nothing to it."""
        return Scope(
            dict(self.nodes),
            dict(self.edges),
            dict(self.lets),
            list(self.paths),
            outer_optional=self.every_optional,
            declared=dict(self.declared),
        )

    def begin(self) -> None:
        """Start the clauses of a block."""
        self.clauses, self.outer = [], self.types()

    @property
    def every_optional(self) -> set[str]:
        """The variables that may be bound to nothing."""
        return self.optional | self.outer_optional

    def types(self) -> dict[str, Members]:
        """The types of all variables."""
        return {**self.nodes, **self.edges, **dict.fromkeys(self.paths, PATH)}

    def learn(self, types: Mapping[str, Members], nodes: Container[str]) -> None:
        """Take over what clauses say about the variables of a block."""
        for name, members in types.items():
            if name.startswith("_") or name in self.outer:
                continue
            if members == PATH:
                self.paths += [] if name in self.paths else [name]
            elif name in self.nodes or not members or members[0] in nodes:
                self.nodes[name] = members
            else:
                self.edges[name] = members

    def starts(self) -> list[str]:
        """The variables at which a traversal may begin: those that have to be there."""
        return [name for name, members in self.nodes.items() if members and name not in self.optional]

    def properties(self, wanted: Callable[[PropertyShape], bool]) -> list[tuple[Property, PropertyShape]]:
        """The properties of all variables that are wanted; an enum that is a text elsewhere is left out."""
        shape = read_shape()
        return [
            (Property(variable, item.name), item)
            for variable, members in (self.nodes | self.edges).items()
            for item in shape.common(members).values()
            if wanted(item) and all(shape.properties(type_)[item.name].type == item.type for type_ in members)
        ]


class ExpressionWriter:
    """Draws expressions. Simple choices come first, so that failures shrink to simple queries."""

    def __init__(self, draw: st.DrawFn, world: World) -> None:
        self.draw = draw
        self.world = world
        self.shape = read_shape()
        self.params: list[Declared] = []
        self.values: dict[str, Any] = {}
        #: Whether text conditions may stand here.
        self.in_match = False

    def block(self, scope: Scope, size: int, depth: int) -> tuple[Clause, ...]:
        """The clauses of a block inside of an expression; `scope` gains its variables."""
        raise NotImplementedError

    def pick(self, options: Sequence[Any]) -> Any:
        return options[0] if len(options) == 1 else self.draw(st.sampled_from(options))

    def chance(self, one_in: int) -> bool:
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    # ---- expressions

    def expression(self, scope: Scope, kind: str, depth: int = 0, nested: int = 0) -> Expression:
        """An expression of a kind; `depth` is that of its block, `nested` how far it is inside another one."""
        if nested >= 2 or not self.chance(2):
            return self.atom(scope, kind)
        found = getattr(self, f"_{kind.lower()}")(scope, depth, nested + 1)
        return found if found is not None else self.choice(scope, kind, depth, nested + 1)

    def atom(self, scope: Scope, kind: str) -> Expression:
        """A property, a name, a parameter or a literal."""
        scalars = _SCALARS_OF.get(kind, (kind,))
        properties = scope.properties(lambda item: item.scalar in scalars)
        names = [name for name, known in scope.lets.items() if known == kind]
        match self.pick(["property", "property", "property", "constant", "name"]):
            case "property" if properties:
                return self.pick(properties)[0]
            case "name" if names:
                return Named(self.pick(names))
        if kind == "whole":
            return self.pick(_SMALL) if self.chance(2) else self.constant_of(self.pick(["I32", "U32", "I64"]))
        return self.constant_of("F64" if kind == "float" else kind)

    def constant_of(self, scalar: str) -> Expression:
        """A literal or a parameter whose type is of the kind of a scalar."""
        pool = often_first(POOLS[scalar])
        if self.chance(3):
            return self.declare(scalar, self.json_value(scalar), may_be_null=True)
        return Literal(self.pick(pool))

    def choice(self, scope: Scope, kind: str, depth: int, nested: int) -> Expression:
        """One of several values of a kind."""

        def part() -> Expression:
            return self.expression(scope, kind, depth, nested)

        # Without a value of a type there would be none.
        first = self.atom(scope, kind)
        match self.pick(["case", "coalesce", "extreme", "case"]):
            case "coalesce":
                return Function("coalesce", (first, *(part() for _ in range(self.pick([1, 2])))))
            case "extreme":
                return Function(self.pick(["least", "greatest"]), (first, part()))
        branches = [(self.expression(scope, "Bool", depth, nested), first)]
        if self.chance(3):
            value = Literal(None) if self.chance(3) else part()
            branches.append((self.expression(scope, "Bool", depth, nested), value))
        return Case(tuple(branches), None if self.chance(3) else part())

    def _whole(self, scope: Scope, depth: int, nested: int) -> Expression | None:
        def whole() -> Expression:
            return self.expression(scope, "whole", depth, nested)

        kinds = ["sum", "sum", "remainder", "length", "part of a moment", "between", "size", "cast", "minus", "abs"]
        match self.pick([*kinds, "choice", "block", "large", "large"]):
            case "sum":
                return Binary(whole(), self.pick(["+", "-", "*"]), whole())
            case "large":
                return self.large(scope)
            case "remainder":
                return self.pick([lambda a, b: Binary(a, "%", b), lambda a, b: Function("div", (a, b))])(
                    whole(), whole()
                )
            case "length" if scope.paths and self.chance(2):
                return Function("length", (Variable(self.pick(scope.paths)),))
            case "length":
                return Function("length", (self.expression(scope, "String", depth, nested),))
            case "part of a moment":
                return self._part_of_a_moment(scope, depth, nested)
            case "between":
                moment = self.pick(["Date", "DateTime"])
                sides = tuple(self.expression(scope, moment, depth, nested) for _ in range(2))
                return Function(self.pick(["days_between", "seconds_between"]), sides)
            case "size":
                return Function("size", (self.some_list(scope, depth, nested),))
            case "cast":
                return Function("i64", (self.expression(scope, self.pick(["float", "String"]), depth, nested),))
            case "minus":
                return Unary("-", self.variable_part(scope, "whole"))
            case "abs":
                return Function(self.pick(["abs", "round", "floor", "ceil"]), (whole(),))
            case "block":
                return self.block_value(scope, depth, "count")
        return None

    def _part_of_a_moment(self, scope: Scope, depth: int, nested: int) -> Expression:
        kind = self.pick(["Date", "DateTime"])
        words = ["year", "month", "day", *(["hour", "minute", "second"] if kind == "DateTime" else [])]
        return Function(self.pick(words), (self.expression(scope, kind, depth, nested),))

    def _float(self, scope: Scope, depth: int, nested: int) -> Expression | None:
        def number() -> Expression:
            return self.expression(scope, self.pick(["float", "whole"]), depth, nested)

        def real() -> Expression:
            return self.expression(scope, "float", depth, nested)

        match self.pick(["sum", "quotient", "rounded", "root", "cast", "choice", "minus", "block"]):
            case "sum":
                sides = (real(), number()) if self.chance(2) else (number(), real())
                return Binary(sides[0], self.pick(["+", "-", "*", "%"]), sides[1])
            case "quotient":
                return Binary(number(), "/", number())
            case "rounded":
                return Function(self.pick(["floor", "ceil", "round", "abs"]), (real(),))
            case "root":
                return Function("sqrt", (number(),))
            case "cast":
                return Function("f64", (self.expression(scope, self.pick(["whole", "String"]), depth, nested),))
            case "minus":
                return Unary("-", self.variable_part(scope, "float"))
            case "block":
                return self.block_value(scope, depth, self.pick(["sum", "avg"]))
        return None

    def large(self, scope: Scope) -> Expression:
        """A number that is often beyond 64 bits, and never because of constants alone."""
        wide = scope.properties(lambda item: item.scalar in ("I64", "U64"))
        part = self.pick(wide)[0] if wide else self.variable_part(scope, "whole")
        other = Literal(self.pick([2**63 - 1, 2**62, -(2**63) + 1, 3_037_000_500]))
        return Binary(part, self.pick(["*", "*", "+", "-"]), self.pick([other, other, part]))

    def variable_part(self, scope: Scope, kind: str) -> Expression:
        """A property of a kind; a minus before a literal would be another literal."""
        found = scope.properties(lambda item: item.scalar in _SCALARS_OF[kind])
        if found:
            return self.pick(found)[0]
        return Function("abs", (self.atom(scope, kind),))

    def _string(self, scope: Scope, depth: int, nested: int) -> Expression | None:
        def text() -> Expression:
            return self.expression(scope, "String", depth, nested)

        kinds = ["change", "concat", "substring", "replace", "string", "element", "choice", "block"]
        match self.pick(kinds):
            case "change":
                return Function(self.pick(["lower", "upper", "trim"]), (text(),))
            case "concat":
                return Function("concat", (text(), *(text() for _ in range(self.pick([0, 1, 2])))))
            case "substring":
                places = [self.expression(scope, "whole", depth, nested) for _ in range(self.pick([1, 2]))]
                return Function("substring", (text(), *places))
            case "replace":
                return Function("replace", (text(), Literal(self.pick(_PARTS)), text()))
            case "string":
                return Function("string", (self.expression(scope, self.pick(KINDS), depth, nested),))
            case "element":
                items = Function("split", (text(), Literal(self.pick(("a", "b", " ", "", "%")))))
                return Function("element", (items, self.expression(scope, "whole", depth, nested)))
            case "block":
                return self.block_value(scope, depth, self.pick(["min", "max"]), "String")
        return None

    def _date(self, scope: Scope, depth: int, nested: int) -> Expression | None:
        return self._moment(scope, "Date", depth, nested)

    def _datetime(self, scope: Scope, depth: int, nested: int) -> Expression | None:
        return self._moment(scope, "DateTime", depth, nested)

    def _moment(self, scope: Scope, kind: str, depth: int, nested: int) -> Expression | None:
        def moment() -> Expression:
            return self.expression(scope, kind, depth, nested)

        match self.pick(["moved", "truncated", "cast", "choice", "block"]):
            case "moved":
                count = self.expression(scope, "whole", depth, nested)
                return Function(self.pick(["add_days", "add_months"]), (moment(), count))
            case "truncated":
                units = ["year", "month", "week", "day", *(["hour"] if kind == "DateTime" else [])]
                return Function("truncate", (moment(), Literal(self.pick(units))))
            case "cast":
                other = "DateTime" if kind == "Date" else "Date"
                value = self.expression(scope, other, depth, nested)
                text = Function("string", (moment(),))
                # Of a text that is written there it is a literal, which has to be one.
                return Function(kind.lower(), (self.pick([value, text]),))
            case "block":
                return self.block_value(scope, depth, self.pick(["min", "max"]), kind)
        return None

    def some_list(self, scope: Scope, depth: int, nested: int) -> Expression:
        """A list of anything."""
        lists = [p for p, _ in scope.properties(lambda item: item.item is not None)]
        match self.pick(["property", "split", "literal", "block", "path"]):
            case "path" if scope.paths:
                return Function(self.pick(["nodes", "edges"]), (Variable(self.pick(scope.paths)),))
            case "property" if lists:
                return self.pick(lists)
            case "block":
                found = self.block_value(scope, depth, "collect", self.pick(KINDS))
                if found is not None:
                    return found
            case "split":
                return Function("split", (self.expression(scope, "String", depth, nested), Literal("a")))
        return self.list_literal(self.pick(["String", "I64", "F64", "Date"]))

    # ---- conditions

    def _bool(self, scope: Scope, depth: int, nested: int) -> Expression | None:
        def truth() -> Expression:
            return self.expression(scope, "Bool", depth, nested)

        kinds = ["compare"] * 4 + ["joined"] * 3 + ["not", "null", "in", "text", "exists", "search", "choice"]
        match self.pick(kinds):
            case "compare":
                return self.some_comparison(scope, depth, nested)
            case "joined":
                return Binary(truth(), self.pick(["and", "or"]), truth())
            case "not":
                return Unary("not", truth())
            case "null":
                return IsNull(self.testable(scope, depth, nested), self.chance(2))
            case "in":
                return self.membership(scope, depth, nested)
            case "text":
                return self.text_comparison(scope, depth, nested)
            case "exists":
                return self.exists(scope, depth)
            case "search" if self.in_match:
                return self.text_condition(scope)
        return None

    def some_comparison(self, scope: Scope, depth: int, nested: int) -> Expression:
        """Two values of one family."""
        kind = self.pick(KINDS)
        other = self.pick(["whole", "float"]) if kind in ("whole", "float") else kind
        sides = [self.expression(scope, item, depth, nested) for item in (kind, other)]
        if kind == "whole" and self.chance(3):
            sides[0] = self.large(scope)
        same = self.same_entities(scope) if self.chance(8) else None
        return same or Binary(sides[0], self.pick(OPERATORS), sides[1])

    def same_entities(self, scope: Scope) -> Expression | None:
        """Two variables of one type, or their ids."""
        known = scope.nodes | scope.edges
        pairs = [(a, b) for a in known for b in known if a != b and set(known[a]) & set(known[b])]
        if not pairs:
            return None
        left, right = self.pick(pairs)
        operator = self.pick(["=", "!="])
        if self.chance(2):
            return Binary(Variable(left), operator, Variable(right))
        return Binary(Property(left, "@id"), operator, Property(right, "@id"))

    def testable(self, scope: Scope, depth: int, nested: int) -> Expression:
        """What may be tested for null."""
        found = scope.properties(lambda item: item.type != "Blob" and item.nullable)
        if scope.every_optional and self.chance(2):
            return Variable(self.pick(sorted(scope.every_optional)))
        if found and not self.chance(3):
            return self.pick(found)[0]
        return self.expression(scope, self.pick(KINDS), depth, nested)

    def membership(self, scope: Scope, depth: int, nested: int) -> Expression:
        """`x in list`, or not."""
        kind = self.pick(KINDS)
        operator = self.pick(["in", "in", "not in"])
        value = self.expression(scope, kind, depth, nested)
        lists = [p for p, item in scope.properties(lambda i: i.item is not None) if kind_of(str(item.item)) == kind]
        match self.pick(["literal", "literal", "property", "parameter", "block", "split", "path"]):
            case "property" if lists:
                return Binary(value, operator, self.pick(lists))
            case "path" if scope.paths and scope.nodes:
                ids = Function("nodes", (Variable(self.pick(scope.paths)),))
                return Binary(Property(self.pick(list(scope.nodes)), "@id"), operator, ids)
            case "parameter":
                scalars = _SCALARS_OF.get(kind, (kind,))
                return Binary(value, operator, self.list_parameter(self.pick(scalars)))
            case "block":
                found = self.block_value(scope, depth, "collect", kind)
                if found is not None:
                    return Binary(value, operator, found)
            case "split" if kind == "String":
                items = Function("split", (self.expression(scope, "String", depth, nested), Literal("b")))
                return Binary(value, operator, items)
        scalar = {"whole": "I64", "float": "F64"}.get(kind, kind)
        items = [self.constant_of(scalar) for _ in range(self.pick([1, 2, 3, 0]))]
        return Binary(value, operator, ListOf(tuple(items)))

    def text_comparison(self, scope: Scope, depth: int, nested: int) -> Expression:
        """Parts of texts."""
        name = self.pick(["contains", "starts_with", "ends_with", "matches"])
        part: Expression = Literal(self.pick(_PARTS))
        if name == "matches":
            part = Literal(self.pick(["a", "^a", "b$", "[0-9]", "^$"]))
        elif self.chance(3):
            part = self.expression(scope, "String", depth, nested)
        return Function(name, (self.expression(scope, "String", depth, nested), part))

    # ---- blocks

    def exists(self, scope: Scope, depth: int) -> Expression | None:
        """`exists { … }` or `not { … }`."""
        if depth >= 2 or not any(scope.nodes.values()):
            return None
        return Exists(self.block(scope.child(), self.pick([1, 2]), depth + 1), self.chance(2))

    def block_value(self, scope: Scope, depth: int, function: str, kind: str = "") -> Expression | None:
        """An aggregate over the solutions of a block."""
        if depth >= 2 or not any(scope.nodes.values()):
            return None
        inside = scope.child()
        clauses = self.block(inside, self.pick([1, 2]), depth + 1)
        if function == "count":
            nodes = list(inside.nodes)
            argument = self.pick([None, None, Variable(self.pick(nodes)), self.atom(inside, self.pick(KINDS))])
            return Aggregate("count", argument, argument is not None and self.chance(2), clauses=clauses)
        wanted = kind or self.pick(["whole", "float"])
        argument = self.atom(inside, wanted)
        if function in ("sum", "avg"):
            return Aggregate(function, argument, clauses=clauses)
        order: tuple[Sort, ...] = ()
        limit = None
        if function == "collect" and self.chance(2):
            fields = [p for p, _ in inside.properties(lambda item: item.scalar is not None)]
            if fields:
                order = (Sort(self.pick(fields), self.pick(["", "asc", "desc"]), self.pick(["", "", "first", "last"])),)
            limit = self.pick([None, 1, 2])
        return Aggregate(function, argument, False, order, limit, clauses)

    # ---- text conditions

    def text_condition(self, scope: Scope) -> Text | None:
        fields = self.text_fields(scope)
        if not fields:
            return None
        function = self.pick(["search", "match_text", "fuzzy"])
        if function != "fuzzy":
            return Text(function, self.pick(fields), self.wanted_words())
        edits: Parameter | Literal | None = None
        match self.pick(["default", "literal", "parameter"]):
            case "literal":
                edits = Literal(self.pick([0, 1, 2, 3]))
            case "parameter":
                edits = self.declare(self.pick(["I32", "I64", "U32"]), self.pick([0, 1, 2]))
        return Text("fuzzy", self.pick(fields), self.constant("String", _TYPOS), edits)

    def text_fields(self, scope: Scope) -> list[Property]:
        nodes = Scope(scope.nodes)
        return [p for p, _ in nodes.properties(lambda item: item.name in TEXT_PROPERTIES)]

    def wanted_words(self) -> Parameter | Literal:
        several = [" ".join(pair) for pair in (WORDS[:2], WORDS[1::-1], WORDS[2:4], WORDS[3:])]
        return self.constant("String", (*WORDS, "Lance", *several, "lance, Graphs"))

    # ---- values

    def pool(self, members: Members, item: PropertyShape) -> Sequence[Any]:
        """Values that may equal a property: mostly those that it has."""
        if not self.chance(3):
            found = [row[item.name] for type_ in members for row in self.world.get(type_, ())]
            if item.item is not None:
                found = [part for parts in found for part in parts or ()]
            found = [value for value in found if value is not None]
            if scalar_of(item) == "F32":
                # What a person writes for a stored 0.10000000149011612.
                found += [float(f"{value:.6g}") for value in found]
            if found:
                return found
        if item.type.startswith("enum"):
            return item.allowed
        return often_first(TEXTS if item.name in TEXT_PROPERTIES else POOLS[scalar_of(item)])

    def constant(self, scalar: str, pool: Sequence[Any] | None = None) -> Parameter | Literal:
        if self.chance(2):
            return self.parameter(scalar, pool)
        return self.literal(family_of(scalar), pool)

    def literal(self, family: str, pool: Sequence[Any] | None = None) -> Literal:
        return self.pick([Literal(value) for value in pool or ()] or _LITERALS[family])

    def list_literal(self, scalar: str) -> ListOf:
        """Numbers of a list are all whole or all not, and small."""
        if scalar in NUMBERS:
            pool = [0.0, 0.5, 2.0, 2.7, 1, 0.1] if scalar.startswith("F") else [0, 1, 2, 2**53 + 1]
            items = [Literal(v) for v in pool]
        else:
            items = _LITERALS[scalar]
        # Without items a list literal is a list of strings.
        least = 0 if scalar == "String" else 1
        return ListOf(tuple(self.pick(items) for _ in range(self.pick([1, 2, least]))))

    def parameter(self, scalar: str, pool: Sequence[Any] | None = None) -> Parameter:
        """A parameter that compares with `scalar`: any number for a number; null if it may be."""
        known = [p.name for p in self.params if family_of(p.type) == family_of(scalar)]
        if known and self.chance(4 if pool is None else 12):
            return Parameter(self.pick(known))
        value = self.pick(often_first(POOLS[scalar]) if pool is None else pool)
        if scalar in NUMBERS:
            fitting = [type_ for type_ in NUMBERS if _fits(type_, value)]
            scalar = scalar if scalar in fitting and self.chance(2) else self.pick(fitting or ["F64"])
        return self.declare(scalar, self.json_value(scalar, [value]), may_be_null=True)

    def list_parameter(self, scalar: str) -> Parameter:
        items = [self.json_value(scalar) for _ in range(self.pick([0, 1, 2]))]
        if self.chance(4):
            items.append(None)
        return self.declare(f"[{scalar}]", items, may_be_null=True)

    def vector(self) -> Parameter | ListOf:
        if self.chance(2):
            parts = [Literal(self.pick([0.0, 1.0, 2.0, 0.5, 3])) for _ in range(4)]
            return ListOf(tuple(parts))
        parts = [self.pick(COMPONENTS) for _ in range(4)]
        return self.declare("Vector(4)", parts, may_be_null=True)

    def json_value(self, scalar: str, pool: Sequence[Any] | None = None) -> Any:
        """A value of a type as JSON carries it."""
        value = self.pick(often_first(POOLS[scalar]) if pool is None else pool)
        if isinstance(value, date):
            return moment_text(value)
        if scalar not in NUMBERS or scalar.startswith("F"):
            return value
        value = min(int(value), 2**64 - 1)
        return str(value) if self.chance(6) else value

    def declare(self, type_: str, value: Any, *, may_be_null: bool = False) -> Parameter:
        name = f"p{len(self.params)}"
        kinds = ["plain"] * 6 + ["nullable"] * 3 + ["null", "omitted"]
        kind = self.pick(kinds) if may_be_null else "plain"
        self.params.append(Declared(name, type_, kind != "plain"))
        match kind:
            case "plain" | "nullable":
                self.values[name] = value
            case "null":
                self.values[name] = None
        return Parameter(name)
