"""What a load does to the tables of a graph as they are now: what it writes, and the rows that it leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.core.ids import TableKey
from omnigraph.frozen import frozen
from omnigraph.pipeline.patch.job import PatchCounts
from omnigraph.pipeline.patch.writing import Patched
from omnigraph.pipeline.row_sets import RowSet
from omnigraph.pipeline.upsert import Upserted
from omnigraph.pipeline.violations import ViolationCounts
from omnigraph.storage.datasets.staged import StagedWrite


@dataclass(kw_only=True)
class LeftOut:
    """The rows that a load leaves out, by type and why."""

    rows: dict[TableKey, RowSet] = field(default_factory=dict)
    superseded: Counter[TableKey] = field(default_factory=Counter)
    dropped: Counter[TableKey] = field(default_factory=Counter)
    #: Bad ones, and the records that they come from, of which an entry with `each` makes several rows. Together with
    #: records that are wrong by themselves these go to the quarantine.
    bad: Counter[TableKey] = field(default_factory=Counter)
    bad_records: int = 0
    #: What is wrong with dropped and with bad rows, and the files with everything that is wrong with the latter.
    counts: ViolationCounts = field(default_factory=ViolationCounts)
    rejects: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def of(self, key: TableKey) -> RowSet:
        """The rows of a type that are left out."""
        return self.rows.setdefault(key, RowSet())


@frozen(kw_only=True)
class Rewritten:
    """Fragments that lost the rows which a load leaves out."""

    fragments: tuple[str, ...]
    #: Those that were written again and are not needed any more.
    discarded: tuple[str, ...]
    ledgers: frozenset[str]


@frozen(kw_only=True)
class PreparedLoad:
    """A load that may be committed: staged writes, and what it was checked against."""

    writes: Mapping[TableKey, StagedWrite]
    #: Tables that were only looked at.
    read: frozenset[TableKey]
    #: Rows that are left out on purpose.
    left_out: LeftOut = field(default_factory=LeftOut)
    #: New edges without ids, per type, between nodes that an edge of the type joins already.
    repeated: Mapping[TableKey, int] = field(default_factory=dict)
    #: What the records of a patch did, of tables that have any.
    patched: Mapping[TableKey, PatchCounts] = field(default_factory=dict)
    #: What was written for an upsert, for a patch, and to leave out rows, of tables that have any.
    upserted: Mapping[TableKey, Upserted] = field(default_factory=dict)
    changes: Mapping[TableKey, Patched] = field(default_factory=dict)
    rewritten: Mapping[TableKey, Rewritten] = field(default_factory=dict)

    @property
    def superseded(self) -> dict[TableKey, int]:
        """Records that another one of the same id replaced, of tables that have any."""
        counts = self.left_out.superseded + Counter({key: item.superseded for key, item in self.upserted.items()})
        return {key: count for key, count in counts.items() if count}

    @property
    def ledgers(self) -> set[str]:
        """The attempts of tasks that wrote what belongs to this preparation alone."""
        found = {name for upserted in self.upserted.values() for name in upserted.ledgers}
        found |= {name for rewritten in self.rewritten.values() for name in rewritten.ledgers}
        return found | {name for patched in self.changes.values() for name in patched.ledgers}
