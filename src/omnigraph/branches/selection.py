"""Which changes a caller wants: kinds, types and operations. A filter hides changes, it never reclassifies one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from omnigraph.ids import TableKey
    from omnigraph.schema.catalog import Catalog, EdgeDef, NodeDef

KINDS = ("node", "edge")
#: Selects nothing, where an empty set would select everything.
_NO_TYPE = frozenset([""])


class Operation(StrEnum):
    """What happened to an entity, in the order in which changes of one entity are told."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """Empty members select everything."""

    kinds: frozenset[str] = frozenset()
    #: Names or table keys.
    types: frozenset[str] = frozenset()
    ops: frozenset[str] = frozenset()

    def has_type(self, key: TableKey) -> bool:
        """Whether changes of a type are wanted."""
        kind, _, name = key.partition(":")
        if self.kinds and kind not in self.kinds:
            return False
        return not self.types or name in self.types or key in self.types

    def has_op(self, op: Operation) -> bool:
        """Whether changes of this sort are wanted."""
        return not self.ops or op in self.ops

    def under(self, names: Mapping[TableKey, TableKey]) -> ChangeFilter:
        """The same filter for a state whose types have other names: from the key here to the key there."""
        if not self.types:
            return self
        wanted = frozenset(there for here, there in names.items() if self.has_type(here))
        return replace(self, types=wanted or _NO_TYPE)

    @property
    def digest(self) -> str:
        """What a token remembers of the filter it was made for."""
        body = [sorted(self.kinds), sorted(self.types), sorted(self.ops)]
        return sha256(json.dumps(body).encode()).hexdigest()[:16]


def make_filter(
    catalogs: Sequence[Catalog],
    kinds: Sequence[str] | None,
    types: Sequence[str] | None,
    ops: Sequence[str] | None,
) -> ChangeFilter:
    """The filter that a caller means, who may name the types of these schemas.

    Raises:
        BadRequestError: there is no such kind, type or operation.
    """
    every: list[NodeDef | EdgeDef] = []
    for catalog in catalogs:
        every += [*catalog.nodes.values(), *catalog.edges.values()]
    known = {item.name for item in every} | {item.table_key for item in every}
    return ChangeFilter(
        kinds=_checked("kind", kinds, KINDS),
        types=_checked("type", types, known),
        ops=_checked("operation", ops, list(Operation)),
    )


def _checked(what: str, given: Sequence[str] | None, known: Collection[str]) -> frozenset[str]:
    if isinstance(given, str):
        raise BadRequestError(f"a filter takes a list of {what}s: give [{given!r}]")
    for name in given or ():
        if name not in known:
            raise BadRequestError(f"there is no {what} {name!r}: give {', '.join(sorted(known))}")
    return frozenset(given or ())
