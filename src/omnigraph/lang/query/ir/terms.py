"""What expressions of the representation are made of: values, references, and the names of operators.

`omnigraph.lang.query.ir` gives all of them; expressions that hold others are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from omnigraph.core.types import ListType, PropertyType, RecordListType, RecordType, Scalar, ScalarType
from omnigraph.core.values import StoredValue, narrowed
from omnigraph.frozen import frozen

#: Reserved parameter that carries the one instant of `now()`: fixed per query, in epoch milliseconds.
NOW = "__now"


#: Entities that each arm of `rrf` yields: `max(RRF_DEPTH_FACTOR * limit, RRF_MIN_DEPTH)`. Changing it changes results.
RRF_DEPTH_FACTOR = 5


RRF_MIN_DEPTH = 50


RRF_DEFAULT_K = 60


FUZZY_DEFAULT_EDITS = 2


ID_TYPE = PropertyType(ScalarType(Scalar.STRING))


_IDS = (ID_TYPE, PropertyType(ScalarType(Scalar.STRING), nullable=True))


INSTANT_TYPE = PropertyType(ScalarType(Scalar.DATETIME))


SCORE_TYPE = PropertyType(ScalarType(Scalar.F64))


COUNT_TYPE = PropertyType(ScalarType(Scalar.I64))


class Direction(StrEnum):
    """The direction of a traversal: from source to target, from target to source, or both ways."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


class CompareOp(StrEnum):
    """Comparison operators. `contains` is already resolved into its two meanings.

    `CONTAINS`: list membership; unknown where the value is not found and the list holds a null. `STRING_CONTAINS`,
    `STARTS_WITH` and `ENDS_WITH`: exact, case-sensitive parts of a text; `%` and `_` are ordinary characters.
    """

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    CONTAINS = "contains"
    STRING_CONTAINS = "string_contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"


@frozen
class PropertyRef:
    """A stored property of the node or edge that `variable` is bound to."""

    variable: str
    property: str
    type: PropertyType


@frozen
class EntityRef:
    """The id of the node or edge that `variable` is bound to. Two are the same if type and id are.

    `node_type` is its type, or its types joined by `|`.
    """

    variable: str
    node_type: str
    #: Whether the variable may be bound to nothing, in a row where an optional block has no solution.
    nullable: bool = False

    @property
    def type(self) -> PropertyType:
        """That of ids."""
        return _IDS[self.nullable]


@frozen
class TypeOf:
    """The name of the type of the node or edge that `variable` is bound to."""

    variable: str
    nullable: bool = False

    @property
    def type(self) -> PropertyType:
        """String."""
        return _IDS[self.nullable]


@frozen
class ParamRef:
    """A parameter; `NOW` is the reserved one."""

    name: str
    type: PropertyType


@frozen
class Constant:
    """A literal in stored form."""

    value: StoredValue
    type: PropertyType


Value = ParamRef | Constant


Operand = PropertyRef | EntityRef | ParamRef | Constant


def value_of(operand: Value, params: Mapping[str, StoredValue]) -> StoredValue:
    """The value of a literal or a parameter at its place."""
    if isinstance(operand, Constant):
        return operand.value
    return narrowed(operand.type.base, params[operand.name])


TRUTHS = (PropertyType(ScalarType(Scalar.BOOL)), PropertyType(ScalarType(Scalar.BOOL), nullable=True))


class TextKind(StrEnum):
    """The three text conditions.

    `SEARCH`: at least one term of the query occurs in the value, both analysed (`engine.tables.text_analysis`).
    `MATCH_TEXT`: the terms of the query occur at the same distances.
    `FUZZY`: at least one folded word of the query is within `edits` Levenshtein steps of a folded word of the value.
    """

    SEARCH = "search"
    MATCH_TEXT = "match_text"
    FUZZY = "fuzzy"


class Connective(StrEnum):
    """How truth values are joined."""

    AND = "and"
    OR = "or"


