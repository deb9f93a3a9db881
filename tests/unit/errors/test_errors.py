from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import pytest

from omnigraph import errors
from omnigraph.cli.rendering import conflict_lines
from omnigraph.errors import (
    MAX_DIAGNOSTICS,
    BadRecord,
    BadRequestError,
    CompilerError,
    ConfigurationError,
    ConflictKind,
    Diagnostic,
    InputFileError,
    LoadReport,
    MergeConflict,
    MixedMutationError,
    OmniError,
    ParameterError,
    QuerySelectionError,
    ResourceLimitError,
    Severity,
    StorageFailure,
)
from omnigraph.errors.bodies import error_from_body
from support.subtests import each_case


def finding(number: int = 1, **members: object) -> Diagnostic:
    body: dict[str, object] = {"code": "S-01", "message": "wrong", "file": "f.pg", "line": number, "column": 2}
    return Diagnostic(**(body | members))  # type: ignore[arg-type]  # members of several types


def test_a_finding_is_a_json_object_with_a_hint_only_when_there_is_one() -> None:
    body = {"code": "S-01", "severity": "error", "message": "wrong", "file": "f.pg", "line": 1, "column": 2}

    assert finding().to_json() == body
    assert finding(hint="try").to_json() == body | {"hint": "try"}


def test_a_finding_without_excerpt_is_rendered_in_one_line() -> None:
    assert finding(severity=Severity.INFO).render() == "f.pg:1:2: info S-01: wrong"


def test_a_compiler_error_needs_a_finding() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CompilerError(())


def test_a_compiler_error_shows_all_its_findings() -> None:
    error = CompilerError((finding(1), finding(2, code="S-03")))

    assert error.codes == ("S-01", "S-03")
    assert str(error) == "f.pg:1:2: error S-01: wrong\nf.pg:2:2: error S-03: wrong"


@each_case(("hidden", "said"), [(1, "… and 1 more error"), (3, "… and 3 more errors")])
def test_an_error_carries_the_first_findings_and_their_number(hidden: int, said: str) -> None:
    error = CompilerError(tuple(finding(number) for number in range(1, MAX_DIAGNOSTICS + 1 + hidden)))

    assert str(error).count("error S-01") == MAX_DIAGNOSTICS
    assert str(error).endswith(said)
    assert len(error.diagnostics) == MAX_DIAGNOSTICS
    assert error.to_json()["diagnostic_total"] == error.total == MAX_DIAGNOSTICS + hidden


WRONG = {"a": "a is wrong", "b": "b is wrong"}


@each_case(
    ("error", "said", "kind", "code", "status", "details"),
    [
        (
            CompilerError((finding(),)),
            "f.pg:1:2: error S-01: wrong",
            *("compiler", "bad_request", 400, {"diagnostics": [finding().to_json()]}),
        ),
        (BadRequestError("no"), "no", "bad_request", "bad_request", 400, {}),
        (
            ParameterError("q", WRONG),
            "parameters of query `q` do not fit: a is wrong; b is wrong",
            *("bad_request", "bad_request", 400, {"parameters": WRONG, "query_name": "q"}),
        ),
        (
            ConfigurationError((finding(),)),
            "f.pg:1:2: error S-01: wrong",
            *("bad_request", "bad_request", 400, {"diagnostics": [finding().to_json()]}),
        ),
        (
            QuerySelectionError("which one?", ("a", "b")),
            "which one?",
            *("bad_request", "bad_request", 400, {"available": ["a", "b"]}),
        ),
        (
            MixedMutationError("q"),
            "mutation `q` mixes insert/update with delete: split it",
            *("bad_request", "bad_request", 400, {"mixed_mutation": {"query_name": "q"}}),
        ),
        (
            InputFileError("x.pg", "gone"),
            "cannot read x.pg: gone",
            *("io", "internal", 500, {"path": "x.pg", "reason": "gone"}),
        ),
        (OmniError("broken"), "broken", "internal", "internal", 500, {}),
    ],
)
def test_an_error_body_has_message_kind_code_and_details(
    error: OmniError, said: str, kind: str, code: str, status: int, details: dict[str, object]
) -> None:
    body = error.to_json()

    assert str(error).startswith(said)
    assert body == {"error": str(error), "kind": kind, "code": code} | details
    assert json.loads(json.dumps(body)) == body
    assert (error.http_status, error.exit_code) == (status, 1)


MEBIBYTE = 1024 * 1024


@each_case(
    ("resource", "limit", "actual", "text"),
    [
        ("http_request_bytes", 64 * MEBIBYTE, 96 * MEBIBYTE, "body of the request: 96 MiB, above the limit of 64 MiB"),
        ("http_request_bytes", 1024, 1025, "body of the request: 1,025 bytes, above the limit of 1,024 bytes"),
        ("query_rows", 10_000_000, 10_000_001, "rows of the answer: 10,000,001, above the limit of 10,000,000"),
        ("later_bytes", 1024, 2048, "later bytes: 2 KiB, above the limit of 1 KiB"),
        ("later_things", 1024, 2048, "later things: 2,048, above the limit of 1,024"),
    ],
)  # fmt: skip
def test_a_limit_is_told_with_sizes_and_words_for_people(resource: str, limit: int, actual: int, text: str) -> None:
    error = ResourceLimitError(resource, limit, actual, "do less")

    assert error.message == f"{text}; do less"
    assert error.to_json()["resource_limit"]["resource"] == resource


