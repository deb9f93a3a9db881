"""The façade of a graph: open, query, mutate, branch; every surface goes through it.

Owns: the `Graph` object, its settings, creation of a graph, the accepted schema files. Delegates everything else to the
rooms below. Start reading at `graph`.
"""

from omnigraph.graph.blobs import BlobReader
from omnigraph.graph.diagnosis import DiskUse, DoctorReport, Finding, Health
from omnigraph.graph.graph import Graph
from omnigraph.graph.limits import ReadLimits
from omnigraph.graph.results import (
    BuiltIndexes,
    EmbeddedProperty,
    EmbedResult,
    IndexReport,
    PendingIndex,
)
from omnigraph.graph.settings import REPREPARATION_BUDGET, GraphSettings
from omnigraph.graph.verification import FileStatus, VerifiedFile, VerifyReport
from omnigraph.manifest import Target
from omnigraph.recovery.cleanup_report import CleanupReport, DatasetCleanup
from omnigraph.wire import (
    BLOB_RANGE_BYTES,
    BlobInfo,
    BlobKind,
    LoadResult,
    MutationResult,
    Result,
    commit_json,
)

__all__ = [
    "BLOB_RANGE_BYTES",
    "REPREPARATION_BUDGET",
    "BlobInfo",
    "BlobKind",
    "BlobReader",
    "BuiltIndexes",
    "CleanupReport",
    "DatasetCleanup",
    "DiskUse",
    "DoctorReport",
    "EmbedResult",
    "EmbeddedProperty",
    "FileStatus",
    "Finding",
    "Graph",
    "GraphSettings",
    "Health",
    "IndexReport",
    "LoadResult",
    "MutationResult",
    "PendingIndex",
    "ReadLimits",
    "Result",
    "Target",
    "VerifiedFile",
    "VerifyReport",
    "commit_json",
]