@frozen
class PathRef:
    """A part of a path, in its order: the ids of its nodes or edges, their types, or its steps."""

    path: str
    part: PathPart
    nullable: bool = False

    @property
    def type(self) -> PropertyType:
        """A list of texts; of steps a list of records."""
        base = RecordListType(STEP) if self.part is PathPart.STEPS else ListType(Scalar.STRING)
        return PropertyType(base, self.nullable)


class ArithmeticOp(StrEnum):
    """Arithmetic on numbers: I64 of integers, F64 otherwise and for `/`. A division by zero is null."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"


class AggregateFunction(StrEnum):
    """Aggregates. `COUNT` counts non-null values, or rows for a variable; the others ignore nulls.

    `SUM`, `AVG`, `STDDEV` (of the sample) and `MEDIAN` are F64 whatever the input; all but `COUNT` and `COLLECT` are
    null over no value. `COLLECT` is sorted ascending by value unless it has an order of its own.
    """

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    STDDEV = "stddev"
    MEDIAN = "median"
    COLLECT = "collect"


@frozen
class ColumnRef:
    """A result column, as an order key or in `having`; `is_property` where it shows a property as it is stored."""

    name: str
    type: PropertyType
    is_property: bool = False


class PathChoice(StrEnum):
    """Which paths between two nodes are bound.

    `SHORTEST`: one, as a search reaches its end; of several the one whose list of edge ids is smallest, ids compared by
    code point, then by type. `ALL`: every trail, which has no edge twice.
    """

    SHORTEST = "shortest"
    ALL = "all"


class PathPart(StrEnum):
    """What a path is made of. `STEPS` are its nodes with the edges that lead to them, made of the other columns."""

    NODES = "nodes"
    EDGES = "edges"
    NODE_TYPES = "node_types"
    EDGE_TYPES = "edge_types"
    STEPS = "steps"


#: One step of a path. No edge leads to the first node.
STEP = RecordType((("node", ID_TYPE), ("node_type", ID_TYPE), ("edge", _IDS[True]), ("edge_type", _IDS[True])))


# ---- rankings, steps and parameters


@frozen
class Step:
    """One way to go on: along edges of a type in one direction, from nodes of one type to nodes of one type."""

    edge_type: str
    direction: Direction
    source_type: str
    target_type: str


@frozen
class Nearest:
    """Ascending L2 distance of a vector property to the query; entities without a vector never appear.

    A String query is embedded once, at run time. `recall` is the share of the nearest that has to be found on average,
    above 0 and up to 1; without it, or where it is null, the settings decide.
    """

    field: PropertyRef
    query: Value
    recall: Value | None = None


@frozen
class Bm25:
    """Descending relevance of a String property; entities that have no term of the query never appear.

    The score is BM25 over the distinct terms of the query. Its statistics count the nodes of the type in the snapshot,
    whatever the match leaves of them and whatever any index knows.
    """

    field: PropertyRef
    query: Value


@frozen
class Rrf:
    """Reciprocal rank fusion of two rankings.

    Each arm ranks the entities of the first arm's variable and yields its best `depth(limit)` of them; fan-out rows do
    not consume ranks. An entity scores the sum over the arms of `1 / (k + rank + 1)`, ranks from 0, an absent arm
    adding 0. Inside an arm ties are broken by id. An arm of another variable orders rows, by the id of its own entity
    and then by the ids of all variables, and entities rank by their first row. Entities of one score come in the order
    of the other order keys, then of the first arm, then of the second, then of their ids.
    """

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Value

    @staticmethod
    def depth(limit: int) -> int:
        """The number of entities each arm yields."""
        return max(RRF_DEPTH_FACTOR * limit, RRF_MIN_DEPTH)


Rank = Nearest | Bm25 | Rrf


@frozen(kw_only=True)
class Parameter:
    """A declared parameter. `default` is the value of a missing one, `has_default` whether it has that.

    `is_pattern`: it is used as a regular expression.
    """

    name: str
    type: PropertyType
    default: StoredValue = None
    has_default: bool = False
    is_pattern: bool = False
