"""New values of some columns for many rows, while all other columns of these rows stay where they are.

The new columns of a fragment become one file beside its others: nothing else is read or written, so blobs and indexes
of other columns stay. Rows keep their ids, and their lineage says which of them were updated. The cost is that of the
columns of the whole fragment; for a few rows of a large one it is cheaper to write these again (`stage_upsert`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lance import LanceOperation
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata

from omnigraph.errors import InternalError
from omnigraph.storage.checksums import sums_in
from omnigraph.storage.failures import translated
from omnigraph.storage.fragments import fragment_text
from omnigraph.storage.row_columns import ROW_ID
from omnigraph.storage.staged import StagedWrite, StageKind
from omnigraph.storage.tables import branch_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from omnigraph.storage.objects import ControlObjects
    from omnigraph.storage.tables import Table


def update_fragment(table: Table, fragment_id: int, rows: pa.Table) -> str:
    """New values for rows of one fragment, found by `_rowid`, as an update for `stage_updates`. Moves nothing.

    Holds the new values in memory; the old ones stream by.
    """
    with translated(f"updating columns of {table.path}"):
        fragment = table._dataset.get_fragment(fragment_id)
        if fragment is None:
            raise InternalError(f"{table.path} has no fragment {fragment_id}")
        found, fields, offsets = fragment.update_columns(
            rows, left_on=ROW_ID, right_on=ROW_ID, with_offsets=True
        )
        text = fragment_text(table, found, is_new=False)
    return json.dumps({"fragment": text, "fields": fields, "offsets": offsets.hex()})


def stage_updates(table: Table, updates: Sequence[str]) -> StagedWrite:
    """The updates of fragments as one transaction."""
    fragments, fields, offsets = [], set[int](), {}
    bodies = [json.loads(update) for update in updates]
    for update in bodies:
        fragment = FragmentMetadata.from_json(update["fragment"])
        fragments.append(fragment)
        fields |= set(update["fields"])
        offsets[fragment.id] = bytes.fromhex(update["offsets"])
    operation = LanceOperation.Update(
        updated_fragments=fragments,
        fields_modified=sorted(fields),
        update_mode="rewrite_columns",
        updated_fragment_offsets=offsets,
    )
    transaction = Transaction(table.version, operation)
    sums = sums_in(update["fragment"] for update in bodies)
    return StagedWrite(table=table, kind=StageKind.UPDATE, _transaction=transaction, sums=sums)


def remove_updates(table: Table, updates: Sequence[str], objects: ControlObjects) -> None:
    """Delete the files of updates that are not staged; nothing refers to them."""
    known = {file.path for item in table._dataset.get_fragments() for file in item.metadata.files}
    folder = branch_uri(table.path, table.branch)
    for update in updates:
        fragment = FragmentMetadata.from_json(json.loads(update)["fragment"])
        for file in fragment.files:
            if file.path not in known:
                objects.delete(f"{folder}/data/{file.path}")
