"""What differs between two states of a table, row by row: which ids are new, changed or gone.

Candidates come from `storage.row_changes`, and are compared by id through digests: equal rows that were only
written again do not count. A delta holds ids, digests and row ids, never the values: these are read when needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.pipeline.digests import DIGEST, row_digests
from omnigraph.storage.row_changes import scan_row_set
from omnigraph.storage.row_columns import ROW_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from omnigraph.schema.catalog import EdgeDef, NodeDef
    from omnigraph.storage.row_changes import RowSet

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

#: Rows of one state, to be matched with those of another.
SIDE = pa.schema(
    [
        ("id", pa.utf8()),
        ("digest", DIGEST),
        ("row", pa.int64()),
        ("src", pa.utf8()),
        ("dst", pa.utf8()),
    ]
)
#: One row per id that differs. A null digest: there is no such row in that state. Ends are those of the newer row.
DELTA = pa.schema(
    [
        ("id", pa.utf8()),
        ("old", DIGEST),
        ("new", DIGEST),
        ("old_row", pa.int64()),
        ("new_row", pa.int64()),
        ("src", pa.utf8()),
        ("dst", pa.utf8()),
    ]
)

#: What happened to a row, as a number.
INSERTED, UPDATED, DELETED = range(3)
OPERATIONS = 3
#: The name of a column that no batch has.
_NOWHERE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """What rows of a type are compared by. Plain values that travel to other processes."""

    #: In the order in which they are compared; None is one that this state lacks, which counts as null.
    columns: tuple[str | None, ...]
    is_edge: bool
    #: Columns whose values are compared as values of a wider type, with its name.
    widened: tuple[tuple[str, str], ...] = ()


def row_shape(definition: NodeDef | EdgeDef) -> RowShape:
    """The shape of a type: everything that is stored of it."""
    from omnigraph.schema.catalog import EdgeDef

    is_edge = isinstance(definition, EdgeDef)
    ends = ("src", "dst") if is_edge else ()
    return RowShape(columns=("id", *ends, *sorted(definition.properties)), is_edge=is_edge)


def scan_side(rows: RowSet, shape: RowShape) -> Iterator[Any]:
    """Ids, digests and row ids of some rows, for edges their ends too; as record batches."""
    nothing = pa.scalar(None, pa.utf8())
    names = [name for name in shape.columns if name is not None]
    for batch in scan_row_set(rows, [*names, ROW_ID]):
        count = batch.num_rows
        ends = [
            batch.column(name) if shape.is_edge else pa.repeat(nothing, count)
            for name in ("src", "dst")
        ]
        columns = [
            batch.column("id"),
            row_digests(_widened(batch, shape), [name or _NOWHERE for name in shape.columns]),
            batch.column(ROW_ID).cast(pa.int64()),
            *ends,
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SIDE)


def _widened(batch: Any, shape: RowShape) -> Any:
    for name, type_name in shape.widened:
        wide = batch.column(name).cast(pa.type_for_alias(type_name))
        batch = batch.set_column(batch.schema.get_field_index(name), name, wide)
    return batch


def side_of(rows: RowSet, shape: RowShape) -> Any:
    """As `scan_side`, as one table."""
    return pa.Table.from_batches(list(scan_side(rows, shape)), schema=SIDE)


def delta_of(old: Any, new: Any, *, with_moved: bool = False) -> Any:
    """The differences of two states as a `DELTA` table, ordered by id.

    With `with_moved` a row also differs from one with the same values and another row id.
    """
    return join_sides(old, new, with_moved=with_moved).sort_by("id").combine_chunks()


def join_sides(old: Any, new: Any, *, with_moved: bool = False) -> Any:
    """Rows of two states matched by id; those that are equal in both are left out."""
    both = old.join(
        new,
        "id",
        join_type="full outer",
        left_suffix="_old",
        right_suffix="_new",
        use_threads=False,
    )
    is_equal = pc.fill_null(pc.equal(both["digest_old"], both["digest_new"]), False)
    if with_moved:
        is_equal = pc.and_(
            is_equal, pc.fill_null(pc.equal(both["row_old"], both["row_new"]), False)
        )
    found = both.filter(pc.invert(is_equal))
    return pa.table(
        [
            found["id"],
            found["digest_old"],
            found["digest_new"],
            found["row_old"],
            found["row_new"],
            pc.coalesce(found["src_new"], found["src_old"]),
            pc.coalesce(found["dst_new"], found["dst_old"]),
        ],
        schema=DELTA,
    )


def operation_codes(delta: Any) -> NDArray[np.int8]:
    """What happened to each row of a `DELTA` table."""
    is_new = np.asarray(delta["old"].is_null())
    is_gone = np.asarray(delta["new"].is_null())
    return np.where(is_new, INSERTED, np.where(is_gone, DELETED, UPDATED)).astype(np.int8)


def operation_counts(delta: Any) -> tuple[int, ...]:
    """How many rows of a `DELTA` table there are of each operation."""
    return tuple(np.bincount(operation_codes(delta), minlength=OPERATIONS).tolist())
