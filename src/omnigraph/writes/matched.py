"""The rows of the match of a mutation: statements run for what their variables are bound to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from omnigraph.core.arrow import Array, Rows, one_array, pa, stored_values
from omnigraph.engine.operators.blocks import Blocks
from omnigraph.engine.operators.pipeline import START, run_pipeline
from omnigraph.engine.plan.planned import match_of
from omnigraph.engine.predicates import RowSource, with_columns
from omnigraph.engine.rows import Column, IntArray
from omnigraph.engine.tables.context import Context, optional_variables, variable_tables
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

_ID = "id"
#: Stand for a variable in the columns of blocks: their values, and where integers overflow in them.
_BLOCK, _BEYOND = "~block", "~beyond"
#: The column with the names of types; no property has such a name.
TYPE = "@type"
_EDGES = ir.PathPart.EDGES


def held_block(block: ir.Exists | ir.BlockValue) -> Column:
    """The column that holds the values of a block."""
    return _BLOCK, repr(block)


def overflow_of(block: ir.BlockValue) -> Column:
    """The column that says where integers overflow in a block."""
    return _BEYOND, repr(block)


@frozen
class Tuples:
    """The distinct combinations of entities and paths that some variables are bound to, in the order of their ids."""

    #: A row of the match for each of them.
    places: IntArray
    #: The combination of every row of the match.
    number_of: IntArray
    #: The columns of the match at `places`.
    columns: Mapping[Column, Array]
    #: How messages call them.
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many combinations there are."""
        return len(self.places)

    def label(self, place: int) -> str:
        """How a message calls one of them: by the ids of its variables."""
        ids = ((name, self.columns.get((name, _ID), self.columns.get((name, _EDGES)))) for name in self.names)
        return ", ".join(f"${name} {column[place].as_py()!r}" for name, column in ids if column is not None)

    def bound(self, variable: str, type_name: str) -> list[tuple[int, str]]:
        """The combinations in which a variable is bound to an entity of a type, with its id."""
        ids, types = stored_values(self.columns[variable, _ID]), stored_values(self.columns[variable, TYPE])
        pairs = enumerate(zip(ids, types, strict=True))
        return [(place, str(entity_id)) for place, (entity_id, name) in pairs if name == type_name]


@dataclass(slots=True)
class MatchedRows:
    """The rows that statements run for; without a match there is one, without variables."""

    count: int = 1
    #: What statements read of the variables, as it was at the match, in stored form.
    columns: dict[Column, Array] = field(default_factory=dict)
    #: Whether a variable is a `node` or an `edge`.
    kinds: dict[str, str] = field(default_factory=dict)

    def distinct(self, expressions: Iterable[ir.Expression], variables: Iterable[str | None] = ()) -> Tuples:
        """The distinct combinations of what expressions, and the given variables, are made from."""
        names = {name for item in expressions for name in ir.variables(item)} | {name for name in variables if name}
        return self._distinct(tuple(sorted(names - {ir.OWN_ROW})))

    def _distinct(self, names: tuple[str, ...]) -> Tuples:
        if not names or not self.count:
            count = min(self.count, 1)
            return Tuples(np.arange(count), np.zeros(self.count, np.int64), {}, ())
        parts = [stored_values(self.columns[name, part]) for name in names for part in self._identity(name)]
        # A variable of an optional block may be bound to nothing, which is one more entity here.
        keys = [tuple("" if part is None else f"={part}" for part in row) for row in zip(*parts, strict=True)]
        first: dict[tuple[str, ...], int] = {}
        for place, key in enumerate(keys):
            first.setdefault(key, place)
        number = {key: position for position, key in enumerate(sorted(first))}
        places = np.array([first[key] for key in number], np.int64)
        wanted = pa.array(places)
        kept = {*names, _BLOCK, _BEYOND}
        columns = {column: values.take(wanted) for column, values in self.columns.items() if column[0] in kept}
        return Tuples(places, np.array([number[key] for key in keys], np.int64), columns, names)

    def _identity(self, name: str) -> tuple[str, str]:
        """The columns that tell entities from others, or paths."""
        return (_ID, TYPE) if (name, _ID) in self.columns else (str(ir.PathPart.NODES), str(_EDGES))

    def add(self, variable: str, type_name: str, rows: Rows, tuples: Tuples) -> None:
        """Bind a new variable: rows of one combination share its row."""
        chosen = pa.array(tuples.number_of)
        for name in rows.column_names:
            self.columns[variable, name] = one_array(rows[name]).take(chosen)
        self.columns[variable, TYPE] = pa.repeat(pa.scalar(type_name), self.count)
        self.kinds[variable] = "node"

    @property
    def nbytes(self) -> int:
        """Memory of what is known of the rows."""
        return sum(column.nbytes for column in self.columns.values())


