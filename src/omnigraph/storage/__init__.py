"""Lance datasets and control files of one graph: the only room that imports `lance`.

Owns: locations, opening and scanning datasets at exact versions, two-phase writes, forks, control objects, durability.
Never decides what is visible: that is the manifest. Nothing here moves the HEAD of a dataset except `commit_staged` and
`commit_compaction`. Start reading at `tables`, then `staged`.
"""

from omnigraph.storage.filters import AllOf, AnyOf, Compare, Filter, IsNull, OneOf
from omnigraph.storage.location import GraphLocation, parse_location, table_location
from omnigraph.storage.objects import ControlObjects, ObstoreObjects
from omnigraph.storage.staged import (
    StagedWrite,
    StageKind,
    commit_staged,
    create_fork,
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

__all__ = [
    "AllOf",
    "AnyOf",
    "Compare",
    "ControlObjects",
    "Filter",
    "GraphLocation",
    "IsNull",
    "ObstoreObjects",
    "OneOf",
    "StageKind",
    "StagedWrite",
    "Table",
    "TableStore",
    "commit_staged",
    "create_fork",
    "create_table",
    "dataset_exists",
    "new_files",
    "parse_location",
    "stage_append",
    "stage_delete",
    "stage_fragments",
    "stage_overwrite",
    "stage_restore",
    "stage_upsert",
    "table_location",
]
