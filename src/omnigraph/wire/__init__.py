"""What travels between a server and its clients, and what both kinds of graphs return.

Owns: results and receipts with their JSON, the Arrow form of rows, error bodies and the way back to exceptions, names
of headers and media types. Knows neither storage nor HTTP. Start reading at `receipts`, then `arrow_results` and
`failures`.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_exports
from omnigraph.wire.answer import BatchStream, Result
from omnigraph.wire.blobs import (
    BLOB_RANGE_BYTES,
    BlobCell,
    BlobInfo,
    BlobKind,
    CellPlace,
    check_range,
    clamped,
    external_blob,
)
from omnigraph.wire.commits import (
    commit_document,
    commit_from_json,
    commit_json,
    is_of_deleted_branch,
    log_document,
    snapshot_document,
    snapshot_from_json,
    snapshot_json,
)
from omnigraph.wire.exports import (
    STDOUT,
    BaselineResult,
    ExportResult,
    ExportTarget,
    TextSink,
    line_writer,
)
from omnigraph.wire.receipts import (
    BranchReceipt,
    LoadResult,
    MergeOutcome,
    MergeResult,
    MutationResult,
    Receipt,
    receipt_document,
)

if TYPE_CHECKING:
    from omnigraph.wire.arrow_results import decode_result, encode_result, target_from_json
    from omnigraph.wire.diffs import DiffFilter, ReportedDiff, diff_page
    from omnigraph.wire.failures import error_from_body
    from omnigraph.wire.json_answers import encode_answer
    from omnigraph.wire.schema_changes import ReportedSteps, SchemaApplyResult, SchemaSteps

__all__ = [
    "BLOB_RANGE_BYTES",
    "STDOUT",
    "BaselineResult",
    "BatchStream",
    "BlobCell",
    "BlobInfo",
    "BlobKind",
    "BranchReceipt",
    "CellPlace",
    "DiffFilter",
    "ExportResult",
    "ExportTarget",
    "LoadResult",
    "MergeOutcome",
    "MergeResult",
    "MutationResult",
    "Receipt",
    "ReportedDiff",
    "ReportedSteps",
    "Result",
    "SchemaApplyResult",
    "SchemaSteps",
    "TextSink",
    "check_range",
    "clamped",
    "commit_document",
    "commit_from_json",
    "commit_json",
    "decode_result",
    "diff_page",
    "encode_answer",
    "encode_result",
    "error_from_body",
    "external_blob",
    "is_of_deleted_branch",
    "line_writer",
    "log_document",
    "receipt_document",
    "snapshot_document",
    "snapshot_from_json",
    "snapshot_json",
    "target_from_json",
]

__getattr__ = late_exports(
    __name__,
    {
        "DiffFilter": "diffs",
        "ReportedDiff": "diffs",
        "ReportedSteps": "schema_changes",
        "SchemaApplyResult": "schema_changes",
        "SchemaSteps": "schema_changes",
        "decode_result": "arrow_results",
        "diff_page": "diffs",
        "encode_answer": "json_answers",
        "encode_result": "arrow_results",
        "error_from_body": "failures",
        "target_from_json": "arrow_results",
    },
)
