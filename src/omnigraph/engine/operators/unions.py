"""Operators over several types at once, and optional blocks: each runs pipelines of single types and joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from omnigraph.core.arrow import pa
from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.engine.distinct import distinct_numbers
from omnigraph.engine.rows import BoolArray, IntArray, Rows, batch_rows
from omnigraph.engine.tables.context import NODES, NOTHING, OUTER_ROW, Context, path_columns
from omnigraph.lang.query import ir

#: Runs a pipeline on rows; only the named variables survive.
Run = Callable[[Context, Sequence[ir.Op], Iterable[Rows], Iterable[str]], Iterator[Rows]]

#: The variables of one hop of a search: where it began, where it is, and where it goes.
_SEED, _AT, _NEXT = "~seed", "~at", "~next"
_LISTS = pa.list_(pa.field("item", pa.utf8()))


class UnionScanOperator:
    """Combines each row with each node of several types."""

    def __init__(self, context: Context, op: ir.UnionScan, live: frozenset[str], run: Run) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._run = run

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The rows of one type after those of another."""
        op, context = self._op, self._context
        for node_type in op.node_types:
            key = node_table_key(node_type)
            scan = ir.NodeScan(op.variable, node_type, op.filters)
            for found in self._run(context.narrowed({op.variable: key}), (scan,), [rows], self._live):
                yield _widened(context, found, {op.variable: key})


class ExpandEdgesOperator:
    """Binds every edge of several types that begins or ends at the source, and its other end."""

    def __init__(self, context: Context, op: ir.ExpandEdges, live: frozenset[str], run: Run) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._run = run

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The edges of one step after those of another."""
        op, context = self._op, self._context
        for step in op.steps:
            keys = {
                op.source: node_table_key(step.source_type),
                op.target: node_table_key(step.target_type),
                op.edge_variable: edge_table_key(step.edge_type),
            }
            expand = ir.Expand(
                op.source,
                op.target,
                step.edge_type,
                step.direction,
                step.target_type,
                edge_variable=op.edge_variable,
                edge_filters=op.edge_filters,
            )
            start = of_type(context, rows, op.source, keys[op.source])
            if start.count:
                for found in self._run(context.narrowed(keys), (expand,), [start], self._live):
                    yield _widened(context, found, keys)


class SearchOperator:
    """Binds the nodes that a breadth-first search over several edge types reaches from the source."""

    def __init__(self, context: Context, op: ir.Search, live: frozenset[str], run: Run) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._run = run
        self._wanted = np.array([context.type_number(node_table_key(name)) for name in op.target_types], np.int64)

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The nodes that every row reaches; equal sources are searched once."""
        op, context = self._op, self._context
        identities = context.identity(op.source, rows.variables[op.source])
        sources, source_of = distinct_numbers(identities)
        seeds, targets = self._reached(sources)
        order = np.argsort(seeds, kind="stable")
        seeds, targets = seeds[order], targets[order]
        sizes = np.bincount(seeds, minlength=len(sources))
        starts = np.cumsum(sizes) - sizes
        if context.tables[op.target] != NODES:
            targets = context.row_ids(targets)
        rows = rows.only(self._live)
        yield from self._joined(rows, sizes[source_of], starts[source_of], targets)

    def _joined(self, rows: Rows, counts: IntArray, starts: IntArray, targets: IntArray) -> Iterator[Rows]:
        """Each row with its targets, as many at a time as a batch has."""
        if self._op.target not in self._live:
            yield rows.multiplied(counts)
            return
        most = batch_rows(rows.width + 1)
        ends = np.cumsum(counts)
        begin = 0
        while begin < rows.count:
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
            some, first = counts[begin:end], starts[begin:end]
            pairs = int(some.sum())
            self._context.budget.allow(pairs * (rows.width + 3) * 8)
            index = np.repeat(np.arange(begin, min(end, rows.count)), some)
            offsets = np.arange(pairs) - np.repeat(np.cumsum(some) - some, some)
            yield rows.take(index).bind(self._op.target, targets[np.repeat(first, some) + offsets])
            begin = end

    def _reached(self, sources: IntArray) -> tuple[IntArray, IntArray]:
        """Pairs of the place of a source and a node, each once, at the hops that are wanted."""
        op, context = self._op, self._context
        seeds = np.flatnonzero(sources >= 0)
        at = sources[seeds]
        visited = (seeds, at)
        found: list[tuple[IntArray, IntArray]] = []
        for hop in range(1, op.high + 1):
            if not len(seeds):
                break
            context.budget.check()
            new_seeds, new_nodes = self._one_hop(seeds, at)
            if hop == 1 and op.low == 1:
                # An edge from a node to itself reaches it, although it counts as visited.
                loops = new_nodes == sources[new_seeds]
                found.append((new_seeds[loops], new_nodes[loops]))
            fresh = not_among(new_seeds, new_nodes, *visited)
            seeds, at = new_seeds[fresh], new_nodes[fresh]
            visited = (np.concatenate([visited[0], seeds]), np.concatenate([visited[1], at]))
            context.budget.allow(2 * (visited[0].nbytes + visited[1].nbytes))
            if hop >= op.low:
                found.append((seeds, at))
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        places = np.concatenate([item[0] for item in found])
        nodes = np.concatenate([item[1] for item in found])
        is_wanted = np.isin(context.type_numbers_of(nodes), self._wanted)
        return places[is_wanted], nodes[is_wanted]

    def _one_hop(self, seeds: IntArray, at: IntArray) -> tuple[IntArray, IntArray]:
        """The distinct nodes that one more hop reaches, by the place of their source."""
        op = self._op
        context = self._context.narrowed({_AT: NODES, _NEXT: NODES})
        frontier = Rows(count=len(seeds), variables={_SEED: seeds, _AT: at})
        places, nodes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for step in op.steps:
            keys = {_AT: node_table_key(step.source_type), _NEXT: node_table_key(step.target_type)}
            start = of_type(context, frontier, _AT, keys[_AT])
            if not start.count:
                continue
            hop = op.hop if op.edge_filters else None
            if hop is not None:
                keys[hop] = edge_table_key(step.edge_type)
            expand = ir.Expand(
                _AT,
                _NEXT,
                step.edge_type,
                step.direction,
                step.target_type,
                edge_variable=hop,
                edge_filters=op.edge_filters,
            )
            for found in self._run(context.narrowed(keys), (expand,), [start], (_SEED, _NEXT)):
                places.append(found.variables[_SEED])
                nodes.append(context.tagged(keys[_NEXT], found.variables[_NEXT]))
        return _distinct_pairs(np.concatenate(places), np.concatenate(nodes))