# ---- Every failure survives the wire: class, fields, message, body, status and exit code


COMMIT = "01K0000000000000000000000A"
FINDING = Diagnostic(
    code="T6",
    message="there is no type Papper",
    file="q.gq",
    line=2,
    column=7,
    excerpt="  $p: Papper\n      ^^^^^^",
    hint="did you mean Paper?",
    severity=Severity.ERROR,
)
PLAIN = Diagnostic(code="S-01", message="odd", file="s.pg", line=1, column=1)
REPORT = LoadReport(
    totals={"unknown type": 2, "missing value": 1},
    examples=(
        BadRecord(
            source="a.jsonl",
            line=3,
            type_key=None,
            field=None,
            value="Papper",
            rule="unknown type",
            message="unknown type: there is no type Papper",
        ),
        BadRecord(
            source="a.jsonl",
            line=None,
            type_key="node:Paper",
            field="doi",
            value=None,
            rule="missing value",
            message="missing value: doi",
        ),
    ),
)
CONFLICTS = (
    MergeConflict(
        kind=ConflictKind.DIVERGENT_UPDATE,
        type_key="node:Paper",
        message="both changed 10.1",
        entity_id="10.1",
        base={"properties": {"year": 1}},
        ours={"properties": {"year": 2}},
        theirs=None,
    ),
    MergeConflict(kind=ConflictKind.CARDINALITY_VIOLATION, type_key="edge:Cites", message="too many"),
)

SAMPLES: list[OmniError] = [
    errors.CompilerError((FINDING, PLAIN)),
    errors.BadRequestError("no"),
    errors.ConfigurationError((PLAIN,)),
    errors.ParameterError("by_year", {"y": "`y` is missing: it is I32"}),
    errors.IntegerOverflowError(("$p 'ann'", "$p 'bob'"), 5),
    errors.QuerySelectionError("there is no query `x`", ("a", "b")),
    errors.MixedMutationError("both"),
    errors.DirectOnlyError("optimize"),
    errors.MissingPackageError("pyspark", "spark", "Spark"),
    errors.LoadRejectedError(REPORT),
    errors.UnsupportedSchemaError(["node:A: no", "node:B: no"], {"supported": False, "steps": []}),
    errors.SchemaViolationsError(REPORT),
    errors.ChangeCursorRejectedError("it is damaged"),
    errors.InputFileError("a.jsonl", "there is no such file"),
    errors.NotFoundError("there is no commit"),
    errors.BranchNotFoundError("draft", "create it"),
    errors.CommitNotFoundError("3A", (COMMIT,)),
    errors.AmbiguousCommitError("3A", (COMMIT, COMMIT[::-1])),
    errors.BranchExistsError("draft"),
    errors.TagNotFoundError("v1", "did you mean `v2`?"),
    errors.TagExistsError("v1"),
    errors.ResourceLimitError("body", 10, 11, "send less"),
    errors.QueryTimeoutError(2.5, "Expand $a Knows $b"),
    errors.QueryCancelledError("Order"),
    errors.ConflictError("moved"),
    errors.ExpectedVersionMismatchError("node:Paper", 7, None),
    errors.BranchesExistError(["a", "b"]),
    errors.ReadSetConflictError("branch main", 1, 2),
    errors.RetryableCommitConflictError("busy"),
    errors.LeaseLostError(),
    errors.MergeConflictsError("draft", "main", CONFLICTS, 2_000),
    errors.KeyConflictError("node", "Paper", "10.1"),
    errors.LoadKeyConflictError("node", "Paper", "10.1", REPORT),
    errors.ChangeDiffRefusedError("cannot be told", COMMIT, "Paper"),
    errors.CommitHasNoParentError(COMMIT),
    errors.ChangeSchemaBoundaryError(COMMIT, "Paper"),
    errors.ChangeFeedGapError(COMMIT, "cursor"),
    errors.PreconditionFailedError("main", COMMIT, None),
    errors.RecoveryRequiredError("op", "half", needs_operator=True),
    errors.BlobRangeError(5, 9, 3),
    errors.BlobChangedError("another value"),
    errors.ExternalBlobPolicyError("https://me:secret@example.org/a?b", "not below a base"),
    errors.ExternalBlobSourceError("https://example.org/a", "404"),
    errors.BlobIntegrityError("too short"),
    errors.AlreadyInitializedError("/g.omni", "a manifest"),
    errors.InitializationClaimedError("/g.omni"),
    errors.InitializationCommittedError("/g.omni", "disk full"),
    errors.HistoricalVersionReclaimedError("node:Paper", 3, "reading"),
    errors.HistoryReclaimedError(COMMIT),
    errors.StorageError("gone", StorageFailure.TRANSIENT),
    errors.StorageFormatError("9", 4),
    errors.OutsideRootError("nodes/evil", "it is a link"),
    errors.DriftError("nodes/1", 3, 4),
    errors.DamageError("reading nodes/1", "it ends too early"),
    errors.EmbeddingError("no answer", StorageFailure.TRANSIENT),
    errors.SparkError("no Java"),
    errors.InternalError("broken"),
    errors.PolicyDeniedError("no", action="change", actor=None, branch="main"),
    errors.TransportError("odd"),
    errors.UnauthorizedError("no token"),
    errors.ForbiddenHostError("not here"),
    errors.MethodNotAllowedError("not so"),
    errors.RequestTimeoutError("slow"),
    errors.UnsupportedMediaTypeError("not that"),
    errors.TooManyRequestsError("later"),
    errors.ServerUnreachableError("nobody", outcome_unknown=True),
    errors.UnexpectedAnswerError("what?"),
    errors.RemoteError(418, {"error": "a teapot", "kind": "teapot", "spout": 1}),
]


