"""The physical indexes that a schema asks for. Pure: storage builds them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from omnigraph.core.types import Scalar, ScalarType
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import EdgeDef, IndexKind, NodeDef, index_kinds
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex

#: Below so many vectors an exact scan is as fast as any index.
VECTOR_INDEX_MIN_ROWS = 10_000


@frozen(kw_only=True)
class WantedIndex:
    """One index that a type should have, on one column."""

    column: str
    kind: IndexKind

    @property
    def name(self) -> str:
        """The name under which it is stored."""
        return f"{self.column}_{_SUFFIXES[self.kind]}"


_SUFFIXES = {IndexKind.BTREE: "btree", IndexKind.VECTOR: "vector"}


def scalar_index_name(column: str) -> str:
    """The name of the BTREE of a column."""
    return WantedIndex(column=column, kind=IndexKind.BTREE).name


def vector_index_name(column: str) -> str:
    """The name of the vector index of a column."""
    return WantedIndex(column=column, kind=IndexKind.VECTOR).name


def wanted_indexes(definition: NodeDef | EdgeDef) -> Iterator[WantedIndex]:
    """Every index of a type: ids and endpoints always, then what the schema declares on single properties."""
    yield WantedIndex(column="id", kind=IndexKind.BTREE)
    if isinstance(definition, EdgeDef):
        yield WantedIndex(column="src", kind=IndexKind.BTREE)
        yield WantedIndex(column="dst", kind=IndexKind.BTREE)
        return
    declared = [members.members for members in definition.indexes]
    if definition.key is not None:
        declared.append(definition.key.members)
    for name in _single(declared):
        for kind in index_kinds(definition.properties[name].type):
            yield WantedIndex(column=name, kind=kind)


def indexed_texts(definition: NodeDef) -> Iterator[str]:
    """The texts whose terms are made and kept by an index run: String properties with an index of their own.

    Keys are looked up far more often than searched, and nearly every word of them is another one.
    """
    for name in _single(members.members for members in definition.indexes):
        if definition.properties[name].type.base == ScalarType(Scalar.STRING):
            yield name


def _single(declared: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The properties that stand alone in a declaration, each once."""
    yield from dict.fromkeys(members[0] for members in declared if len(members) == 1)


def index_spec(wanted: WantedIndex, value_count: int) -> IndexSpec | None:
    """The parameters of an index over so many values; None for vectors too few to be worth one."""
    settings: Mapping[str, object] = {}
    match wanted.kind:
        case IndexKind.BTREE:
            kind = PhysicalIndex.BTREE
        case IndexKind.VECTOR:
            if value_count < VECTOR_INDEX_MIN_ROWS:
                return None
            kind = PhysicalIndex.IVF_FLAT
            settings = {"num_partitions": math.isqrt(value_count), "metric": "l2"}
    return IndexSpec(name=wanted.name, column=wanted.column, kind=kind, settings=tuple(settings.items()))
