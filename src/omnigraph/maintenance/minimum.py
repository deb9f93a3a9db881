"""Nodes that have fewer edges than `@card(1..n)` asks for, on the heads of branches. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from omnigraph.codec import Document
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.rows import Head
from omnigraph.commit.schemas import read_schema_files
from omnigraph.commit.targets import open_pin
from omnigraph.core.ids import TableKey
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import TableRules, derive_rules
from omnigraph.pipeline.exchange import Scratch, ScratchPlace
from omnigraph.pipeline.keys import Joins
from omnigraph.pipeline.minimum import find_outside
from omnigraph.pipeline.upsert import Matcher
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import LocalWorkers, Silent
from omnigraph.storage.datasets.tables import Table

#: Ids that a finding names.
_SHOWN = 5


@frozen(kw_only=True)
class EdgesOutside(Document):
    """Nodes of one branch whose number of edges of a type is not what its `@card` allows."""

    branch: str
    edge_type: str
    node_type: str
    #: As the schema writes them.
    bounds: str
    total: int
    #: The first ids in the order of texts.
    examples: tuple[str, ...]

    def __str__(self) -> str:
        nodes = "1 node" if self.total == 1 else f"{self.total:,} nodes"
        verb = "does" if self.total == 1 else "do"
        some = ", ".join(map(repr, self.examples[:_SHOWN]))
        return (
            f"branch {self.branch}: {nodes} of {self.node_type} {verb} not have {self.bounds} edges of "
            f"{self.edge_type}, such as {some}"
        )


def edges_outside(environment: GraphEnvironment, branches: Collection[str] | None = None) -> Iterator[EdgesOutside]:
    """Look at every node of the heads of some branches, or of all."""
    for name, head in sorted(environment.manifest.state().heads.items()):
        if branches is None or name in branches:
            rules = derive_rules(read_schema_files(environment.objects, head.schema_hash).catalog)
            yield from _outside(environment, name, head, rules)


def _outside(
    environment: GraphEnvironment, name: str, head: Head, rules: Mapping[TableKey, TableRules]
) -> Iterator[EdgesOutside]:
    workers = LocalWorkers(Silent())
    engine = WorkerSet(workers=workers, joins=Joins(), matcher=Matcher(workers), progress=Silent())
    scratch = Scratch(ScratchPlace(root=environment.location, is_read_only=True))

    def table(key: TableKey) -> Table:
        return open_pin(environment.tables, head.pins[key])

    try:
        for violation in find_outside(rules, table, engine, scratch.folder(None)):
            rule = rules[violation.key].per_source
            assert rule is not None, "it was violated"
            yield EdgesOutside(
                branch=name,
                edge_type=violation.key.name,
                node_type=rule.node.name,
                bounds=f"{rule.low}..{'' if rule.high is None else rule.high}",
                total=violation.total,
                examples=tuple(str(example.value) for example in violation.examples),
            )
    finally:
        scratch.close()
