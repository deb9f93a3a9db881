"""Edges whose ends do not exist: found in two streams per type, in memory that follows the nodes of one part at a time.

No write makes such an edge. Damage does, and releases that let a writer publish after it had lost the commit lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.errors import StorageError
from omnigraph.ids import TableKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from omnigraph.manifest.rows import Head, TablePin
    from omnigraph.schema.catalog import Catalog, EdgeDef
    from omnigraph.storage.tables import Table

#: Nodes whose ids are in memory at once, at eight bytes each.
NODES_AT_ONCE = 32_000_000
MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DanglingEdges:
    """The edges of one type on one branch that lack an end."""

    branch: str
    type_key: TableKey
    count: int
    #: Ids of some of them.
    examples: tuple[str, ...]
    #: Where their rows are in the published version of the type; read only.
    addresses: np.ndarray[tuple[int], np.dtype[np.uint64]]

    def to_json(self) -> dict[str, object]:
        """The edges as a JSON object."""
        return {
            "branch": self.branch,
            "type_key": self.type_key,
            "count": self.count,
            "examples": list(self.examples),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedEdges:
    """A type of edges that cannot be read, or whose nodes cannot."""

    branch: str
    type_key: TableKey
    error: StorageError


def find_dangling(
    head: Head,
    catalog: Catalog,
    open_pin: Callable[[TablePin], Table],
    passed: set[tuple[object, ...]] | None = None,
) -> Iterator[DanglingEdges | UncheckedEdges]:
    """The dangling edges of a branch, type by type; what is in `passed` was looked at on another branch."""
    passed = set() if passed is None else passed
    for edge in catalog.edges.values():
        pin = head.pins.get(TableKey(edge.table_key))
        sources, targets = (
            head.pins.get(TableKey(f"node:{end}")) for end in (edge.source, edge.target)
        )
        if pin is None or sources is None or targets is None or not pin.row_count:
            continue
        key = tuple((item.location, item.branch, item.version) for item in (pin, sources, targets))
        if key in passed:
            continue
        try:
            found = _dangling_of(
                edge, head.branch, open_pin(pin), open_pin(sources), open_pin(targets)
            )
        except StorageError as error:
            yield UncheckedEdges(branch=head.branch, type_key=TableKey(edge.table_key), error=error)
            continue
        if found is None:
            passed.add(key)
        else:
            yield found


def _dangling_of(
    edge: EdgeDef, branch: str, edges: Table, sources: Table, targets: Table
) -> DanglingEdges | None:
    addresses = np.unique(
        np.concatenate([_without_end(edges, "src", sources), _without_end(edges, "dst", targets)])
    )
    if not len(addresses):
        return None
    return DanglingEdges(
        branch=branch,
        type_key=TableKey(edge.table_key),
        count=len(addresses),
        examples=_ids_at(edges, addresses[:MAX_EXAMPLES]),
        addresses=addresses,
    )


def _without_end(
    edges: Table, column: str, nodes: Table
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The addresses of the edges whose end is not among the nodes."""
    parts = -(-nodes.row_count // NODES_AT_ONCE) or 1
    found = [np.empty(0, np.uint64)]
    for part in range(parts):
        known = _hashes_of(nodes, part, parts)
        for batch in edges.scan([column, "_rowaddr"]):
            ends = _hashes(batch.column(column))
            own = ends % parts == part
            missing = own & ~_contains(known, ends)
            found.append(batch.column("_rowaddr").to_numpy()[missing])
    return np.concatenate(found)


def _hashes_of(nodes: Table, part: int, parts: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = [np.empty(0, np.int64)]
    for batch in nodes.scan(["id"]):
        hashes = _hashes(batch.column("id"))
        found.append(hashes[hashes % parts == part])
    return np.sort(np.concatenate(found))


def _hashes(ids: pa.Array[pa.StringScalar]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    # Python's own hash of texts: 64 bits that nothing outside of this process can aim at. An id without its hash is
    # missing; that a missing one is taken for another happens once in 10^12 looks at a million nodes.
    return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))


def _contains(
    known: np.ndarray[tuple[int], np.dtype[np.int64]],
    wanted: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if not len(known):
        return np.zeros(len(wanted), np.bool_)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.equal(known[places], wanted)


def _ids_at(
    edges: Table, addresses: np.ndarray[tuple[int], np.dtype[np.uint64]]
) -> tuple[str, ...]:
    found: list[str] = []
    for batch in edges.scan(["id", "_rowaddr"]):
        chosen = np.isin(batch.column("_rowaddr").to_numpy(), addresses)
        if chosen.any():
            found += np.array(batch.column("id").to_pylist(), object)[chosen].tolist()
        if len(found) >= len(addresses):
            break
    return tuple(sorted(found))
