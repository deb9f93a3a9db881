"""The minimum of `@card(1..n)` on a whole state: nodes with too few edges, those that never had one included.

Writes check only sources that gain or lose an edge, so that a node can come before its edges. This looks at every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from omnigraph.core.arrow import Column, Rows, pc
from omnigraph.core.ids import TableKey
from omnigraph.errors import MAX_EXAMPLES
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import EdgesPerSource, Example, TableRules
from omnigraph.pipeline.keys import SMALL_ROWS, key_scans, text_key
from omnigraph.pipeline.tally import Counted, Side, Tally
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.storage.answers import AnswerFolder
from omnigraph.storage.datasets.tables import Table
from omnigraph.writes.rules import Violation


def without_minimum(rules: Mapping[TableKey, TableRules]) -> dict[TableKey, TableRules]:
    """The rules of a write whose bounds of edges `find_outside` checks on all nodes instead."""
    return {key: replace(own, per_source=None) if _has_minimum(own) else own for key, own in rules.items()}


def find_outside(
    rules: Mapping[TableKey, TableRules], table_of: Callable[[TableKey], Table], engine: WorkerSet, folder: AnswerFolder
) -> Iterator[Violation]:
    """Nodes whose number of edges is not between the bounds of a type that has a minimum."""
    small_rows = SMALL_ROWS if engine.small_rows is None else engine.small_rows
    tally = Tally(engine.quiet, folder, small_rows=small_rows)
    for key, own in rules.items():
        rule = own.per_source
        if rule is None or not _has_minimum(own):
            continue
        engine.inner.tell(f"edges per source of {key.name}")
        nodes = key_scans(table_of(rule.node), None, text_key("id"))
        edges = key_scans(table_of(key), None, text_key("src"))
        counted = [Counted(side=Side.NEW, scans=tuple(nodes)), Counted(side=Side.OLD, scans=tuple(edges))]
        found = tally.find(counted, _Outside(rule.low, rule.high))
        if not found.total:
            continue
        first: list[tuple[str, int]] = []
        for batch in found.batches():
            pairs = zip(batch.column("key").to_pylist(), batch.column("old").to_pylist(), strict=True)
            first = sorted([*first, *((str(name), int(count or 0)) for name, count in pairs)])[:MAX_EXAMPLES]
        yield Violation(key, rule, found.total, [Example(name, count=count) for name, count in first])


def _has_minimum(rules: TableRules) -> bool:
    return isinstance(rules.per_source, EdgesPerSource) and rules.per_source.low > 0


@frozen
class _Outside:
    """A mask of nodes with too few or too many edges. Travels to tasks."""

    low: int
    high: int | None

    def __call__(self, tallies: Rows) -> Column:
        bad: Column = pc.less(tallies["old"], self.low)
        return bad if self.high is None else pc.or_(bad, pc.greater(tallies["old"], self.high))
