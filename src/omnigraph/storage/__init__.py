"""Lance datasets and control files of one graph: the only room that imports `lance`.

Owns: locations, opening and scanning datasets at exact versions, two-phase writes, forks, control objects, durability.
Never decides what is visible: that is the manifest. Nothing here moves the HEAD of a dataset except `commit_staged`.
Start reading at `tables`, then `reads` and `staged`.
"""

from omnigraph.storage.blobs import StoredBlob, find_blob, has_row, read_blob_range
from omnigraph.storage.compaction import (
    exchanged_fragments,
    plan_compaction,
    run_compaction_task,
    stage_compaction,
    with_indexes,
)
from omnigraph.storage.derived import DerivedArrays
from omnigraph.storage.filters import (
    AllOf,
    AnyOf,
    Compare,
    Filter,
    HasItem,
    HasText,
    IsNull,
    OneOf,
)
from omnigraph.storage.forks import create_fork, remove_fork
from omnigraph.storage.indexes import (
    IndexCoverage,
    IndexSpec,
    PhysicalIndex,
    list_indexes,
    needs_work,
    stage_indices,
)
from omnigraph.storage.layout import (
    FragmentFacts,
    choose_fold,
    choose_rewrites,
    fragment_facts,
    newest_rows,
)
from omnigraph.storage.leftovers import Leftovers, find_leftovers, remove_leftovers
from omnigraph.storage.location import GraphLocation, parse_location, table_location
from omnigraph.storage.memory import text_pairs_match
from omnigraph.storage.objects import ControlObjects, ObstoreObjects
from omnigraph.storage.reads import (
    DISTANCE,
    nearest_rows,
    read_rows,
    scan_rows,
    take_rows,
)
from omnigraph.storage.row_columns import ROW_ID
from omnigraph.storage.staged import (
    StagedWrite,
    StageKind,
    commit_staged,
    create_table,
    new_files,
    stage_append,
    stage_delete,
    stage_fragments,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.tables import Table, TableStore, dataset_exists
from omnigraph.storage.text_columns import (
    NO_ROW,
    ColumnPart,
    column_parts,
    part_row_ids,
    scan_part,
)

__all__ = [
    "DISTANCE",
    "NO_ROW",
    "ROW_ID",
    "AllOf",
    "AnyOf",
    "ColumnPart",
    "Compare",
    "ControlObjects",
    "DerivedArrays",
    "Filter",
    "FragmentFacts",
    "GraphLocation",
    "HasItem",
    "HasText",
    "IndexCoverage",
    "IndexSpec",
    "IsNull",
    "Leftovers",
    "ObstoreObjects",
    "OneOf",
    "PhysicalIndex",
    "StageKind",
    "StagedWrite",
    "StoredBlob",
    "Table",
    "TableStore",
    "choose_fold",
    "choose_rewrites",
    "column_parts",
    "commit_staged",
    "create_fork",
    "create_table",
    "dataset_exists",
    "exchanged_fragments",
    "find_blob",
    "find_leftovers",
    "fragment_facts",
    "has_row",
    "list_indexes",
    "nearest_rows",
    "needs_work",
    "new_files",
    "newest_rows",
    "parse_location",
    "part_row_ids",
    "plan_compaction",
    "read_blob_range",
    "read_rows",
    "remove_fork",
    "remove_leftovers",
    "run_compaction_task",
    "scan_part",
    "scan_rows",
    "stage_append",
    "stage_compaction",
    "stage_delete",
    "stage_fragments",
    "stage_indices",
    "stage_overwrite",
    "stage_restore",
    "stage_upsert",
    "table_location",
    "take_rows",
    "text_pairs_match",
    "with_indexes",
]