def _tree(cls: type[OmniError]) -> list[type[OmniError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _tree(child))]


@each_case("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_a_failure_is_the_same_behind_the_wire(error: OmniError) -> None:
    body = json.loads(json.dumps(error.to_json()))
    status = error.status if isinstance(error, errors.RemoteError) else error.http_status
    rebuilt = error_from_body(status, body)
    assert type(rebuilt) is type(error)
    assert rebuilt.to_json() == error.to_json()
    assert str(rebuilt) == str(error)
    assert vars(rebuilt) == vars(error)
    assert (rebuilt.http_status, rebuilt.exit_code) == (error.http_status, error.exit_code)


@each_case("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_a_failure_leaves_a_process_as_it_is(error: OmniError) -> None:
    rebuilt = pickle.loads(pickle.dumps(error))
    assert type(rebuilt) is type(error)
    assert str(rebuilt) == str(error)
    assert rebuilt.to_json() == error.to_json()


def test_every_class_of_failure_has_a_sample() -> None:
    shipped = {cls for cls in _tree(OmniError) if cls.__module__.startswith("omnigraph.")}
    assert shipped - {type(error) for error in SAMPLES} == {OmniError}


@each_case(
    ("status", "expected"),
    [
        (400, errors.BadRequestError),
        (401, errors.UnauthorizedError),
        (404, errors.NotFoundError),
        (429, errors.TooManyRequestsError),
        (409, errors.RemoteError),
        (507, errors.RemoteError),
    ],
)
def test_an_unknown_kind_becomes_the_nearest_class_by_status(status: int, expected: type[OmniError]) -> None:
    rebuilt = error_from_body(status, {"error": "new", "kind": "from the future"})
    assert type(rebuilt) is expected
    assert rebuilt.message == "new"


def test_a_body_whose_fields_are_missing_is_still_a_failure() -> None:
    rebuilt = error_from_body(400, {"error": "odd", "kind": "compiler"})
    assert type(rebuilt) is errors.BadRequestError
    assert type(error_from_body(500, {})) is errors.RemoteError


#: What a member may turn out to be where it is expected to be something else.
ODD: tuple[object, ...] = (None, True, 7, "x", [], [1], {}, {"x": 1})


def _with_one_odd_member(body: object) -> Iterator[object]:
    """The body as often as it has values, each time with another of them exchanged."""
    yield from ODD
    if isinstance(body, dict):
        for name, value in body.items():
            yield from ({**body, name: odd} for odd in _with_one_odd_member(value))
    elif isinstance(body, list):
        for index, value in enumerate(body):
            for odd in _with_one_odd_member(value):
                yield [*body[:index], odd, *body[index + 1 :]]


@each_case("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_odd_body_is_a_typed_failure_that_can_be_shown(error: OmniError) -> None:
    for body in _with_one_odd_member(json.loads(json.dumps(error.to_json()))):
        if not isinstance(body, dict) or "error" not in body:
            continue
        rebuilt = error_from_body(error.http_status, body)
        assert isinstance(rebuilt, OmniError)
        json.dumps(rebuilt.to_json())
        match rebuilt:
            case errors.CompilerError() | errors.ConfigurationError():
                assert all(item.render() for item in rebuilt.diagnostics)
            case errors.LoadRejectedError() | errors.LoadKeyConflictError():
                assert isinstance(rebuilt.report.render(), str)
            case errors.MergeConflictsError():
                lines = conflict_lines(rebuilt.source, rebuilt.target, rebuilt.conflicts, rebuilt.total)
                assert all(isinstance(line, str) for line in lines)


def test_the_public_names_are_those_that_are_imported() -> None:
    """They are written out: type checkers do not run code."""
    import inspect

    import omnigraph.errors as door

    found = {name for name, item in vars(door).items() if name[0].isalpha() and not inspect.ismodule(item)}
    assert sorted(door.__all__) == sorted(found)
