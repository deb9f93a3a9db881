"""Error bodies back into the exceptions that they were made from: same class, same fields, same text.

One row per class: by which member its bodies are told from others of the same kind, and how its fields are read. The
rows of one kind go from the special to the general.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from omnigraph import errors
from omnigraph.errors import (
    Diagnostic,
    LoadReport,
    MergeConflict,
    OmniError,
    RemoteError,
    StorageFailure,
)

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Form:
    """What bodies of one class look like."""

    error: type[OmniError]
    #: A member that tells the class from others of its kind; None where it is the general one.
    member: str | None
    #: The fields of the exception beside its message.
    fields: Callable[[Body], dict[str, object]]


def error_from_body(status: int, body: Body) -> OmniError:
    """The exception behind an error body; one that this release does not know is the nearest class by status."""
    kind = body.get("kind")
    for form in _FORMS.get(kind, ()) if isinstance(kind, str) else ():
        if form.member is None or form.member in body:
            try:
                made = _rebuilt(form.error, str(body["error"]), form.fields(body))
                # Fields of another type show here at the latest, not where somebody prints the failure.
                made.to_json()
            except (KeyError, TypeError, ValueError, AttributeError):
                # Another release gives the class other fields: it is still a failure of this status.
                break
            return made
    nearest = _BY_STATUS.get(status)
    if nearest is None or "error" not in body:
        return RemoteError(status, body)
    return _rebuilt(nearest, str(body["error"]), {})


def _rebuilt(error: type[OmniError], message: str, fields: Mapping[str, object]) -> OmniError:
    # Not through its constructor, which renders the message: the sender has done that, maybe with more than it sends.
    made = error.__new__(error)
    OmniError.__init__(made, message)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# ---- how fields are read


def _expect(kind: type | UnionType, *values: object) -> None:
    """Values that are counted with, cut or searched when somebody looks at the failure have to be what they seem."""
    if not all(isinstance(value, kind) for value in values):
        raise TypeError(f"not all of these are {kind}")


def _nothing(_: Body) -> dict[str, object]:
    return {}


def _inside(member: str, *names: str) -> Callable[[Body], dict[str, object]]:
    """Fields that stand in an object of the body under their own names; those that are left out are None."""
    return lambda body: {name: body[member].get(name) for name in names}


def _plain(*names: str) -> Callable[[Body], dict[str, object]]:
    """Fields that stand in the body itself."""
    return lambda body: {name: body[name] for name in names}


def _failure(body: Body) -> dict[str, object]:
    return {"failure": StorageFailure(body["failure"])}


def _storage_format(body: Body) -> dict[str, object]:
    return _failure(body) | _inside("storage_format", "found", "supported")(body)


def _outside_root(body: Body) -> dict[str, object]:
    return _failure(body) | _inside("outside_root", "path", "reason")(body)


def _drift(body: Body) -> dict[str, object]:
    return _failure(body) | _inside("drift", "location", "expected", "actual")(body)


def _damage(body: Body) -> dict[str, object]:
    return _failure(body) | _inside("damage", "what", "reason")(body)


def _diagnostics(body: Body) -> dict[str, object]:
    found = tuple(map(Diagnostic.from_json, body["diagnostics"]))
    for item in found:
        _expect(str, item.code, item.message, item.file, item.excerpt)
    total = body.get("diagnostic_total", len(found))
    _expect(int, total)
    return {"diagnostics": found, "total": total}


def _parameters(body: Body) -> dict[str, object]:
    return {"query": body["query_name"], "problems": dict(body["parameters"])}


def _mixed_mutation(body: Body) -> dict[str, object]:
    return {"query": body["mixed_mutation"]["query_name"]}


def _available(body: Body) -> dict[str, object]:
    return {"available": tuple(body["available"])}


def _report(body: Body) -> dict[str, object]:
    report = LoadReport.from_json(body["report"])
    _expect(int, *report.totals.values())
    for record in report.examples:
        _expect(str, record.source, record.rule, record.message)
        _expect(int | None, record.line)
    return {"report": report}


def _load_key_conflict(body: Body) -> dict[str, object]:
    return _KEY_CONFLICT(body) | _report(body)


def _unsupported_schema(body: Body) -> dict[str, object]:
    return {"plan": body["plan"], "refusals": tuple(body["refusals"])}


def _merge_conflicts(body: Body) -> dict[str, object]:
    conflicts = tuple(map(MergeConflict.from_json, body["merge_conflicts"]))
    total = body["merge_conflict_total"]
    _expect(int, total)
    for conflict in conflicts:
        _expect(str, conflict.message)
        _expect(str | None, conflict.entity_id)
        for row in (conflict.base, conflict.ours, conflict.theirs):
            _expect(Mapping | None, row)
            _expect(Mapping, {} if row is None else row["properties"])
    return {
        "source": body["source"],
        "target": body["target"],
        "conflicts": conflicts,
        "total": total,
    }


def _diff_refusal(body: Body) -> dict[str, object]:
    refusal = body["change_diff_refusal"]
    return {"commit_id": refusal["graph_commit_id"], "type_name": refusal.get("type_name")}


def _feed_gap(body: Body) -> dict[str, object]:
    gap = body["change_feed_gap"]
    return {"commit_id": gap["first_unreadable_commit_id"], "cursor": gap.get("cursor")}


def _policy_denial(body: Body) -> dict[str, object]:
    denial = body["policy_denial"]
    return {
        "action": denial["action"],
        "actor": denial["actor_id"],
        "branch": denial.get("branch"),
        "target_branch": denial.get("target_branch"),
    }


def _history_reclaimed(body: Body) -> dict[str, object]:
    return {"first_commit_id": body["history_reclaimed"]["first_known_commit_id"]}


_KEY_CONFLICT = _inside("key_conflict", "entity_kind", "type_name", "entity_id")
_URI = _plain("uri")

_ROWS = (
    _Form(errors.CompilerError, None, _diagnostics),
    # kind bad_request
    _Form(errors.ParameterError, "parameters", _parameters),
    _Form(errors.QuerySelectionError, "available", _available),
    _Form(errors.MixedMutationError, "mixed_mutation", _mixed_mutation),
    _Form(errors.UnsupportedSchemaError, "refusals", _unsupported_schema),
    _Form(errors.SchemaViolationsError, "refused", _report),
    _Form(errors.LoadRejectedError, "report", _report),
    _Form(errors.ConfigurationError, "diagnostics", _diagnostics),
    _Form(errors.BadRequestError, None, _nothing),
    # kinds of their own
    _Form(errors.DirectOnlyError, None, _plain("operation")),
    _Form(errors.ChangeCursorRejectedError, None, _inside("change_cursor_rejected", "reason")),
    _Form(errors.InputFileError, None, _plain("path", "reason")),
    _Form(errors.NotFoundError, None, _nothing),
    _Form(errors.BranchNotFoundError, None, _plain("branch")),
    _Form(errors.BranchExistsError, None, _plain("branch")),
    _Form(
        errors.ResourceLimitError,
        None,
        _inside("resource_limit", "resource", "limit", "actual", "advice"),
    ),
    _Form(errors.QueryTimeoutError, None, _inside("query_timeout", "timeout_s", "operator")),
    _Form(errors.QueryCancelledError, None, _inside("cancelled", "operator")),
    # kind conflict
    _Form(
        errors.ExpectedVersionMismatchError,
        "manifest_conflict",
        _inside("manifest_conflict", "table_key", "expected", "actual"),
    ),
    _Form(
        errors.ReadSetConflictError,
        "read_set_conflict",
        _inside("read_set_conflict", "member", "expected", "actual"),
    ),
    _Form(errors.BranchesExistError, "branches", _plain("branches")),
    _Form(errors.ConflictError, None, _nothing),
    _Form(errors.LeaseLostError, "lease_lost", _nothing),
    _Form(errors.RetryableCommitConflictError, None, _nothing),
    _Form(errors.MergeConflictsError, None, _merge_conflicts),
    # kind key_conflict
    _Form(errors.LoadKeyConflictError, "report", _load_key_conflict),
    _Form(errors.KeyConflictError, None, _KEY_CONFLICT),
    _Form(errors.CommitHasNoParentError, None, _diff_refusal),
    _Form(errors.ChangeSchemaBoundaryError, None, _diff_refusal),
    _Form(errors.ChangeFeedGapError, None, _feed_gap),
    _Form(
        errors.PreconditionFailedError,
        None,
        _inside("precondition_failure", "branch", "expected", "actual"),
    ),
    _Form(
        errors.RecoveryRequiredError,
        None,
        _inside("recovery_required", "operation_id", "reason"),
    ),
    _Form(errors.BlobRangeError, None, _inside("blob_range", "start", "end", "length")),
    _Form(errors.BlobChangedError, None, _nothing),
    _Form(errors.ExternalBlobPolicyError, None, _inside("external_blob_policy", "uri", "reason")),
    _Form(errors.ExternalBlobSourceError, None, _inside("external_blob_source", "uri", "reason")),
    _Form(errors.BlobIntegrityError, None, _inside("blob_integrity", "reason")),
    _Form(errors.AlreadyInitializedError, None, _URI),
    _Form(errors.InitializationClaimedError, None, _URI),
    _Form(errors.InitializationCommittedError, None, _URI),
    _Form(
        errors.HistoricalVersionReclaimedError,
        None,
        _inside("version_reclaimed", "table_key", "version"),
    ),
    _Form(errors.HistoryReclaimedError, None, _history_reclaimed),
    # kind storage
    _Form(errors.StorageFormatError, "storage_format", _storage_format),
    _Form(errors.OutsideRootError, "outside_root", _outside_root),
    _Form(errors.DriftError, "drift", _drift),
    _Form(errors.DamageError, "damage", _damage),
    _Form(errors.StorageError, None, _failure),
    _Form(errors.EmbeddingError, None, _failure),
    _Form(errors.SparkError, None, _nothing),
    _Form(errors.PolicyDeniedError, None, _policy_denial),
    # beside the graph
    _Form(errors.TransportError, None, _nothing),
    _Form(errors.UnauthorizedError, None, _nothing),
    _Form(errors.ForbiddenHostError, None, _nothing),
    _Form(errors.MethodNotAllowedError, None, _nothing),
    _Form(errors.RequestTimeoutError, None, _nothing),
    _Form(errors.UnsupportedMediaTypeError, None, _nothing),
    _Form(errors.TooManyRequestsError, None, _nothing),
    _Form(errors.ServerUnreachableError, None, _inside("server_unreachable", "outcome_unknown")),
    _Form(errors.UnexpectedAnswerError, None, _nothing),
    # kind internal
    _Form(errors.ChangeDiffRefusedError, "change_diff_refusal", _diff_refusal),
    _Form(errors.InternalError, None, _nothing),
)

_FORMS: defaultdict[str, list[_Form]] = defaultdict(list)
for _row in _ROWS:
    _FORMS[_row.error.kind].append(_row)

#: The nearest class of a failure that only its status is known of.
_BY_STATUS: dict[int, type[OmniError]] = {
    400: errors.BadRequestError,
    401: errors.UnauthorizedError,
    404: errors.NotFoundError,
    405: errors.MethodNotAllowedError,
    415: errors.UnsupportedMediaTypeError,
    429: errors.TooManyRequestsError,
}