class OptionalJoinOperator:
    """Each row with every solution of a block; a row without one stays, bound to nothing."""

    def __init__(self, context: Context, op: ir.OptionalJoin, live: frozenset[str], run: Run) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._run = run
        self._inside = context.inside(op.pipeline)
        #: The columns of the paths that the block binds.
        self._parts = [
            column
            for inner in op.pipeline
            if isinstance(inner, ir.PathSearch) and inner.path in live
            for column in context.path_parts(inner.path)
        ]

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """The rows with their solutions, then those without."""
        op = self._op
        wanted = [name for name in op.binds if name in self._live]
        outer = {name: rows.variables[name] for name in op.outer}
        start = Rows(count=rows.count, variables=outer, columns=path_columns(rows, outer))
        start = start.bind(OUTER_ROW, np.arange(rows.count))
        stream = self._run(self._inside, op.pipeline, [start], (OUTER_ROW, *wanted))
        rows = rows.only(self._live)
        is_missing = np.ones(rows.count, np.bool_)
        for found in stream:
            places = found.variables[OUTER_ROW]
            is_missing[places] = False
            joined = rows.take(places)
            for name in wanted:
                joined = joined.bind(name, found.variables[name])
            joined = joined.attach({key: values for key, values in found.columns.items() if key in self._parts})
            yield joined if found.weights is None else joined.multiplied(found.weights)
        if is_missing.any():
            rest = rows.keep(is_missing)
            for name in wanted:
                rest = rest.bind(name, np.full(rest.count, NOTHING, np.int64))
            yield rest.attach({key: pa.nulls(rest.count, _LISTS) for key in self._parts})


# ---- Rows of one type among rows of several


def of_type(context: Context, rows: Rows, variable: str, key: TableKey) -> Rows:
    """The rows whose variable is bound to a row of this type, bound to its row id."""
    numbers = rows.variables[variable]
    if context.is_plain(variable):
        return rows if context.tables[variable] == key else rows.take(np.zeros(0, np.int64))
    for found, places, row_ids in context.parts(variable, numbers):
        if found == key:
            return rows.take(places).bind(variable, row_ids)
    return rows.take(np.zeros(0, np.int64))


def _widened(context: Context, rows: Rows, keys: dict[str, TableKey]) -> Rows:
    """Rows whose variables were of one type, with the numbers that they have among several types."""
    for variable, key in keys.items():
        if variable in rows.variables and context.tables.get(variable, key) != key:
            rows = rows.bind(variable, context.tagged(key, rows.variables[variable]))
    return rows


def _distinct_pairs(first: IntArray, second: IntArray) -> tuple[IntArray, IntArray]:
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    is_new = np.ones(len(first), np.bool_)
    is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[is_new], second[is_new]


def not_among(first: IntArray, second: IntArray, known_first: IntArray, known_second: IntArray) -> BoolArray:
    """Which pairs are not among known ones; both are distinct."""
    firsts, seconds = np.concatenate([known_first, first]), np.concatenate([known_second, second])
    order = np.lexsort((seconds, firsts))
    is_same = np.zeros(len(order), np.bool_)
    is_same[1:] = (firsts[order][1:] == firsts[order][:-1]) & (seconds[order][1:] == seconds[order][:-1])
    # The sort is stable, and known pairs come first: what equals its predecessor is known.
    is_known = np.zeros(len(order), np.bool_)
    is_known[order] = is_same
    return ~is_known[len(known_first) :]
