"""Net differences between two states of a graph: what one would have to do to the first to get the second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from typing import Annotated, Self

from typing_extensions import override

from omnigraph.branches.deltas import Operation, TypeDelta, operation
from omnigraph.branches.diff_pictures import ShownDiff, StateReader
from omnigraph.codec import OMIT_NONE, Document
from omnigraph.commit.snapshot import Snapshot
from omnigraph.core.arrow import Rows, pa
from omnigraph.core.ids import TableKey
from omnigraph.frozen import frozen
from omnigraph.pipeline.compare import OPERATIONS, operation_codes

#: Net changes as an Arrow table.
NET_CHANGES = pa.schema(
    [
        ("kind", pa.utf8()),
        ("type_name", pa.utf8()),
        ("id", pa.utf8()),
        ("op", pa.utf8()),
        ("published_dataset_version", pa.int64()),
        ("from", pa.utf8()),
        ("to", pa.utf8()),
    ]
)


@frozen(kw_only=True)
class NetChange(Document):
    """One entity that differs. Of an edge, `endpoints` are those of the newer row, or of the one that is gone."""

    kind: str
    type_name: str
    id: str
    op: Operation
    published_dataset_version: int
    endpoints: Annotated[dict[str, str] | None, OMIT_NONE] = None


@frozen(kw_only=True)
class DiffStats(Document):
    """The number of differences."""

    inserts: int
    updates: int
    deletes: int
    types_affected: tuple[str, ...]


@frozen(kw_only=True)
class DiffPage(Document):
    """Some differences of two states, what differs in all, and the token of the next page."""

    from_graph_manifest_version: int
    to_graph_manifest_version: int
    from_graph_commit_id: str
    to_graph_commit_id: str
    #: The branch of both states; None when they are on different ones.
    graph_branch: Annotated[str | None, OMIT_NONE] = None
    changes: tuple[NetChange, ...]
    stats: DiffStats
    next_page_token: Annotated[str | None, OMIT_NONE] = None


@frozen(kw_only=True, slots=False, repr=False)
class Diff(ShownDiff):
    """The differences of two snapshots, by type key and id. Iterate over it, or take `to_arrow()` for many.

    Many differences are in files, which are read as they are asked for: counts, iteration and `between` take no more
    memory for more of them. The files go when the object does; `close` or a `with` statement removes them at once.
    """

    old: Snapshot
    new: Snapshot
    deltas: tuple[TypeDelta, ...]
    states: StateReader | None = field(default=None, compare=False)

    @property
    @override
    def from_commit_id(self) -> str:
        return self.old.commit_id

    @property
    @override
    def to_commit_id(self) -> str:
        return self.new.commit_id

    @property
    def from_graph_manifest_version(self) -> int:
        """The graph version of the first state."""
        return self.old.graph_version

    @property
    def to_graph_manifest_version(self) -> int:
        """The graph version of the second state."""
        return self.new.graph_version

    @property
    def graph_branch(self) -> str | None:
        """The branch of both states; None when they are on different ones."""
        is_same = (self.old.branch, self.old.incarnation) == (self.new.branch, self.new.incarnation)
        return self.new.branch if is_same else None

    @cached_property
    def stats(self) -> DiffStats:
        """The number of differences."""
        inserts, updates, deletes = (
            sum(delta.rows.counts[code] for delta in self.deltas) for code in range(OPERATIONS)
        )
        return DiffStats(
            inserts=inserts,
            updates=updates,
            deletes=deletes,
            types_affected=tuple(delta.table_key for delta in self.deltas),
        )

    @property
    def changes(self) -> list[NetChange]:
        """Every change, in memory."""
        return list(self)

    def __len__(self) -> int:
        return sum(len(delta.rows) for delta in self.deltas)

    def __iter__(self) -> Iterator[NetChange]:
        return self.between(0, len(self))

    @override
    def first(self, count: int) -> list[NetChange]:
        return list(self.between(0, count))

    @override
    def by_type(self) -> dict[TableKey, dict[Operation, int]]:
        return {
            delta.table_key: {operation(code): delta.rows.counts[code] for code in range(OPERATIONS)}
            for delta in self.deltas
        }

    def between(self, begin: int, end: int) -> Iterator[NetChange]:
        """The changes from one place in the order to another; the cost follows their number."""
        for delta in self.deltas:
            count = len(delta.rows)
            for rows in delta.rows.batches(max(begin, 0), max(end, 0)):
                yield from _net_changes(delta, rows)
            begin, end = begin - count, end - count

    def to_arrow(self) -> Rows:
        """All changes as one Arrow table, in memory."""
        names = pa.array([str(operation(code)) for code in range(OPERATIONS)])
        tables = [NET_CHANGES.empty_table()]
        for delta in self.deltas:
            key = delta.table_key
            for rows in delta.rows.batches():
                count = rows.num_rows
                columns = [
                    pa.repeat(key.kind, count),
                    pa.repeat(key.name, count),
                    rows["id"],
                    names.take(pa.array(operation_codes(rows))),
                    pa.repeat(pa.scalar(delta.pin.version, pa.int64()), count),
                    rows["src"],
                    rows["dst"],
                ]
                tables.append(pa.table(columns, schema=NET_CHANGES))
        every: Rows = pa.concat_tables(tables)
        return every

    def page(self, begin: int, end: int, next_page_token: str | None = None) -> DiffPage:
        """The changes from one place in the order to another, as a document."""
        return DiffPage(
            from_graph_manifest_version=self.from_graph_manifest_version,
            to_graph_manifest_version=self.to_graph_manifest_version,
            from_graph_commit_id=self.from_commit_id,
            to_graph_commit_id=self.to_commit_id,
            graph_branch=self.graph_branch,
            changes=tuple(self.between(begin, end)),
            stats=self.stats,
            next_page_token=next_page_token,
        )

    @property
    def summary(self) -> DiffPage:
        """The document of the diff without its changes."""
        return self.page(0, 0)

    def to_json(self) -> dict[str, object]:
        """The diff as a JSON object, in memory."""
        return self.page(0, len(self)).to_json()

    @property
    def is_in_files(self) -> bool:
        """Whether there are so many differences that some of them are in files."""
        return any(delta.rows.is_in_files for delta in self.deltas)

    def close(self) -> None:
        """Remove the files of many differences; nothing can be read any more."""
        for delta in self.deltas:
            delta.rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _net_changes(delta: TypeDelta, rows: Rows) -> Iterator[NetChange]:
    key = delta.table_key
    columns = (rows[column].to_pylist() for column in ("id", "src", "dst"))
    for code, entity_id, source, target in zip(operation_codes(rows).tolist(), *columns, strict=True):
        yield NetChange(
            kind=key.kind,
            type_name=key.name,
            id=entity_id,
            op=operation(code),
            published_dataset_version=delta.pin.version,
            endpoints={"from": source, "to": target} if delta.is_edge else None,
        )