def run_match(query: ir.MutationIR, context: Context | None) -> MatchedRows:
    """The rows of the match of a mutation, with what its statements read of them."""
    if query.match is None:
        return MatchedRows()
    assert context is not None, "a match runs on a snapshot"
    wanted, blocks = _wanted(query), _blocks(query)
    variables = tuple(dict.fromkeys(variable for variable, _ in wanted))
    entities = [variable for variable, name in wanted if name == _ID]
    ops = match_of(context, query.match, variables)
    tables, optional = {**context.tables, **variable_tables(ops)}, optional_variables(ops)
    context = replace(context, blocks=Blocks(), tables=tables, optional=optional)
    parts: list[dict[Column, Array]] = []
    count = 0
    for found in run_pipeline(context, ops, [START], variables):
        context.budget.enter("Match")
        # Rows that are equal are returned as often as they stand there; statements run once for them.
        rows = found.written_out(0, found.total) if query.returns else found
        rows = with_columns(context, rows, wanted)
        part = {column: rows.columns[column] for column in wanted}
        part |= {(name, TYPE): context.type_names(name, rows.variables[name]) for name in entities}
        for block in blocks:
            part |= _values_of(block, RowSource(context, rows))
        parts.append(part)
        count += rows.count
    columns = {column: _joined([part[column] for part in parts]) for column in parts[0]} if parts else {}
    return MatchedRows(count, columns, {name: context.tables[name].kind for name in entities})


def _values_of(block: ir.Exists | ir.BlockValue, rows: RowSource) -> dict[Column, Array]:
    """The values of a block for rows of the match."""
    if isinstance(block, ir.Exists):
        return {held_block(block): rows.column(block)}
    values, overflow = rows.block(block)
    beyond = np.zeros(rows.count, np.bool_) if overflow is None else overflow
    return {held_block(block): values, overflow_of(block): pa.array(beyond)}


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else one_array(pa.chunked_array(parts))


def _blocks(query: ir.MutationIR) -> list[ir.Exists | ir.BlockValue]:
    """The blocks in statements, whose values are those at the match."""
    expressions = (item for statement in query.statements for item in ir.statement_expressions(statement))
    parts = (part for item in expressions for part in ir.walk(item))
    return list(dict.fromkeys(part for part in parts if isinstance(part, ir.Exists | ir.BlockValue)))


def _wanted(query: ir.MutationIR) -> list[Column]:
    """What the statements read of the variables of the match: their ids, properties, and the parts of paths."""
    paths = set(_paths(query.match or ()))
    new = {item.variable for item in query.statements if isinstance(item, ir.InsertNode)}
    found: dict[Column, None] = {}
    for statement in query.statements:
        if isinstance(statement, ir.UpdateRows | ir.DeleteNode | ir.DeleteEdge) and statement.variable is not None:
            found[statement.variable, _ID] = None
        for expression in ir.statement_expressions(statement):
            found |= dict.fromkeys(_columns(expression, paths))
    for column in query.returns:
        if not isinstance(column.expression, ir.Nearest | ir.Bm25 | ir.Rrf):
            # Properties are read behind the statements, paths stay as they were.
            columns = _columns(column.expression, paths)
            found |= dict.fromkeys(item for item in columns if item[1] == _ID or item[0] in paths)
    return [column for column in found if column[0] not in new]


def _paths(ops: Iterable[ir.Op]) -> Iterator[str]:
    """The paths that a match binds."""
    for op in ops:
        if isinstance(op, ir.PathSearch):
            yield op.path
        elif isinstance(op, ir.OptionalJoin):
            yield from _paths(op.pipeline)


def _columns(expression: ir.Expression, paths: Collection[str]) -> Iterator[Column]:
    for part in ir.walk(expression):
        match part:
            case ir.PropertyRef(variable, name) if variable != ir.OWN_ROW:
                yield variable, _ID
                yield variable, name
            case ir.EntityRef(variable) | ir.TypeOf(variable):
                yield variable, _ID
            case ir.PathRef(path):
                yield from _parts_of(path)
            case ir.Exists(outer) | ir.BlockValue(_, outer):
                for variable in outer:
                    yield from _parts_of(variable) if variable in paths else ((variable, _ID),)
            case _:
                pass


def _parts_of(path: str) -> tuple[Column, Column]:
    return (path, ir.PathPart.NODES), (path, _EDGES)
